"""Controls that need no training: what most users have, and what goes with the user's own items.

MostPop counts, ItemKNN compares items by their users, P3α and RP3β walk from the user over what
others have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from loger.baselines._shared import decayed, item_matrix, pair_ages
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers
from loger.graph.arrays import Floats
from loger.recommender import PairMatrix, Recommender


class MostPop(Recommender):
    """Score(u, v) = number of training users who have v; the floor of every comparison."""

    name = "MostPop"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {}

    popularity_: NDArray[np.float32]  # [items]

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Count the training users of each item."""
        _, items = split.pairs("train")
        counts = np.bincount(items, minlength=split.dataset.n_items)
        self.popularity_ = counts.astype(np.float32)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """The same counts for every user; [users, items]."""
        return np.tile(self.popularity_, (len(np.asarray(users)), 1))


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


@dataclass(eq=False, kw_only=True)
class RP3beta(Recommender):
    """Walks user → item → user → item, popular ends held back.

    With the transition probabilities p(u→i) = 1/|I_u| and p(i→u) = 1/|U_i|,

        W_ij = Σ_u p(i→u)^α p(u→j)^α / |U_j|^β,
        score(u, v) = Σ_{i ∈ I_u} p(u→i)^α W_iv,

    each row of W cut to its ``neighbours`` largest entries. With ``recency`` ρ the first step
    counts a_ui^−ρ times that, a_ui being 1 + u's interactions after i; with ``training_recency``
    τ both steps of W count a^−τ times what they do. Both are 0 unless given.

    Paudel et al., ACM TiiS 2017. A walk that steps on its own pair ends in a training item, which
    is left out, so these walks are simple paths as METHOD L2 asks for.
    """

    name = "RP3β"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "alpha": (0.4, 0.7, 1.0, 1.3),
        "beta": (0.1, 0.3, 0.6, 0.9),
    }
    RECENCY_GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "alpha": (0.7, 0.1, 0.2, 0.4, 1.0, 1.3),
        "beta": (0.3, 0.0, 0.1, 0.6, 0.9),
        "recency": (0.5, 0.0, 1.0, 1.5),
        "training_recency": (0.0, 0.1, 0.3),
    }
    SCORING = frozenset({"recency"})

    ages_: PairMatrix = field(init=False, repr=False)  # [users, items]: a
    ends_: PairMatrix = field(init=False, repr=False)  # [items, items]: W
    alpha: float = 1.0
    beta: float = 0.2
    neighbours: int | None = None
    recency: float = 0.0
    training_recency: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self, alpha=0, beta=0, neighbours=1, recency=0, training_recency=0)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Multiply the steps out, a block of items at a time."""
        self.ages_ = pair_ages(split, self.name, self.recency, self.training_recency)
        popularity = np.bincount(self.ages_.indices, minlength=self.ages_.shape[1])
        held = np.maximum(popularity, 1).astype(np.float32) ** np.float32(-self.beta)
        there = _steps(self.ages_, self.alpha, self.training_recency)
        back = _steps(sp.csr_array(self.ages_.T), self.alpha, self.training_recency)

        def rows_of(block: slice) -> PairMatrix:
            ends = sp.csr_array(back[block] @ there)
            ends.data *= held[ends.indices]
            return ends

        self.ends_ = item_matrix(len(held), rows_of, self.neighbours, self.name, progress)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """Probabilities (to the power α, held back by β) of each end; [users, items]."""
        first = _steps(self.ages_[np.asarray(users)], self.alpha, self.recency)
        return (first @ self.ends_).toarray()


class P3alpha(RP3beta):
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
        super().__init__(alpha=alpha, beta=0.0, neighbours=neighbours)


def _steps(ages: PairMatrix, alpha: float, recency: float) -> PairMatrix:
    """Each row's entries to (1 / their number)^α, less the older they are."""
    sizes = np.diff(ages.indptr)
    shares = np.repeat(np.maximum(sizes, 1).astype(np.float32) ** np.float32(-alpha), sizes)
    shares *= ages.data ** np.float32(-recency)
    return sp.csr_array((shares, ages.indices, ages.indptr), shape=ages.shape)
