"""What the rest of loger needs from a KG encoder f_θ.

The paper leaves the encoder open ("any existing KG embedding or graph neural network"), so
``Encoder`` has only what ranking, the logic model and calibration need. ``AdditiveEncoder`` is for
encoders whose users are weighted sums of their items. These also score users who came after the
fit, split their scores among a user's interactions, and follow a graph that changes.

There are also the settings that all trained models share, and hidden pairs. Nothing here loads
PyTorch, so that bundles open without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Progress, silent
from loger.graph import KnowledgeGraph
from loger.graph.arrays import Floats, Ids

if TYPE_CHECKING:
    from loger.encoder.cold_start import Moved


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Settings of everything that gradient steps train: encoders and neural baselines.

    Each model's own settings extend these, with other defaults if it needs them.
    """

    epochs: int = 10
    """Number of passes over the training data."""
    batch: int = 1024
    """Batch size."""
    rate: float = 1e-2
    """Learning rate at the start; it falls linearly to ``final_rate``."""
    final_rate: float = 1e-3
    """Learning rate at the end."""
    seed: int = 0
    device: str | None = None
    """Where to train; None takes a GPU if there is one."""

    def rate_after(self, done: float) -> float:
        """The learning rate after this share of the training, 0 to 1."""
        return self.rate + done * (self.final_rate - self.rate)


@dataclass(frozen=True, eq=False)
class HiddenPairs:
    """Interactions to learn from in addition to the graph's: H⁺ of the E-step, with weights."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    weights: NDArray[np.float32]

    def drawn_with(
        self, interactions: tuple[Ids, Ids], first_item: int, seed: int, epoch: int, warm: bool
    ) -> tuple[Ids, Ids]:
        """Heads and tails that an epoch draws from: the interactions and some hidden pairs.

        Each hidden pair is included with a probability equal to its weight. So many pairs of low
        weight don't displace real interactions, and the loss needs no weights.
        """
        rng = np.random.default_rng([seed, 0x41DD, epoch, warm])
        often = (self.weights + rng.random(len(self.weights))).astype(np.int64)
        users, items = (np.repeat(x, often).astype(np.int64) for x in (self.users, self.items))
        known, owned = interactions
        return np.concatenate([known, users]), np.concatenate([owned, items + first_item])


Own = tuple[float, float]
"""Weights of an item's product with the relation and of its bias, if scores are plain sums."""


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

        Args:
            graph: what to learn from.
            hidden: H⁺ of an E-step.
            warm: whether to continue from the present state, with fewer steps.
            checkpoint: a folder in which the fit saves its state as it goes. A later fit of the
                same graph, hidden pairs and settings resumes there and ends with the same bytes.
            progress: is called as the fit proceeds.
        """
        ...

    def score_items(self, users: ArrayLike) -> Floats:
        """Scores s(u, r_ui, v) of all items for some users, as logits; [users, items]."""
        ...

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Everything that the fit learned, as arrays."""
        ...

    def load_state(self, graph: KnowledgeGraph, state: Mapping[str, NDArray[np.generic]]) -> Self:
        """Restore what ``state`` returned."""
        ...


class WeightedItems(NamedTuple):
    """Users as weighted sums of their items.

    User ``owners[k]`` has ``items[k]``, which counts ``weights[k]``; owners are ascending.
    """

    owners: NDArray[np.integer]
    items: NDArray[np.integer]
    weights: NDArray[np.floating]
    n_users: int

    def lengths(self) -> NDArray[np.float64]:
        """√(Σ w²) of each user, which is √n if everything counts 1; [users].

        Divided by it, sums of unrelated vectors have the same length for all users.
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

    s(v) = appeal[v] + Σ_a actions[a, v], in double precision. The means are over all items that
    the user doesn't have.
    """

    actions: NDArray[np.float64]  # [interactions, items]
    appeal: NDArray[np.float64]  # [items]
    mean_actions: NDArray[np.float64]  # [interactions]
    mean_appeal: float

    def times(self, factor: float) -> EncoderParts:
        """The parts multiplied by a factor."""
        actions, appeal = factor * self.actions, factor * self.appeal
        return EncoderParts(actions, appeal, factor * self.mean_actions, factor * self.mean_appeal)


@runtime_checkable
class AdditiveEncoder(Encoder, Protocol):
    """An encoder whose users are weighted sums of their items."""

    @property
    def folds_in(self) -> bool:
        """Whether users are such sums with the encoder's settings."""
        ...

    @property
    def attributable(self) -> bool:
        """Whether scores, too, are sums over a user's interactions with the encoder's settings."""
        ...

    def fold_in(self, histories: WeightedItems) -> Floats:
        """Scores of all items for users given by their items; [users, items]."""
        ...

    def sums(self, histories: WeightedItems) -> Floats:
        """Weighted sums of the products of a user's items with every item; [users, items].

        In these scores, an interaction's contribution doesn't depend on the others.
        """
        ...

    @property
    def own_parts(self) -> Floats:
        """What all users' scores share in addition to ``sums``; [2, items].

        These are each item's product with the relation, and its bias.
        """
        ...

    def attribute(
        self,
        owned: NDArray[np.integer],
        weights: NDArray[np.floating],
        items: NDArray[np.integer],
        own: Own | None = None,
    ) -> EncoderParts:
        """The parts of the scores of some items for one user.

        Args:
            owned: the user's items.
            weights: what each of them counts.
            items: the items to explain.
            own: weights of items' own parts, if scores are ``sums`` plus these parts.
        """
        ...

    def grown(self, moved: Moved) -> AdditiveEncoder:
        """The encoder on another graph, with vectors for new entities; nothing is trained."""
        ...
