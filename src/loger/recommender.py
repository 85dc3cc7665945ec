"""What LOGER and every baseline have in common: fit on a split, score all items of some users.

Arrays in, arrays out: users and items are numbered from 0 within their type. What a list is
made of scores, which items it leaves out and how ties fall, is written here once for all.
"""

from __future__ import annotations

from typing import Protocol, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from loger.data.splits import Part, Split
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
PairMatrix: TypeAlias = "sp.csr_array[np.float32, tuple[int, int]]"
"""Pairs as a sparse users × items matrix of ones."""

BLOCK_BYTES = 64 << 20
"""Memory of one block of users while it is ranked; a few blocks are under way at a time."""
_CELL_BYTES = 16  # a score, what it was computed from, its place in the order, a copy of that

_GROUP = 64  # items per maximum in ``top_k``; by trial, anything from 32 to 128 does

_NEVER = int(np.float32(-np.inf).view(np.int32)) ^ 0x7FFFFFFF
"""The place of -inf in the order of scores: what has it is not recommended."""


class Recommender(Protocol):
    """Anything that can be compared: LOGER, a baseline, an adapter to another library."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Learn from ``split.graph`` and ``split.pairs("train")``, and from nothing else.

        ``split.pairs("validation")`` may tell a fit when to stop; it is never learned from.
        The split is left as it was.
        """
        ...

    def score(self, users: ArrayLike) -> Floats:
        """Scores of all items for a block of users, the higher the better; [users, items].

        Training items are scored like others: who asks leaves them out. -inf says that an
        item is not recommended at all. Called from several threads at a time.
        """
        ...


def pair_matrix(users: ArrayLike, items: ArrayLike, shape: tuple[int, int]) -> PairMatrix:
    """Pairs as a sparse matrix of ones, each pair once."""
    rows, columns = np.asarray(users), np.asarray(items)
    out = sp.csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)
    out.sum_duplicates()
    out.data[:] = 1
    return out


def part_matrix(split: Split, *parts: Part) -> PairMatrix:
    """The pairs of one or more parts of a split as a sparse matrix of ones."""
    pairs = [split.pairs(part) for part in parts]
    return pair_matrix(
        np.concatenate([users for users, _ in pairs]),
        np.concatenate([items for _, items in pairs]),
        (split.dataset.n_users, split.dataset.n_items),
    )


def top_k(scores: Floats, masked: tuple[ArrayLike, ArrayLike] | None, k: int) -> Ints:
    """The k best items of each row, best first, exactly; [rows, k].

    ``masked`` are (rows, items) to leave out first. Ties go to the lower item id. Where
    fewer than k items are left, or their score is -inf, the list ends in -1.

    >>> top_k(np.array([[1, 3, 3, 2]], dtype=np.float32), ([0], [1]), 4)
    array([[ 2,  3,  0, -1]], dtype=int32)
    """
    if k < 1:
        raise LogerError(f"k must be at least 1, got {k!r}")
    scores = np.asarray(scores, dtype=np.float32)
    n_rows, n_items = scores.shape
    if np.isnan(scores).any():
        row, item = np.argwhere(np.isnan(scores))[0]
        raise LogerError(f"the score of item {item} in row {row} is not a number")
    # Floats as integers of the same order: -0 becomes 0, and negative ones count backwards.
    bits = (scores + np.float32(0)).view(np.int32)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    if masked is not None:
        order[np.asarray(masked[0]), np.asarray(masked[1])] = _NEVER
    # All that reach a bar which k items surely reach, of those that only equal it the first
    # k; at most k groups of items are left.
    bar = np.maximum(_sure_bar(order, k), _NEVER + 1)
    rows, items = np.divmod(np.flatnonzero(order >= bar[:, None]), n_items)
    equal = np.flatnonzero(order[rows, items] == bar[rows])
    surplus = equal[_places(rows[equal], n_rows) >= k]
    rows, items = np.delete(rows, surplus), np.delete(items, surplus)
    best_first = np.lexsort((items, ~order[rows, items], rows))
    rows, items = rows[best_first], items[best_first]
    places = _places(rows, n_rows)
    out = np.full((n_rows, k), -1, dtype=np.int32)
    out[rows[places < k], places[places < k]] = items[places < k]
    return out


def ranked(
    recommender: Recommender,
    users: ArrayLike,
    known: PairMatrix,
    k: int,
    *,
    candidates: PairMatrix | None = None,
    engine: Engine | None = None,
) -> Ints:
    """The lists of many users, block by block in bounded memory; [users, k] as of ``top_k``.

    Items that ``known`` has for a user are left out; with ``candidates`` so are all others
    that these do not have.
    """
    users = np.asarray(users)
    n_items = known.shape[1]
    size = max(1, BLOCK_BYTES // (_CELL_BYTES * max(1, n_items)))

    def rank(block: NDArray[np.integer]) -> Ints:
        scores = np.asarray(recommender.score(block), dtype=np.float32)
        if scores.shape != (len(block), n_items):
            raise LogerError(
                f"{recommender.name} gave scores of shape {scores.shape} for {len(block)} users "
                f"and {n_items} items"
            )
        if candidates is not None:
            rows, items = _pairs_of(candidates, block)
            among = np.full_like(scores, -np.inf)
            among[rows, items] = scores[rows, items]
            scores = among
        return top_k(scores, _pairs_of(known, block), k)

    blocks = [users[start : start + size] for start in range(0, len(users), size)]
    engine = LocalEngine() if engine is None else engine
    lists = list(engine.map(f"ranking {recommender.name}", rank, blocks))
    return np.concatenate(lists) if lists else np.empty((0, k), dtype=np.int32)


def _sure_bar(order: Ints, k: int) -> Ints:
    """For each row a value that at least k items reach: the k-th best of maxima of groups.

    Selecting the k-th best of all items is many times slower where most scores are equal.
    """
    n_rows, n_items = order.shape
    if n_items <= k:
        return np.full(n_rows, _NEVER, dtype=np.int32)
    size = min(_GROUP, n_items // k)
    groups = n_items // size
    grouped = order[:, : groups * size].reshape(n_rows, groups, size)
    return np.partition(grouped.max(axis=2), -k, axis=1)[:, -k]


def _places(rows: NDArray[np.integer], n_rows: int) -> NDArray[np.int64]:
    """The place of each entry within its row, 0 for the first; rows ascend."""
    starts: NDArray[np.int64] = np.searchsorted(rows, np.arange(n_rows))
    return np.asarray(np.arange(len(rows)) - starts[rows], dtype=np.int64)


def _pairs_of(
    matrix: PairMatrix, users: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The pairs of a block of users as (place in the block, item)."""
    starts, sizes = matrix.indptr[users], np.diff(matrix.indptr)[users]
    rows = np.repeat(np.arange(len(users)), sizes)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rows, matrix.indices[np.repeat(starts, sizes) + within]
