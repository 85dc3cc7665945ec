"""ItemKNN: items that the same users have are alike."""

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


class ItemKNN(Recommender):
    """Item-based nearest neighbours with shrunk cosine similarity.

    With X the users × items matrix of training pairs and x_j its columns,

        sim(i, j) = x_i·x_j / (|x_i| |x_j| + shrink),
        score(u, v) = Σ_{i ∈ I_u ∩ N(v)} sim(i, v),

    N(v) being the ``neighbours`` items most similar to v. Sarwar et al., WWW 2001;
    Deshpande & Karypis, TOIS 2004; shrinkage as in Ferrari Dacrema et al., TOIS 2021.
    """

    name = "ItemKNN"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "neighbours": (50, 200, 1000),
        "shrink": (0.0, 10.0, 100.0),
    }

    history_: PairMatrix  # [users, items]
    similarity_: PairMatrix  # [items i, items v], N(v) in column v

    def __init__(self, *, neighbours: int = 100, shrink: float = 10.0) -> None:
        if neighbours < 1 or shrink < 0:
            raise LogerError(
                f"neighbours must be at least 1 and shrink at least 0, got {neighbours!r}, "
                f"{shrink!r}"
            )
        self.neighbours, self.shrink = neighbours, shrink

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Compare all items, a block of them at a time."""
        self.history_ = part_matrix(split, "train")
        columns = sp.csr_array(self.history_.T)  # [items, users]
        norms = np.sqrt(np.diff(columns.indptr)).astype(np.float32)

        def rows_of(block: slice) -> PairMatrix:
            together = sp.csr_array(columns[block] @ self.history_)
            own = np.repeat(norms[block], np.diff(together.indptr))
            together.data /= own * norms[together.indices] + np.float32(self.shrink)
            return together

        nearest = item_matrix(len(norms), rows_of, self.neighbours, self.name, progress)
        self.similarity_ = sp.csr_array(nearest.T)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """Sums of similarities to what the users have; [users, items]."""
        return (self.history_[np.asarray(users)] @ self.similarity_).toarray()
