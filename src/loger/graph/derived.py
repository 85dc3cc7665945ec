"""Relations between items that are made from the interactions, and the graph with and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError
from loger.graph.arrays import Ints, changes
from loger.graph.vocabulary import Relation

if TYPE_CHECKING:
    from loger.graph.graph import KnowledgeGraph


class Derived(NamedTuple):
    """A derived relation and its facts; items are numbered from 0."""

    relation: Relation
    heads: NDArray[np.integer]
    tails: NDArray[np.integer]
    weights: NDArray[np.floating]
    support: NDArray[np.integer]
    """How many people each fact was made of."""


def with_derived(graph: KnowledgeGraph, more: Sequence[Derived]) -> KnowledgeGraph:
    """The graph with derived relations more, numbered after those it has."""
    if not more:
        return graph
    for d in more:
        _check(graph, d)
    old, n = len(graph.relations), graph.n_entities
    kinds = 2 * (old + len(more))
    head, relation, tail, weight, people = _edges(graph, more)
    known = graph.edge_relations().astype(np.int64)
    known = np.where(known < old, known, known + len(more))
    heads = np.concatenate([graph.edge_heads().astype(np.int64), head])
    relations = np.concatenate([known, relation])
    tails = np.concatenate([graph.tails.astype(np.int64), tail])
    order = np.argsort((heads * kinds + relations) * n + tails, kind="stable")
    segment = (heads * kinds + relations)[order]
    starts = np.flatnonzero(changes(segment))
    owners, of_segment = np.divmod(segment[starts], kinds)
    pairs = np.sort((heads * n + tails) * kinds + relations)

    def merged(old_values: NDArray[np.generic], values: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.concatenate([old_values, values])[order]

    edges = len(graph.tails)
    weights = np.ones(edges, np.float32) if graph.weights is None else graph.weights
    support = np.zeros(edges, np.int32) if graph.support is None else graph.support
    nowhere = np.full(len(head), -1, dtype=np.int32)
    return replace(
        graph,
        relations=(*graph.relations, *(d.relation for d in more)),
        row_segments=np.searchsorted(owners, np.arange(n + 1)).astype(np.int64),
        segment_relations=of_segment.astype(np.uint16),
        segment_starts=np.append(starts, len(segment)).astype(np.int64),
        tails=tails[order].astype(np.int32),
        pair_tails=(pairs // kinds % n).astype(np.int32),
        pair_relations=(pairs % kinds).astype(np.uint16),
        origins=None if graph.origins is None else merged(graph.origins, nowhere),  # type: ignore[arg-type]
        weights=merged(weights, weight),  # type: ignore[arg-type]
        support=merged(support, people),  # type: ignore[arg-type]
    )


def given(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph less its derived relations; they are the last."""
    old = sum(not r.derived for r in graph.relations)
    gone = len(graph.relations) - old
    if not gone:
        return graph
    base = np.arange(2 * len(graph.relations)) % len(graph.relations)
    kept_kind = base < old
    number = np.where(base < old, np.arange(2 * len(graph.relations)), 0)
    number[len(graph.relations) :] -= gone
    kept = kept_kind[graph.segment_relations]
    kept_edges = np.repeat(kept, np.diff(graph.segment_starts))
    kept_pairs = kept_kind[graph.pair_relations]
    sizes = np.diff(graph.segment_starts)[kept]
    weights = None if graph.weights is None else graph.weights[kept_edges]
    if weights is not None and bool((weights == 1).all()):
        weights = None
    return replace(
        graph,
        relations=graph.relations[:old],
        row_segments=np.concatenate([[0], np.cumsum(kept)])[graph.row_segments],
        segment_relations=number[graph.segment_relations[kept]].astype(np.uint16),
        segment_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        tails=graph.tails[kept_edges],
        pair_tails=graph.pair_tails[kept_pairs],
        pair_relations=number[graph.pair_relations[kept_pairs]].astype(np.uint16),
        origins=None if graph.origins is None else graph.origins[kept_edges],
        weights=weights,
        support=None,
    )


def _edges(
    graph: KnowledgeGraph, more: Sequence[Derived]
) -> tuple[Ints, Ints, Ints, NDArray[np.float32], NDArray[np.int32]]:
    """The edges of derived relations and then their inverses, by entity id."""
    first, old, n = graph.n_users, len(graph.relations), len(graph.relations) + len(more)
    heads = np.concatenate([np.asarray(d.heads, dtype=np.int64) + first for d in more])
    tails = np.concatenate([np.asarray(d.tails, dtype=np.int64) + first for d in more])
    relations = np.repeat(np.arange(old, n), [len(d.heads) for d in more])
    weights = np.concatenate([np.asarray(d.weights, dtype=np.float32) for d in more])
    support = np.concatenate([np.asarray(d.support, dtype=np.int32) for d in more])
    return (
        np.concatenate([heads, tails]),
        np.concatenate([relations, relations + n]),
        np.concatenate([tails, heads]),
        np.tile(weights, 2),
        np.tile(support, 2),
    )


def _check(graph: KnowledgeGraph, derived: Derived) -> None:
    """Refuse what is not a relation between items, made of distinct facts that count something."""
    r, heads, tails = derived.relation, np.asarray(derived.heads), np.asarray(derived.tails)
    if (r.head_type, r.tail_type, r.derived) != ("item", "item", True):
        raise LogerError(f"a derived relation leads from item to item, got {r}")
    if r.name in [other.name for other in graph.relations]:
        raise LogerError(f"there is a relation {r.name!r} already")
    if not len(heads) == len(tails) == len(derived.weights) == len(derived.support):
        raise LogerError(f"the facts of {r.name!r} differ in length")
    inside = (np.minimum(heads, tails) >= 0) & (np.maximum(heads, tails) < graph.n_items)
    keys = heads.astype(np.int64) * graph.n_items + tails
    positive = np.isfinite(derived.weights) & (np.asarray(derived.weights) > 0)
    if not (inside & positive & (heads != tails)).all() or len(np.unique(keys)) < len(keys):
        raise LogerError(
            f"the facts of {r.name!r} must be distinct pairs of different items of weight above 0"
        )
