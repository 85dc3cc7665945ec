"""Scores for users as a graph knows them, whatever graph the encoder was trained on.

A user of an additive encoder is the weighted sum of their items, Σ_i w_i e_i / √(Σ_i w_i²). Three
places compute it, with different needs: ``WeightedItems.sums`` for some users and any weights,
``write_user_sums`` for all users of a graph with weights of 1, and ``transe_training.Bags`` in
training, where the item to be predicted is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.protocol import AdditiveEncoder, Encoder, EncoderParts, Own, WeightedItems
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.graph import Graph, KnowledgeGraph, UserView, history_edges
from loger.graph.arrays import Floats

if TYPE_CHECKING:
    from loger.grounding import Walk


def attribute_user(
    encoder: Encoder,
    graph: Graph,
    user: int,
    items: NDArray[np.integer],
    walk: Walk | None = None,
    own: Own | None = None,
) -> EncoderParts | None:
    """The encoder's scores of items for a user, as sums over the user's interactions.

    Interactions are in the order of ``history``. Returns None if the encoder's scores can't be
    split.
    """
    if not (isinstance(encoder, AdditiveEncoder) and encoder.attributable):
        return None
    history = _histories(graph, np.array([user]), walk)
    if own is not None:
        history = _divided(graph, history, walk)
    return encoder.attribute(history.items, history.weights, items, own)


def score_users(
    encoder: Encoder,
    graph: Graph,
    users: ArrayLike,
    walk: Walk | None = None,
    own: Own | None = None,
) -> Floats:
    """Scores of all items for some users as a graph knows them; [users, items].

    An additive encoder gets the histories of this graph, so that users who came later or changed
    need no training. An interaction counts as much as in the first hop of ``walk``: by its age, if
    the graph has times, and by its strength, if it has strengths. Other encoders return the scores
    they learned.

    With ``own``, scores are plain sums over the user's interactions, divided by √(Σ w²) of
    everything the user ever did, plus the items' own parts weighted by ``own``.
    """
    asked = np.asarray(users, dtype=np.int64)
    with one_thread():  # also outside an engine: threads would slow down a single user
        if not folds_in(encoder):
            return encoder.score_items(asked)
        assert isinstance(encoder, AdditiveEncoder)
        histories = _histories(graph, asked, walk)
        if own is None:
            return encoder.fold_in(histories)
        scores = encoder.sums(_divided(graph, histories, walk))
        scores += np.array(own, dtype=np.float32) @ encoder.own_parts
        return scores


def folds_in(encoder: Encoder) -> bool:
    """Whether an encoder makes users from their items, so that it can score new users."""
    return isinstance(encoder, AdditiveEncoder) and encoder.folds_in


def has_sums(encoder: Encoder) -> bool:
    """Whether an encoder has scores that are plain sums over a user's interactions."""
    return isinstance(encoder, AdditiveEncoder) and encoder.attributable


def _histories(graph: Graph, users: NDArray[np.int64], walk: Walk | None) -> WeightedItems:
    """Users' items in a graph, with what each interaction counts."""
    owners, edges = history_edges(graph, users)
    weights: NDArray[np.floating] = np.ones(len(edges))
    if walk is not None:
        if walk.recency and graph.later is not None:
            weights = (1.0 + graph.later[edges]) ** -walk.recency
        strong = graph.relative_strengths(walk.strength)
        weights = weights if strong is None else weights * strong[edges]
    return WeightedItems(owners, graph.rows.tails[edges] - graph.n_users, weights, len(users))


def _divided(graph: Graph, histories: WeightedItems, walk: Walk | None) -> WeightedItems:
    """Histories with weights divided by √(Σ w²) over everything each user did.

    In a view, that includes what was removed: it happened, so the rest counts as before.
    """
    owners, _, weights, n_users = histories
    squares = np.bincount(owners, weights**2, minlength=n_users).astype(np.float64)
    if isinstance(graph, UserView):
        recency, strength = (0.0, 0.0) if walk is None else (walk.recency, walk.strength)
        gone = (1.0 + graph.later_than_gone) ** (-2 * recency)
        squares += (gone * graph.gone_relative(strength) ** 2).sum()
    return histories._replace(weights=weights / np.sqrt(np.maximum(squares, 1e-24))[owners])


def write_user_sums(
    table: Floats, graph: KnowledgeGraph, among: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Write the sums Σ e_i / √n of all users of a graph into a table of entities.

    ``among`` says which items count; None counts all. Returns which users have any; [users].
    """
    from scipy.sparse import csr_array  # slow to import, and scoring does not need it

    edges, users = graph.interactions
    items = graph.tails[edges] - graph.n_users
    if among is not None:
        counted = among[items]
        users, items = users[counted], items[counted]
    n = np.bincount(users, minlength=graph.n_users)
    weights = (1 / np.sqrt(np.maximum(n, 1)))[users].astype(np.float32)
    bags = csr_array((weights, (users, items)), shape=(graph.n_users, graph.n_items))
    first = graph.n_users
    table[:first] = bags @ table[first : first + graph.n_items]
    out: NDArray[np.bool_] = n > 0
    return out


# ── vectors for walking ─────────────────────────────────────────────────────────────────


def vectors(encoder: Encoder, graph: KnowledgeGraph) -> tuple[Floats, Floats]:
    """Vectors of all entities and of all relations, inverse ones last; [entities, d], [2R, d].

    An inverse relation has the negated vector of its relation, as with translations. A derived
    relation has a zero vector, because the encoder hasn't seen it. If the encoder makes users from
    their histories, so does this function.
    """
    if not hasattr(encoder, "tables"):
        raise LogerError(
            f"the path reasoner can't use {type(encoder).__name__}; use TransE, KGE or GNN"
        )
    *tables, of_histories = encoder.tables()
    entities, relations = (np.array(table, dtype=np.float32) for table in tables)
    derived = sum(r.derived for r in graph.relations)  # which encoders do not see
    if derived and len(relations) == len(graph.relations) - derived:
        relations = np.concatenate([relations, np.zeros_like(relations[:1]).repeat(derived, 0)])
    if len(entities) != graph.n_entities or len(relations) != len(graph.relations):
        raise LogerError(
            f"the encoder has {len(entities)} entities and {len(relations)} relations, but the "
            f"graph has {graph.n_entities} and {len(graph.relations)}; "
            "fit the encoder on this graph"
        )
    if entities.shape[1] != relations.shape[1]:
        raise LogerError(
            f"entities have {entities.shape[1]} dimensions and relations {relations.shape[1]}; "
            "the path reasoner needs an encoder with equal dimensions, such as TransE or RotatE"
        )
    if of_histories:
        write_user_sums(entities, graph)
    return entities, np.concatenate([relations, -relations])
