"""The sequence encoder: a user is the sum of their actions, which fade with later ones (METHOD 15).

    h = Σ_a λ^age(a) ⊙ s_a / √(Σ_a λ^(2·age(a)))        z(u, v) = ⟨h, t_v⟩ + b_v

Every item has two vectors: s for what it leads to, t for what it is. The decays λ ∈ (0, 1) are
learned, one per dimension. Age counts places in the user's order, 0 for the latest, so h is a
diagonal linear recurrence. The divisor depends only on ages. So an action's contribution,
⟨λ^age s_a, t_v⟩ by dimension over the divisor, is exact, and it is what removing the action costs.

Both vectors are an item's own plus a linear map of its TransE vector, which knows its facts. Rare
items gain from that, and new ones get vectors without training. This module has what a fitted
encoder does, in NumPy; how it learns is in ``sequence_training``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.cold_start import Moved
from loger.encoder.protocol import EncoderParts, TrainerConfig
from loger.encoder.transe import TransE, unit
from loger.engine import Progress, silent
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.graph import Graph, KnowledgeGraph, UserView, history_edges
from loger.graph.arrays import Doubles, Floats

State = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class SequenceConfig(TrainerConfig):
    """Settings of the sequence encoder; validation chose the defaults."""

    dimension: int = 128
    epochs: int = 8
    """Number of passes over the histories, half as many on sparse data; 0 switches the sequence
    encoder off."""
    batch: int = 384
    """Approximate number of histories' prefixes in a step."""
    rate: float = 5e-3
    final_rate: float = 5e-4
    dropout: float = 0.2
    """Dropout of h."""
    targets: int = 10
    """K: the number of next items that are a prefix's targets; the k-th counts k^-½."""
    warm_epochs: int = 2
    """Number of epochs when training continues from earlier vectors."""


class Sequence:
    """The sequence encoder. Its tables are never changed in place: a fit makes new ones."""

    sources_: Floats
    """s; [items, dimension]."""
    targets_: Floats
    """t; [items, dimension]."""
    biases_: Floats
    """b; [items]."""
    decays_: Floats
    """λ; [dimension]."""
    maps_: Floats
    """The map from items' TransE directions to s and t; [TransE's dimension, 2 · dimension]."""

    def __init__(self, config: SequenceConfig | None = None) -> None:
        self.config = config or SequenceConfig()

    def fit(
        self,
        graph: KnowledgeGraph,
        encoder: TransE,
        *,
        warm: bool = False,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from the order of a graph's interactions, given an encoder fitted on the graph;
        ``warm`` and ``checkpoint`` are as in ``Encoder.fit``."""
        from loger.encoder.sequence_training import Training  # imports PyTorch

        begun = self.state() if warm else None
        training = Training(self.config, graph, item_directions(encoder), begun)
        return self.load_state(graph.n_items, training.run(checkpoint, progress))

    # ── scoring ─────────────────────────────────────────────────────────────────────────

    def score(self, graph: Graph, users: ArrayLike) -> Floats:
        """z of all items for some users as a graph knows them; [users, items]."""
        owners, items, shares = self._shares(graph, np.asarray(users, dtype=np.int64))
        h = np.zeros((np.size(users), len(self.decays_)), dtype=np.float32)
        if len(owners):
            first = np.flatnonzero(np.diff(owners, prepend=-1))
            h[owners[first]] = np.add.reduceat(shares * self.sources_[items], first)
        with one_thread():
            out: Floats = h @ self.targets_.T
        out += self.biases_
        return out

    def attribute(self, graph: Graph, user: int, items: NDArray[np.integer]) -> EncoderParts:
        """The parts of the scores of ``items``, by the user's interactions in the order of
        ``history`` (METHOD 11)."""
        _, owned, shares = self._shares(graph, np.array([user]), np.float64)
        vectors = shares * self.sources_[owned]  # [interactions, d]
        table = self._item_table
        mean = (self._item_sum - table[owned].sum(axis=0)) / max(len(table) - len(owned), 1)
        targets = table[items, :-1]
        return EncoderParts(
            # Item by item, so that no bit of a score depends on which other items are explained.
            np.stack([vectors @ row for row in targets], axis=1),
            table[items, -1],
            vectors @ mean[:-1],
            float(mean[-1]),
        )

    def _shares(
        self, graph: Graph, users: NDArray[np.int64], kind: type = np.float32
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """Owners and items of interactions, and λ^age of each over the user's divisor; [.., d].

        In a view, the divisor includes what was removed: it happened, so the rest counts as before.
        """
        owners, edges = history_edges(graph, users)
        assert graph.later is not None  # there is no sequence encoder without times
        ages, items = graph.later[edges], graph.rows.tails[edges].astype(np.int64) - graph.n_users
        gone = graph.later_than_gone if isinstance(graph, UserView) else np.empty(0, np.int32)
        most = int(max(ages.max(initial=0), gone.max(initial=0)))
        powers = self.decays_.astype(np.float64) ** np.arange(most + 1)[:, None]
        squares = np.zeros((len(users), len(self.decays_)))
        if len(owners):
            first = np.flatnonzero(np.diff(owners, prepend=-1))
            squares[owners[first]] = np.add.reduceat((powers**2)[ages], first)
        squares += (powers[gone] ** 2).sum(axis=0)
        divisors: NDArray[Any] = np.sqrt(np.maximum(squares, 1e-24)).astype(kind)
        return owners, items, powers.astype(kind)[ages] / divisors[owners]

    @cached_property
    def _item_table(self) -> Doubles:
        """t and b in double precision; [items, d + 1]."""
        return np.hstack([self.targets_, self.biases_[:, None]]).astype(np.float64)

    @cached_property
    def _item_sum(self) -> Doubles:
        total: Doubles = self._item_table.sum(axis=0)
        return total

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def grown(self, moved: Moved, first: int, encoder: TransE) -> Sequence:
        """The encoder on another graph. Known items keep what they learned; others get what the map
        makes of their TransE vectors, and the mean bias.

        Args:
            moved: where the old graph's entities are in the new one.
            first: the number of the old graph's first item.
            encoder: TransE on the new graph.
        """
        numbers = moved.entities[first : first + len(self.biases_)]
        known, graph = numbers >= 0, moved.graph
        sources, targets = np.hsplit(item_directions(encoder) @ self.maps_, 2)
        mean = self.biases_[known].mean() if known.any() else 0.0
        biases = np.full(graph.n_items, mean, dtype=np.float32)
        out = {"sources": sources.copy(), "targets": targets.copy(), "biases": biases}
        for name, table in out.items():
            table[numbers[known] - graph.n_users] = self._state[name][known]
        return Sequence(self.config).load_state(graph.n_items, {**self._state, **out})

    def state(self) -> State:
        """Everything that was learned."""
        return dict(self._state)

    def load_state(self, n_items: int, state: Mapping[str, NDArray[np.generic]]) -> Self:
        """Restore what ``state`` returned for ``n_items`` items, without copying."""
        d = self.config.dimension
        shapes = {"sources": (n_items, d), "targets": (n_items, d), "biases": (n_items,)}
        shapes["decays"] = (d,)
        for name, shape in shapes.items():
            if name not in state or state[name].shape != shape or state[name].dtype != np.float32:
                raise LogerError(
                    f"the state doesn't match a sequence encoder: {name} is missing or has the "
                    "wrong shape or type; fit again"
                )
        self._state = {name: np.asarray(state[name]).view() for name in sorted(state)}
        for array in self._state.values():
            array.flags.writeable = False
        learned: list[Any] = [self._state[k] for k in (*shapes, "maps")]
        self.sources_, self.targets_, self.biases_, self.decays_, self.maps_ = learned
        return self


def item_directions(encoder: TransE) -> Floats:
    """The items' TransE vectors, scaled to length 1; [items, TransE's dimension]."""
    first = encoder.n_users_
    return unit(encoder.entities_[first : first + encoder.n_items_])
