"""Updates after a fit: graphs with more or fewer entities, relations and facts.

They give the same bytes in whatever order they come. Entities of a type keep the numbers of the
fit, and those that came later follow them by name; types and relations that came later follow those
of the fit in the same way, derived relations last. So the numbers say what there is, not when it
came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loger.errors import LogerError
from loger.graph.arrays import (
    Bools,
    Doubles,
    Ids,
    Ints,
    as_strengths,
    gather,
    merged,
    merged_runs,
    run_starts,
)
from loger.graph.edits import (
    PEOPLE_AND_ITEMS,
    NewFacts,
    Triples,
    fact_places,
    inserted,
    known_from,
    renumbered,
    with_inverses,
    without_edges,
)
from loger.graph.vocabulary import INTERACTION, Named, Relation, Vocabulary

if TYPE_CHECKING:
    from loger.graph.graph import KnowledgeGraph


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
    entities: Ids
    """[entities before]."""
    relations: Ids
    """[relations and inverses before]."""
    learned: Learned


def with_entities(
    graph: KnowledgeGraph,
    learned: Learned,
    entities: Mapping[str, Mapping[str, str]],
    relations: Sequence[Relation] = (),
) -> Renumbered:
    """The graph with more entities, as type → name → label, and more relations.

    The label of an entity that exists already replaces the one it has.
    """
    words, parts, number, first = graph.vocabulary, dict[str, Named](), list[Ids](), 0
    later = sorted((set(words.types) | set(entities)) - set(learned.types))
    for kind in (*learned.types, *later):
        known = learned.types.get(kind, 0)
        parts[kind], moved = _merged(words, kind, known, entities.get(kind, {}))
        number.append(first + moved)
        first += len(parts[kind][0])
    given = [r for r in graph.relations if not r.derived]
    theirs = sorted([*given[learned.relations :], *relations], key=_by_name)
    after = [*given[: learned.relations], *theirs, *(r for r in graph.relations if r.derived)]
    base = np.array([after.index(r) for r in graph.relations], dtype=np.int64)
    kinds, numbers = np.concatenate([base, base + len(after)]), np.concatenate(number)
    grown = Vocabulary.of(parts, words.integers)
    graph = renumbered(graph, entities=numbers, kinds=kinds, vocabulary=grown, relations=after)
    return Renumbered(graph, numbers, kinds, learned)


def _merged(words: Vocabulary, kind: str, known: int, more: Mapping[str, str]) -> tuple[Named, Ids]:
    """Names and labels of a type with more entities, and the places of those that were there.
    Entities that came after the fit are sorted by name."""
    fresh = kind not in words.types
    names, labels = ([], []) if fresh else words.of_type(kind)
    there = {} if fresh else words.ids(kind)
    first = 0 if fresh else words.span(kind).start
    for name, label in more.items():
        if name in there:
            labels[there[name] - first] = label
    later_ones = dict(zip(names[known:], labels[known:], strict=True))
    later_ones |= {name: label for name, label in more.items() if name not in there}
    later = sorted(later_ones)
    place = {name: known + k for k, name in enumerate(later)}
    moved = np.concatenate([np.arange(known), [place[n] for n in names[known:]]])
    labels = labels[:known] + [later_ones[n] for n in later]
    return (names[:known] + later, labels), moved.astype(np.int64)


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
        has, need = ("no times", "can't have any") if times is not None else ("times", "need them")
        raise LogerError(f"the graph has {has}, so new interactions {need}")
    when = np.zeros(len(h), np.int64) if times is None else np.where(r == INTERACTION, times, 0)
    if graph.times is not None and graph.timed_behaviours:
        when[np.isin(r, graph.timed_behaviours)] = int(graph.times.max(initial=0)) + 1
    stated = np.full(len(h), graph.default_strength) if strengths is None else strengths
    strong = np.where(r == INTERACTION, as_strengths(stated), 0.0)
    order = np.lexsort((-when, t, r, h))
    h, r, t, when = h[order], r[order], t[order], when[order]
    first = run_starts(h, r, t)
    strong = merged_runs(strong[order], np.flatnonzero(first), graph.rated)
    h, r, t, when = h[first], r[first], t[first], when[first]
    places = graph.rows.edges(h, r, t)
    grown = _repeated(graph, places, r, when, strong)
    grown = _known_by_themselves(grown, places)
    new = places < 0
    grown = inserted(grown, NewFacts(h[new], r[new], t[new], when[new], strong[new]))
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
    taken = graph.rows.edges(user, np.zeros_like(user), item) >= 0
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
    left = without_edges(graph, np.flatnonzero(edges))
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
    left = without_edges(graph, np.concatenate([places, known_from(graph, h[taken], t[taken])]))
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
    known, left, parts = learned.entities(graph) & stays, dict[str, int](), dict[str, Named]()
    for kind in words.types:
        span = [e for e in words.span(kind) if stays[e]]
        parts[kind] = [words.names[e] for e in span], [words.labels[e] for e in span]
        if kind in learned.types:
            left[kind] = int(known[words.span(kind).start : words.span(kind).stop].sum())
    fewer = Vocabulary.of(parts, words.integers)
    moved = renumbered(graph, entities=numbers, vocabulary=fewer)
    return Renumbered(moved, numbers, kinds, Learned(left, learned.relations))
