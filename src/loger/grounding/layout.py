"""The one struct by which compiled code reads a graph, whether whole or as one user sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from loger.graph import INTERACTION, Graph, KnowledgeGraph, Relation, Rows, UserView
from loger.grounding.steps import Weights

BITMAP_EDGES = 64
"""Segments up to this length are never kept as bitmaps: scanning them is as fast."""


class Layout(NamedTuple):
    """The arrays of a graph. ``home`` are the rows that walks from users begin with: those of the
    graph itself, or of a view's user; from there on walks lead through the graph."""

    row_segments: NDArray[np.int64]
    segment_relations: NDArray[np.uint16]
    segment_starts: NDArray[np.int64]
    tails: NDArray[np.int32]
    origins: NDArray[np.int32]  # empty where the graph has none
    weights: NDArray[np.float32]  # what each fact counts; empty where all count 1
    indptr: NDArray[np.int64]
    bitmap_of: NDArray[np.int64]  # [segments]: where the segment's bitmap begins, or -1
    bitmaps: NDArray[np.uint64]
    word_spans: NDArray[np.int64]  # [2 · relations, 2]: the words that a bitmap spans
    degrees: NDArray[np.int32]  # degree of e under r at [degree_starts[r] + e]
    degree_starts: NDArray[np.int64]  # [2 · relations]
    weighted: NDArray[np.bool_]  # [2 · relations]: may a fact count other than 1?
    derived: NDArray[np.bool_]  # [2 · relations]: is it made from the interactions?
    n_relations: int  # base relations
    home: Rows


Struct = TypeVar("Struct", bound=tuple[Any, ...])


def read_only(struct: Struct) -> Struct:
    """The same named tuple with read-only views of its arrays.

    Everything that compiled code only reads is read-only, here as in shared memory. To numba that
    is one type, so each kernel is compiled once.
    """

    def view(array: NDArray[Any]) -> NDArray[Any]:
        out = array.view()
        out.flags.writeable = False
        return out

    return type(struct)(*(view(x) if isinstance(x, np.ndarray) else x for x in struct))


_layouts: WeakKeyDictionary[Graph, Layout] = WeakKeyDictionary()


def layout(graph: Graph) -> Layout:
    """A graph as compiled code reads it, made once. A view shares all but its user's rows."""
    known = _layouts.get(graph)
    if known is None:
        known = _layouts[graph] = read_only(_new_layout(graph))
    return known


def _new_layout(graph: Graph) -> Layout:
    if isinstance(graph, UserView):
        degrees, _ = graph.degree_table
        known = layout(graph.base)._replace(degrees=degrees, home=graph.rows)
        return _without_dropped(known, graph) if len(graph.dropped) else known
    spans, weighted = word_spans(graph), weighted_relations(graph)
    bitmaps = segment_bitmaps(graph, spans, weighted)
    flags = weighted, np.tile([r.derived for r in graph.relations], 2)
    degree_table, n = graph.degree_table, len(graph.relations)
    return Layout(*graph.rows, graph.indptr, *bitmaps, spans, *degree_table, *flags, n, graph.rows)


def _without_dropped(known: Layout, view: UserView) -> Layout:
    """The layout of a view that lacks facts about other entities than its user."""
    rows, bitmap_of = view.others, known.bitmap_of.copy()
    bitmap_of[view.shortened] = -1  # read edge by edge
    indptr = rows.segment_starts[rows.row_segments]
    return known._replace(**rows._asdict(), indptr=indptr, bitmap_of=bitmap_of)


def weighted_relations(graph: KnowledgeGraph) -> NDArray[np.bool_]:
    """The relations and inverses of which some fact does not count 1; [2 · relations]."""
    out = np.zeros(2 * len(graph.relations), dtype=bool)
    if graph.weights is not None and len(graph.weights):
        odd = np.logical_or.reduceat(graph.weights != 1, graph.segment_starts[:-1])
        out[graph.segment_relations[odd]] = True
    return out


def word_spans(graph: KnowledgeGraph) -> NDArray[np.int64]:
    """For each relation and inverse, the words [from, to) of an entity bitmap in which its tails'
    bits lie; [2 · relations, 2]."""
    ends = [graph.vocabulary.span(graph.signature(r)[1]) for r in range(2 * len(graph.relations))]
    return np.array([(s.start >> 6, (s.stop + 63) >> 6) for s in ends], dtype=np.int64)


def segment_bitmaps(
    graph: KnowledgeGraph, word_spans: NDArray[np.int64], weighted: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Long segments once more as bitmaps: (where each segment's begins or -1, words).

    A bitmap spans the relation's ``word_spans``. A segment has one if it is longer than that
    span, so the bitmap takes at most twice the memory of the segment, and two of them are
    intersected 64 entities at a time. Facts of ``weighted`` relations are never kept so.
    """
    spans = word_spans[graph.segment_relations]
    sizes = spans[:, 1] - spans[:, 0]
    long = np.diff(graph.segment_starts) > np.maximum(sizes, BITMAP_EDGES)
    long = np.flatnonzero(long & ~weighted[graph.segment_relations])
    ends = np.cumsum(sizes[long])
    starts = np.full(len(graph.segment_relations), -1)
    starts[long] = ends - sizes[long]
    words = np.zeros(int(ends[-1]) if len(long) else 0, dtype=np.uint64)
    for s, end in zip(long, ends, strict=True):
        member = np.zeros(sizes[s] * 64, dtype=bool)
        tails = graph.tails[graph.segment_starts[s] : graph.segment_starts[s + 1]]
        member[tails - (spans[s, 0] << 6)] = True
        words[end - sizes[s] : end] = np.packbits(member, bitorder="little").view(np.uint64)
    return starts, words


class EdgeSpans(NamedTuple):
    """Where the edges of an entity are under a relation, found in one look-up.

    In a ``Layout`` that takes three look-ups, each of which needs the result of the one before. In
    a large graph each of them is a cache miss, and scoring makes tens of thousands per user.
    """

    starts: NDArray[np.int64]  # [2 · relations]: entity e under relation r is row starts[r] + e
    edges: NDArray[np.int64]  # [2 · rows]: for each row its first edge, and one past its last


_edge_spans: WeakKeyDictionary[Graph, tuple[set[int], EdgeSpans]] = WeakKeyDictionary()


def edge_spans(graph: Graph, relations: Iterable[int]) -> EdgeSpans:
    """The spans of a graph for some relations. They are kept with the graph, and made again only
    when a relation is asked for that they lack."""
    # A view shares the edges of its base, unless it dropped some.
    base = graph.base if isinstance(graph, UserView) and not len(graph.dropped) else graph
    known, spans = _edge_spans.get(base, (set[int](), None))
    if spans is None or not known.issuperset(relations):
        known = known.union(relations)
        rows = base.others if isinstance(base, UserView) else base.rows
        spans = read_only(_new_edge_spans(base, rows, sorted(known)))
        _edge_spans[base] = known, spans
    return spans


def _new_edge_spans(graph: Graph, rows: Rows, relations: Sequence[int]) -> EdgeSpans:
    starts, size = np.full(2 * len(graph.relations), -1), 0
    for r in relations:
        heads = graph.vocabulary.span(graph.signature(r)[0])
        starts[r] = size - heads.start
        size += len(heads)
    wanted = np.isin(np.arange(len(starts)), relations)
    segments = np.flatnonzero(wanted[rows.segment_relations])
    heads_of = np.searchsorted(rows.row_segments, segments, side="right") - 1
    row = starts[rows.segment_relations[segments]] + heads_of
    edges = np.zeros((size, 2), dtype=np.int64)  # who has no segment has the edges from 0 to 0
    edges[row, 0], edges[row, 1] = rows.segment_starts[segments], rows.segment_starts[segments + 1]
    return EdgeSpans(starts, edges.ravel())


# ── how strong a path is: powers of degrees and ages ──────────────────────────────────


@dataclass(frozen=True, slots=True)
class Walk:
    """How a path's strength falls with degrees and age (METHOD 5, ``walk``).

    Each hop h –r→ t divides it by deg_r(h) to a power that depends on what is left, and the
    last hop also by a power of deg_r⁻¹(v). Where the graph knows times, a first hop over an
    interaction, or over a behaviour such as viewing, is divided by (1 + the user's later ones of
    its kind)^recency as well; where it knows
    strengths, multiplied by the interaction's strength^strength in units of the user's mean of
    that. Derived relations are divided by no degree, and may say themselves how fast interactions
    fade before them.
    """

    first: float = 1.0
    """Exponent of the user's degree, over any relation."""
    item: float = 1.0
    """Exponent of an item's degree, towards the users who interacted with it."""
    user: float = 1.0
    """Exponent of another user's degree, towards that user's items."""
    fact: float = 1.0
    """Exponent of any entity's degree, over a fact."""
    arrive: float = 0.0
    """Exponent of the recommended item's degree, if the last hop is a fact."""
    popular: float = 0.0
    """Exponent of the recommended item's degree, if the last hop is an interaction."""
    recency: float = 0.0
    """Exponent by which older interactions fade; 0 counts all alike."""
    strength: float = 0.0
    """Exponent of an interaction's strength; 0 counts all alike."""

    @classmethod
    def uniform(cls, beta: float) -> Walk:
        """METHOD's walk: 1/deg^β of every hop."""
        return cls(beta, beta, beta, beta)


_known: WeakKeyDictionary[Graph, dict[Walk | None, Weights]] = WeakKeyDictionary()


def weights_of(graph: Graph, walk: Walk | None) -> Weights:
    """The factors of a walk in a graph, made once."""
    known = _known.setdefault(graph, {})
    if walk not in known:
        known[walk] = read_only(_new_weights(graph, walk))
    return known[walk]


def _new_weights(graph: Graph, walk: Walk | None) -> Weights:
    nowhere = np.empty(0, dtype=np.int64)
    if walk is None:
        return Weights(np.empty((0, 0)), nowhere, nowhere, nowhere, np.empty((0, 0)), nowhere)
    rates, fades = fade_classes(graph.relations)
    recencies = np.array([walk.recency, *rates])
    edges = np.empty((len(recencies), 0))
    if recencies.any() and graph.later is not None:
        edges = (1.0 + graph.later).astype(np.float64) ** -recencies[:, None]
    strong = graph.relative_strengths(walk.strength)
    if strong is not None:
        edges = edges * strong if edges.size else np.tile(strong, (len(recencies), 1))
    if isinstance(graph, UserView):
        known = weights_of(graph.base, walk)
        if graph.max_degree < known.powers.shape[1]:
            return known._replace(edges=edges)
    # One degree more than the graph has, for a view whose user has one more interaction.
    degree = np.maximum(np.arange(graph.max_degree + 2), 1).astype(np.float64)
    exponents = np.array(
        [0.0, walk.first, walk.item, walk.user, walk.fact, walk.arrive, walk.popular]
    )
    powers = degree ** -exponents[:, None]  # [exponents, degrees]
    n = len(graph.relations)
    # Row 0 marks an exponent of 0, which kernels skip instead of looking it up for every item.
    leave, into = np.full(2 * n, 4), np.full(2 * n, 5 if walk.arrive else 0)
    leave[INTERACTION], leave[INTERACTION + n] = 3, 2
    into[INTERACTION] = 6 if walk.popular else 0
    derived = np.tile([r.derived for r in graph.relations], 2)
    leave[derived], into[derived] = 0, 0
    return Weights(powers, np.full(2 * n, 1), leave, into, edges, fades)


def fade_classes(relations: Sequence[Relation]) -> tuple[list[float], NDArray[np.int64]]:
    """The recencies that relations have of their own, and which holds where a rule goes on over a
    relation or inverse: 0 for the walk's, k for the k-th of these; [2 · relations]."""
    own = [None if r.recency is None else float(r.recency) for r in relations]
    rates = sorted({rate for rate in own if rate is not None})
    classes = [0 if rate is None else 1 + rates.index(rate) for rate in own]
    return rates, np.tile(np.array(classes, dtype=np.int64), 2)
