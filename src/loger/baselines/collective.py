"""Collective EASE^R: the linear autoencoder with what is known of items as further rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from loger.baselines.ease import check_memory, item_counts, solved
from loger.baselines.recency import check_exponents, decayed, pair_ages
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.recommender import Floats, PairMatrix, Recommender


class CollectiveEASE(Recommender):
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
    SCORING = frozenset({"recency", "popularity"})

    ages_: PairMatrix  # [users, items]: a
    weights_: Floats  # [items, items]: B
    counts_: Floats  # [items]: n

    def __init__(
        self,
        *,
        weight: float = 1.0,
        discount: float = 0.5,
        l2: float = 100.0,
        recency: float = 0.0,
        popularity: float = 0.0,
        memory: int = 8 << 30,
    ) -> None:
        if l2 <= 0 or weight < 0:
            raise LogerError(f"l2 must be above 0 and weight at least 0, got {l2!r}, {weight!r}")
        check_exponents(recency)
        self.weight, self.discount, self.l2 = weight, discount, l2
        self.recency, self.popularity, self.memory = recency, popularity, memory

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Solve for B; a catalogue that is too large is refused before work starts."""
        check_memory(split.dataset.n_items, self.memory)
        self.ages_ = pair_ages(split, self.name, self.recency)
        self.counts_ = item_counts(self.ages_)
        facts = fact_rows(split.graph)
        sizes = np.diff(facts.indptr)
        each = np.float32(self.weight) * sizes.astype(np.float32) ** np.float32(-self.discount)
        facts.data *= np.repeat(each, sizes)
        rows = sp.vstack([decayed(self.ages_, 0.0), facts], format="csr")
        self.weights_ = solved(sp.csr_array(rows), self.l2, self.name, progress)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """n^−β X_u B with the user's history as old as it is; [users, items]."""
        history = decayed(self.ages_[np.asarray(users)], self.recency)
        out = np.asarray(history @ self.weights_, dtype=np.float32)
        if self.popularity:
            out *= self.counts_ ** np.float32(-self.popularity)
        return out


def fact_rows(graph: KnowledgeGraph) -> PairMatrix:
    """F: which items have which fact; [relation and entity, items]. Facts of one item alone, by
    which no two items meet, are left out."""
    n, items = graph.n_entities, graph.vocabulary.span("item")
    relations = np.repeat(graph.segment_relations, np.diff(graph.segment_starts)).astype(np.int64)
    heads = np.repeat(np.arange(n), np.diff(graph.indptr))
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
