"""Groundings as they are held: a sparse matrix of pairs and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError
from loger.graph import gather

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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
        return self.as_matrix(self.counts)

    @property
    def strength_matrix(self) -> csr_array:
        """Strengths as a SciPy matrix, pairs × rules."""
        return self.as_matrix(self.weighed)

    @property
    def weighed(self) -> NDArray[np.float64]:
        """The strengths, which must have been asked for; [cells]."""
        if self.strengths is None:
            raise LogerError("these groundings were counted without a walk; pass walk=Walk(...)")
        return self.strengths

    def as_matrix(self, values: NDArray[np.number]) -> csr_array:
        """Values of the cells as a SciPy matrix, pairs × rules."""
        from scipy.sparse import csr_array  # slow to import, and who only scores does without

        return csr_array((values, self.rules, self.indptr), shape=(len(self), self.n_rules))

    def row_sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the cells, added up for each pair; [pairs]."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        return np.bincount(rows, values, minlength=len(self)).astype(np.float64, copy=False)

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

    def of_rules(self, places: NDArray[np.integer]) -> Groundings:
        """The same pairs with some of the rules, ascending, numbered anew."""
        number = np.full(self.n_rules, -1, dtype=np.int32)
        number[places] = np.arange(len(places))
        kept = number[self.rules] >= 0
        before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        return replace(
            self,
            n_rules=len(places),
            indptr=before[self.indptr],
            rules=number[self.rules[kept]],
            counts=self.counts[kept],
            strengths=None if self.strengths is None else self.strengths[kept],
        )

    def per_user(self, n_users: int) -> csr_array:
        """n_l(u): the counts of each user's pairs added up; users × rules."""
        from scipy.sparse import csr_array

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
