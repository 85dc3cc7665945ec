"""Recommendations with their reasons: the one way from a ranker to the lists that people get.

    ranker → scores → ``Selection`` → ``Chosen`` → explanations → records or a table

``recommend_block`` does this for some users. Python (``LOGER.recommend``) and exported files
(``loger.store.export``) get its result as tables (``loger.explain.frames``), the command line and
the HTTP API as records (``recommendations``), and evaluation as paths (``explained_items``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine
from loger.explain.attribution import BLOCK, Explanation, explain
from loger.graph import KnowledgeGraph, UserView
from loger.graph.catalogue import item_relations
from loger.ranking.ranker import Ranker, Scores, blocks
from loger.ranking.selection import Chosen, Limit, Selection, item_facts, similarity
from loger.recommender import ExplainedItem
from loger.rules.sentences import named
from loger.rules.wording import ENGLISH, Wording

NAMED = 3
"""Shared facts that are named."""


class ListRequest(NamedTuple):
    """What is asked about users' lists."""

    k: int = 10
    """How many items a list has."""
    selection: Selection = Selection()
    """Which items may be recommended, and how varied a list is."""
    explain: bool = False
    """Whether each item comes with its reasons."""
    paths: int = 0
    """How many paths each explanation has."""
    words: Wording = ENGLISH
    """The language of the reasons."""


class Recommended(NamedTuple):
    """The lists of a block of users."""

    scores: Scores
    """Of all items, for the distinct users in ascending order."""
    lists: Chosen
    """[users, k], row by row as the users were given."""
    explanations: list[Explanation]
    """Of the items of all lists, row by row; empty if no reasons were asked for."""


def recommend_block(ranker: Ranker, users: NDArray[np.int64], request: ListRequest) -> Recommended:
    """The lists of a block of users, by number, each user scored once."""
    distinct, place = np.unique(users, return_inverse=True)
    # The scores of what users have mean nothing here: it is never recommended.
    scores = ranker.scores(distinct, observed=False)
    lists = scores.chosen(request.k, request.selection).of(place)
    if not request.explain:
        return Recommended(scores, lists, [])
    present = lists.items.ravel() >= 0
    owners, items = np.repeat(users, request.k)[present], lists.items.ravel()[present]
    found = explain(ranker, owners, items, request.paths, scores, request.words)
    return Recommended(scores, lists, found)


def recommendations(
    ranker: Ranker, user: int, request: ListRequest
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The list of a user, by number, as records; and what variety left out of it.

    Each record has rank, item, label, score, what variety did to its place (``variety``), and
    ``explanation``, an ``ExplanationRecord`` or None. What is left out are those of the k best by
    score that are not in the list.
    """
    graph = ranker.graph
    request = request._replace(k=min(request.k, graph.n_items))
    scores, lists, explanations = recommend_block(ranker, np.array([user]), request)
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


def explained_items(
    ranker: Ranker, users: ArrayLike, k: int, paths: int, engine: Engine
) -> list[list[ExplainedItem]]:
    """The k best items of users with their best paths, by number."""
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
    """Two lists of ``recommendations`` compared: the items before, the list after with each item's
    rank before, and what is gone."""
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
    """What variety did to the list of the only user of some scores: for each item its place by
    score, what the move cost and why it moved; and the items that were left out, and why."""
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


class _Why:
    """Why items are where they are in a list."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        selection: Selection,
        items: NDArray[np.int64],
        words: Wording,
    ) -> None:
        self.graph, self.selection, self.items, self.words = graph, selection, items, words

    def moved(self, item: int, place: int, rank: int) -> str:
        """Why an item is at a place that is not its rank by score, both from 0."""
        if place == rank:
            return ""
        if place < rank:
            return self.words.text("moved_up")
        return self.held_back(item, place)

    def held_back(self, item: int, place: int) -> str:
        """What keeps an item from a place: a limit that is reached above it, or what it shares
        with an item above."""
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
        """The first entity of a limit that as many items above have as may have it."""
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
