"""MostPop: everyone is recommended what most users have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.graph.arrays import Floats
from loger.recommender import Recommender


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
