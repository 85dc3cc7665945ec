"""Users as a graph knows them, whatever the encoder was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.protocol import Encoder, Floats
from loger.engine.threads import one_thread
from loger.graph import Graph, history_edges


@runtime_checkable
class FoldsIn(Protocol):
    """An encoder that can make a user's vector from its items."""

    @property
    def folds_in(self) -> bool:
        """Whether its settings let it."""
        ...

    def fold_in(
        self,
        owners: NDArray[np.integer],
        items: NDArray[np.integer],
        weights: NDArray[np.floating],
        n_users: int,
    ) -> Floats:
        """Scores of all items for users that have these items; [users, items]."""
        ...


@dataclass(frozen=True, eq=False)
class EncoderParts:
    """The encoder's scores of some items for one user, as sums over the user's interactions.

    s(v) = appeal[v] + Σ_a actions[a, v]. The means are over all items that the user does not have.
    In double precision.
    """

    actions: NDArray[np.float64]  # [interactions, items]
    appeal: NDArray[np.float64]  # [items]
    mean_actions: NDArray[np.float64]  # [interactions]
    mean_appeal: float


@runtime_checkable
class Attributable(Protocol):
    """An encoder whose scores can be sums over a user's interactions."""

    @property
    def attributable(self) -> bool:
        """Whether they are, with its settings."""
        ...

    def attribute(
        self,
        owned: NDArray[np.integer],
        weights: NDArray[np.floating],
        items: NDArray[np.integer],
    ) -> EncoderParts:
        """The parts of the scores of items for a user that owns items with weights."""
        ...


def attribute_user(
    encoder: Encoder, graph: Graph, user: int, items: NDArray[np.integer], recency: float = 0.0
) -> EncoderParts | None:
    """The encoder's scores of items for a user as sums over the user's interactions, in the order
    of ``history``; None if the encoder is opaque: then no action can be named."""
    if not (isinstance(encoder, Attributable) and encoder.attributable):
        return None
    _, edges = history_edges(graph, np.array([user]))
    owned = graph.rows.tails[edges] - graph.n_users
    return encoder.attribute(owned, _history_weights(graph, edges, recency), items)


def score_users(encoder: Encoder, graph: Graph, users: ArrayLike, recency: float = 0.0) -> Floats:
    """Scores of all items for a block of users as a graph knows them; [users, items].

    An encoder whose users are their histories gets those of this graph: users that came later
    or changed need no training. There an item counts (1 + the user's later interactions)^-recency,
    where the graph knows times. Of other encoders the scores are those they learned.
    """
    own = np.asarray(users, dtype=np.int64)
    with one_thread():  # also for one user, outside of an engine
        return _scored(encoder, graph, own, recency)


def _scored(encoder: Encoder, graph: Graph, own: NDArray[np.int64], recency: float) -> Floats:
    if not (isinstance(encoder, FoldsIn) and encoder.folds_in):
        return encoder.score_items(own)
    owners, edges = history_edges(graph, own)
    weights = _history_weights(graph, edges, recency)
    return encoder.fold_in(owners, graph.rows.tails[edges] - graph.n_users, weights, len(own))


def _history_weights(
    graph: Graph, edges: NDArray[np.int64], recency: float
) -> NDArray[np.floating]:
    """What each interaction counts in the sum that a user is."""
    if recency and graph.later is not None:
        faded: NDArray[np.floating] = (1.0 + graph.later[edges]) ** -recency
        return faded
    return np.ones(len(edges))
