"""Graphs that grow and shrink equal, byte for byte, graphs built from scratch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import RELATIONS, graphs, random_triples, vocabulary, with_derived
from grown import assert_same, named, scratch
from loger.errors import LogerError
from loger.graph import KnowledgeGraph, Relation, Vocabulary
from loger.graph.growth import (
    Learned,
    with_entities,
    with_facts,
    without_entities,
    without_facts,
)

NEW = Relation("awarded", "item", "prize")


def timed(graph: KnowledgeGraph, rng: np.random.Generator) -> KnowledgeGraph:
    edges, users = graph.interactions
    return graph.timed(users, graph.tails[edges] - graph.n_users, rng.integers(1, 9, len(users)))


def clean(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph as readers make it: facts between a user and an item that interact know it."""
    facts = named(graph)
    took = {(h, t) for h, r, t in facts if r == "purchase"}
    facts = {
        (h, r, t): (((h, t) if r == "viewed" and (h, t) in took else pair), when)
        for (h, r, t), (pair, when) in facts.items()
    }
    return scratch(graph.vocabulary, graph.relations, facts)


@given(graphs(), st.integers(0, 2**32 - 1), st.booleans())
def test_a_grown_graph_is_the_one_that_its_facts_make_in_whatever_order(graph, seed, has_times):
    rng = np.random.default_rng(seed)
    graph = clean(timed(graph, rng) if has_times and len(graph.interactions[0]) else graph)
    learned, more = Learned.all_of(graph), []
    for _ in range(3):
        new = {
            t: {f"{t}{k}": f"label of {t}{k}" for k in rng.choice(30, 2) if k > 8}
            for t in ("user", "item", "word", "prize")
        }
        more.append((new, [], rng.integers(2**32)))

    def after(order) -> KnowledgeGraph:
        grown = graph
        for k in order:
            entities, _, salt = more[k]
            fresh = [NEW] if NEW not in grown.relations else []
            grown = with_entities(grown, learned, entities, fresh).graph
            grown = with_facts(grown, *facts_among(grown, entities, salt))
        return grown

    def facts_among(grown, entities, salt):
        """Some facts of what the update names and of what the fit knew, by a draw of its own."""
        mine = np.random.default_rng(int(salt))
        rows = []
        for r, relation in enumerate(grown.relations):
            for _ in range(3):
                ends = []
                for kind in (relation.head_type, relation.tail_type):
                    old = [f"{kind}{k}" for k in range(learned.types.get(kind, 0))]
                    names = [*old, *sorted(entities.get(kind, {}))]
                    ends.append(names and (kind, names[mine.integers(len(names))]))
                when = int(mine.integers(1, 9))
                if all(ends) and ends[0] != ends[1]:
                    ids = [grown.vocabulary.id(*end) for end in ends]
                    rows.append((ids[0], r, ids[1], when))
        h, r, t, when = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return (h, r, t), (when if grown.times is not None else None)

    grown = after([0, 1, 2])
    assert_same(grown, scratch(grown.vocabulary, grown.relations, named(grown)))
    assert_same(grown, clean(grown))
    for order in ([2, 1, 0], [1, 2, 0]):
        assert_same(after(order), grown)
    known = graph.vocabulary
    for kind in known.types:
        span, wide = known.span(kind), grown.vocabulary.span(kind)
        old = known.names[span.start : span.stop]
        names = grown.vocabulary.names[wide.start : wide.stop]
        assert names[: len(old)] == old
        assert names[len(old) :] == sorted(names[len(old) :])
    for key, (_, when) in named(graph).items():
        assert (named(grown)[key][1] or 0) >= (when or 0)  # the latest time of a repeat counts


@given(graphs(), st.integers(0, 2**32 - 1), st.booleans())
def test_what_is_taken_away_leaves_the_graph_of_the_other_facts(graph, seed, has_times):
    rng = np.random.default_rng(seed)
    graph = clean(timed(graph, rng) if has_times and len(graph.interactions[0]) else graph)
    gone = np.flatnonzero(rng.random(graph.n_users + graph.n_items) < 0.3)
    less = without_entities(graph, Learned.all_of(graph), gone)
    words = graph.vocabulary
    lost = {(words.type_of(int(e)), words.names[e]) for e in gone}
    facts = {
        key: value
        for key, value in named(graph).items()
        if not {key[0], key[2], *(value[0] or ())} & lost
    }
    ends = {end for h, _, t in facts for end in (h, t)}
    bare = {
        (t, words.names[e])
        for t in words.types
        for e in words.span(t)
        if not np.diff(graph.indptr)[e]
    }
    names = {
        t: [
            words.names[e]
            for e in words.span(t)
            if (t, words.names[e]) not in lost
            and (t in ("user", "item") or (t, words.names[e]) in ends | bare)
        ]
        for t in words.types
    }
    assert_same(less.graph, scratch(Vocabulary(names), graph.relations, facts))
    assert dict(less.learned.types) == {t: len(n) for t, n in names.items()}
    stay = less.entities >= 0
    assert [n for n, s in zip(words.names, stay, strict=True) if s] == less.graph.vocabulary.names


@given(graphs(), st.integers(0, 2**32 - 1))
def test_facts_go_alone_and_interactions_with_what_is_known_from_them(graph, seed):
    rng = np.random.default_rng(seed)
    graph = clean(graph)
    h, r, t = (x.astype(np.int64) for x in graph.triples())
    chosen = rng.random(len(h)) < 0.3
    less = without_facts(graph, Learned.all_of(graph), (h[chosen], r[chosen], t[chosen])).graph
    words = graph.vocabulary
    of = [(words.type_of(e), words.names[e]) for e in range(graph.n_entities)]
    gone = {
        (of[a], graph.relations[b].name, of[c])
        for a, b, c in zip(h[chosen], r[chosen], t[chosen], strict=True)
    }
    taken = {(a, c) for a, b, c in gone if b == "purchase"}
    facts = {k: v for k, v in named(graph).items() if k not in gone and v[0] not in taken}
    assert named(less) == facts
    assert_same(less, scratch(less.vocabulary, less.relations, facts))


def test_derived_facts_stay_with_their_items():
    rng = np.random.default_rng(3)
    names = vocabulary(3, 5, 2, 2)
    base = KnowledgeGraph.from_triples(
        names, RELATIONS, *np.array(random_triples(names, rng, 0.5)).T
    )
    graph = with_derived(base, rng)
    grown = with_entities(graph, Learned.all_of(graph), {"item": {"a": "a"}}, [NEW]).graph
    assert [r.name for r in grown.relations][-3:] == ["awarded", "followed_by", "goes_with"]
    for h, r, t in zip(*(x.tolist() for x in graph.triples()), strict=True):
        name = graph.relations[r].name
        ends = [
            grown.vocabulary.id(graph.vocabulary.type_of(e), graph.vocabulary.names[e])
            for e in (h, t)
        ]
        place = grown.relation_id(name)
        assert grown.weight(ends[0], place, ends[1]) == graph.weight(h, r, t)
        assert grown.people(ends[0], place, ends[1]) == graph.people(h, r, t)
    less = without_entities(graph, Learned.all_of(graph), np.array([graph.n_users])).graph
    assert_same(less.given, without_entities(base, Learned.all_of(base), np.array([3])).graph)


def test_times_and_absent_facts_are_told():
    graph = KnowledgeGraph.from_triples(vocabulary(2, 2, 1, 1), RELATIONS, [0], [0], [2])
    with pytest.raises(LogerError, match="has no times, so new interactions"):
        with_facts(graph, (np.array([0]), np.array([0]), np.array([3])), np.array([5]))
    with pytest.raises(LogerError, match=r"no fact \('user1', purchase, 'item0'\)"):
        without_facts(graph, Learned.all_of(graph), (np.array([1]), np.array([0]), np.array([2])))
    assert graph.rows.edges(np.array([0, 1]), np.array([0, 0]), np.array([2, 2])).tolist() == [
        0,
        -1,
    ]
