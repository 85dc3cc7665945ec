"""The story of the demo as plain values: shop, split, rules, and what they reach for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.cli import show
from loger.cli.rules import measured
from loger.cli.statistics import statistics
from loger.data import Split, split
from loger.data.dataset import PARTS
from loger.data.demo import BRAND, FEATURE, SOCIAL, Demo
from loger.data.splits import Part
from loger.engine import Engine
from loger.graph import KnowledgeGraph
from loger.grounding import Groundings, Walk, paths, reach
from loger.mining import Mined, mine

LATER: tuple[Part, ...] = ("validation", "test")
FIRST = 3
"""How many items are shown for a person."""


def tell(made: Demo, engine: Engine) -> dict[str, Any]:
    """Find out everything that the demo shows about a shop."""
    parts = split(made.dataset, "time")
    mined = mine(parts.graph, engine=engine)
    ranked = _ranked(parts, mined, engine)
    later, top = _pairs(parts, *LATER), ranked.places < FIRST
    return {
        "statistics": statistics(made.dataset),
        "split": {part: len(getattr(parts, part)) for part in PARTS},
        "rules": _rules(made, mined),
        "summary": mined.summary(),
        "people": [_person(u, made, parts, mined, ranked) for u in _people(made, ranked)],
        "bought_later": float(ranked.later[top].mean()),
        "bought_later_by_chance": float(later.mean() / (1 - _pairs(parts, "train").mean())),
    }


@dataclass(frozen=True, eq=False)
class _Ranked:
    """What the rules reach; per row its place in the user's list and whether bought later."""

    found: Groundings
    places: NDArray[np.int64]
    later: NDArray[np.bool_]


def _ranked(parts: Split, mined: Mined, engine: Engine) -> _Ranked:
    """All items that the rules reach, by Σ over rules of precision · path strength."""
    graph = parts.graph
    found = reach(graph, mined.rules, np.arange(graph.n_users), walk=Walk(), engine=engine)
    precision = np.array([m.precision for m in mined.measures if m.kept])
    score = found.strength_matrix @ precision
    order = np.lexsort((found.items, -score, found.users))
    owners = found.users[order]
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order)) - np.searchsorted(owners, owners)
    return _Ranked(found, places, _pairs(parts, *LATER)[found.users, found.items])


def _pairs(parts: Split, *names: Part) -> NDArray[np.bool_]:
    """Whether a user bought an item in one of these parts; [users, items]."""
    out = np.zeros((parts.dataset.n_users, parts.dataset.n_items), dtype=bool)
    for name in names:
        out[parts.pairs(name)] = True
    return out


def _rules(made: Demo, mined: Mined) -> list[dict[str, Any]]:
    """The kept rules, those marked that really cause purchases."""
    return [
        measured(m) | {"remark": "planted" if m.rule.names in made.planted else ""}
        for m in mined.measures
        if m.kept
    ]


def _people(made: Demo, ranked: _Ranked) -> list[int]:
    """Of three groups the first user who bought one of the first items later, if any did."""
    hit = np.zeros(len(made.groups), dtype=bool)
    hit[ranked.found.users[ranked.later & (ranked.places < FIRST)]] = True
    groups = [np.flatnonzero(made.groups == group) for group in (BRAND, FEATURE, SOCIAL)]
    return [int(users[np.argmax(hit[users])]) for users in groups]


def _person(user: int, made: Demo, parts: Split, mined: Mined, ranked: _Ranked) -> dict[str, Any]:
    """One user's history, and the first items with the rules and paths that lead to them."""
    labels, first_item = parts.graph.vocabulary.labels, parts.graph.n_users
    owners, items = parts.pairs("train")
    times = parts.dataset.interactions.times
    assert times is not None  # the shop dates its purchases
    mine = np.flatnonzero(owners == user)
    mine = mine[np.argsort(times[parts.train[mine]])]
    found = ranked.found
    rows = np.flatnonzero((found.users == user) & (ranked.places < FIRST))
    return {
        "name": labels[user],
        "history": [labels[first_item + v] for v in items[mine]],
        "items": [
            {
                "label": labels[first_item + found.items[row]],
                "bought_later": bool(ranked.later[row]),
                "reasons": _reasons(parts.graph, mined, found, row, _cause(made, found, row)),
            }
            for row in rows[np.argsort(ranked.places[rows])]
        ],
    }


def _cause(made: Demo, found: Groundings, row: int) -> tuple[str, ...]:
    """The planted rule that caused a purchase; () if it was not made, or for no reason."""
    events = made.dataset.interactions
    pair = (events.users == found.users[row]) & (events.items == found.items[row])
    causes = made.causes[pair]
    return made.planted[causes[0]] if len(causes) and causes[0] >= 0 else ()


def _reasons(
    graph: KnowledgeGraph, mined: Mined, found: Groundings, row: int, cause: tuple[str, ...]
) -> list[dict[str, Any]]:
    """For each rule that reaches the item: how many paths, one of them, and whether it is true."""
    user, item = int(found.users[row]), int(found.items[row])
    reasons = []
    for cell in range(found.indptr[row], found.indptr[row + 1]):
        rule = mined.rules[int(found.rules[cell])]
        path = paths(graph, rule, user, item)[0]
        labels = [graph.vocabulary.labels[int(node)] for node in path]
        reasons.append(
            {
                "sentence": rule.sentence(),
                "relations": list(rule.names),
                "paths": int(found.counts[cell]),
                "true_cause": rule.names == cause,
                "example": show.path(labels, rule.names),
            }
        )
    return reasons
