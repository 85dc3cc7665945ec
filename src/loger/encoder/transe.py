"""TransE (Bordes et al. 2013), the paper's encoder, with users made from their histories.

Score. With x = head + relation and y the tail, s = γ − dist(x, y) + bias_t, where dist is

- ``sphere`` (default): γ/2 · ‖x/‖x‖ − y/‖y‖‖², squared L2 of unit vectors, so s = γ·cos + bias_t;
- ``squared``: ‖x − y‖², or ``l1``: ‖x − y‖₁, as in METHOD 2.

Users. A user has no vector of their own: u = Σ_{i ∈ history} e_i / √n. While (u, v) is learned, v
is left out of the sum, so that a purchase doesn't explain itself. Users who weren't there at
training are made in the same way. ``users="free"`` gives every user a vector instead.

Loss. The triples of a batch share their negatives, which have the true entity's type, so scoring is
a matrix product:

- ``softmax`` (default): cross-entropy of the true tail among the batch's distinct tails. For
  interactions, log P(item is among them) is subtracted, because popular items are in many batches.
- ``adversarial``: the loss of LOGER's authors; see ``published``. It needs free users.

This module has what a fitted encoder does, in NumPy; how it learns is in ``transe_training``.
Validation chose every default; docs/research/results.md has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.cold_start import Moved, grown_state
from loger.encoder.protocol import EncoderParts, HiddenPairs, Own, TrainerConfig, WeightedItems
from loger.engine import Progress, silent
from loger.engine.settings import ANY
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.graph.arrays import Floats

Distance = Literal["sphere", "squared", "l1"]
"""Squared L2 of unit vectors, squared L2, or L1."""

State = dict[str, NDArray[np.generic]]
FACT_GAMMA = 10.0
"""γ for all relations but interactions, with the loss ``softmax``."""


@dataclass(frozen=True, slots=True)
class TransEConfig(TrainerConfig):
    """Settings of TransE; validation on the Amazon data sets chose the defaults."""

    FORMER: ClassVar[Mapping[str, Any]] = {
        "fact_gamma": 10.0, "max_history": 16, "temperature": 1.0, "refit_epochs": 0,
        "refit_rate": 3e-3, "max_visits": 2.0, "head_share": 0.5, "steps": ANY,
        "max_interactions": ANY,
    }  # fmt: skip
    """Settings of earlier versions that are constants now; old bundles still have them."""

    dimension: int = 100
    """Length of the vectors; 100 as in the paper."""
    distance: Distance = "sphere"
    """`sphere` compares directions; `squared` and `l1` compare points."""
    gamma: float = 8.0
    """γ for interactions."""
    users: Literal["history", "free"] = "history"
    """`history` makes a user's vector from the user's items; `free` learns one per user."""
    loss: Literal["softmax", "adversarial"] = "softmax"
    """`adversarial` is the loss of LOGER's authors, whose epochs have 5,000 steps."""
    epochs: int = 6
    facts_per_interaction: float = 2.0
    """Facts per epoch, as a multiple of the interactions, shared among relations ∝ √size."""
    warm_epochs: int = 2
    """Number of epochs when training continues from earlier vectors."""
    group: int | None = 256
    """Number of triples that share their tails as negatives; None shares them in the whole
    batch."""

    @classmethod
    def thorough(cls, **settings: Any) -> Self:
        """Longer training, with more negatives, for ranking by the encoder alone.

        In the whole model, rules make up for the shorter training of the default, which takes a
        third of the time (docs/adr/0026).
        """
        return cls(**{"epochs": 8, "group": None} | settings)


class TransE:
    """The default encoder. Its tables are never changed in place: a fit makes new ones."""

    entities_: Floats
    """A vector for every entity, with users as sums; [entities, dimension]."""
    relations_: Floats
    """[relations, dimension]."""
    biases_: Floats
    """[entities, 1]."""

    def __init__(self, config: TransEConfig | None = None) -> None:
        self.config = config or TransEConfig()

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(
        self,
        graph: KnowledgeGraph,
        *,
        hidden: HiddenPairs | None = None,
        warm: bool = False,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from a graph; see ``Encoder.fit``."""
        from loger.encoder.published import Published  # imports PyTorch
        from loger.encoder.transe_training import Training

        if warm and not hasattr(self, "entities_"):
            raise LogerError("a warm fit needs an earlier one; call fit without warm=True first")
        kind = Published if self.config.loss == "adversarial" else Training
        training = kind(self.config, graph, hidden, self.state() if warm else None)
        return self.load_state(graph, training.run(checkpoint, progress))

    # ── scoring ─────────────────────────────────────────────────────────────────────────

    def score_items(self, users: ArrayLike) -> Floats:
        """Scores of all items for a block of users; see ``Encoder.score_items``."""
        return self._score_items(self.entities_[np.asarray(users, dtype=np.int64)])

    @property
    def folds_in(self) -> bool:
        """Whether users' vectors are made from their histories."""
        return self.config.users == "history"

    def fold_in(self, histories: WeightedItems) -> Floats:
        """Scores of all items for users given by their items; see ``AdditiveEncoder.fold_in``."""
        if not self.folds_in:
            raise LogerError("an encoder with users='free' can't score users it wasn't fitted on")
        scale = 1 / histories.lengths()[histories.owners]
        histories = histories._replace(weights=histories.weights * scale)
        return self._score_items(histories.sums(self.entities_[self._items]))

    @property
    def attributable(self) -> bool:
        """Whether scores are sums over a user's interactions: x = Σ w_a e_a + r is a sum, and s is
        linear in x apart from its length, which is the same for all items."""
        return self.folds_in and self.config.distance != "l1"

    def sums(self, histories: WeightedItems) -> Floats:
        """Σ_a w_a ⟨e_a, y⟩ for all items, times γ on the sphere or 2 otherwise; see
        ``AdditiveEncoder.sums``."""
        scaled = histories._replace(weights=self._factor * histories.weights)
        out: Floats = scaled.sums(self.entities_[self._items]) @ self._targets.T
        return out

    @cached_property
    def own_parts(self) -> Floats:
        """⟨r, y⟩ times γ or 2, and b, minus ‖y‖² unless on the sphere; see
        ``AdditiveEncoder.own_parts``."""
        table, relation = self._item_table, self.relations_[INTERACTION].astype(np.float64)
        parts = np.stack([self._factor * (table[:, :-1] @ relation), table[:, -1]])
        return parts.astype(np.float32)

    @property
    def _factor(self) -> float:
        """What the product with an item is multiplied by in its score."""
        return self.config.gamma if self.config.distance == "sphere" else 2.0

    @cached_property
    def _targets(self) -> Floats:
        """What users' vectors are multiplied with; [items, dimension]."""
        y = self.entities_[self._items]
        return unit(y) if self.config.distance == "sphere" else np.ascontiguousarray(y)

    def attribute(
        self,
        owned: NDArray[np.integer],
        weights: NDArray[np.floating],
        items: NDArray[np.integer],
        own: Own | None = None,
    ) -> EncoderParts:
        """The parts of scores (METHOD 11); see ``AdditiveEncoder.attribute``.

        On the sphere, s = γ⟨x, ŷ⟩/‖x‖ + b; otherwise s = γ − ‖x‖² + 2⟨x, y⟩ − ‖y‖² + b. An
        interaction contributes its term of the product with y; the rest is the item's appeal.
        """
        gamma, table = self.config.gamma, self._item_table
        length = 1.0 if own is not None else max(float(np.sqrt(np.sum(weights**2))), 1e-12)
        vectors = (weights / length)[:, None] * self._item_vectors[owned]  # [interactions, d]
        relation = self.relations_[INTERACTION].astype(np.float64)
        scale, constant, of_bias = self._factor, 0.0, 1.0
        if own is not None:
            relation, of_bias = own[0] * relation, own[1]
        else:
            x = vectors.sum(axis=0) + relation
            if self.config.distance == "sphere":
                scale = gamma / max(float(np.linalg.norm(x)), 1e-12)
            else:
                constant = gamma - float(x @ x)
        y, bias = table[items, :-1], of_bias * table[items, -1]
        others = max(len(table) - len(owned), 1)
        mean = (self._item_sum - table[owned].sum(axis=0)) / others
        return EncoderParts(
            # Item by item, so that no bit of a score depends on which other items are explained.
            scale * np.stack([vectors @ row for row in y], axis=1),
            constant + scale * np.array([row @ relation for row in y]) + bias,
            scale * (vectors @ mean[:-1]),
            float(constant + scale * (mean[:-1] @ relation) + of_bias * mean[-1]),
        )

    @cached_property
    def _item_vectors(self) -> NDArray[np.float64]:
        """The vectors of all items, in double precision; [items, d]."""
        return self.entities_[self._items].astype(np.float64)

    @cached_property
    def _item_table(self) -> NDArray[np.float64]:
        """What a user's vector is multiplied with, then the bias; [items, d + 1]."""
        y, bias = self._item_vectors, self.biases_[self._items].astype(np.float64)
        lengths = np.linalg.norm(y, axis=1, keepdims=True)
        if self.config.distance == "sphere":
            return np.hstack([y / np.maximum(lengths, 1e-12), bias])
        return np.hstack([y, bias - lengths**2])

    @cached_property
    def _item_sum(self) -> NDArray[np.float64]:
        total: NDArray[np.float64] = self._item_table.sum(axis=0)
        return total

    def _score_items(self, vectors: Floats) -> Floats:
        if self.config.distance == "sphere":
            return self._questions(vectors) @ self._answers.T
        x, y = vectors + self.relations_[INTERACTION], self.entities_[self._items]
        return self.config.gamma - self._distances(x, y) + self.biases_[self._items, 0]

    def _distances(self, x: Floats, y: Floats) -> Floats:
        """The distance of every x to every y, unless on the sphere."""
        if self.config.distance == "squared":
            lengths: Floats = (x * x).sum(-1)[:, None] + (y * y).sum(-1)
            return lengths - 2 * (x @ y.T)
        return np.stack([np.abs(row - y).sum(-1) for row in x]) if len(x) else x @ y.T

    def _questions(self, vectors: Floats) -> Floats:
        """Users on the sphere, scaled by γ, and a 1 that is multiplied by the bias."""
        x = unit(vectors + self.relations_[INTERACTION])
        return np.hstack([np.float32(self.config.gamma) * x, np.ones_like(x[:, :1])])

    @cached_property
    def _answers(self) -> Floats:
        """Unit vectors of all items with their biases; [items, d + 1]."""
        return np.hstack([unit(self.entities_[self._items]), self.biases_[self._items]])

    @property
    def _items(self) -> slice:
        """Where the items are among the entities."""
        return slice(self.n_users_, self.n_users_ + self.n_items_)

    def tables(self) -> tuple[Floats, Floats, bool]:
        """The vectors of entities and of relations, for the path reasoner, and whether users are
        made from their items."""
        return self.entities_, self.relations_, self.folds_in

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def grown(self, moved: Moved) -> TransE:
        """The encoder on another graph; see ``AdditiveEncoder.grown``."""
        sphere = self.config.distance == "sphere"
        state = grown_state(self.state(), moved, folds_in=self.folds_in, on_sphere=sphere)
        return TransE(self.config)._take(moved.graph, state)

    def state(self) -> State:
        """Everything that was learned, and what a warm fit needs from the steps before it."""
        return dict(self._state)

    def load_state(self, graph: KnowledgeGraph, state: Mapping[str, NDArray[np.generic]]) -> Self:
        """Restore what ``state`` returned, without copying: arrays of a file may stay mapped."""
        shapes = _shapes(graph, self.config.dimension)
        for name, shape in shapes.items():
            kind = np.int64 if name.endswith(".steps") else np.float32
            if name not in state or state[name].shape != shape or state[name].dtype != kind:
                raise LogerError(
                    f"the state doesn't match a TransE on this graph: {name} is missing or has the "
                    "wrong shape or type; fit again"
                )
        return self._take(graph, {name: state[name] for name in shapes})

    def _take(self, graph: KnowledgeGraph, state: Mapping[str, NDArray[np.generic]]) -> Self:
        self.n_users_, self.n_items_ = graph.n_users, graph.n_items
        self._state = {name: np.asarray(state[name]).view() for name in sorted(state)}
        for array in self._state.values():
            array.flags.writeable = False
        tables: list[Any] = [self._state[f"{part}.table"] for part in PARTS]
        self.entities_, self.relations_, self.biases_ = tables
        for name in list(vars(self)):
            if isinstance(getattr(type(self), name, None), cached_property):
                del vars(self)[name]  # computed from the tables before
        return self


PARTS = ("entities", "relations", "biases")


def _shapes(graph: KnowledgeGraph, dimension: int) -> dict[str, tuple[int, ...]]:
    """The arrays of a state: for each part its table, second moments by row, and the number of
    steps."""
    rows = {"entities": graph.n_entities, "relations": len(graph.relations)}
    rows["biases"] = graph.n_entities
    out: dict[str, tuple[int, ...]] = {}
    for part, n in rows.items():
        out[f"{part}.table"] = (n, 1 if part == "biases" else dimension)
        out[f"{part}.second"], out[f"{part}.steps"] = (n,), (1,)
    return out


def unit(x: Floats) -> Floats:
    """Vectors scaled to length 1."""
    lengths: Floats = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    out: Floats = x / lengths.clip(min=1e-12)
    return out
