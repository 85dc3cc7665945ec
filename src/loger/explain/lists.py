"""Explained lists: the best items of users with their explanations, each user scored once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine
from loger.evaluation.recommender import ExplainedItem
from loger.explain.attribution import BLOCK, Explanation, explain
from loger.ranker import Lists, Ranker, blocks


def explain_top(
    ranker: Ranker,
    users: NDArray[np.int64],
    k: int,
    paths: int = 3,
    among: NDArray[np.bool_] | None = None,
) -> tuple[Lists, list[Explanation]]:
    """The k best items of a block of users, and explanations of all of them, row by row."""
    distinct, place = np.unique(users, return_inverse=True)
    scores = ranker.scores(distinct, observed=False)
    items, values = scores.best(k, among)
    items, values = items[place], values[place]
    present = items.ravel() >= 0
    owners = np.repeat(users, k)[present]
    explanations = explain(ranker, owners, items.ravel()[present], paths, scores)
    return (items, values), explanations


def explained_items(
    ranker: Ranker, users: ArrayLike, k: int, paths: int, engine: Engine
) -> list[list[ExplainedItem]]:
    """The k best items of users with their best paths, by number."""
    asked = np.asarray(users, dtype=np.int64)
    shared = (ranker, k, paths)
    parts = engine.map("explaining", _explained_items, blocks(asked, BLOCK), shared)
    return [row for part in parts for row in part]


def lists_with_reasons(
    ranker: Ranker, users: NDArray[np.int64], k: int, engine: Engine
) -> Iterator[tuple[Lists, list[dict[str, Any]]]]:
    """The k best items of users, block by block, and for each its reasons in a few words:
    ``because``, the first one; ``reasons``, the shown ones; ``carried``, their share."""
    return engine.map("explaining", _with_reasons, blocks(users, BLOCK), (ranker, k))


def _explained_items(
    shared: tuple[Ranker, int, int], users: NDArray[np.int64]
) -> list[list[ExplainedItem]]:
    ranker, k, paths = shared
    (items, _), explanations = explain_top(ranker, users, k, paths)
    rows = iter(explanations)
    return [[next(rows).explained() for v in row if v >= 0] for row in items]


def _with_reasons(
    shared: tuple[Ranker, int], users: NDArray[np.int64]
) -> tuple[Lists, list[dict[str, Any]]]:
    lists, explanations = explain_top(shared[0], users, shared[1], paths=0)
    return lists, [_in_short(e) for e in explanations]


def _in_short(e: Explanation) -> dict[str, Any]:
    reasons = [
        {"action": r.action, "total": r.total, "share": r.share, "text": r.text} for r in e.shown
    ]
    return {"because": e.because(), "reasons": reasons, "carried": e.carried}
