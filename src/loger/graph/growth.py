"""Graphs that take things in and let go of them after a fit: the same bytes in whatever order.

Entities of a type are numbered as the fit had them, those that came later after them by name; in
the same way types and relations that came later follow those of the fit, derived relations last.
So the numbers say what there is, not when it came, and each edit keeps the order of all that
stays: edges are inserted and deleted, never sorted anew. ``tests/test_growth.py`` holds every edit
to the graph that ``from_triples`` builds of the same facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError
from loger.graph.arrays import Ints, gather
from loger.graph.graph import KnowledgeGraph
from loger.graph.strengths import as_strengths, merged, merged_runs
from loger.graph.vocabulary import INTERACTION, Relation, Vocabulary

Bools = NDArray[np.bool_]
PEOPLE_AND_ITEMS = ("user", "item")


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


# ── more ────────────────────────────────────────────────────────────────────────────────


def with_entities(
    graph: KnowledgeGraph,
    learned: Learned,
    entities: Mapping[str, Mapping[str, str]],
    relations: Sequence[Relation] = (),
) -> Renumbered:
    """The graph with entities more, as type → name → label, and relations more.

    The label of an entity that is there already replaces the one it has.
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
    grown = _moved(graph, Vocabulary(names, labels), after, numbers, kinds)
    return Renumbered(grown, numbers, kinds, learned)


def _merged(
    words: Vocabulary, kind: str, known: int, more: Mapping[str, str]
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Names and labels of a type with some entities more, those that the fit did not know by name,
    and the places of those that were there."""
    names, labels = _of_type(words, kind)
    there = words.ids(kind) if kind in words.types else {}
    first = words.span(kind).start if kind in words.types else 0
    for name, label in more.items():
        if name in there:
            labels[there[name] - first] = label
    told = dict(zip(names[known:], labels[known:], strict=True))
    told |= {name: label for name, label in more.items() if name not in there}
    later = sorted(told)
    place = {name: known + k for k, name in enumerate(later)}
    moved = np.concatenate([np.arange(known), [place[n] for n in names[known:]]])
    labels = labels[:known] + [told[n] for n in later]
    return names[:known] + later, labels, moved.astype(np.int64)


def _by_name(relation: Relation) -> tuple[str, str, str]:
    return relation.name, relation.head_type, relation.tail_type


def with_facts(
    graph: KnowledgeGraph,
    heads: Ints,
    relations: Ints,
    tails: Ints,
    times: Ints | None = None,
    strengths: NDArray[np.float64] | None = None,
) -> KnowledgeGraph:
    """The graph with facts of base relations more, interactions among them.

    ``times`` are those of interactions; of several of one pair the earliest stays, as readers have
    it. ``strengths`` of one pair add up, of ratings the highest counts. A fact that was known from
    one interaction alone is known by itself from now on, but what links a user and an item that
    interact says no more than their interaction (METHOD L3).
    """
    if (times is None) != (graph.times is None) and (np.asarray(relations) == INTERACTION).any():
        raise LogerError("interactions need times where the graph knows times, and only there")
    n, kinds = graph.n_entities, 2 * len(graph.relations)
    h, r, t = (np.asarray(x, dtype=np.int64) for x in (heads, relations, tails))
    when = np.zeros(len(h), np.int64) if times is None else np.where(r == INTERACTION, times, 0)
    told = np.full(len(h), graph.default_strength) if strengths is None else strengths
    strong = np.where(r == INTERACTION, as_strengths(told), 0.0)
    order = np.lexsort((when, t, r, h))
    h, r, t, when = h[order], r[order], t[order], when[order]
    first = np.ones(len(h), dtype=bool)
    first[1:] = (h[1:] != h[:-1]) | (r[1:] != r[:-1]) | (t[1:] != t[:-1])
    strong = merged_runs(strong[order], np.flatnonzero(first), graph.rated)
    h, r, t, when = h[first], r[first], t[first], when[first]
    places = edge_places(graph, h, r, t)
    grown = _stronger(_earliest(graph, places, r, when), places, r, strong)
    grown = _known_by_themselves(grown, h, r, t, places)
    h, r, t, when = (x[places < 0] for x in (h, r, t, when))
    strong = strong[places < 0]
    head, tail = np.concatenate([h, t]), np.concatenate([t, h])
    relation, when, strong = (
        np.concatenate([r, r + kinds // 2]),
        np.tile(when, 2),
        np.tile(strong, 2),
    )
    order = np.argsort((head * kinds + relation) * n + tail, kind="stable")
    head, relation, tail, when = (x[order] for x in (head, relation, tail, when))
    grown = _inserted(grown, head, relation, tail, when, strong[order])
    return _with_own_origins(grown)


def _inserted(
    graph: KnowledgeGraph, h: Ints, r: Ints, t: Ints, when: Ints, strong: NDArray[np.float64]
) -> KnowledgeGraph:
    """The graph with directed edges more, sorted and none of them there."""
    if not len(h):
        return graph
    segment, there = segment_places(graph, h, r)
    low = graph.segment_starts[segment]
    size = np.where(there, graph.segment_starts[np.minimum(segment + 1, _last(graph))] - low, 0)
    at = lower_bound(graph.tails, low, low + size, t)
    sizes = np.diff(graph.segment_starts)
    np.add.at(sizes, segment[there], 1)
    begins = ~there & np.append(True, (h[1:] != h[:-1]) | (r[1:] != r[:-1]))
    begun = np.cumsum(begins)[~there] - 1
    fresh = np.bincount(begun, minlength=int(begins.sum())).astype(np.int64)
    sizes = np.insert(sizes, segment[begins], fresh)
    more = np.bincount(h[begins], minlength=graph.n_entities)
    pair = np.lexsort((r, t, h))
    pair_at = _pair_places(graph, h[pair], r[pair], t[pair])
    of_users = h < graph.n_users

    def put(array: NDArray[np.generic] | None, values: object) -> NDArray[np.generic] | None:
        return None if array is None else np.insert(array, at, values)  # type: ignore[call-overload]

    times, strengths = graph.times, graph.strengths
    return replace(
        graph,
        row_segments=graph.row_segments + np.concatenate([[0], np.cumsum(more)]),
        segment_relations=np.insert(graph.segment_relations, segment[begins], r[begins]),
        segment_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        tails=np.insert(graph.tails, at, t),
        pair_tails=np.insert(graph.pair_tails, pair_at, t[pair]),
        pair_relations=np.insert(graph.pair_relations, pair_at, r[pair]),
        origins=put(graph.origins, -1),  # type: ignore[arg-type]
        times=None if times is None else np.insert(times, at[of_users], when[of_users]),
        strengths=None
        if strengths is None
        else np.insert(strengths, at[of_users], strong[of_users]),
        weights=put(graph.weights, 1.0),  # type: ignore[arg-type]
        support=put(graph.support, 0),  # type: ignore[arg-type]
    )


def _earliest(graph: KnowledgeGraph, places: Ints, r: Ints, when: Ints) -> KnowledgeGraph:
    """The graph in which interactions that are there already have the earlier of two times."""
    again = (places >= 0) & (r == INTERACTION)
    if graph.times is None or not again.any():
        return graph
    times = graph.times.copy()
    times[places[again]] = np.minimum(times[places[again]], when[again])
    return replace(graph, times=times)


def _stronger(
    graph: KnowledgeGraph, places: Ints, r: Ints, strong: NDArray[np.float64]
) -> KnowledgeGraph:
    """The graph in which interactions that are there already have both strengths."""
    again = (places >= 0) & (r == INTERACTION)
    if graph.strengths is None or not again.any():
        return graph
    strengths = graph.strengths.copy()
    strengths[places[again]] = merged(strengths[places[again]], strong[again], graph.rated)
    return replace(graph, strengths=strengths)


def _known_by_themselves(
    graph: KnowledgeGraph, h: Ints, r: Ints, t: Ints, places: Ints
) -> KnowledgeGraph:
    """The graph in which facts that are there already have no origin."""
    again = places >= 0
    if graph.origins is None or not again.any():
        return graph
    origins = graph.origins.copy()
    origins[places[again]] = -1
    back = edge_places(graph, t[again], r[again] + len(graph.relations), h[again])
    origins[back] = -1
    return replace(graph, origins=origins)


def _with_own_origins(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph in which what links a user and an item that interact is known from that alone."""
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


# ── less ────────────────────────────────────────────────────────────────────────────────


def without_entities(graph: KnowledgeGraph, learned: Learned, gone: Ints) -> Renumbered:
    """The graph as if some entities had never been: their facts, facts known from their
    interactions alone, and whatever else was linked to nothing but them go, too.

    Users and items stay unless they are named.
    """
    lost = np.zeros(graph.n_entities, dtype=bool)
    lost[np.asarray(gone, dtype=np.int64)] = True
    heads = graph.edge_heads()
    edges = lost[heads] | lost[graph.tails]
    if graph.origins is not None:
        edges |= np.where(graph.origins >= 0, lost[graph.origins], False)
    left = without_edges(graph, np.flatnonzero(edges))
    lost |= _orphaned(graph, left)
    return _less_entities(left, learned, lost)


def without_facts(
    graph: KnowledgeGraph, learned: Learned, heads: Ints, relations: Ints, tails: Ints
) -> Renumbered:
    """The graph less some facts, interactions among them; with an interaction all goes that is
    known from it alone, and entities, other than users and items, that were linked to nothing
    else."""
    h, r, t = (np.asarray(x, dtype=np.int64) for x in (heads, relations, tails))
    places = edge_places(graph, h, r, t)
    if (places < 0).any():
        k, words = int(np.flatnonzero(places < 0)[0]), graph.vocabulary
        raise LogerError(
            f"there is no fact ({words.names[h[k]]!r}, {graph.relation_name(int(r[k]))}, "
            f"{words.names[t[k]]!r}) to take away"
        )
    taken = r == INTERACTION
    edges = np.concatenate([places, _known_from(graph, h[taken], t[taken])])
    left = without_edges(graph, edges)
    return _less_entities(left, learned, _orphaned(graph, left))


def without_edges(graph: KnowledgeGraph, edges: Ints) -> KnowledgeGraph:
    """The graph less some edges, by their places in ``tails``, and their inverses."""
    if not len(edges):
        return graph
    places = np.unique(np.asarray(edges, dtype=np.int64))
    segment = np.searchsorted(graph.segment_starts, places, side="right") - 1
    head = np.searchsorted(graph.row_segments, segment, side="right") - 1
    relation = graph.segment_relations[segment].astype(np.int64)
    tail, half = graph.tails[places].astype(np.int64), len(graph.relations)
    back = edge_places(
        graph, tail, np.where(relation < half, relation + half, relation - half), head
    )
    gone = np.zeros(len(graph.tails), dtype=bool)
    gone[places] = gone[back] = True
    return _kept(graph, gone)


def _kept(graph: KnowledgeGraph, gone: Bools) -> KnowledgeGraph:
    """The graph less the edges that are marked, both directions of each fact."""
    places = np.flatnonzero(gone)
    segment = np.searchsorted(graph.segment_starts, places, side="right") - 1
    head = np.searchsorted(graph.row_segments, segment, side="right") - 1
    relation, tail = graph.segment_relations[segment].astype(np.int64), graph.tails[places]
    pairs = np.ones(len(gone), dtype=bool)
    pairs[_pair_places(graph, head, relation, tail.astype(np.int64))] = False
    lost = np.bincount(segment, minlength=len(graph.segment_relations))
    sizes = np.diff(graph.segment_starts) - lost
    stays, edges = sizes > 0, ~gone

    def of(array: NDArray[np.generic] | None) -> NDArray[np.generic] | None:
        return None if array is None else array[edges[: len(array)]]

    return replace(
        graph,
        row_segments=np.concatenate([[0], np.cumsum(stays)])[graph.row_segments],
        segment_relations=graph.segment_relations[stays],
        segment_starts=np.concatenate([[0], np.cumsum(sizes[stays])]).astype(np.int64),
        tails=graph.tails[edges],
        pair_tails=graph.pair_tails[pairs],
        pair_relations=graph.pair_relations[pairs],
        origins=of(graph.origins),  # type: ignore[arg-type]
        times=of(graph.times),  # type: ignore[arg-type]
        strengths=of(graph.strengths),  # type: ignore[arg-type]
        weights=of(graph.weights),  # type: ignore[arg-type]
        support=of(graph.support),  # type: ignore[arg-type]
    )


def _known_from(graph: KnowledgeGraph, users: Ints, items: Ints) -> NDArray[np.int64]:
    """The places of edges that are known from some interactions alone."""
    found = [np.empty(0, dtype=np.int64)]
    if graph.origins is not None:
        for a, b in (*zip(users, items, strict=True), *zip(items, users, strict=True)):
            low, high = graph.indptr[a], graph.indptr[a + 1]
            found.append(low + np.flatnonzero(graph.origins[low:high] == b))
    return np.concatenate(found)


def _orphaned(before: KnowledgeGraph, after: KnowledgeGraph) -> Bools:
    """Which entities, other than users and items, have lost their last fact."""
    bare: Bools = (np.diff(after.indptr) == 0) & (np.diff(before.indptr) > 0)
    bare[: before.n_users + before.n_items] = False
    return bare


def _less_entities(graph: KnowledgeGraph, learned: Learned, gone: Bools) -> Renumbered:
    """The graph less entities that have no facts any more."""
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
    vocabulary = Vocabulary(names, labels)
    moved = _moved(graph, vocabulary, graph.relations, numbers, kinds)
    return Renumbered(moved, numbers, kinds, Learned(left, learned.relations))


# ── numbers and places ──────────────────────────────────────────────────────────────────


def _of_type(words: Vocabulary, kind: str) -> tuple[list[str], list[str]]:
    """Names and labels of the entities of a type, if there is one."""
    if kind not in words.types:
        return [], []
    span = words.span(kind)
    return words.names[span.start : span.stop], words.labels[span.start : span.stop]


def _moved(
    graph: KnowledgeGraph,
    vocabulary: Vocabulary,
    relations: Sequence[Relation],
    entities: NDArray[np.int64],
    kinds: NDArray[np.int64],
) -> KnowledgeGraph:
    """The graph under other numbers, which ascend as those they replace."""
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


def lower_bound(values: Ints, low: Ints, high: Ints, wanted: Ints) -> NDArray[np.int64]:
    """For each query the first place in its slice of sorted values that is not below it.

    >>> low, high = np.array([0, 2]), np.array([2, 4])
    >>> lower_bound(np.array([2, 4, 1, 9]), low, high, np.array([3, 1])).tolist()
    [1, 2]
    """
    a, b = np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)
    while (open_ := a < b).any():
        middle = (a + b) // 2
        below = open_ & (values[np.where(open_, middle, 0)] < wanted)
        a = np.where(below, middle + 1, a)
        b = np.where(open_ & ~below, middle, b)
    return a


def segment_places(graph: KnowledgeGraph, heads: Ints, relations: Ints) -> tuple[Ints, Bools]:
    """Where the segments of heads and relations are, or would be, and whether they are there."""
    low, high = graph.row_segments[heads], graph.row_segments[np.asarray(heads) + 1]
    at = lower_bound(graph.segment_relations, low, high, relations)
    there = at < high
    there[there] = graph.segment_relations[at[there]] == np.asarray(relations)[there]
    return at, there


def edge_places(graph: KnowledgeGraph, heads: Ints, relations: Ints, tails: Ints) -> Ints:
    """The places of edges in ``tails``, -1 for those that are not there."""
    segment, there = segment_places(graph, heads, relations)
    out = np.full(len(segment), -1, dtype=np.int64)
    found = segment[there]
    low, high = graph.segment_starts[found], graph.segment_starts[found + 1]
    wanted = np.asarray(tails)[there]
    at = lower_bound(graph.tails, low, high, wanted)
    hit = at < high
    hit[hit] = graph.tails[at[hit]] == wanted[hit]
    out[np.flatnonzero(there)[hit]] = at[hit]
    return out


def _pair_places(graph: KnowledgeGraph, heads: Ints, relations: Ints, tails: Ints) -> Ints:
    """Where edges are, or would be, in the order by head, tail and relation."""
    low, high = graph.indptr[heads], graph.indptr[np.asarray(heads) + 1]
    first = lower_bound(graph.pair_tails, low, high, tails)
    after = lower_bound(graph.pair_tails, first, high, np.asarray(tails) + 1)
    return lower_bound(graph.pair_relations, first, after, relations)


def _last(graph: KnowledgeGraph) -> int:
    return len(graph.segment_starts) - 1
