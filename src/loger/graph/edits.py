"""The one way to change a graph: renumber what there is, delete edges, insert edges.

A graph is immutable, so every edit returns another one. All of them are made of three steps that
keep the order of what stays, so nothing is sorted again: ``_renumbered``, ``_deleted`` and
``_inserted``. ``tests/test_growth.py`` compares every edit with the graph that ``from_triples``
builds of the same facts.

Updates after a fit (``with_entities``, ``with_facts``, ``without_facts``, ``without_entities``)
give the same bytes in whatever order they come. Entities of a type keep the numbers of the fit,
and those that came later follow them by name; types and relations that came later follow those of
the fit in the same way, derived relations last. So the numbers say what there is, not when it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError
from loger.graph.arrays import (
    Bools,
    Doubles,
    Ints,
    as_strengths,
    checked_ids,
    gather,
    merged,
    merged_runs,
    pair_keys,
)
from loger.graph.vocabulary import INTERACTION, Relation, Vocabulary

if TYPE_CHECKING:
    from loger.graph.graph import KnowledgeGraph

Triples = tuple[Ints, Ints, Ints]
"""Heads, relations and tails of facts, by number."""
_Array = TypeVar("_Array", bound="NDArray[Any] | None")
PEOPLE_AND_ITEMS = ("user", "item")
FEW = 16
"""Up to this many edges are looked up one by one, which is faster: views ask for a handful."""


class Derived(NamedTuple):
    """A derived relation and its facts; items are numbered from 0."""

    relation: Relation
    heads: NDArray[np.integer]
    tails: NDArray[np.integer]
    weights: NDArray[np.floating]
    support: NDArray[np.integer]
    """How many people each fact was made of."""


@dataclass(frozen=True, slots=True)
class Learned:
    """How many entities of each type, and how many relations, are those of the fit."""

    types: Mapping[str, int]
    relations: int
    """Without derived ones."""

    @classmethod
    def all_of(cls, graph: KnowledgeGraph) -> Learned:
        """As a fit on the graph leaves it: everything was learned."""
        words = graph.vocabulary
        sizes = {t: len(words.span(t)) for t in words.types}
        return cls(sizes, sum(not r.derived for r in graph.relations))

    def entities(self, graph: KnowledgeGraph) -> Bools:
        """Whether the fit knew each entity of a graph; [entities]."""
        out = np.zeros(graph.n_entities, dtype=bool)
        for name in graph.vocabulary.types:
            first = graph.vocabulary.span(name).start
            out[first : first + self.types.get(name, 0)] = True
        return out


class Renumbered(NamedTuple):
    """A graph under other numbers, and which they are; -1 for what is gone."""

    graph: KnowledgeGraph
    entities: NDArray[np.int64]
    """[entities before]."""
    relations: NDArray[np.int64]
    """[relations and inverses before]."""
    learned: Learned


# ── the three steps ─────────────────────────────────────────────────────────────────────


def _renumbered(
    graph: KnowledgeGraph,
    vocabulary: Vocabulary,
    relations: Sequence[Relation],
    entities: NDArray[np.int64],
    kinds: NDArray[np.int64],
) -> KnowledgeGraph:
    """The graph under other numbers, in the same order as those they replace."""
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
        relations=tuple(relations),
        row_segments=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        segment_relations=renamed[graph.segment_relations],
        tails=numbers[graph.tails],
        pair_tails=numbers[graph.pair_tails],
        pair_relations=renamed[graph.pair_relations],
        origins=origins,
    )


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


class _Facts(NamedTuple):
    """Facts to insert, none of which exists yet; each value holds for both directions."""

    heads: Ints
    relations: Ints
    tails: Ints
    times: Ints | int = 0
    strengths: Doubles | float = 0.0
    weights: NDArray[np.floating] | float = 1.0
    support: Ints | int = 0


def _inserted(graph: KnowledgeGraph, facts: _Facts) -> KnowledgeGraph:
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
    segment, there = _segment_places(graph, h, r)
    low = graph.segment_starts[segment]
    last = len(graph.segment_starts) - 1
    size = np.where(there, graph.segment_starts[np.minimum(segment + 1, last)] - low, 0)
    at = _lower_bound(graph.tails, low, low + size, t)
    sizes = np.diff(graph.segment_starts)
    np.add.at(sizes, segment[there], 1)
    begins = ~there & np.append(True, (h[1:] != h[:-1]) | (r[1:] != r[:-1]))
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
    return _without_edges(graph, fact_places(graph, h, r, t))


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
    return _without_edges(graph, np.concatenate([taken, known_from(graph, u, v)]))


def _without_edges(graph: KnowledgeGraph, edges: Ints) -> KnowledgeGraph:
    """The graph without some edges, by their places in ``tails``, and their inverses."""
    if not len(edges):
        return graph
    gone = np.zeros(len(graph.tails), dtype=bool)
    gone[with_inverses(graph, edges)] = True
    return _deleted(graph, gone)


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
    first = first[edge_places(graph, u[first], r, v[first] + graph.n_users) < 0]
    if times is None:  # later than all others
        when: Ints | int = 0 if graph.times is None else int(graph.times.max(initial=0)) + 1
    else:
        when = np.asarray(times, np.int64)[first]
    strong: Doubles | float = graph.default_strength
    if strengths is not None:
        strong = as_strengths(strengths)[first]
    facts = _Facts(u[first], r[: len(first)], v[first] + graph.n_users, when, strong)
    return _inserted(graph, facts)


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
    return _without_edges(graph, np.flatnonzero(~drawn))


def timed(graph: KnowledgeGraph, users: Ints, items: Ints, times: Ints) -> KnowledgeGraph:
    """The graph with the times of its interactions; a pair with several times has the latest.

    Items are numbered from 0 among items, and every interaction must have a time.
    """
    order = np.lexsort((times, items, users))
    u, v, t = users[order], items[order], np.asarray(times)[order]
    last = np.append((u[1:] != u[:-1]) | (v[1:] != v[:-1]), True)[: len(u)]
    return replace(graph, times=_of_edges(graph, t[last], np.int64, "times"))


def with_times_of_behaviours(
    graph: KnowledgeGraph, triples: Triples, times: Ints
) -> KnowledgeGraph:
    """The graph with the times of what users did to items besides the interaction. Facts of other
    kinds, and facts that the graph doesn't have, are ignored."""
    h, r, t = (np.asarray(x, dtype=np.int64) for x in triples)
    assert graph.times is not None
    kinds = [{k.head_type, k.tail_type} == set(PEOPLE_AND_ITEMS) for k in graph.relations]
    places = edge_places(graph, h, r, t)
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
        raise LogerError(f"{len(values):,} pairs with {what}, {len(edges):,} interactions")
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
    parts = {t: _of_type(words, t) for t in words.types}
    of_type = {t: [*own, *(names if t == "user" else ())] for t, (own, _) in parts.items()}
    labels = {t: [*own, *(names if t == "user" else ())] for t, (_, own) in parts.items()}
    numbers = np.arange(graph.n_entities, dtype=np.int64)
    numbers[graph.n_users :] += len(names)
    kinds = np.arange(2 * len(graph.relations), dtype=np.int64)
    return _renumbered(
        graph, Vocabulary(of_type, labels, words.integers), graph.relations, numbers, kinds
    )


def with_derived(graph: KnowledgeGraph, more: Sequence[Derived]) -> KnowledgeGraph:
    """The graph with more relations between items, made from its interactions; their numbers follow
    those it has."""
    if not more:
        return graph
    for d in more:
        _check_derived(graph, d)
    old, n = len(graph.relations), len(graph.relations) + len(more)
    base = np.arange(old, dtype=np.int64)
    after = (*graph.relations, *(d.relation for d in more))
    entities = np.arange(graph.n_entities, dtype=np.int64)
    kinds = np.concatenate([base, base + n])
    grown = _renumbered(graph, graph.vocabulary, after, entities, kinds)
    if grown.weights is None:
        grown = replace(grown, weights=np.ones(len(grown.tails), np.float32))
    if grown.support is None:
        grown = replace(grown, support=np.zeros(len(grown.tails), np.int32))
    first = graph.n_users
    facts = _Facts(
        np.concatenate([np.asarray(d.heads, dtype=np.int64) + first for d in more]),
        np.repeat(np.arange(old, n), [len(d.heads) for d in more]),
        np.concatenate([np.asarray(d.tails, dtype=np.int64) + first for d in more]),
        weights=np.concatenate([np.asarray(d.weights, dtype=np.float32) for d in more]),
        support=np.concatenate([np.asarray(d.support, dtype=np.int32) for d in more]),
    )
    return _inserted(grown, facts)


def with_expected(
    graph: KnowledgeGraph, first_new: int, facts: Triples, weights: NDArray[np.floating]
) -> KnowledgeGraph:
    """The graph in which these derived facts, made of nobody, are all that is derived of the items
    from ``first_new`` on, numbered from 0 among items; the facts are by entity."""
    derived = np.tile([r.derived for r in graph.relations], 2)
    new = np.zeros(graph.n_entities, dtype=bool)
    new[graph.n_users + first_new : graph.n_users + graph.n_items] = True
    before = derived[graph.edge_relations()] & (new[graph.edge_heads()] | new[graph.tails])
    left = _without_edges(graph, np.flatnonzero(before))
    return _inserted(left, _Facts(*facts, weights=weights.astype(np.float32)))


def given(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph less its derived relations; they are the last."""
    n, old = len(graph.relations), sum(not r.derived for r in graph.relations)
    if n == old:
        return graph
    kinds = np.arange(2 * n, dtype=np.int64)
    derived = kinds % n >= old
    left = _deleted(graph, derived[graph.edge_relations()], derived[graph.pair_relations])
    kinds[n:] -= n - old  # derived relations have numbers, too, but no edges
    entities = np.arange(graph.n_entities, dtype=np.int64)
    left = _renumbered(left, graph.vocabulary, graph.relations[:old], entities, kinds)
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
        raise LogerError(f"there is a relation {r.name!r} already")
    if not len(heads) == len(tails) == len(derived.weights) == len(derived.support):
        raise LogerError(f"the facts of {r.name!r} differ in length")
    inside = (np.minimum(heads, tails) >= 0) & (np.maximum(heads, tails) < graph.n_items)
    keys = heads.astype(np.int64) * graph.n_items + tails
    positive = np.isfinite(derived.weights) & (np.asarray(derived.weights) > 0)
    if not (inside & positive & (heads != tails)).all() or len(np.unique(keys)) < len(keys):
        raise LogerError(
            f"the facts of {r.name!r} must be unique, link two different items "
            f"and have a weight above 0"
        )


# ── updates after a fit ─────────────────────────────────────────────────────────────────


def with_entities(
    graph: KnowledgeGraph,
    learned: Learned,
    entities: Mapping[str, Mapping[str, str]],
    relations: Sequence[Relation] = (),
) -> Renumbered:
    """The graph with more entities, as type → name → label, and more relations.

    The label of an entity that exists already replaces the one it has.
    """
    words = graph.vocabulary
    names, labels, number = (
        dict[str, list[str]](),
        dict[str, list[str]](),
        list[NDArray[np.int64]](),
    )
    later = sorted((set(words.types) | set(entities)) - set(learned.types))
    first = 0
    for kind in (*learned.types, *later):
        known = learned.types.get(kind, 0)
        names[kind], labels[kind], moved = _merged(words, kind, known, entities.get(kind, {}))
        number.append(first + moved)
        first += len(names[kind])
    given = [r for r in graph.relations if not r.derived]
    theirs = sorted([*given[learned.relations :], *relations], key=_by_name)
    after = [*given[: learned.relations], *theirs, *(r for r in graph.relations if r.derived)]
    base = np.array([after.index(r) for r in graph.relations], dtype=np.int64)
    kinds, numbers = np.concatenate([base, base + len(after)]), np.concatenate(number)
    grown = _renumbered(graph, Vocabulary(names, labels, words.integers), after, numbers, kinds)
    return Renumbered(grown, numbers, kinds, learned)


def _merged(
    words: Vocabulary, kind: str, known: int, more: Mapping[str, str]
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Names and labels of a type with more entities, and the places of those that were there.
    Entities that came after the fit are sorted by name."""
    names, labels = _of_type(words, kind)
    there = words.ids(kind) if kind in words.types else {}
    first = words.span(kind).start if kind in words.types else 0
    for name, label in more.items():
        if name in there:
            labels[there[name] - first] = label
    later_ones = dict(zip(names[known:], labels[known:], strict=True))
    later_ones |= {name: label for name, label in more.items() if name not in there}
    later = sorted(later_ones)
    place = {name: known + k for k, name in enumerate(later)}
    moved = np.concatenate([np.arange(known), [place[n] for n in names[known:]]])
    labels = labels[:known] + [later_ones[n] for n in later]
    return names[:known] + later, labels, moved.astype(np.int64)


def _by_name(relation: Relation) -> tuple[str, str, str]:
    return relation.name, relation.head_type, relation.tail_type


def with_facts(
    graph: KnowledgeGraph,
    triples: Triples,
    times: Ints | None = None,
    strengths: Doubles | None = None,
) -> KnowledgeGraph:
    """The graph with more facts of base relations, which may be interactions.

    ``times`` are those of interactions; a pair with several keeps the latest, as in the readers.
    Other behaviours whose times the graph knows count as later than all that it has.
    ``strengths`` of one pair add up; of ratings the highest counts. A fact that was known from one
    interaction alone is from now on known by itself. But a fact that links a user and an item that
    interact says no more than their interaction (METHOD L3).
    """
    h, r, t = (np.asarray(x, dtype=np.int64) for x in triples)
    if (times is None) != (graph.times is None) and (r == INTERACTION).any():
        raise LogerError("interactions need times where the graph knows times, and only there")
    when = np.zeros(len(h), np.int64) if times is None else np.where(r == INTERACTION, times, 0)
    if graph.times is not None and graph.timed_behaviours:
        when[np.isin(r, graph.timed_behaviours)] = int(graph.times.max(initial=0)) + 1
    stated = np.full(len(h), graph.default_strength) if strengths is None else strengths
    strong = np.where(r == INTERACTION, as_strengths(stated), 0.0)
    order = np.lexsort((-when, t, r, h))
    h, r, t, when = h[order], r[order], t[order], when[order]
    first = np.ones(len(h), dtype=bool)
    first[1:] = (h[1:] != h[:-1]) | (r[1:] != r[:-1]) | (t[1:] != t[:-1])
    strong = merged_runs(strong[order], np.flatnonzero(first), graph.rated)
    h, r, t, when = h[first], r[first], t[first], when[first]
    places = edge_places(graph, h, r, t)
    grown = _repeated(graph, places, r, when, strong)
    grown = _known_by_themselves(grown, places)
    new = places < 0
    grown = _inserted(grown, _Facts(h[new], r[new], t[new], when[new], strong[new]))
    return _with_own_origins(grown)


def _repeated(
    graph: KnowledgeGraph, places: Ints, r: Ints, when: Ints, strong: Doubles
) -> KnowledgeGraph:
    """The graph in which interactions that exist already have the later of the two times, and the
    merged strengths."""
    again = (places >= 0) & (r == INTERACTION)
    at, times, strengths = places[again], graph.times, graph.strengths
    if times is not None and len(at):
        times = times.copy()
        times[at] = np.maximum(times[at], when[again])
    if strengths is not None and len(at):
        strengths = strengths.copy()
        strengths[at] = merged(strengths[at], strong[again], graph.rated)
    return replace(graph, times=times, strengths=strengths)


def _known_by_themselves(graph: KnowledgeGraph, places: Ints) -> KnowledgeGraph:
    """The graph in which the facts at these places have no origin."""
    again = places[places >= 0]
    if graph.origins is None or not len(again):
        return graph
    origins = graph.origins.copy()
    origins[with_inverses(graph, again)] = -1
    return replace(graph, origins=origins)


def _with_own_origins(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph in which facts between a user and an item that interact have that as origin."""
    ends = [{r.head_type, r.tail_type} == set(PEOPLE_AND_ITEMS) for r in graph.relations]
    ends[INTERACTION] = False
    if not any(ends):
        return graph
    of = np.flatnonzero(np.tile(ends, 2)[graph.segment_relations])
    rows = np.searchsorted(graph.row_segments, of, side="right") - 1
    starts = graph.segment_starts[of]
    owners, edges = gather(starts, graph.segment_starts[of + 1] - starts)
    heads, tails = rows[owners], graph.tails[edges].astype(np.int64)
    user, item = np.minimum(heads, tails), np.maximum(heads, tails)
    taken = edge_places(graph, user, np.zeros_like(user), item) >= 0
    if not taken.any():
        return graph
    none = np.full(len(graph.tails), -1, dtype=np.int32)
    origins = none if graph.origins is None else graph.origins.copy()
    origins[edges[taken]] = tails[taken]
    return replace(graph, origins=origins)


def without_entities(graph: KnowledgeGraph, learned: Learned, gone: Ints) -> Renumbered:
    """The graph as if some entities had never existed.

    Their facts go, facts known from their interactions alone, and other entities that were linked
    to nothing else. Users and items stay unless they are named.
    """
    lost = np.zeros(graph.n_entities, dtype=bool)
    lost[np.asarray(gone, dtype=np.int64)] = True
    heads = graph.edge_heads()
    edges = lost[heads] | lost[graph.tails]
    if graph.origins is not None:
        edges |= np.where(graph.origins >= 0, lost[graph.origins], False)
    left = _without_edges(graph, np.flatnonzero(edges))
    lost |= _orphaned(graph, left)
    return _less_entities(left, learned, lost)


def without_facts(graph: KnowledgeGraph, learned: Learned, triples: Triples) -> Renumbered:
    """The graph without some facts, which may be interactions.

    With an interaction go the facts that are known from it alone. Entities that were linked to
    nothing else go too, except users and items.
    """
    h, r, t = (np.asarray(x, dtype=np.int64) for x in triples)
    taken = r == INTERACTION
    places = fact_places(graph, h, r, t)
    left = _without_edges(graph, np.concatenate([places, known_from(graph, h[taken], t[taken])]))
    return _less_entities(left, learned, _orphaned(graph, left))


def _orphaned(before: KnowledgeGraph, after: KnowledgeGraph) -> Bools:
    """Which entities have lost their last fact, not counting users and items."""
    bare: Bools = (np.diff(after.indptr) == 0) & (np.diff(before.indptr) > 0)
    bare[: before.n_users + before.n_items] = False
    return bare


def _less_entities(graph: KnowledgeGraph, learned: Learned, gone: Bools) -> Renumbered:
    """The graph without some entities, which have no facts any more."""
    kinds = np.arange(2 * len(graph.relations))
    if not gone.any():
        return Renumbered(graph, np.arange(graph.n_entities), kinds, learned)
    words, stays = graph.vocabulary, ~gone
    numbers = np.where(stays, np.cumsum(stays) - 1, -1)
    known, left = learned.entities(graph) & stays, dict[str, int]()
    names, labels = dict[str, list[str]](), dict[str, list[str]]()
    for kind in words.types:
        span = [e for e in words.span(kind) if stays[e]]
        names[kind] = [words.names[e] for e in span]
        labels[kind] = [words.labels[e] for e in span]
        if kind in learned.types:
            left[kind] = int(known[words.span(kind).start : words.span(kind).stop].sum())
    vocabulary = Vocabulary(names, labels, words.integers)
    moved = _renumbered(graph, vocabulary, graph.relations, numbers, kinds)
    return Renumbered(moved, numbers, kinds, Learned(left, learned.relations))


# ── numbers and places ──────────────────────────────────────────────────────────────────


def _of_type(words: Vocabulary, kind: str) -> tuple[list[str], list[str]]:
    """Names and labels of the entities of a type; none if the type is unknown."""
    if kind not in words.types:
        return [], []
    span = words.span(kind)
    return words.names[span.start : span.stop], words.labels[span.start : span.stop]


def known_from(graph: KnowledgeGraph, users: Ints, items: Ints) -> NDArray[np.int64]:
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
    places = edge_places(graph, heads, relations, tails)
    if (places < 0).any():
        k, names = int(np.flatnonzero(places < 0)[0]), graph.vocabulary.names
        raise LogerError(
            f"the graph has no fact ({names[heads[k]]!r}, "
            f"{graph.relation_name(int(relations[k]))}, {names[tails[k]]!r}) to take away"
        )
    return places


def with_inverses(graph: KnowledgeGraph, edges: Ints) -> NDArray[np.int64]:
    """The places in ``tails`` of some edges and their inverses, ascending and distinct."""
    places = np.unique(np.asarray(edges, dtype=np.int64))
    if not len(places):
        return places
    _, head, relation, tail = _edges_at(graph, places)
    half = len(graph.relations)
    inverse = np.where(relation < half, relation + half, relation - half)
    return np.unique(np.concatenate([places, edge_places(graph, tail, inverse, head)]))


def _edges_at(graph: KnowledgeGraph, places: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Segment, head, relation and tail of the edges at some places in ``tails``."""
    segment = np.searchsorted(graph.segment_starts, places, side="right") - 1
    head = np.searchsorted(graph.row_segments, segment, side="right") - 1
    relation = graph.segment_relations[segment].astype(np.int64)
    return segment, head, relation, graph.tails[places].astype(np.int64)


def _lower_bound(values: Ints, low: Ints, high: Ints, wanted: Ints) -> NDArray[np.int64]:
    """For each query, the first place in its slice of sorted values whose value is not below it.

    >>> low, high = np.array([0, 2]), np.array([2, 4])
    >>> _lower_bound(np.array([2, 4, 1, 9]), low, high, np.array([3, 1])).tolist()
    [1, 2]
    """
    a, b = np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)
    while (open_ := a < b).any():
        middle = (a + b) // 2
        below = open_ & (values[np.where(open_, middle, 0)] < wanted)
        a = np.where(below, middle + 1, a)
        b = np.where(open_ & ~below, middle, b)
    return a


def _segment_places(graph: KnowledgeGraph, heads: Ints, relations: Ints) -> tuple[Ints, Bools]:
    """Where the segments of heads and relations are, or would be, and whether they exist."""
    low, high = graph.row_segments[heads], graph.row_segments[np.asarray(heads) + 1]
    at = _lower_bound(graph.segment_relations, low, high, relations)
    there = at < high
    there[there] = graph.segment_relations[at[there]] == np.asarray(relations)[there]
    return at, there


def edge_places(graph: KnowledgeGraph, heads: Ints, relations: Ints, tails: Ints) -> Ints:
    """The places of edges in ``tails``; -1 for missing ones."""
    if len(heads) <= FEW:
        edges = zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True)
        return np.array([graph.rows.edge(*edge) for edge in edges], dtype=np.int64)
    segment, there = _segment_places(graph, heads, relations)
    out = np.full(len(segment), -1, dtype=np.int64)
    found = segment[there]
    low, high = graph.segment_starts[found], graph.segment_starts[found + 1]
    wanted = np.asarray(tails)[there]
    at = _lower_bound(graph.tails, low, high, wanted)
    hit = at < high
    hit[hit] = graph.tails[at[hit]] == wanted[hit]
    out[np.flatnonzero(there)[hit]] = at[hit]
    return out


def _pair_places(graph: KnowledgeGraph, heads: Ints, relations: Ints, tails: Ints) -> Ints:
    """Where edges are, or would be, in the order by head, tail and relation."""
    low, high = graph.indptr[heads], graph.indptr[np.asarray(heads) + 1]
    first = _lower_bound(graph.pair_tails, low, high, tails)
    after = _lower_bound(graph.pair_tails, first, high, np.asarray(tails) + 1)
    return _lower_bound(graph.pair_relations, first, after, relations)
