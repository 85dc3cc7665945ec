"""ItemKNN: items that the same users have are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from loger.baselines._shared import decayed, item_matrix, pair_ages
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers
from loger.graph.arrays import Floats
from loger.recommender import PairMatrix, Recommender


@dataclass(eq=False, kw_only=True)
class ItemKNN(Recommender):
    """Item-based nearest neighbours with shrunk cosine similarity.

    With X the users × items matrix of training pairs and x_j its columns,

        sim(i, j) = x_i·x_j / (|x_i| |x_j| + shrink),
        score(u, v) = Σ_{i ∈ I_u ∩ N(v)} sim(i, v),

    N(v) being the ``neighbours`` items most similar to v. With ``recency`` ρ, item i of the
    history counts a_ui^−ρ, a_ui being 1 + u's interactions after i; with ``training_recency`` τ,
    X_ui = a_ui^−τ. Both are 0 unless given. Sarwar et al., WWW 2001;
    Deshpande & Karypis, TOIS 2004; shrinkage as in Ferrari Dacrema et al., TOIS 2021.
    """

    name = "ItemKNN"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "neighbours": (50, 200, 1000),
        "shrink": (0.0, 10.0, 100.0),
    }

    RECENCY_GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "neighbours": (200, 50, 1000),
        "shrink": (10.0, 0.0, 100.0, 1000.0),
        "recency": (0.5, 0.0, 1.0, 1.5),
        "training_recency": (0.0, 0.1, 0.3, 0.6, 1.0),
    }
    SCORING = frozenset({"recency"})

    ages_: PairMatrix = field(init=False, repr=False)  # [users, items]: a
    similarity_: PairMatrix = field(init=False, repr=False)
    """[items i, items v], N(v) in column v."""
    neighbours: int = 100
    shrink: float = 10.0
    recency: float = 0.0
    training_recency: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self, neighbours=1, shrink=0, recency=0, training_recency=0)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Compare all items, a block of them at a time."""
        self.ages_ = pair_ages(split, self.name, self.recency, self.training_recency)
        rows = decayed(self.ages_, self.training_recency)
        columns = sp.csr_array(rows.T)  # [items, users]
        squares = np.bincount(rows.indices, rows.data.astype(np.float64) ** 2, rows.shape[1])
        norms = np.sqrt(squares).astype(np.float32)

        def rows_of(block: slice) -> PairMatrix:
            together = sp.csr_array(columns[block] @ rows)
            own = np.repeat(norms[block], np.diff(together.indptr))
            together.data /= own * norms[together.indices] + np.float32(self.shrink)
            return together

        nearest = item_matrix(len(norms), rows_of, self.neighbours, self.name, progress)
        self.similarity_ = sp.csr_array(nearest.T)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """Sums of similarities to what the users have; [users, items]."""
        history = decayed(self.ages_[np.asarray(users)], self.recency)
        return (history @ self.similarity_).toarray()
