"""What the rest of loger asks of a KG encoder f_θ.

The paper leaves the encoder open ("any existing KG embedding or graph neural network"), so
``Encoder`` is all that ranking, the logic model and calibration need of it. ``AdditiveEncoder``
is for those whose users are weighted sums of their items: they also score users who came after
the fit, split their scores among a user's interactions, and keep up with a graph that changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.training.config import HiddenPairs
from loger.engine import Progress, silent
from loger.graph import KnowledgeGraph

if TYPE_CHECKING:
    from loger.encoder.cold_start import Moved

Floats = NDArray[np.float32]
Own = tuple[float, float]
"""Weights of an item's product with the relation, and of its bias, where scores are plain sums."""


class Encoder(Protocol):
    """A knowledge-graph encoder. Users and items are numbered from 0 within their type."""

    def fit(
        self,
        graph: KnowledgeGraph,
        *,
        hidden: HiddenPairs | None = None,
        warm: bool = False,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from a graph's triples and, if given, weighted hidden pairs.

        ``warm`` continues from the present state with a fraction of the first fit's steps.
        With ``checkpoint`` (a folder) the fit saves its state as it goes. A fit that finds a
        state of the same graph, hidden pairs and settings there resumes it and ends with the
        same bytes.
        """
        ...

    def score_items(self, users: ArrayLike) -> Floats:
        """Scores s(u, r_ui, v) of all items for some users, as logits; [users, items]."""
        ...

    def score_triples(self, heads: ArrayLike, relations: ArrayLike, tails: ArrayLike) -> Floats:
        """Scores of triples of base relations, by entity id, as logits."""
        ...

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Everything that was learned, as arrays."""
        ...

    def load_state(self, graph: KnowledgeGraph, state: Mapping[str, NDArray[np.generic]]) -> Self:
        """Restore what ``state`` returned."""
        ...


class WeightedItems(NamedTuple):
    """Users by what they have, each as a weighted sum of their items.

    User ``owners[k]`` has ``items[k]``, which counts ``weights[k]``; owners are ascending.
    """

    owners: NDArray[np.integer]
    items: NDArray[np.integer]
    weights: NDArray[np.floating]
    n_users: int

    def lengths(self) -> NDArray[np.float64]:
        """√(Σ w²) of each user: √n where everything counts 1; [users].

        Dividing by it keeps the length of a sum of unlike vectors the same for all users.
        """
        squares = np.bincount(self.owners, self.weights**2, minlength=self.n_users)
        return np.maximum(np.sqrt(squares), 1e-12)

    def sums(self, vectors: Floats) -> Floats:
        """u = Σ_i w_i e_i of each user, for item vectors e; [users, dimension]."""
        sizes = np.bincount(self.owners, minlength=self.n_users)
        parts = self.weights.astype(np.float32)[:, None] * vectors[self.items]
        out = np.zeros((self.n_users, parts.shape[1]), dtype=np.float32)
        if len(self.owners):
            starts = (np.cumsum(sizes) - sizes)[sizes > 0]
            out[sizes > 0] = np.add.reduceat(parts, starts)
        return out


@dataclass(frozen=True, eq=False)
class EncoderParts:
    """An encoder's scores of some items for one user, as sums over the user's interactions.

    s(v) = appeal[v] + Σ_a actions[a, v]. The means are over all items that the user does not have.
    In double precision.
    """

    actions: NDArray[np.float64]  # [interactions, items]
    appeal: NDArray[np.float64]  # [items]
    mean_actions: NDArray[np.float64]  # [interactions]
    mean_appeal: float


@runtime_checkable
class AdditiveEncoder(Encoder, Protocol):
    """An encoder whose users are weighted sums of their items."""

    @property
    def folds_in(self) -> bool:
        """Whether, with its settings, users are such sums."""
        ...

    @property
    def attributable(self) -> bool:
        """Whether, with its settings, scores too are sums over a user's interactions."""
        ...

    def fold_in(self, histories: WeightedItems) -> Floats:
        """Scores of all items for users known by their items alone; [users, items]."""
        ...

    def sums(self, histories: WeightedItems) -> Floats:
        """Σ of weight times the product of what a user has with every item; [users, items].

        These are scores in which the contribution of an interaction does not depend on the others.
        """
        ...

    @property
    def own_parts(self) -> Floats:
        """The parts of ``sums``-scores that are the same for all users; [2, items].

        Each item's product with the relation, and its bias.
        """
        ...

    @property
    def shifts(self) -> Floats:
        """What is added to the scores of items besides, 0 for those the fit knew; [items]."""
        ...

    def self_products(self) -> Floats:
        """What an item contributes to its own score if it is in a history, weight 1; [items]."""
        ...

    def attribute(
        self,
        owned: NDArray[np.integer],
        weights: NDArray[np.floating],
        items: NDArray[np.integer],
        own: Own | None = None,
    ) -> EncoderParts:
        """The parts of the scores of ``items`` for a user that owns items with weights.

        With ``own``, of the scores that ``sums`` and the items' own parts make.
        """
        ...

    def grown(self, moved: Moved) -> AdditiveEncoder:
        """The encoder on another graph, with vectors for what is new in it; nothing is trained."""
        ...

    def as_new(self) -> AdditiveEncoder | None:
        """The encoder that compares users with what it expects of items, as if all were new.

        None if nothing is new since its fit.
        """
        ...

    def fact_shares(self) -> Floats:
        """How much of each item's vector comes from its facts, 0 for known items; [items]."""
        ...

    def with_gains(self, gains: Floats, shifts: Floats) -> AdditiveEncoder:
        """The encoder whose scores s of items are gain · s + shift; both [items]."""
        ...
