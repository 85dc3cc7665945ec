"""Users as a graph knows them, whatever the encoder was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.protocol import Encoder, Floats
from loger.engine.threads import one_thread
from loger.graph import Graph, UserView, history_edges

if TYPE_CHECKING:
    from loger.grounding import Walk


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


Own = tuple[float, float]
"""What an item's product with the relation and its bias count, beside the sum over interactions."""


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


@runtime_checkable
class Summable(Attributable, Protocol):
    """An attributable encoder with scores that are plain sums: what an interaction gives does not
    depend on the others."""

    def sums(
        self,
        owners: NDArray[np.integer],
        items: NDArray[np.integer],
        weights: NDArray[np.floating],
        n_users: int,
    ) -> Floats:
        """Σ over what each user has of weight times the product with every item; [users, items].

        Arguments are those of ``FoldsIn.fold_in``.
        """
        ...

    @property
    def own_parts(self) -> Floats:
        """What items have whoever asks: their product with the relation, and a bias; [2, items]."""
        ...

    @property
    def shifts(self) -> Floats:
        """What is added to the scores of items besides, 0 of those the fit knew; [items]."""
        ...

    def self_products(self) -> Floats:
        """What an item gives itself where it is in a history with weight 1; [items]."""
        ...

    def attribute(
        self,
        owned: NDArray[np.integer],
        weights: NDArray[np.floating],
        items: NDArray[np.integer],
        own: Own | None = None,
    ) -> EncoderParts:
        """As ``Attributable.attribute``; with ``own``, of ``sums`` and the items' own parts."""
        ...


def attribute_user(
    encoder: Encoder,
    graph: Graph,
    user: int,
    items: NDArray[np.integer],
    walk: Walk | None = None,
    own: Own | None = None,
) -> EncoderParts | None:
    """The encoder's scores of items for a user as sums over the user's interactions, in the order
    of ``history``; None if the encoder is opaque: then no action can be named."""
    if not (isinstance(encoder, Attributable) and encoder.attributable):
        return None
    _, edges = history_edges(graph, np.array([user]))
    owned = graph.rows.tails[edges] - graph.n_users
    weights = _history_weights(graph, edges, walk)
    if own is None:
        return encoder.attribute(owned, weights, items)
    assert isinstance(encoder, Summable)
    weights = weights / _lengths(graph, np.zeros_like(edges), weights, 1, walk)
    return encoder.attribute(owned, weights, items, own)


def score_users(
    encoder: Encoder,
    graph: Graph,
    users: ArrayLike,
    walk: Walk | None = None,
    own: Own | None = None,
) -> Floats:
    """Scores of all items for a block of users as a graph knows them; [users, items].

    With ``own`` they are plain sums over the user's interactions, divided by √(Σ w²) of all that
    the user ever did, and those parts of the items.

    An encoder whose users are their histories gets those of this graph: users that came later
    or changed need no training. There an item counts what it does as the first hop of a walk: by
    its age where the graph knows times, by its strength where it knows that. Of other encoders the
    scores are those they learned.
    """
    asked = np.asarray(users, dtype=np.int64)
    with one_thread():  # also for one user, outside of an engine
        return _scored(encoder, graph, asked, walk, own)


def score_unowned(
    encoder: Encoder, graph: Graph, users: NDArray[np.int64], walk: Walk | None, own: Own
) -> Floats:
    """As ``score_users``, but an item that a user has gets what the rest of the history gives."""
    assert isinstance(encoder, Summable)
    scores = score_users(encoder, graph, users, walk, own)
    owners, edges = history_edges(graph, users)
    weights = _history_weights(graph, edges, walk)
    weights = weights / _lengths(graph, owners, weights, len(users), walk)[owners]
    items = graph.rows.tails[edges] - graph.n_users
    scores[owners, items] -= (weights * encoder.self_products()[items]).astype(np.float32)
    return scores


def _scored(
    encoder: Encoder, graph: Graph, users: NDArray[np.int64], walk: Walk | None, own: Own | None
) -> Floats:
    if not folds_in(encoder):
        return encoder.score_items(users)
    assert isinstance(encoder, FoldsIn)
    owners, edges = history_edges(graph, users)
    weights = _history_weights(graph, edges, walk)
    items = graph.rows.tails[edges] - graph.n_users
    if own is None:
        return encoder.fold_in(owners, items, weights, len(users))
    assert isinstance(encoder, Summable)
    weights = weights / _lengths(graph, owners, weights, len(users), walk)[owners]
    scores = encoder.sums(owners, items, weights, len(users))
    scores += np.array(own, dtype=np.float32) @ encoder.own_parts + encoder.shifts
    return scores


def folds_in(encoder: Encoder) -> bool:
    """Whether an encoder makes a user of its items, so that it takes new ones."""
    return isinstance(encoder, FoldsIn) and encoder.folds_in


def has_sums(encoder: Encoder) -> bool:
    """Whether an encoder has scores that are plain sums over a user's interactions."""
    return isinstance(encoder, Summable) and encoder.attributable


def _history_weights(
    graph: Graph, edges: NDArray[np.int64], walk: Walk | None
) -> NDArray[np.floating]:
    """What each interaction counts in the sum that a user is."""
    out: NDArray[np.floating] = np.ones(len(edges))
    if walk is None:
        return out
    if walk.recency and graph.later is not None:
        out = (1.0 + graph.later[edges]) ** -walk.recency
    strong = graph.relative_strengths(walk.strength)
    return out if strong is None else out * strong[edges]


def _lengths(
    graph: Graph,
    owners: NDArray[np.integer],
    weights: NDArray[np.floating],
    n_users: int,
    walk: Walk | None,
) -> NDArray[np.float64]:
    """√(Σ w²) over what each user did, √n where all counts 1.

    In a view that includes what was removed: it happened, so that the rest counts as before.
    """
    squares = np.bincount(owners, weights**2, minlength=n_users).astype(np.float64)
    if isinstance(graph, UserView):
        recency, strength = (0.0, 0.0) if walk is None else (walk.recency, walk.strength)
        gone = (1.0 + graph.later_than_gone) ** (-2 * recency)
        squares += (gone * graph.gone_relative(strength) ** 2).sum()
    return np.sqrt(np.maximum(squares, 1e-24))
