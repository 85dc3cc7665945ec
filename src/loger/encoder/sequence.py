"""What people go on to: a user as the sum of what they did, each action fading with what came after
(METHOD 15).

    h = Σ_a λ^age(a) ⊙ s_a / √(Σ_a λ^(2·age(a)))        z(u, v) = ⟨h, t_v⟩ + b_v

Every item has two vectors, s (what it leads to) and t (what it is), and the decays λ ∈ (0, 1) are
learned, one per dimension. Age counts places in the user's order, 0 for the latest, so all of this
is a diagonal linear recurrence. The divisor depends on ages alone. So the part of an action,
⟨λ^age s_a, t_v⟩ by dimension over the divisor, is exact, and it is what removing the action costs.

Both vectors are an item's own plus a linear map of its TransE vector, which knows its facts: sparse
items gain by it, and new ones have vectors without any training. Here is what a fitted model
answers, in NumPy; how it learns is in ``sequence_training``.
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
    """Settings of the sequence encoder; the defaults are those that validation chose."""

    dimension: int = 64
    epochs: int = 8
    """0: there is none."""
    batch: int = 384
    """Prefixes of histories in a step, about."""
    rate: float = 5e-3
    final_rate: float = 5e-4
    dropout: float = 0.2
    """Of h."""
    targets: int = 10
    """K: the next so many items of a prefix are its targets; the k-th counts k^-½."""
    warm_epochs: int = 2
    """Epochs of a fit that starts warm."""


class Sequence:
    """The sequence encoder. What it has learned is never written to: a fit makes new tables."""

    sources_: Floats
    """s; [items, dimension]."""
    targets_: Floats
    """t; [items, dimension]."""
    biases_: Floats
    """b; [items]."""
    decays_: Floats
    """λ; [dimension]."""
    maps_: Floats
    """What TransE's directions of items add to s and to t; [TransE's dimension, 2 · dimension]."""

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
        """Learn from the order of a graph's interactions, beside an encoder fitted on it; ``warm``
        and ``checkpoint`` are as in ``Encoder.fit``."""
        from loger.encoder.sequence_training import Training  # PyTorch, from here on

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
            # Item by item, so that a score does not depend on what else is asked, not in one bit.
            np.stack([vectors @ row for row in targets], axis=1),
            table[items, -1],
            vectors @ mean[:-1],
            float(mean[-1]),
        )

    def _shares(
        self, graph: Graph, users: NDArray[np.int64], kind: type = np.float32
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """Owners and items of interactions, and λ^age of each over the user's divisor; [.., d].

        In a view the divisor includes what was removed: it happened, so the rest counts as before.
        """
        owners, edges = history_edges(graph, users)
        assert graph.later is not None  # a model of sequences is only made of data with times
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
        """The model on another graph: known items, numbered from ``first`` before, keep what was
        learned; others have what their place in the encoder, which is of that graph, lets one
        expect, and the mean bias."""
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
        """All that was learned."""
        return dict(self._state)

    def load_state(self, n_items: int, state: Mapping[str, NDArray[np.generic]]) -> Self:
        """Restore what ``state`` returned, of so many items, without copying."""
        d = self.config.dimension
        shapes = {"sources": (n_items, d), "targets": (n_items, d), "biases": (n_items,)}
        shapes["decays"] = (d,)
        for name, shape in shapes.items():
            if name not in state or state[name].shape != shape or state[name].dtype != np.float32:
                raise LogerError(f"this is no state of a sequence encoder: {name} does not fit")
        self._state = {name: np.asarray(state[name]).view() for name in sorted(state)}
        for array in self._state.values():
            array.flags.writeable = False
        learned: list[Any] = [self._state[k] for k in (*shapes, "maps")]
        self.sources_, self.targets_, self.biases_, self.decays_, self.maps_ = learned
        return self


def item_directions(encoder: TransE) -> Floats:
    """Where TransE has the items, as unit vectors; [items, TransE's dimension]."""
    first = encoder.n_users_
    return unit(encoder.entities_[first : first + encoder.n_items_])
