"""EASE^R: the closed-form linear autoencoder, a strong control where the catalogue fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack

from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.errors import LogerError
from loger.evaluation.recommender import Floats, PairMatrix, Recommender, part_matrix


class EASE(Recommender):
    """Steck, WWW 2019, "Embarrassingly Shallow Autoencoders for Sparse Data".

    With X the users × items matrix of training pairs, B minimises |X − XB|² + λ|B|² with a
    zero diagonal, so that no item explains itself. In closed form

        P = (XᵀX + λI)⁻¹,   B_ij = −P_ij / P_jj,   B_jj = 0,   score(u, ·) = X_u B.

    P is dense and comes from a Cholesky factor in single precision, in place: λ bounds the
    condition number by 1 + |X|²/λ. ``memory`` is what the fit may use, in bytes.
    """

    name = "EASE^R"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"l2": (30.0, 100.0, 300.0, 1000.0, 4000.0)}

    history_: PairMatrix  # [users, items]
    weights_: Floats  # [items, items]: B

    def __init__(self, *, l2: float = 100.0, memory: int = 8 << 30) -> None:
        if l2 <= 0:
            raise LogerError(f"l2 must be above 0, got {l2!r}")
        self.l2, self.memory = l2, memory

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Solve for B; a catalogue that is too large is refused before work starts."""
        need = memory_needed(split.dataset.n_items)
        if need > self.memory:
            raise LogerError(
                f"EASE^R of {split.dataset.n_items:,} items needs {need / 2**30:.1f} GiB, more "
                f"than the {self.memory / 2**30:.1f} GiB allowed; raise memory, or use ItemKNN "
                "or RP3β"
            )
        self.history_ = part_matrix(split, "train")
        progress(self.name, 0, 2)
        gram = np.asfortranarray((self.history_.T @ self.history_).toarray())
        np.fill_diagonal(gram, gram.diagonal() + np.float32(self.l2))
        # Upper triangles only: potrf and potri never look below the diagonal.
        factor, failed = lapack.spotrf(gram, lower=0, clean=0, overwrite_a=1)
        progress(self.name, 1, 2)
        inverse, failed_too = lapack.spotri(factor, lower=0, overwrite_c=1)
        if failed or failed_too:
            raise LogerError(f"EASE^R is not solvable in single precision with l2={self.l2!r}")
        self.weights_ = _weights(inverse)
        progress(self.name, 2, 2)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """X_u B; [users, items]."""
        return np.asarray(self.history_[np.asarray(users)] @ self.weights_, dtype=np.float32)


def memory_needed(n_items: int) -> int:
    """Bytes of the fit at its peak: the Gram matrix, and at worst its sparse form, twice as
    large, from which it is filled."""
    return 3 * 4 * n_items * n_items


def _weights(inverse: Floats, block: int = 1024) -> Floats:
    """B of the upper triangle of P, in place but for a block of rows."""
    n = len(inverse)
    diagonal = inverse.diagonal().copy()
    for start in range(0, n, block):  # mirror the upper triangle, tile by tile
        rows = slice(start, min(start + block, n))
        tile = np.triu(inverse[rows, rows])
        inverse[rows, rows] = tile + np.triu(tile, 1).T
        inverse[rows.stop :, rows] = inverse[rows, rows.stop :].T
    out = inverse.T  # P is symmetric, and its transpose lies row by row in memory
    for start in range(0, n, block):
        out[start : start + block] /= -diagonal
    np.fill_diagonal(out, 0.0)
    return out
