"""iALS: matrix factorisation of all pairs, observed or not, by alternating least squares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from loger.baselines._shared import Factors, LinearItems, largest_rows
from loger.baselines.slim import counted, positive
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers
from loger.engine.threads import one_thread
from loger.graph.arrays import Floats
from loger.recommender import PairMatrix, part_matrix

_CHUNK = 1 << 24
"""Floats of gathered factors, or of Gram matrices, held at a time."""


@dataclass(eq=False, kw_only=True)
class IALS(Factors):
    """Hu, Koren & Volinsky, ICDM 2008, in the form of Rendle et al., RecSys 2022.

    Minimises over user factors W and item factors H

        Σ_{(u,i) ∈ S} (1 − w_u·h_i)² + α₀ Σ_{u,i} (w_u·h_i)²
            + λ (Σ_u (|I_u| + α₀|I|) |w_u|² + Σ_i (|U_i| + α₀|U|) |h_i|²).

    Each half-sweep solves every row exactly: (α₀HᵀH + H_uᵀH_u + λ_u I) w_u = H_uᵀ1. Rows of
    similar size are solved together, and a row with few pairs costs its own size rather than d.
    Regularisation grows with frequency (ν = 1 in Rendle et al.).
    """

    name = "iALS"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "unobserved": (0.003, 0.03, 0.3),
        "l2": (0.001, 0.003, 0.01),
    }

    dimensions: int = 128
    unobserved: float = 0.03
    l2: float = 0.003
    sweeps: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, "l2", dimensions=1, sweeps=1, unobserved=0)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Alternate between users and items."""
        by_user = part_matrix(split, "train")
        by_item = sp.csr_array(by_user.T)
        rng = np.random.default_rng([self.seed, 0x1A15])
        # Scaled as in Rendle et al.: w·h is of the order of 1 at the start.
        start = rng.normal(0, 0.1 / np.sqrt(self.dimensions), (by_item.shape[0], self.dimensions))
        items = torch.from_numpy(start.astype(np.float32))
        for sweep in range(self.sweeps):
            progress(self.name, sweep, self.sweeps)
            users = self._solve(by_user, items)
            items = self._solve(by_item, users)
        progress(self.name, self.sweeps, self.sweeps)
        self.users_, self.items_ = self._solve(by_user, items).numpy(), items.numpy()
        return self

    def _solve(self, pairs: PairMatrix, other: torch.Tensor) -> torch.Tensor:
        """The best factors of one side while the other's stand; [rows, dimensions].

        In the eigenbasis of HᵀH the matrix of a row is D_u + H_uᵀH_u with D_u diagonal, and
        (D + HᵀH)⁻¹Hᵀ1 = D⁻¹Hᵀ(I + HD⁻¹Hᵀ)⁻¹1: a system as small as the row's history.
        """
        n, d = pairs.shape[0], self.dimensions
        weight = np.diff(pairs.indptr) + self.unobserved * pairs.shape[1]
        ridge = torch.from_numpy((self.l2 * weight).astype(np.float32))
        values, basis = torch.linalg.eigh(other.T @ other)
        values = values.clamp(min=0)
        padded = torch.cat([other @ basis, torch.zeros(1, d)])  # the last row fills up
        out = torch.zeros(n, d)
        for rows, columns in _padded_rows(pairs, d):
            chosen = torch.from_numpy(rows)
            seen = padded[torch.from_numpy(columns)]  # [rows, longest, d]
            diagonal = self.unobserved * values + ridge[chosen, None]  # [rows, d]
            if seen.shape[1] < d:
                scaled = seen / diagonal[:, None]
                small = scaled @ seen.mT  # [rows, longest, longest]
                small.diagonal(dim1=1, dim2=2).add_(1)
                out[chosen] = (_solved(small, torch.ones(small.shape[:2]))[:, None] @ scaled)[:, 0]
            else:
                gram = seen.mT @ seen  # [rows, d, d]
                gram.diagonal(dim1=1, dim2=2).add_(diagonal)
                out[chosen] = _solved(gram, seen.sum(1))
        turned_back: torch.Tensor = out @ basis.T
        return turned_back


def _solved(matrices: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solutions of many positive definite systems; [rows, n]."""
    factors: torch.Tensor = torch.linalg.cholesky(matrices)
    return torch.cholesky_solve(right[:, :, None], factors)[:, :, 0]


def _padded_rows(
    pairs: PairMatrix, d: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows with entries in groups of similar size: (rows, their columns padded to the longest)."""
    sizes = np.diff(pairs.indptr)
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0]
    at = 0
    while at < len(order):
        # Up to a quarter of padding; memory for the factors and for the Gram matrices.
        longest = int(sizes[order[at]] * 1.25) + 1
        stop = min(
            int(np.searchsorted(sizes[order], longest, side="right")),
            at + max(1, _CHUNK // (d * max(longest, d))),
        )
        rows = order[at:stop]
        width = int(sizes[rows[-1]])
        place = np.arange(width)
        inside = place < sizes[rows][:, None]
        where = np.where(inside, pairs.indptr[rows][:, None] + place, 0)
        yield rows, np.where(inside, pairs.indices[where], pairs.shape[1]).astype(np.int64)
        at = stop


@dataclass(eq=False, kw_only=True)
class LinearIALS(LinearItems):
    """The factors H of iALS's items, with which iALS makes a user by

        w_u = (α₀HᵀH + H_uᵀH_u + λ_u I)⁻¹ Σ_{i ∈ I_u} h_i,

    not linear in the history. Without H_uᵀH_u, and with λ_u of a history of median length n̄, it is:

        B = H (α₀HᵀH + λ(n̄ + α₀|I|) I)⁻¹ Hᵀ,   negative entries 0,
        score(u, v) = n_v^−β Σ_{i ∈ I_u} a_ui^−ρ B_iv,

    as far as somebody has both items, of which the ``neighbours`` largest of each row are kept.
    n, a, β and ρ are those of ``LocalSLIM``, α₀ is ``unobserved``, λ ``l2``. It ranks as well as
    iALS does (docs/adr/0013), and every past action has its exact part.
    """

    name = "iALS, linear"

    dimensions: int = 64
    unobserved: float = 0.03
    l2: float = 0.01
    recency: float = 0.0
    popularity: float = 0.0
    neighbours: int = 300
    sweeps: int = 8

    def __post_init__(self) -> None:
        check_numbers(self, neighbours=1, recency=0)
        same = {n: getattr(self, n) for n in ("dimensions", "unobserved", "l2", "sweeps")}
        self.factors = IALS(**same)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Factorise, and weigh the pairs of items that somebody has."""
        _, pairs = counted(self, split)
        sizes = np.diff(self.ages_.indptr)
        typical = float(np.median(sizes[sizes > 0])) if sizes.any() else 0.0
        with one_thread():
            weights = self._weights(split, typical, progress)
        rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
        pairs.data = np.where(rows == pairs.indices, 0, weights[rows, pairs.indices])
        self.weights_ = largest_rows(positive(pairs), self.neighbours)
        return self

    def _weights(self, split: Split, typical: float, progress: Progress) -> Floats:
        """B, dense and with its diagonal; [items, items]."""
        of = self.factors.fit(split, progress=progress)
        items = torch.from_numpy(of.items_)
        ridge = of.l2 * (typical + of.unobserved * len(items))
        inner = of.unobserved * items.T @ items + ridge * torch.eye(items.shape[1])
        out: Floats = (items @ torch.linalg.solve(inner, items.T)).numpy()
        return out
