"""The items of highest score for all users, exactly, in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.protocol import Encoder
from loger.encoder.threads import one_thread
from loger.engine import Engine, LocalEngine
from loger.graph import INTERACTION, KnowledgeGraph
from loger.topk import top_k

CELLS_PER_BLOCK = 4 << 20
"""Scores that a worker holds at a time: 16 MiB, so that they are not far when chosen from."""


def top_items(
    encoder: Encoder,
    graph: KnowledgeGraph,
    users: ArrayLike,
    k: int,
    *,
    engine: Engine | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """For each user the k best items it has no interaction with, and their scores; [users, k]."""
    asked = np.asarray(users, dtype=np.int64)
    size = max(1, CELLS_PER_BLOCK // max(1, graph.n_items))

    def block(own: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        return top_k(encoder.score_items(own), k, observed(graph, own), engine=LocalEngine(1))

    blocks = [asked[lo : lo + size] for lo in range(0, len(asked), size)]
    with one_thread():
        found = list((engine or LocalEngine()).map("retrieving items", block, blocks))
    items = [np.empty((0, k), dtype=np.int32), *(i for i, _ in found)]
    values = [np.empty((0, k), dtype=np.float32), *(v for _, v in found)]
    return np.concatenate(items), np.concatenate(values)


def score_users(
    encoder: Encoder, graph: KnowledgeGraph, users: ArrayLike, recency: float = 0.0
) -> NDArray[np.float32]:
    """Scores of all items for a block of users as a graph knows them; [users, items].

    An encoder whose users are their histories gets those of this graph, whatever it was
    trained on: users that came later or changed need no training. There an item counts
    (1 + the user's later interactions)^-recency, where the graph knows times.
    """
    own = np.asarray(users, dtype=np.int64)
    if not getattr(encoder, "folds_in", False):
        return encoder.score_items(own)
    owners, edges = observed_edges(graph, own)
    weights: NDArray[np.floating] = np.ones(len(edges))
    if recency and graph.later is not None:
        weights = (1.0 + graph.later[edges]) ** -recency
    items = graph.tails[edges] - graph.n_users
    folded: NDArray[np.float32] = encoder.fold_in(owners, items, weights, len(own))  # type: ignore[attr-defined]
    return folded


def observed(
    graph: KnowledgeGraph, users: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The interactions of some users as (place among them, item)."""
    owners, edges = observed_edges(graph, users)
    return owners, graph.tails[edges].astype(np.int64) - graph.n_users


def observed_edges(
    graph: KnowledgeGraph, users: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The interactions of some users as (place among them, place among the graph's edges)."""
    # The interaction is relation 0, so it is the first segment of a user's row, if any.
    segments = graph.row_segments[users]
    has = segments < graph.row_segments[users + 1]
    has[has] = graph.segment_relations[segments[has]] == INTERACTION
    starts = np.where(has, graph.segment_starts[segments], 0)
    sizes = np.where(has, graph.segment_starts[segments + has] - starts, 0)
    ends = np.cumsum(sizes)
    edges = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
    return np.repeat(np.arange(len(users)), sizes), edges
