"""iALS as a linear model of items: its factors, and a user who is a sum over the history."""

from __future__ import annotations

from typing import Self

import numpy as np
import scipy.sparse as sp
import torch

from loger.baselines.ease import item_counts
from loger.baselines.ials import IALS
from loger.baselines.recency import check_exponents, decayed, pair_ages
from loger.baselines.slim import LinearItems, largest_rows, positive, shortened
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.engine.threads import one_thread
from loger.recommender import Floats


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

    def __init__(
        self,
        *,
        dimensions: int = 64,
        unobserved: float = 0.03,
        l2: float = 0.01,
        recency: float = 0.0,
        popularity: float = 0.0,
        neighbours: int = 300,
        sweeps: int = 8,
    ) -> None:
        check_exponents(recency)
        self.recency, self.popularity, self.neighbours = recency, popularity, neighbours
        self.factors = IALS(dimensions=dimensions, unobserved=unobserved, l2=l2, sweeps=sweeps)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Factorise, and weigh the pairs of items that somebody has."""
        self.ages_ = pair_ages(split, self.name, self.recency)
        self.counts_ = item_counts(self.ages_)
        seen = shortened(decayed(self.ages_, 0.0))
        pairs = sp.csr_array(seen.T @ seen)
        pairs.sort_indices()
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
