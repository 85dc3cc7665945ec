"""Users as a graph knows them, whatever the encoder was trained on."""

from __future__ import annotations

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
    weights: NDArray[np.floating] = np.ones(len(edges))
    if recency and graph.later is not None:
        weights = (1.0 + graph.later[edges]) ** -recency
    return encoder.fold_in(owners, graph.rows.tails[edges] - graph.n_users, weights, len(own))
