"""The one struct by which compiled code reads a graph, whether whole or seen by one user."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from loger.graph import KnowledgeGraph


class Home(NamedTuple):
    """The rows that walks begin with: those of the graph itself, or one user's own (views)."""

    row_segments: NDArray[np.int64]
    segment_relations: NDArray[np.uint16]
    segment_starts: NDArray[np.int64]
    tails: NDArray[np.int32]
    origins: NDArray[np.int32]


class Layout(NamedTuple):
    """The arrays of a graph, as the loops read them."""

    row_segments: NDArray[np.int64]
    segment_relations: NDArray[np.uint16]
    segment_starts: NDArray[np.int64]
    tails: NDArray[np.int32]
    origins: NDArray[np.int32]  # empty where the graph has none
    indptr: NDArray[np.int64]
    bitmap_of: NDArray[np.int64]  # [segments]: where the segment's bitmap begins, or -1
    bitmaps: NDArray[np.uint64]
    word_spans: NDArray[np.int64]  # [2 · relations, 2]: the words that a bitmap spans
    degrees: NDArray[np.int32]  # degree of e under r at [degree_starts[r] + e]
    degree_starts: NDArray[np.int64]  # [2 · relations]
    n_relations: int  # base relations
    home: Home


_NO_ORIGINS = np.empty(0, dtype=np.int32)
_NO_ORIGINS.flags.writeable = False  # as the arrays of graphs are: to numba another type

_layouts: WeakKeyDictionary[KnowledgeGraph, Layout] = WeakKeyDictionary()


def layout(graph: KnowledgeGraph) -> Layout:
    """A graph as compiled code reads it, made once."""
    known = _layouts.get(graph)
    if known is None:
        known = _layouts[graph] = _new_layout(graph)
    return known


def _new_layout(graph: KnowledgeGraph) -> Layout:
    home, around = _home(graph), graph.around
    return Layout(
        *(_home(around) if around is not graph else home),
        around.indptr,
        *around.bitmaps,
        around.word_spans,
        *graph.degree_table,
        len(graph.relations),
        home,
    )


def _home(graph: KnowledgeGraph) -> Home:
    return Home(
        graph.row_segments,
        graph.segment_relations,
        graph.segment_starts,
        graph.tails,
        _NO_ORIGINS if graph.origins is None else graph.origins,
    )
