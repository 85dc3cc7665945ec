"""Sparse linear item models: each item regressed on the items that are most like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from loger.baselines._kernels import largest
from loger.baselines._shared import LinearItems, decayed, largest_rows, pair_ages
from loger.baselines.ease import item_counts, solved
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.engine.kernels import kernel
from loger.engine.settings import check_numbers
from loger.graph.arrays import Floats
from loger.recommender import PairMatrix

CANDIDATES = 100
"""Items that an item is regressed on."""
MOST, SOME = 2_500, 500
"""Items of one user that are counted together: pairs grow with the square, and items that nobody
else has are each regressed on the others. Of a user with more than the first, as few as the second,
evenly spread over the items: who has everything says little of any two."""


@dataclass(eq=False, kw_only=True)
class LocalSLIM(LinearItems):
    """SLIM (Ning & Karypis, ICDM 2011) with ridge in place of the elastic net, in closed form.

    With X the users × items matrix of training interactions, G = XᵀX and N_j the items that are
    most like j by cosine, at most ``candidates``,

        B_j = argmin_b ‖X_j − X_Nj b‖² + λ‖b‖² = (G_NN + λ)⁻¹ G_Nj,   negative entries 0,
        score(u, v) = n_v^−β Σ_{i ∈ I_u} a_ui^−ρ B_iv,

    of which the ``neighbours`` largest of each row i are kept. a_ui is 1 + how many of u's
    interactions came after i, n_v how many users have v. λ is ``l2``, ρ ``recency`` and β
    ``popularity``. No dense inverse is needed: the fit costs items · candidates³ / 3
    multiplications and holds G as a sparse matrix. Where ``candidates`` are as many as there are
    items, N_j are all others, and B is the positive part of EASE^R's, by its one inverse, as far
    as somebody has both items.
    """

    name = "SLIM, local"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "l2": (100.0, 10.0, 30.0, 300.0, 1000.0),
        "popularity": (0.0, 0.2, 0.4),
    }
    RECENCY_GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "recency": (0.5, 0.0, 0.25, 1.0),
        **GRID,
    }

    l2: float = 100.0
    recency: float = 0.0
    popularity: float = 0.0
    neighbours: int = 50
    candidates: int = CANDIDATES

    def __post_init__(self) -> None:
        check_numbers(self, "l2", neighbours=1, candidates=1, recency=0)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Solve for the column of each item."""
        seen, gram = counted(self, split)
        if self.candidates >= gram.shape[1]:
            rows = np.repeat(np.arange(gram.shape[0]), np.diff(gram.indptr))
            gram.data = solved(seen, self.l2, self.name, progress)[rows, gram.indices]
            columns = positive(gram)
        else:
            columns = self._columns(gram)
        progress(self.name, 1, 1)
        self.weights_ = largest_rows(columns, self.neighbours)
        return self

    def _columns(self, gram: PairMatrix) -> PairMatrix:
        """B, by one small regression for each item."""
        arrays = (gram.indptr.astype(np.int64), gram.indices, gram.data)
        heads, tails, values = _columns(*arrays, self.l2, self.candidates)
        return sp.csr_array((values, (heads, tails)), shape=gram.shape)


def counted(model: LinearItems, split: Split) -> tuple[PairMatrix, PairMatrix]:
    """Note the ages of interactions and how many users have each item; the training pairs that are
    counted, and how many users have any two items."""
    model.ages_ = pair_ages(split, model.name, model.recency)
    model.counts_ = item_counts(model.ages_)
    seen = shortened(decayed(model.ages_, 0.0))
    gram = sp.csr_array(seen.T @ seen)
    gram.sort_indices()
    return seen, gram


def positive(matrix: PairMatrix) -> PairMatrix:
    """The same matrix with nothing below 0 left in it."""
    matrix.data = np.maximum(matrix.data, 0)
    matrix.eliminate_zeros()
    return matrix


def shortened(matrix: PairMatrix, most: int = MOST, some: int = SOME) -> PairMatrix:
    """The matrix with but ``some`` entries in rows of more than ``most``; the same object if there
    are none."""
    sizes = np.diff(matrix.indptr)
    if sizes.max(initial=0) <= most:
        return matrix
    kept = np.ones(matrix.nnz, dtype=bool)
    for row in np.flatnonzero(sizes > most):
        entries = kept[matrix.indptr[row] : matrix.indptr[row + 1]]
        entries[:] = False
        entries[np.arange(some) * len(entries) // some] = True
    ends = np.concatenate([[0], np.cumsum(np.where(sizes > most, some, sizes))])
    return sp.csr_array((matrix.data[kept], matrix.indices[kept], ends), shape=matrix.shape)


@kernel
def _columns(
    starts: NDArray[np.int64], items: NDArray[np.int32], gram: Floats, l2: float, most: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """The positive entries of B as (rows, columns, values), column by column."""
    n = len(starts) - 1
    size = np.zeros(n)
    for i in range(n):
        for e in range(starts[i], starts[i + 1]):
            if items[e] == i:
                size[i] = gram[e]
    place = np.full(n, -1, dtype=np.int64)
    heads, tails = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.int32)
    values, total = np.empty(1024, dtype=np.float32), 0
    for j in range(n):
        own = items[starts[j] : starts[j + 1]]
        cosine = gram[starts[j] : starts[j + 1]] / np.sqrt(np.maximum(size[own] * size[j], 1.0))
        for k in range(len(own)):
            if own[k] == j:
                cosine[k] = -1.0
        m = min(most, max(len(own) - 1, 0))
        if m == 0:
            continue
        within = np.array([0, len(own)])
        chosen = largest(within, cosine, m)
        near, b = own[chosen], gram[starts[j] : starts[j + 1]][chosen].astype(np.float64)
        place[near] = np.arange(m)
        a = np.zeros((m, m))
        for k in range(m):
            # The upper half only: a is symmetric, and rows are ascending.
            first = starts[near[k]]
            first += np.searchsorted(items[first : starts[near[k] + 1]], near[k])
            for e in range(first, starts[near[k] + 1]):
                if place[items[e]] >= 0:
                    a[k, place[items[e]]] = a[place[items[e]], k] = gram[e]
            a[k, k] += l2
        place[near] = -1
        x = np.linalg.solve(a, b)
        while total + m > len(heads):
            heads, tails = np.append(heads, heads), np.append(tails, tails)
            values = np.append(values, values)
        for k in range(m):
            if x[k] > 0:
                heads[total], tails[total], values[total] = near[k], j, x[k]
                total += 1
    return heads[:total], tails[:total], values[:total]
