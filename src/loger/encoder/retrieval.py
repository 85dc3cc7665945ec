"""The items of highest score for all users, exactly, in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.protocol import Encoder
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.graph import INTERACTION, KnowledgeGraph
from loger.topk import top_k

CELLS_PER_BLOCK = 4 << 20
"""Scores held at a time: 16 MiB, so that they are chosen from before they leave the cache."""


def top_items(
    encoder: Encoder,
    graph: KnowledgeGraph,
    users: ArrayLike,
    k: int,
    *,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """For each user the k best items it has no interaction with, and their scores; [users, k]."""
    asked = np.asarray(users, dtype=np.int64)
    engine = engine or LocalEngine()
    size = max(1, CELLS_PER_BLOCK // max(1, graph.n_items))
    items = np.empty((len(asked), k), dtype=np.int32)
    values = np.empty((len(asked), k), dtype=np.float32)
    for lo in range(0, len(asked), size):
        progress("retrieving items", lo, len(asked))
        own = asked[lo : lo + size]
        known = observed(graph, own)
        items[lo : lo + size], values[lo : lo + size] = top_k(
            encoder.score_items(own), k, known, engine
        )
    progress("retrieving items", len(asked), len(asked))
    return items, values


def observed(
    graph: KnowledgeGraph, users: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The interactions of some users as (place among them, item)."""
    # The interaction is relation 0, so it is the first segment of a user's row, if any.
    segments = graph.row_segments[users]
    has = segments < graph.row_segments[users + 1]
    has[has] = graph.segment_relations[segments[has]] == INTERACTION
    starts = np.where(has, graph.segment_starts[segments], 0)
    sizes = np.where(has, graph.segment_starts[segments + has] - starts, 0)
    ends = np.cumsum(sizes)
    edges = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
    items = graph.tails[edges].astype(np.int64) - graph.n_users
    return np.repeat(np.arange(len(users)), sizes), items
