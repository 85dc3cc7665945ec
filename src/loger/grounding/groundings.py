"""Groundings as they are held: a sparse matrix of pairs and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from loger.errors import LogerError
from loger.graph import gather

Cells = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]
"""Compressed rows as the kernels give them: row ends, rules, counts, strengths."""


@dataclass(frozen=True, eq=False)
class Groundings:
    """A sparse matrix pairs × rules of path counts and, if asked for, path strengths."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    n_rules: int
    indptr: NDArray[np.int64]  # [pairs + 1]
    rules: NDArray[np.int32]  # [cells], ascending within a pair
    counts: NDArray[np.int64]  # [cells], all positive
    strengths: NDArray[np.float64] | None = None  # [cells]

    def __len__(self) -> int:
        return len(self.users)

    @property
    def count_matrix(self) -> csr_array:
        """Counts as a SciPy matrix, pairs × rules."""
        shape = (len(self), self.n_rules)
        return csr_array((self.counts, self.rules, self.indptr), shape=shape)

    @property
    def strength_matrix(self) -> csr_array:
        """Strengths as a SciPy matrix, pairs × rules."""
        if self.strengths is None:
            raise LogerError("these groundings were counted without a walk; pass walk=Walk(...)")
        shape = (len(self), self.n_rules)
        return csr_array((self.strengths, self.rules, self.indptr), shape=shape)

    def with_empty_rows(
        self,
        present: NDArray[np.bool_],
        users: NDArray[np.integer],
        items: NDArray[np.integer],
    ) -> Groundings:
        """Pairs of which those marked ``present`` are these, in order; for others no rule fires."""
        sizes = np.zeros(len(present), dtype=np.int64)
        sizes[present] = np.diff(self.indptr)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        pairs = (users.astype(np.int32), items.astype(np.int32))
        return replace(self, users=pairs[0], items=pairs[1], indptr=indptr)

    def per_user(self, n_users: int) -> csr_array:
        """n_l(u): the counts of each user's pairs added up; users × rules."""
        rows = np.arange(len(self))
        ones = np.ones(len(self), dtype=np.int64)
        member = csr_array((ones, (self.users, rows)), shape=(n_users, len(self)))
        return csr_array(member @ self.count_matrix)


def joined(
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    n_rules: int,
    results: Sequence[Cells],
    weighted: bool,
) -> Groundings:
    """Blocks of compressed rows, one after another."""
    sizes = [np.diff(ends) for ends, *_ in results]
    empty = np.empty(0)
    return Groundings(
        users=users.astype(np.int32),
        items=items.astype(np.int32),
        n_rules=n_rules,
        indptr=np.concatenate([[0], np.cumsum(np.concatenate([empty, *sizes]))]).astype(np.int64),
        rules=np.concatenate([empty.astype(np.int32), *(r for _, r, _, _ in results)]),
        counts=np.concatenate([empty.astype(np.int64), *(c for _, _, c, _ in results)]),
        strengths=np.concatenate([empty, *(s for *_, s in results)]) if weighted else None,
    )


def reordered(groundings: Groundings, order: NDArray[np.integer]) -> Groundings:
    """Row k of ``groundings`` is put back to place ``order[k]``."""
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return take(groundings, back)


def take(groundings: Groundings, rows: NDArray[np.integer]) -> Groundings:
    """The pairs at these places."""
    sizes = np.diff(groundings.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    _, cells = gather(groundings.indptr[rows], sizes)
    return Groundings(
        groundings.users[rows],
        groundings.items[rows],
        groundings.n_rules,
        indptr,
        groundings.rules[cells],
        groundings.counts[cells],
        None if groundings.strengths is None else groundings.strengths[cells],
    )


def concat(parts: Sequence[Groundings], n_rules: int, weighted: bool) -> Groundings:
    """Pairs of the same rules, one set after another."""
    none = np.empty(0, dtype=np.int32)
    users = np.concatenate([none, *(p.users for p in parts)])
    items = np.concatenate([none, *(p.items for p in parts)])
    rows = [
        (p.indptr, p.rules, p.counts, np.empty(0) if p.strengths is None else p.strengths)
        for p in parts
    ]
    return joined(users, items, n_rules, rows, weighted)


def merged(far: Groundings, near: Groundings, users: NDArray[np.int64]) -> Groundings:
    """Two sets of pairs as one, by the place of the user and then by item; empty rows dropped."""
    near = take(near, np.flatnonzero(np.diff(near.indptr)))
    both = concat([far, near], far.n_rules, far.strengths is not None)
    place = np.zeros(int(users.max(initial=0)) + 1, dtype=np.int64)
    place[users] = np.arange(len(users))
    return take(both, np.lexsort((both.items, place[both.users])))
