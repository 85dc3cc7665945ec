"""What users have: their interactions as a graph, or a view of it, knows them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loger.graph.graph import INTERACTION, KnowledgeGraph


def history_edges(
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


def history(
    graph: KnowledgeGraph, users: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The interactions of some users as (place among them, item)."""
    owners, edges = history_edges(graph, users)
    return owners, graph.tails[edges].astype(np.int64) - graph.n_users
