"""Small array functions that many parts need: slices, keys, numbers in range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError

Ints = NDArray[np.integer[Any]]


def gather(starts: Ints, sizes: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of slices, one slice after another, as (which slice, place).

    >>> owners, places = gather(np.array([5, 0, 9]), np.array([2, 0, 3]))
    >>> owners.tolist(), places.tolist()
    ([0, 0, 2, 2, 2], [5, 6, 9, 10, 11])
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    owners = np.repeat(np.arange(len(ends), dtype=np.int64), sizes)
    total = int(ends[-1]) if len(ends) else 0
    return owners, np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - sizes), sizes)


def pair_keys(users: Ints, items: Ints, n_items: int) -> NDArray[np.int64]:
    """One number for each pair, ascending by user and then by item.

    >>> pair_keys(np.array([0, 2]), np.array([3, 1]), 10).tolist()
    [3, 21]
    """
    return users.astype(np.int64) * n_items + items


def changes(values: Ints) -> NDArray[np.bool_]:
    """Whether each of some sorted values differs from the one before; the first does."""
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def checked_ids(ids: ArrayLike, n: int, what: str) -> NDArray[np.int64]:
    """Numbers as an array, or an error if one does not lie in 0 … n - 1.

    Compiled code does not look whether a place exists, so whoever calls it does.
    """
    array = np.atleast_1d(np.asarray(ids))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        got = f"{array.dtype} {array.shape}" if array.size > 5 else repr(ids)
        raise LogerError(f"{what} numbers must be a list of integers, got {got}")
    wrong = array[(array < 0) | (array >= n)]
    if len(wrong):
        raise LogerError(f"{what} numbers lie in 0 … {n - 1}, got {int(wrong[0])}")
    return array.astype(np.int64)
