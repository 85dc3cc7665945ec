"""The k best of each row, exactly: known items are left out first, ties go to the lower number."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from loger.engine import Engine, LocalEngine
from loger.errors import LogerError

ROWS_PER_SPAN = 64
"""Rows that one worker chooses from at a time."""


def top_k(
    scores: NDArray[np.float32],
    k: int,
    known: tuple[NDArray[np.integer], NDArray[np.integer]] | None = None,
    engine: Engine | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The k best columns of each row with their scores, best first; both [rows, k].

    ``known`` are rows and columns to leave out; their scores are overwritten by -inf. Where
    fewer than k are left that are not -inf, a list ends in -1.

    >>> top_k(np.array([[1, 3, 3, 2]], dtype=np.float32), 4, (np.array([0]), np.array([1])))[0]
    array([[ 2,  3,  0, -1]], dtype=int32)
    """
    if k < 1:
        raise LogerError(f"k must be at least 1, got {k!r}")
    if known is not None:
        scores[known] = -np.inf
    items = np.empty((len(scores), k), dtype=np.int32)
    values = np.empty((len(scores), k), dtype=np.float32)

    def choose(span: slice) -> bool:
        ordered: bool = _choose(scores[span], items[span], values[span])
        return ordered

    spans = [slice(i, i + ROWS_PER_SPAN) for i in range(0, len(scores), ROWS_PER_SPAN)]
    # One engine's worth of threads is enough: a caller that runs blocks itself passes its own.
    if not all((engine or LocalEngine()).map("choosing the best", choose, spans)):
        raise LogerError("a score is not a number (NaN): the order would mean nothing")
    return items, values


@njit(cache=True, nogil=True)
def _choose(scores, items, values):  # type: ignore[no-untyped-def]
    """Fill in the best of each row; False if a score is NaN.

    A buffer keeps what beats the k-th best so far, so nearly all of a row is only compared.
    """
    n, k = scores.shape[1], items.shape[1]
    room = 4 * k + 64
    best, place = np.empty(room, dtype=np.float32), np.empty(room, dtype=np.int32)
    for i in range(len(scores)):
        row = scores[i]
        filled, bar = 0, np.float32(-np.inf)
        for lo in range(0, n, 64):
            hi = min(lo + 64, n)
            above, strange = 0, 0
            for j in range(lo, hi):
                above += row[j] > bar
                strange += row[j] != row[j]
            if strange > 0:
                return False
            if above == 0:
                continue
            if filled + above > room:
                filled = _shrink(best, place, filled, k)
                bar = max(bar, best[k - 1]) if filled == k else bar
            for j in range(lo, hi):
                if row[j] > bar:
                    best[filled], place[filled] = row[j], j
                    filled += 1
        filled = _shrink(best, place, filled, k)
        for j in range(k):
            items[i, j] = place[j] if j < filled else -1
            values[i, j] = best[j] if j < filled else np.float32(-np.inf)
    return True


@njit(cache=True, nogil=True)
def _shrink(best, place, filled, k):  # type: ignore[no-untyped-def]
    """Sort the buffer by falling value, then by place, and cut it to k."""
    order = np.argsort(-best[:filled], kind="mergesort")  # stable, and a buffer's places ascend
    n = min(k, filled)
    values, places = best[order[:n]], place[order[:n]]
    best[:n], place[:n] = values, places
    return n
