"""Explained lists: the best items of users with their explanations, each user scored once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine
from loger.explain.attribution import BLOCK, Explanation, explain
from loger.ranking.ranker import Ranker, blocks
from loger.ranking.selection import Chosen, Selection
from loger.recommender import ExplainedItem
from loger.rules.wording import ENGLISH, Wording


def explain_top(
    ranker: Ranker,
    users: NDArray[np.int64],
    k: int,
    paths: int = 3,
    selection: Selection | None = None,
    words: Wording = ENGLISH,
) -> tuple[Chosen, list[Explanation]]:
    """The lists of a block of users, and explanations of all items in them, row by row."""
    distinct, place = np.unique(users, return_inverse=True)
    scores = ranker.scores(distinct, observed=False)
    lists = scores.chosen(k, selection or Selection()).of(place)
    present = lists.items.ravel() >= 0
    owners = np.repeat(users, k)[present]
    explanations = explain(ranker, owners, lists.items.ravel()[present], paths, scores, words)
    return lists, explanations


def explained_items(
    ranker: Ranker, users: ArrayLike, k: int, paths: int, engine: Engine
) -> list[list[ExplainedItem]]:
    """The k best items of users with their best paths, by number."""
    asked = np.asarray(users, dtype=np.int64)
    shared = (ranker, k, paths)
    parts = engine.map("explaining", _explained_items, blocks(asked, BLOCK), shared)
    return [row for part in parts for row in part]


def lists_with_reasons(
    ranker: Ranker,
    users: NDArray[np.int64],
    k: int,
    selection: Selection,
    engine: Engine,
    words: Wording = ENGLISH,
) -> Iterator[tuple[Chosen, list[dict[str, Any]]]]:
    """The lists of users, block by block, and for each item its reasons in a few words:
    ``because``, the first one; ``reasons``, the shown ones; ``carried``, their share."""
    shared = ranker, k, selection, words
    return engine.map("explaining", _with_reasons, blocks(users, BLOCK), shared)


def _explained_items(
    shared: tuple[Ranker, int, int], users: NDArray[np.int64]
) -> list[list[ExplainedItem]]:
    ranker, k, paths = shared
    lists, explanations = explain_top(ranker, users, k, paths)
    rows = iter(explanations)
    return [[next(rows).explained() for v in row if v >= 0] for row in lists.items]


def _with_reasons(
    shared: tuple[Ranker, int, Selection, Wording], users: NDArray[np.int64]
) -> tuple[Chosen, list[dict[str, Any]]]:
    ranker, k, selection, words = shared
    lists, explanations = explain_top(ranker, users, k, 0, selection, words)
    return lists, [_in_short(e) for e in explanations]


def _in_short(e: Explanation) -> dict[str, Any]:
    reasons = [
        {
            "action": r.action,
            "total": r.total,
            "share": r.share,
            "confidence": r.confidence,
            "text": r.text,
        }
        for r in e.shown
    ]
    return {"because": e.because(), "reasons": reasons, "carried": e.carried}
