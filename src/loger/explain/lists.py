"""Recommendations with their reasons: the only way from a ranker to the lists that people get.

    ranker → scores → ``Selection`` → ``Chosen`` → explanations → records or a table

``recommend_block`` does this for some users. Python (``LOGER.recommend``) and exported files
(``loger.store.export``) turn its result into tables (``loger.explain.frames``), the command line
and the HTTP API into records (``recommendations``), and evaluation into paths
(``explained_items``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine
from loger.errors import LogerError, UnknownNameError
from loger.explain.attribution import BLOCK, Explanation, explain
from loger.graph import KnowledgeGraph, UserView, barred
from loger.graph.catalogue import item_relations
from loger.ranking.ranker import Ranker, Scores, blocks
from loger.ranking.selection import Chosen, Limit, Selection, item_facts, similarity
from loger.recommender import ExplainedItem
from loger.rules.sentences import named
from loger.rules.wording import ENGLISH, Wording

NAMED = 3
"""Number of shared facts to name."""


class ListRequest(NamedTuple):
    """A request for recommendations."""

    k: int = 10
    """Length of a list."""
    selection: Selection = Selection()
    """Which items may be recommended, and how varied a list is."""
    explain: bool = False
    """Whether each item comes with its reasons."""
    paths: int = 0
    """Number of paths in each explanation."""
    words: Wording = ENGLISH
    """Language and style of the reasons."""


class Recommended(NamedTuple):
    """The lists of a block of users."""

    scores: Scores
    """Scores of all items, for the distinct users in ascending order."""
    lists: Chosen
    """[users, k], in the order of the given users."""
    explanations: list[Explanation]
    """Explanations of all listed items, row by row; empty if not requested."""


def recommend_block(
    ranker: Ranker, users: NDArray[np.int64], request: ListRequest, ranked: bool = False
) -> Recommended:
    """The lists of a block of users, given by number; each distinct user is scored once.
    Explanations have ranks only if ``ranked`` is set."""
    distinct, place = np.unique(users, return_inverse=True)
    # What users have is never recommended, so its scores don't matter.
    scores = ranker.scores(distinct, observed=False)
    lists = scores.chosen(request.k, request.selection).of(place)
    if not request.explain:
        return Recommended(scores, lists, [])
    present = lists.items.ravel() >= 0
    owners, items = np.repeat(users, request.k)[present], lists.items.ravel()[present]
    found = explain(ranker, owners, items, request.paths, scores, request.words, ranked)
    return Recommended(scores, lists, found)


def recommendations(
    ranker: Ranker, user: int, request: ListRequest
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A user's list as records, and the items that variety left out of it.

    Each record has rank, item, label, score, ``variety`` (what variety did to its place) and
    ``explanation`` (an ``ExplanationRecord`` or None). Left out are those of the k best items by
    score that are not in the list. ``user`` is given by number.
    """
    graph = ranker.graph
    request = request._replace(k=min(request.k, graph.n_items))
    scores, lists, explanations = recommend_block(ranker, np.array([user]), request, ranked=True)
    items = [int(item) for item in lists.items[0] if item >= 0]
    moved, left_out = _variety(scores, lists, request)
    names, labels, first = graph.vocabulary.names, graph.vocabulary.labels, graph.n_users
    rows = [
        {
            "rank": place + 1,
            "item": names[item + first],
            "label": labels[item + first],
            "score": float(lists.scores[0][place]),
            "variety": moved[place] if moved else None,
            "explanation": explanations[place].as_dict() if request.explain else None,
        }
        for place, item in enumerate(items)
    ]
    return rows, left_out


Kind = Literal["similar", "complements", "substitutes"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def of_kind(ranker: Ranker, kind: Kind) -> Ranker:
    """A ranker that scores one kind of similarity.

    "complements" scores what people have together or one after the other, "substitutes" the facts
    that two items share, and "similar" everything.
    """
    if kind not in KINDS:
        raise UnknownNameError("kind", kind, KINDS, near=list(KINDS))
    if kind == "similar":
        return ranker
    rules = enumerate(ranker.logic.rules)
    fits = [k for k, rule in rules if (rule.derived if kind == "complements" else rule.shares_fact)]
    if not ranker.logic.weights[fits].any():
        what = "people who had both" if kind == "complements" else "facts that items share"
        raise LogerError(f"this model has no rule about {what}, so it can't find {kind}")
    return ranker.only_rules(fits)


class Member(NamedTuple):
    """A person whose taste counts in a list for several people."""

    ranker: Ranker
    """Their own ranker; for a guest, that guest's view."""
    user: int
    sign: float = 1.0
    """1 for a person whom the list is for, -1 for a taste that it should avoid."""


def recommend_together(members: Sequence[Member], request: ListRequest) -> list[dict[str, Any]]:
    """The k best items for several members together, as records.

    An item's score is the sum of its leads over the members, each times the member's sign. Items
    that any member has are left out. Each record has rank, item, label, score, the first reason of
    the member with the largest lead and, for each member, the signed lead, the shown reasons and,
    if requested, the whole explanation.
    """
    every = [ranker.scores([user], observed=False) for ranker, user, _ in members]
    total = np.zeros_like(every[0].total)
    for (_, _, sign), scores in zip(members, every, strict=True):
        total += np.float32(sign) * (scores.total - np.float32(scores.mean(0)))
    for scores in every:
        total[0, barred(scores.graph, scores.users)[1]] = -np.inf
    graph = members[0].ranker.graph
    lists = request.selection.best(graph, total, min(request.k, graph.n_items))
    items = lists.items[0][lists.items[0] >= 0].astype(np.int64)
    found = [
        explain(m.ranker, np.full(len(items), m.user), items, request.paths, s, request.words)
        for m, s in zip(members, every, strict=True)
    ]
    names, labels = graph.vocabulary.names, graph.vocabulary.labels
    rows = []
    for place, item in enumerate(items.tolist()):
        told = [
            _part(member, of_member[place], request.explain)
            for member, of_member in zip(members, found, strict=True)
        ]
        rows.append(
            {
                "rank": place + 1,
                "item": names[item + graph.n_users],
                "label": labels[item + graph.n_users],
                "score": sum(part["lead"] for part in told),
                "because": max(told, key=lambda part: part["lead"])["because"],
                "members": told,
            }
        )
    return rows


def _part(member: Member, e: Explanation, whole: bool) -> dict[str, Any]:
    """One member's part of an item's score, and why."""
    return {
        "user": e.graph.vocabulary.names[member.user],
        "lead": member.sign * e.lead,
        "because": e.because(),
        "reasons": [
            {"action": r.action, "total": member.sign * r.total, "text": r.text()} for r in e.shown
        ],
        "explanation": e.as_dict() if whole else None,
    }


def explained_items(
    ranker: Ranker, users: ArrayLike, k: int, paths: int, engine: Engine
) -> list[list[ExplainedItem]]:
    """The k best items of users, all by number, with their best paths."""
    asked = np.asarray(users, dtype=np.int64)
    shared = ranker, ListRequest(k, explain=True, paths=paths)
    parts = engine.map("explaining", _explained_items, blocks(asked, BLOCK), shared)
    return [row for part in parts for row in part]


def _explained_items(
    shared: tuple[Ranker, ListRequest], users: NDArray[np.int64]
) -> list[list[ExplainedItem]]:
    _, lists, explanations = recommend_block(shared[0], users, shared[1])
    rows = iter(explanations)
    return [[next(rows).explained() for v in row if v >= 0] for row in lists.items]


def changes(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> dict[str, list[Any]]:
    """Compare two lists of ``recommendations``: the items before, the list after with each item's
    rank before, and the items that are gone."""
    ranks = {row["item"]: row["rank"] for row in before}
    kept = {row["item"] for row in after}
    return {
        "before": list(ranks),
        "after": [{**row, "before": ranks.get(row["item"])} for row in after],
        "gone": [
            {"item": row["item"], "label": row["label"], "before": row["rank"]}
            for row in before
            if row["item"] not in kept
        ],
    }


# ── what variety changed ────────────────────────────────────────────────────────────────


def _variety(
    scores: Scores, lists: Chosen, request: ListRequest
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What variety did to a list, whose user is the only one in ``scores``: for each item its place
    by score, what the move cost and why it moved; and the items left out, and why."""
    selection, k = request.selection, request.k
    if not selection.varies:
        return [], []
    items = lists.items[0][lists.items[0] >= 0].astype(np.int64)
    plain = scores.chosen(k, replace(selection, limits=(), diversity=0.0))
    best = plain.items[0][plain.items[0] >= 0].astype(np.int64)
    graph = scores.graph
    base = graph.base if isinstance(graph, UserView) else graph
    why = _Why(base, selection, items, request.words)
    ranks, costs = lists.ranks[0].tolist(), lists.costs[0].tolist()
    moved = [
        {
            "rank_by_score": ranks[place],
            "cost": costs[place],
            "because": why.moved(int(item), place, ranks[place] - 1),
        }
        for place, item in enumerate(items)
    ]
    names, labels, first = graph.vocabulary.names, graph.vocabulary.labels, graph.n_users
    left_out = [
        {
            "item": names[item + first],
            "label": labels[item + first],
            "score": float(plain.scores[0][rank]),
            "rank_by_score": rank + 1,
            "because": why.held_back(int(item), len(items)),
        }
        for rank, item in enumerate(best.tolist())
        if item not in items
    ]
    return moved, left_out


class _Why(NamedTuple):
    """Why items have their places in a list."""

    graph: KnowledgeGraph
    selection: Selection
    items: NDArray[np.int64]
    words: Wording

    def moved(self, item: int, place: int, rank: int) -> str:
        """Why an item's place differs from its rank by score, both from 0."""
        if place == rank:
            return ""
        if place < rank:
            return self.words.text("moved_up")
        return self.held_back(item, place)

    def held_back(self, item: int, place: int) -> str:
        """What keeps an item from a place: a limit reached above it, or what it shares with an item
        above."""
        above = self.items[:place]
        for limit in self.selection.limits:
            value = self._full(limit, item, above)
            if value is not None:
                label = self.graph.vocabulary.labels[value]
                kind = self.words.kind(self.graph.vocabulary.type_of(value))
                n = self.words.number(limit.most)
                return self.words.text("limit_reached", n=n, kind=kind, x=label)
        if not len(above) or not self.selection.diversity:
            return ""
        alike = similarity(self.graph, np.append(above, item))[-1, :-1]
        other = int(above[alike.argmax()])
        label = self.graph.vocabulary.shown[other + self.graph.n_users]
        shared = self._shared(item, other)
        return self.words.text("shares", facts=", ".join(shared), other=label) if shared else ""

    def _full(self, limit: Limit, item: int, above: NDArray[np.int64]) -> int | None:
        """The first of the item's entities for which the items above reach the limit."""
        for value in self._values(limit.relations, item):
            having = [v for v in above.tolist() if value in self._values(limit.relations, v)]
            if len(having) >= limit.most:
                return value
        return None

    def _values(self, relations: tuple[int, ...], item: int) -> list[int]:
        _, keys = item_facts(self.graph, np.array([item]), relations)
        return (keys % self.graph.n_entities).tolist()  # type: ignore[no-any-return]

    def _shared(self, item: int, other: int) -> list[str]:
        """Facts that two items share, in words."""
        relations = item_relations(self.graph)
        one, two = (item_facts(self.graph, np.array([v]), relations)[1] for v in (item, other))
        common = np.intersect1d(one, two)
        known = self.graph.vocabulary
        entities = [int(key) % self.graph.n_entities for key in common[:NAMED]]
        rest = self.words.number(len(common) - NAMED)
        more = [self.words.text("more_facts", n=rest)] if len(common) > NAMED else []
        return [named(self.words, known.type_of(e), known.labels[e]) for e in entities] + more
