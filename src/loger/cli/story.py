"""The story of the demo as plain values: shop, evaluation, rules, three people, a what-if."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loger.cli import show
from loger.cli.evaluate import CONTROLS, faithfulness, measured
from loger.cli.statistics import statistics
from loger.data import Split
from loger.data.dataset import PARTS
from loger.data.demo import BRAND, FEATURE, SOCIAL, Demo
from loger.engine import LocalEngine
from loger.explain.attribution import Explanation, explain

if TYPE_CHECKING:
    from loger.evaluation.faithfulness import FaithfulnessReport
    from loger.evaluation.metrics.report import Report
    from loger.model import LOGER

FIRST = 3
"""How many items are shown for a person."""
PROBED = 20
"""Users whose reasons are put to the test."""
TESTED = ("flip", "flip_user_edges", "recovered_rule", "recovered_path", "decomposition_error")


@dataclass(frozen=True, eq=False)
class Story:
    """What the demo found out, and what its report is made of."""

    told: dict[str, Any]
    report: Report
    faithfulness: list[FaithfulnessReport]


def tell(made: Demo, parts: Split, model: LOGER, engine: LocalEngine) -> Story:
    """Find out everything that the demo shows about a shop and a model fitted on it."""
    report = measured(model, parts, CONTROLS.split(","), engine)
    trust = faithfulness(model, parts, engine, 10, PROBED, 0, made)
    engine.progress("asking about three people", 0, 1)
    lists, _ = model.top(np.arange(parts.dataset.n_users), FIRST)
    later = np.zeros((parts.dataset.n_users, parts.dataset.n_items), dtype=bool)
    later[parts.pairs("test")] = True
    hits = np.take_along_axis(later, lists.astype(np.int64), axis=1)
    people = [_person(u, made, parts, model, lists[u], later[u]) for u in _people(made, hits)]
    told = {
        "statistics": statistics(made.dataset),
        "split": {part: len(getattr(parts, part)) for part in PARTS},
        "rules": _rules(made, model),
        "models": {
            name: [report.mean(name, "ndcg"), *report.interval(name, "ndcg")]
            for name in report.models
        },
        "faithfulness": {
            line: None if (m := trust[0][line]) is None else m.mean for line in TESTED
        },
        "people": people,
        "bought_later": float(hits.mean()),
        "bought_later_by_chance": float(later.mean()),
        "what_if": _what_if(model, people),
    }
    engine.progress("asking about three people", 1, 1)
    return Story(told, report, trust)


def _rules(made: Demo, model: LOGER) -> list[dict[str, Any]]:
    """The rules by weight, those marked that really cause purchases."""
    planted = {str(rule) for rule in model.rules_ if rule.names in made.planted}
    return [
        row | {"remark": "planted" if row["rule"] in planted else ""}
        for row in model.rule_table().to_dicts()
    ]


def _people(made: Demo, hits: NDArray[np.bool_]) -> list[int]:
    """Of three groups the first user who bought one of the first items later, if any did."""
    groups = [np.flatnonzero(made.groups == group) for group in (BRAND, FEATURE, SOCIAL)]
    return [int(users[np.argmax(hits[users].any(axis=1))]) for users in groups]


def _person(
    user: int,
    made: Demo,
    parts: Split,
    model: LOGER,
    items: NDArray[np.int32],
    later: NDArray[np.bool_],
) -> dict[str, Any]:
    """One user's history, and the first items with the rules and paths that make their score."""
    words, first_item = parts.dataset.vocabulary, parts.dataset.n_users
    known = parts.refit()
    owners, bought = known.pairs("train")
    times = parts.dataset.interactions.times
    assert times is not None  # the shop dates its purchases
    mine = np.flatnonzero(owners == user)
    mine = mine[np.argsort(times[known.train[mine]])]
    asked = items[items >= 0].astype(np.int64)
    return {
        "name": words.labels[user],
        "history": [words.labels[first_item + v] for v in bought[mine]],
        "items": [
            e.as_dict()
            | {
                "bought_later": bool(later[e.item]),
                "reasons": [_reason(e, k, _cause(made, user, e.item)) for k in range(len(e.paths))],
            }
            for e in explain(model.ranker_, np.full(len(asked), user), asked)
        ],
    }


def _cause(made: Demo, user: int, item: int) -> tuple[str, ...]:
    """The planted rule that caused a purchase; () if it was not made, or for no reason."""
    events = made.dataset.interactions
    causes = made.causes[(events.users == user) & (events.items == item)]
    return made.planted[causes[0]] if len(causes) and causes[0] >= 0 else ()


def _reason(told: Explanation, k: int, cause: tuple[str, ...]) -> dict[str, Any]:
    """One path: what it adds, its sentence, the path, and whether its rule is the true cause."""
    part, labels = told.paths[k], told.graph.vocabulary.labels
    names = [told.graph.relation_name(r) for r in part.path.relations]
    return {
        "contribution": part.contribution,
        "sentence": told.sentences()[k],
        "example": show.path([labels[e] for e in part.path.entities], names),
        "true_cause": part.rule.names == cause,
    }


def _what_if(model: LOGER, people: list[dict[str, Any]]) -> dict[str, Any]:
    """What becomes of the first person's list without the purchase behind its first reason."""
    words = model.graph_.vocabulary
    for person in people:
        for chain in person["items"][0]["paths"]:
            second = chain["entities"][1]
            if second["type"] == "item":
                user = person["items"][0]["user"]
                told = model.what_if(user, [second["name"]], k=5).as_dict()
                label = {name: words.labels[words.id("item", name)] for name in
                         {*told["before"], *told["after"]}}  # fmt: skip
                return told | {"removed": second["name"], "labels": label}
    return {}
