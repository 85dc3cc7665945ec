"""EASE^R: the closed-form linear autoencoder, a strong control where the catalogue fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from loger.baselines._shared import LinearItems, decayed, pair_ages
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.graph.arrays import Floats
from loger.recommender import PairMatrix


@dataclass(eq=False, kw_only=True)
class EASE(LinearItems):
    """Steck, WWW 2019, "Embarrassingly Shallow Autoencoders for Sparse Data".

    With X the users × items matrix of training pairs, B minimises ‖X − XB‖² + λ‖B‖² with a
    zero diagonal, so that no item explains itself. In closed form

        P = (XᵀX + λI)⁻¹,   B_ij = −P_ij / P_jj,   B_jj = 0,   score(u, ·) = X_u B.

    ``recency`` ρ lets the history fade at scoring time, ``training_recency`` τ while learning,
    and ``popularity`` β holds popular items back: with a_ui = 1 + u's interactions after i and
    n_v = the training users of v,

        X_ui = a_ui^−τ in the Gram matrix,   score(u, v) = n_v^−β Σ_i a_ui^−ρ B_iv.

    All three are 0 in the paper. P is dense and comes from a Cholesky factor in single precision,
    in place: λ bounds the condition number by 1 + ‖X‖²/λ. ``memory`` is what the fit may use, in
    bytes.
    """

    name = "EASE^R"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"l2": (30.0, 100.0, 300.0, 1000.0, 4000.0)}
    RECENCY_GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "l2": (300.0, 10.0, 30.0, 100.0, 1000.0, 4000.0),
        "recency": (0.5, 0.0, 0.25, 1.0, 1.5),
        "popularity": (0.0, 0.1, 0.2, 0.4),
        "training_recency": (0.0, 0.1, 0.3),
    }

    l2: float = 100.0
    recency: float = 0.0
    training_recency: float = 0.0
    popularity: float = 0.0
    memory: int = 8 << 30

    def __post_init__(self) -> None:
        check_numbers(self, "l2", recency=0, training_recency=0)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Solve for B; a catalogue that is too large is refused before work starts."""
        _check_memory(split.dataset.n_items, self.memory)
        self.ages_ = pair_ages(split, self.name, self.recency, self.training_recency)
        self.counts_ = item_counts(self.ages_)
        self.weights_ = solved(self._rows(split), self.l2, self.name, progress)
        return self

    def _rows(self, split: Split) -> PairMatrix:
        """What B reproduces: the histories."""
        return decayed(self.ages_, self.training_recency)


def item_counts(pairs: PairMatrix) -> Floats:
    """How many users have each item, at least 1; [items]."""
    counts = np.bincount(pairs.indices, minlength=pairs.shape[1])
    return np.maximum(counts, 1).astype(np.float32)


def solved(rows: PairMatrix, l2: float, name: str, progress: Progress) -> Floats:
    """B of a matrix of rows over items, in single precision; [items, items]."""
    progress(name, 0, 2)
    gram = np.asfortranarray((rows.T @ rows).toarray())
    np.fill_diagonal(gram, gram.diagonal() + np.float32(l2))
    # Upper triangles only: potrf and potri never look below the diagonal.
    factor, failed = lapack.spotrf(gram, lower=0, clean=0, overwrite_a=1)
    progress(name, 1, 2)
    inverse, failed_too = lapack.spotri(factor, lower=0, overwrite_c=1)
    if failed or failed_too:
        raise LogerError(f"can't solve {name} in single precision with l2={l2!r}; raise l2")
    weights = _weights(inverse)
    progress(name, 2, 2)
    return weights


def _check_memory(n_items: int, memory: int) -> None:
    """Refuse a catalogue that is too large, before work starts."""
    need = memory_needed(n_items)
    if need > memory:
        raise LogerError(
            f"EASE^R on {n_items:,} items needs {need / 2**30:.1f} GiB, but only "
            f"{memory / 2**30:.1f} GiB are allowed; raise memory, or use ItemKNN or RP3β"
        )


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


@dataclass(eq=False, kw_only=True)
class CollectiveEASE(EASE):
    """Jeunen, Van Balen & Goethals, RecSys 2020, "Closed-Form Models for Collaborative Filtering
    with Side-Information" (CEASE), on the facts of a knowledge graph.

    F has a row for each relation r (or inverse) and entity e that items lead to: 1 for every item
    i with (i, r, e), and for e if that is an item itself, so that linked items meet. B is that of
    EASE^R for the rows of users and facts together,

        P = (XᵀX + w² FᵀD^−2ηF + λI)⁻¹,   B_ij = −P_ij / P_jj,   B_jj = 0,
        score(u, v) = n_v^−β Σ_i a_ui^−ρ B_iv,

    with w ``weight``, D the row sizes of F, η ``discount`` (a fact of thousands of items says
    little of each), and a, n, ρ, β as in ``EASE``.
    """

    name = "collective EASE^R"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "weight": (1.0, 0.3, 3.0),
        "discount": (0.5, 0.0),
        "l2": (100.0, 30.0, 300.0, 1000.0, 4000.0),
        "popularity": (0.0, 0.1, 0.2),
    }
    RECENCY_GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        **GRID,
        "recency": (0.5, 0.0, 0.25, 1.0, 1.5),
    }

    weight: float = 1.0
    discount: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, weight=0)

    def _rows(self, split: Split) -> PairMatrix:
        """Histories, and facts below them."""
        facts = fact_rows(split.graph)
        sizes = np.diff(facts.indptr)
        each = np.float32(self.weight) * sizes.astype(np.float32) ** np.float32(-self.discount)
        facts.data *= np.repeat(each, sizes)
        return sp.csr_array(sp.vstack([super()._rows(split), facts], format="csr"))


def fact_rows(graph: KnowledgeGraph) -> PairMatrix:
    """F: which items have which fact; [relation and entity, items]. Facts of one item alone, by
    which no two items meet, are left out."""
    n, items = graph.n_entities, graph.vocabulary.span("item")
    heads, relations = graph.edge_heads(), graph.edge_relations().astype(np.int64)
    own = (heads >= items.start) & (heads < items.stop)
    own &= relations != graph.inverse(INTERACTION)
    ends = graph.tails[own].astype(np.int64)
    facts, row = np.unique(relations[own] * n + ends, return_inverse=True)
    end = facts % n
    itself = np.flatnonzero((end >= items.start) & (end < items.stop))
    rows = np.concatenate([row, itself])
    columns = np.concatenate([heads[own], end[itself]]) - items.start
    ones = np.ones(len(rows), dtype=np.float32)
    out = sp.csr_array((ones, (rows, columns)), shape=(len(facts), len(items)))
    return sp.csr_array(out[np.diff(out.indptr) > 1])
