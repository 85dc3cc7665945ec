"""The k best of each row, exactly: known items are left out first, ties go to the lower number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loger.engine.kernels import kernel
from loger.errors import LogerError

STRETCH = 64
"""Columns that are compared with a row's bar at once."""

ROOM = 4
"""A row keeps up to this many times k candidates before it is cut down to k."""


def top_k(
    scores: NDArray[np.float32],
    k: int,
    known: tuple[NDArray[np.integer], NDArray[np.integer]] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The k best columns of each row with their scores, best first; both [rows, k].

    ``known`` are rows and columns to leave out; their scores are overwritten by -inf. A list ends
    in -1 where fewer than k scores are above -inf.

    >>> top_k(np.array([[1, 3, 3, 2]], dtype=np.float32), 4, (np.array([0]), np.array([1])))[0]
    array([[ 2,  3,  0, -1]], dtype=int32)
    """
    if k < 1:
        raise LogerError(f"k must be at least 1, got {k!r}")
    if known is not None:
        scores[known] = -np.inf
    items = np.full((len(scores), k), -1, dtype=np.int32)
    best = np.full((len(scores), k), -np.inf, dtype=np.float32)
    row, column = _best(scores, k, items, best)
    if row >= 0:
        raise LogerError(
            f"the score in column {column} of row {row} is not a number; "
            "check the method that computed it"
        )
    return items, best


def places(
    scores: NDArray[np.float32], columns: NDArray[np.int64], known: NDArray[np.integer]
) -> NDArray[np.int64]:
    """The places, from 1, of some columns in one row, not counting the ``known`` columns, which
    must be distinct; ties go to the lower number.

    >>> row = np.array([1, 3, 3, 2], dtype=np.float32)
    >>> places(row, np.array([2, 0]), np.array([1]))
    array([1, 3])
    """
    out: NDArray[np.int64] = _places(scores, columns, known.astype(np.int64))
    return out


@kernel
def _best(scores, k, items, best):  # type: ignore[no-untyped-def]
    """Write the k best of each row, in order; returns the place of a NaN, or (-1, -1).

    A score is compared with the row's bar, the k-th best so far, and seldom passes it: after n
    columns in random order, with probability k/n.
    """
    n = scores.shape[1]
    values, columns = np.empty(ROOM * k, dtype=np.float32), np.empty(ROOM * k, dtype=np.int32)
    for i in range(len(scores)):
        row, size, bar = scores[i], 0, np.float32(-np.inf)
        for start in range(0, n, STRETCH):
            stop = start + STRETCH
            if stop <= n:
                # No branch and a fixed length, so that the compiler compares many at a time.
                above = np.int32(0)
                for j in range(STRETCH):
                    above += np.int32(not (row[start + j] <= bar))  # NaN is above everything
                if above == 0:
                    continue
            for j in range(start, min(stop, n)):
                x = row[j]
                if not (x <= bar):  # an equal one comes later, so it has the higher number
                    if x != x:
                        return i, j
                    values[size], columns[size] = x, j
                    size += 1
                    if size == len(values):
                        bar = _cut_down(values, columns, k)
                        size = k
        # Stable: equal ones stay by column, in which order they were kept.
        order = np.argsort(-values[:size], kind="mergesort")
        for j in range(min(k, size)):
            items[i, j], best[i, j] = columns[order[j]], values[order[j]]
    return -1, -1


@kernel
def _cut_down(values, columns, k):  # type: ignore[no-untyped-def]
    """Move the k best to the front, in the order of their columns; return the least of them."""
    n = len(values)
    bar = np.partition(values, n - k)[n - k]
    equal = k  # how many of those that equal the bar have a place: the first ones
    for x in values:
        equal -= x > bar
    kept = 0
    for j in range(n):
        x = values[j]
        if x > bar or (x == bar and equal > 0):
            equal -= x == bar
            values[kept], columns[kept] = x, columns[j]
            kept += 1
    return bar


@kernel
def _places(row, columns, known):  # type: ignore[no-untyped-def]
    """1 plus the number of scores that are higher, or equal and earlier, without known ones."""
    out, n, bars = np.ones(len(columns), dtype=np.int64), len(row), row[columns]
    least = np.float32(np.inf)
    for bar in bars:  # of which there may be none
        least = min(least, bar)
    for start in range(0, n, STRETCH):
        stop = start + STRETCH
        if stop <= n and _count(row, start, least, True) == 0:
            continue
        for k in range(len(columns)):
            if stop <= n and not start <= columns[k] < stop:
                out[k] += _count(row, start, bars[k], stop <= columns[k])
                continue
            for j in range(start, min(stop, n)):
                out[k] += row[j] > bars[k] or (row[j] == bars[k] and j < columns[k])
    for k in range(len(columns)):
        for j in known:
            before = row[j] > bars[k] or (row[j] == bars[k] and j < columns[k])
            out[k] -= before and j != columns[k]
    return out


@kernel
def _count(row, start, bar, ties):  # type: ignore[no-untyped-def]
    """How many scores of a stretch are above a bar or, with ``ties``, at it."""
    above = np.int32(0)  # no branch and a fixed length, as in ``_best``
    if ties:
        for j in range(STRETCH):
            above += np.int32(row[start + j] >= bar)
    else:
        for j in range(STRETCH):
            above += np.int32(row[start + j] > bar)
    return above
