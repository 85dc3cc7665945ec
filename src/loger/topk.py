"""The k best of each row, exactly: known items are left out first, ties go to the lower number."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from loger.engine import Engine, LocalEngine
from loger.errors import LogerError

ROWS_PER_SPAN = 64
"""Rows that one worker chooses from at a time."""

STRETCH = 64
"""Columns of which only the largest is looked at first."""


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
        row, column = np.argwhere(np.isnan(scores))[0]
        raise LogerError(f"the score in column {column} of row {row} is not a number")
    return items, values


@njit(cache=True, nogil=True)
def _choose(scores, items, values):  # type: ignore[no-untyped-def]
    """Fill in the best of each row; False if a score is NaN.

    A row is cut into stretches. The k-th largest of their maxima is a bar that at least k
    scores reach, so that only the few stretches that reach it are looked into.
    """
    n, k = scores.shape[1], items.shape[1]
    tops = np.empty((n + STRETCH - 1) // STRETCH, dtype=np.float32)
    best, place = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.int32)
    for i in range(len(scores)):
        row = scores[i]
        if not _stretch_maxima(row, tops):
            return False
        bar = np.float32(-np.inf)
        if len(tops) > k:
            bar = np.partition(tops, len(tops) - k)[len(tops) - k]
        filled = 0
        for s in range(len(tops)):
            if tops[s] >= bar:
                for j in range(s * STRETCH, min((s + 1) * STRETCH, n)):
                    if row[j] >= bar and row[j] > -np.inf:
                        best[filled], place[filled] = row[j], j
                        filled += 1
        order = np.argsort(-best[:filled], kind="mergesort")  # stable: equal ones stay by place
        for j in range(k):
            items[i, j] = place[order[j]] if j < filled else -1
            values[i, j] = best[order[j]] if j < filled else np.float32(-np.inf)
    return True


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _stretch_maxima(row, tops):  # type: ignore[no-untyped-def]
    """The largest of each stretch, many columns at a time; False if there is a NaN."""
    bits = row.view(np.int32)
    strange = np.int32(0)
    for s in range(len(tops)):
        part = row[s * STRETCH : (s + 1) * STRETCH]
        largest = np.float32(-np.inf)
        for x in part:
            largest = max(largest, x)
        tops[s] = largest
    for b in bits:  # by bits, as the flags above let the compiler forget that NaN exists
        strange |= np.int32((b & 0x7FFFFFFF) > 0x7F800000)
    return strange == 0
