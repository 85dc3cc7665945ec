"""P3α and RP3β: three-step random walks from the user over what others have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from loger.baselines.neighbours import item_matrix
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.errors import LogerError
from loger.evaluation.recommender import Floats, PairMatrix, Recommender, part_matrix


class RP3beta(Recommender):
    """Walks user → item → user → item, popular ends held back.

    With the transition probabilities p(u→i) = 1/|I_u| and p(i→u) = 1/|U_i|,

        W_ij = Σ_u p(i→u)^α p(u→j)^α / |U_j|^β,
        score(u, v) = Σ_{i ∈ I_u} p(u→i)^α W_iv,

    each row of W cut to its ``neighbours`` largest entries. Paudel et al., ACM TiiS 2017.
    A walk that steps on its own pair ends in a training item, which is left out, so these
    walks are simple paths as METHOD L2 asks for.
    """

    name = "RP3β"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "alpha": (0.4, 0.7, 1.0, 1.3),
        "beta": (0.1, 0.3, 0.6, 0.9),
    }

    walk_: PairMatrix  # [users, items]: p(u→i)^α
    ends_: PairMatrix  # [items, items]: W

    def __init__(
        self, *, alpha: float = 1.0, beta: float = 0.2, neighbours: int | None = None
    ) -> None:
        if alpha < 0 or beta < 0 or (neighbours is not None and neighbours < 1):
            raise LogerError(
                "alpha and beta must be at least 0 and neighbours at least 1 or None, got "
                f"{alpha!r}, {beta!r}, {neighbours!r}"
            )
        self.alpha, self.beta, self.neighbours = alpha, beta, neighbours

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Multiply the steps out, a block of items at a time."""
        pairs = part_matrix(split, "train")
        popularity = np.bincount(pairs.indices, minlength=pairs.shape[1])
        held = np.maximum(popularity, 1).astype(np.float32) ** np.float32(-self.beta)
        self.walk_ = _steps(pairs, self.alpha)
        back = _steps(sp.csr_array(pairs.T), self.alpha)  # [items, users]

        def rows_of(block: slice) -> PairMatrix:
            ends = sp.csr_array(back[block] @ self.walk_)
            ends.data *= held[ends.indices]
            return ends

        self.ends_ = item_matrix(pairs.shape[1], rows_of, self.neighbours, self.name, progress)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """Probabilities (to the power α, held back by β) of each end; [users, items]."""
        return (self.walk_[np.asarray(users)] @ self.ends_).toarray()


class P3alpha(Recommender):
    """RP3β with β = 0: the plain walk. Cooper et al., WWW 2014.

    With α = 1 and all neighbours this is the walk strength of the rule
    (purchase, purchase⁻¹, purchase), the line "3-hop random walk" of METHOD 10.
    """

    name = "P3α"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "alpha": (0.4, 0.7, 1.0, 1.3),
        "neighbours": (100, None),
    }

    def __init__(self, *, alpha: float = 1.0, neighbours: int | None = None) -> None:
        self.walker = RP3beta(alpha=alpha, beta=0.0, neighbours=neighbours)

    @property
    def is_fitted(self) -> bool:
        """Whether its walker is."""
        return self.walker.is_fitted

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Multiply the steps out."""
        self.walker.fit(split, progress=progress)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """Probabilities (to the power α) of each end; [users, items]."""
        return self.walker.score(users)


def _steps(pairs: PairMatrix, alpha: float) -> PairMatrix:
    """Each row's entries to (1 / their number)^α."""
    sizes = np.diff(pairs.indptr)
    shares = np.repeat(np.maximum(sizes, 1).astype(np.float32) ** np.float32(-alpha), sizes)
    return sp.csr_array((shares, pairs.indices, pairs.indptr), shape=pairs.shape)
