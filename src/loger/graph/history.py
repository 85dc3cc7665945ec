"""What users have: their interactions as a graph, or the view of a user, knows them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.graph.arrays import gather
from loger.graph.view import Graph, checked_users
from loger.graph.vocabulary import INTERACTION


def history_edges(graph: Graph, users: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The interactions of some users as (place among them, place in ``graph.rows.tails``)."""
    users = checked_users(graph, users)
    rows = graph.rows
    # The interaction is relation 0, so it is the first segment of a user's row, if any.
    segments = rows.row_segments[users]
    has = segments < rows.row_segments[users + 1]
    has[has] = rows.segment_relations[segments[has]] == INTERACTION
    starts = np.where(has, rows.segment_starts[segments], 0)
    sizes = np.where(has, rows.segment_starts[segments + has] - starts, 0)
    return gather(starts, sizes)


def history(graph: Graph, users: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The interactions of some users as (place among them, item)."""
    owners, edges = history_edges(graph, users)
    return owners, graph.rows.tails[edges].astype(np.int64) - graph.n_users
