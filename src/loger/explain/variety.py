"""What variety changed about a list: who moved, what it cost in score, and why.

Scores and reasons stay as they are; what is told here is why a place differs from the place by
score (``loger.ranking.selection``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.graph import KnowledgeGraph, UserView
from loger.graph.filters import item_relations
from loger.ranking.ranker import Scores
from loger.ranking.selection import Limit, Selection, item_facts, similarity
from loger.rules.sentences import named
from loger.rules.wording import ENGLISH, Wording

NAMED = 3
"""Shared facts that are named."""


def placements(
    scores: Scores, selection: Selection, k: int, words: Wording = ENGLISH
) -> tuple[list[int], list[float], list[dict[str, Any] | None], list[dict[str, Any]]]:
    """The list of the only user of some scores: items, their scores, for each what variety did to
    its place, and those of the k best by score that it left out."""
    chosen = scores.chosen(k, selection)
    present = chosen.items[0] >= 0
    items = chosen.items[0][present].astype(np.int64)
    values = [float(s) for s in chosen.scores[0][present]]
    if not selection.varies:
        return items.tolist(), values, [None] * len(items), []
    plain = scores.chosen(k, replace(selection, limits=(), diversity=0.0))
    best = plain.items[0][plain.items[0] >= 0].astype(np.int64)
    graph = scores.graph
    why = _Why(graph.base if isinstance(graph, UserView) else graph, selection, items, words)
    ranks, costs = chosen.ranks[0].tolist(), chosen.costs[0].tolist()
    moved: list[dict[str, Any] | None] = [
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
    return items.tolist(), values, moved, left_out


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
