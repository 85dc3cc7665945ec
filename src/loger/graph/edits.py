"""The one way to change a graph: renumber what there is, delete edges, insert edges.

A graph is immutable, so every edit returns another one. All of them are made of three steps that
keep the order of what stays, so nothing is sorted again: ``renumbered``, ``without_edges`` and
``inserted``. What comes after a fit is in ``loger.graph.growth``. ``tests/test_growth.py`` compares
every edit with the graph that ``from_triples`` builds of the same facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError
from loger.graph.arrays import (
    Bools,
    Doubles,
    Ids,
    Ints,
    as_strengths,
    checked_ids,
    lower_bound,
    pair_keys,
    run_starts,
)
from loger.graph.vocabulary import INTERACTION, Relation, Vocabulary

if TYPE_CHECKING:
    from loger.graph.graph import KnowledgeGraph

Triples = tuple[Ints, Ints, Ints]
"""Heads, relations and tails of facts, by number."""
_Array = TypeVar("_Array", bound="NDArray[Any] | None")
PEOPLE_AND_ITEMS = ("user", "item")
EXPECTED = -1
"""The support of a derived fact that is only expected, from similar items."""


class Derived(NamedTuple):
    """A derived relation and its facts; items are numbered from 0."""

    relation: Relation
    heads: NDArray[np.integer]
    tails: NDArray[np.integer]
    weights: NDArray[np.floating]
    support: NDArray[np.integer]
    """How many people each fact was made of."""


# ── the three steps ─────────────────────────────────────────────────────────────────────


def renumbered(
    graph: KnowledgeGraph,
    *,
    entities: Ids | None = None,
    kinds: Ids | None = None,
    vocabulary: Vocabulary | None = None,
    relations: Sequence[Relation] | None = None,
) -> KnowledgeGraph:
    """The graph under other numbers, in the same order as those they replace.

    ``entities`` and ``kinds`` are the new number of each entity and of each relation and inverse,
    -1 for what is gone; by default all keep theirs.
    """
    vocabulary = vocabulary or graph.vocabulary
    entities = np.arange(graph.n_entities) if entities is None else entities
    kinds = np.arange(2 * len(graph.relations)) if kinds is None else kinds
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    stays = entities >= 0
    counts[entities[stays]] = np.diff(graph.row_segments)[stays]
    numbers, renamed = entities.astype(np.int32), kinds.astype(np.uint16)
    origins = graph.origins
    if origins is not None:
        origins = np.where(origins < 0, -1, numbers[origins]).astype(np.int32)
    return replace(
        graph,
        vocabulary=vocabulary,
        relations=tuple(graph.relations if relations is None else relations),
        row_segments=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        segment_relations=renamed[graph.segment_relations],
        tails=numbers[graph.tails],
        pair_tails=numbers[graph.pair_tails],
        pair_relations=renamed[graph.pair_relations],
        origins=origins,
    )


def without_edges(graph: KnowledgeGraph, edges: Ints) -> KnowledgeGraph:
    """The graph without some edges, by their places in ``tails``, and their inverses."""
    if not len(edges):
        return graph
    gone = np.zeros(len(graph.tails), dtype=bool)
    gone[with_inverses(graph, edges)] = True
    return _deleted(graph, gone)


def _deleted(graph: KnowledgeGraph, gone: Bools, gone_pairs: Bools | None = None) -> KnowledgeGraph:
    """The graph without the marked edges, both directions of each fact. ``gone_pairs`` marks the
    same edges in the order of ``pair_tails``, if the caller knows it."""
    segment, head, relation, tail = _edges_at(graph, np.flatnonzero(gone))
    if gone_pairs is None:
        gone_pairs = np.zeros(len(gone), dtype=bool)
        gone_pairs[_pair_places(graph, head, relation, tail)] = True
    pairs = ~gone_pairs
    lost = np.bincount(segment, minlength=len(graph.segment_relations))
    sizes = np.diff(graph.segment_starts) - lost
    stays, edges = sizes > 0, ~gone

    def kept(array: _Array) -> _Array:  # times and strengths are those of users' edges alone
        return None if array is None else array[edges[: len(array)]]  # type: ignore[return-value]

    return replace(
        graph,
        row_segments=np.concatenate([[0], np.cumsum(stays)])[graph.row_segments],
        segment_relations=graph.segment_relations[stays],
        segment_starts=np.concatenate([[0], np.cumsum(sizes[stays])]).astype(np.int64),
        tails=graph.tails[edges],
        pair_tails=graph.pair_tails[pairs],
        pair_relations=graph.pair_relations[pairs],
        origins=kept(graph.origins),
        times=kept(graph.times),
        strengths=kept(graph.strengths),
        weights=kept(graph.weights),
        support=kept(graph.support),
    )


class NewFacts(NamedTuple):
    """Facts to insert, none of which exists yet; each value holds for both directions."""

    heads: Ints
    relations: Ints
    tails: Ints
    times: Ints | int = 0
    strengths: Doubles | float = 0.0
    weights: NDArray[np.floating] | float = 1.0
    support: Ints | int = 0


def inserted(graph: KnowledgeGraph, facts: NewFacts) -> KnowledgeGraph:
    """The graph with more facts, both directions of each. Only interactions have times and
    strengths, and only in the direction that leaves the user."""
    if not len(facts.heads):
        return graph
    n, kinds = graph.n_entities, 2 * len(graph.relations)
    h = np.concatenate([facts.heads, facts.tails])
    r = np.concatenate([facts.relations, facts.relations + kinds // 2])
    t = np.concatenate([facts.tails, facts.heads])
    order = np.argsort((h * kinds + r) * n + t, kind="stable")
    h, r, t = h[order], r[order], t[order]
    segment, there = graph.rows.segments(h, r)
    low = graph.segment_starts[segment]
    last = len(graph.segment_starts) - 1
    size = np.where(there, graph.segment_starts[np.minimum(segment + 1, last)] - low, 0)
    at = lower_bound(graph.tails, low, low + size, t)
    sizes = np.diff(graph.segment_starts)
    np.add.at(sizes, segment[there], 1)
    begins = ~there & run_starts(h, r)
    begun = np.cumsum(begins)[~there] - 1
    fresh = np.bincount(begun, minlength=int(begins.sum())).astype(np.int64)
    sizes = np.insert(sizes, segment[begins], fresh)
    more = np.bincount(h[begins], minlength=n)
    pair = np.argsort((h * n + t) * kinds + r, kind="stable")
    pair_at = _pair_places(graph, h[pair], r[pair], t[pair])
    of_users = h < graph.n_users

    def put(array: _Array, values: ArrayLike, chosen: Any = slice(None)) -> _Array:
        if array is None:
            return array
        each = np.tile(np.broadcast_to(values, len(facts.heads)), 2)[order]
        return np.insert(array, at[chosen], each[chosen])  # type: ignore[return-value]

    return replace(
        graph,
        row_segments=graph.row_segments + np.concatenate([[0], np.cumsum(more)]),
        segment_relations=np.insert(graph.segment_relations, segment[begins], r[begins]),
        segment_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        tails=np.insert(graph.tails, at, t),
        pair_tails=np.insert(graph.pair_tails, pair_at, t[pair]),
        pair_relations=np.insert(graph.pair_relations, pair_at, r[pair]),
        origins=put(graph.origins, -1),
        times=put(graph.times, facts.times, of_users),
        strengths=put(graph.strengths, facts.strengths, of_users),
        weights=put(graph.weights, facts.weights),
        support=put(graph.support, facts.support),
    )


# ── facts and interactions ──────────────────────────────────────────────────────────────


def without(
    graph: KnowledgeGraph, heads: Sequence[int], relation_ids: Sequence[int], tails: Sequence[int]
) -> KnowledgeGraph:
    """The graph without some facts, both directions of each; an absent fact is an error.

    This costs a few copies of the arrays and no sort: it is meant for leave-out and what-if.
    """
    h, r, t = (np.asarray(x, dtype=np.int64) for x in (heads, relation_ids, tails))
    return without_edges(graph, fact_places(graph, h, r, t))


def without_interactions(
    graph: KnowledgeGraph, users: Sequence[int], items: Sequence[int]
) -> KnowledgeGraph:
    """The graph as if these interactions had never been seen.

    This removes the interactions and every fact that is known from one of them alone. Items are
    numbered from 0 among items.
    """
    u = checked_ids(users, graph.n_users, "user")
    v = checked_ids(items, graph.n_items, "item") + graph.n_users
    taken = fact_places(graph, u, np.full_like(u, INTERACTION), v)
    return without_edges(graph, np.concatenate([taken, known_from(graph, u, v)]))


def plus(
    graph: KnowledgeGraph,
    users: Sequence[int],
    items: Sequence[int],
    times: Sequence[int] | None = None,
    strengths: Sequence[float] | None = None,
) -> KnowledgeGraph:
    """The graph with some more interactions; one that exists already changes nothing.

    Users and items must be known; items are numbered from 0 among items. Where the graph has
    times, an interaction without one is later than all others; where it has strengths, one without
    gets ``default_strength``. Like ``without``, this costs a few copies of the arrays and no sort.
    """
    u = checked_ids(users, graph.n_users, "user")
    v = checked_ids(items, graph.n_items, "item")
    first = np.unique(pair_keys(u, v, graph.n_items), return_index=True)[1]
    r = np.full(len(first), INTERACTION, dtype=np.int64)
    first = first[graph.rows.edges(u[first], r, v[first] + graph.n_users) < 0]
    if times is None:  # later than all others
        when: Ints | int = 0 if graph.times is None else int(graph.times.max(initial=0)) + 1
    else:
        when = np.asarray(times, np.int64)[first]
    strong: Doubles | float = graph.default_strength
    if strengths is not None:
        strong = as_strengths(strengths)[first]
    facts = NewFacts(u[first], r[: len(first)], v[first] + graph.n_users, when, strong)
    return inserted(graph, facts)


def sampled(graph: KnowledgeGraph, most: int, seed: int) -> KnowledgeGraph:
    """The graph in which an entity has at most ``most`` neighbours under a relation.

    This is METHOD 4's "sample nodes", as in the paper: where there are more, ``most`` are drawn
    without replacement, and a fact stays if both of its ends have drawn it.
    """
    rng = np.random.default_rng([seed, 0x5A3])
    sizes = np.diff(graph.segment_starts)
    drawn = np.ones(len(graph.tails), dtype=bool)
    for s in np.flatnonzero(sizes > most):
        part = drawn[graph.segment_starts[s] : graph.segment_starts[s + 1]]
        part[rng.permutation(sizes[s])[most:]] = False
    return without_edges(graph, np.flatnonzero(~drawn))


def timed(graph: KnowledgeGraph, users: Ints, items: Ints, times: Ints) -> KnowledgeGraph:
    """The graph with the times of its interactions; a pair with several times has the latest.

    Items are numbered from 0 among items, and every interaction must have a time.
    """
    order = np.lexsort((times, items, users))
    u, v, t = users[order], items[order], np.asarray(times)[order]
    latest = np.maximum.reduceat(t, np.flatnonzero(run_starts(u, v))) if len(t) else t
    return replace(graph, times=_of_edges(graph, latest, np.int64, "times"))


def with_times_of_behaviours(
    graph: KnowledgeGraph, triples: Triples, times: Ints
) -> KnowledgeGraph:
    """The graph with the times of what users did to items besides the interaction. Facts of other
    kinds, and facts that the graph doesn't have, are ignored."""
    h, r, t = (np.asarray(x, dtype=np.int64) for x in triples)
    assert graph.times is not None
    kinds = [{k.head_type, k.tail_type} == set(PEOPLE_AND_ITEMS) for k in graph.relations]
    places = graph.rows.edges(h, r, t)
    known = (places >= 0) & (h < graph.n_users) & np.array(kinds)[r]
    when = graph.times.copy()
    np.maximum.at(when, places[known], np.asarray(times)[known])
    return replace(graph, times=when)


def strengthened(
    graph: KnowledgeGraph,
    users: Ints,
    items: Ints,
    strengths: NDArray[np.floating],
    rated: bool,
    counted: bool = False,
) -> KnowledgeGraph:
    """The graph with the strengths of its interactions, one for each pair.

    Items are numbered from 0 among items, and every interaction must have a strength.
    """
    in_order = as_strengths(strengths)[np.lexsort((items, users))]
    of_edge = _of_edges(graph, in_order, np.float64, "strengths")
    return replace(graph, strengths=of_edge, rated=rated, counted=counted)


def _of_edges(graph: KnowledgeGraph, values: NDArray[Any], dtype: Any, what: str) -> NDArray[Any]:
    """Values of all interactions, by user and item, as values of users' edges; 0 on the others."""
    edges, _ = graph.interactions
    if len(values) != len(edges):
        raise LogerError(
            f"got {what} for {len(values):,} pairs, but the graph has {len(edges):,} interactions"
        )
    of_edge = np.zeros(int(graph.indptr[graph.n_users]), dtype=dtype)
    of_edge[edges] = values
    return of_edge


# ── users, and relations that are made from interactions ────────────────────────────────


def with_users(graph: KnowledgeGraph, names: Sequence[str]) -> KnowledgeGraph:
    """The graph with some more users, who come after the others and have no facts yet."""
    words = graph.vocabulary
    known = [x for x in names if x in words.ids("user")]
    if known or len(set(names)) < len(names):
        raise LogerError(f"users must be new and distinct, got {(known or list(names))[:3]}")
    parts = {kind: words.of_type(kind) for kind in words.types}
    for own in parts["user"]:
        own.extend(names)
    numbers = np.arange(graph.n_entities)
    numbers[graph.n_users :] += len(names)
    return renumbered(graph, entities=numbers, vocabulary=Vocabulary.of(parts, words.integers))


def with_derived(graph: KnowledgeGraph, more: Sequence[Derived]) -> KnowledgeGraph:
    """The graph with more relations between items, made from its interactions; their numbers follow
    those it has."""
    if not more:
        return graph
    for d in more:
        _check_derived(graph, d)
    old, n = len(graph.relations), len(graph.relations) + len(more)
    kinds = np.concatenate([np.arange(old), np.arange(n, n + old)])
    after = (*graph.relations, *(d.relation for d in more))
    grown = renumbered(graph, kinds=kinds, relations=after)
    if grown.weights is None:
        grown = replace(grown, weights=np.ones(len(grown.tails), np.float32))
    if grown.support is None:
        grown = replace(grown, support=np.zeros(len(grown.tails), np.int32))
    first = graph.n_users
    facts = NewFacts(
        np.concatenate([np.asarray(d.heads, dtype=np.int64) + first for d in more]),
        np.repeat(np.arange(old, n), [len(d.heads) for d in more]),
        np.concatenate([np.asarray(d.tails, dtype=np.int64) + first for d in more]),
        weights=np.concatenate([np.asarray(d.weights, dtype=np.float32) for d in more]),
        support=np.concatenate([np.asarray(d.support, dtype=np.int32) for d in more]),
    )
    return inserted(grown, facts)


def with_expected(
    graph: KnowledgeGraph, first_new: int, facts: Triples, weights: NDArray[np.floating]
) -> KnowledgeGraph:
    """The graph in which these derived facts, made of nobody, are all that is derived of the items
    from ``first_new`` on, numbered from 0 among items; the facts are by entity."""
    derived = np.tile([r.derived for r in graph.relations], 2)
    new = np.zeros(graph.n_entities, dtype=bool)
    new[graph.n_users + first_new : graph.n_users + graph.n_items] = True
    before = derived[graph.edge_relations()] & (new[graph.edge_heads()] | new[graph.tails])
    left = without_edges(graph, np.flatnonzero(before))
    return inserted(left, NewFacts(*facts, weights=weights.astype(np.float32), support=EXPECTED))


def given(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph less its derived relations; they are the last."""
    n, old = len(graph.relations), sum(not r.derived for r in graph.relations)
    if n == old:
        return graph
    kinds = np.arange(2 * n)
    derived = kinds % n >= old
    left = _deleted(graph, derived[graph.edge_relations()], derived[graph.pair_relations])
    kinds[n:] -= n - old  # derived relations have numbers, too, but no edges
    left = renumbered(left, kinds=kinds, relations=graph.relations[:old])
    weights = left.weights
    if weights is not None and bool((weights == 1).all()):
        weights = None
    return replace(left, weights=weights, support=None)


def _check_derived(graph: KnowledgeGraph, derived: Derived) -> None:
    """Refuse what is not a relation between items, made of distinct facts that count something."""
    r, heads, tails = derived.relation, np.asarray(derived.heads), np.asarray(derived.tails)
    if (r.head_type, r.tail_type, r.derived) != ("item", "item", True):
        raise LogerError(f"a derived relation must lead from item to item, got {r}")
    if r.name in [other.name for other in graph.relations]:
        raise LogerError(f"the graph already has a relation {r.name!r}")
    if not len(heads) == len(tails) == len(derived.weights) == len(derived.support):
        raise LogerError(
            f"the heads, tails, weights and support of {r.name!r} must have the same length"
        )
    inside = (np.minimum(heads, tails) >= 0) & (np.maximum(heads, tails) < graph.n_items)
    keys = heads.astype(np.int64) * graph.n_items + tails
    positive = np.isfinite(derived.weights) & (np.asarray(derived.weights) > 0)
    if not (inside & positive & (heads != tails)).all() or len(np.unique(keys)) < len(keys):
        raise LogerError(
            f"the facts of {r.name!r} must be unique, link two different items "
            f"and have a weight above 0"
        )


# ── where edges are ─────────────────────────────────────────────────────────────────────


def known_from(graph: KnowledgeGraph, users: Ints, items: Ints) -> Ids:
    """The places of the edges, in both directions, that are known from some interactions alone;
    items are given as entities."""
    found = [np.empty(0, dtype=np.int64)]
    if graph.origins is not None:
        for a, b in (*zip(users, items, strict=True), *zip(items, users, strict=True)):
            low, high = graph.indptr[a], graph.indptr[a + 1]
            found.append(low + np.flatnonzero(graph.origins[low:high] == b))
    return np.concatenate(found)


def fact_places(graph: KnowledgeGraph, heads: Ints, relations: Ints, tails: Ints) -> Ints:
    """The places of edges in ``tails``; a missing edge is an error."""
    places = graph.rows.edges(heads, relations, tails)
    if (places < 0).any():
        k, names = int(np.flatnonzero(places < 0)[0]), graph.vocabulary.names
        raise LogerError(
            f"the graph has no fact ({names[heads[k]]!r}, "
            f"{graph.relation_name(int(relations[k]))}, {names[tails[k]]!r}) to remove"
        )
    return places


def with_inverses(graph: KnowledgeGraph, edges: Ints) -> Ids:
    """The places in ``tails`` of some edges and their inverses, ascending and distinct."""
    places = np.unique(np.asarray(edges, dtype=np.int64))
    if not len(places):
        return places
    _, head, relation, tail = _edges_at(graph, places)
    half = len(graph.relations)
    inverse = np.where(relation < half, relation + half, relation - half)
    return np.unique(np.concatenate([places, graph.rows.edges(tail, inverse, head)]))


def _edges_at(graph: KnowledgeGraph, places: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Segment, head, relation and tail of the edges at some places in ``tails``."""
    segment = np.searchsorted(graph.segment_starts, places, side="right") - 1
    head = np.searchsorted(graph.row_segments, segment, side="right") - 1
    relation = graph.segment_relations[segment].astype(np.int64)
    return segment, head, relation, graph.tails[places].astype(np.int64)


def _pair_places(graph: KnowledgeGraph, heads: Ints, relations: Ints, tails: Ints) -> Ints:
    """Where edges are, or would be, in the order by head, tail and relation."""
    low, high = graph.indptr[heads], graph.indptr[np.asarray(heads) + 1]
    first = lower_bound(graph.pair_tails, low, high, tails)
    after = lower_bound(graph.pair_tails, first, high, np.asarray(tails) + 1)
    return lower_bound(graph.pair_relations, first, after, relations)
