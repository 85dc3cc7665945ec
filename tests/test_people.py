"""The people behind derived facts, counted again after changes of a graph."""

from __future__ import annotations

import numpy as np
import pytest

from graphs import build, random_triples, vocabulary
from grown import behind
from loger.graph import INTERACTION, Derived, Relation
from loger.graph.growth import (
    Learned,
    with_entities,
    with_facts,
    without_entities,
    without_facts,
)
from loger.updates.people import recounted

WINDOWS = (None, 1, 3)


def start(rng):
    """A graph with many interactions at the same times, and derived facts between all items."""
    names = vocabulary(12, 9, 3, 4)
    graph = build(names, random_triples(names, rng, 0.4))
    edges, users = graph.interactions
    items = graph.tails[edges] - graph.n_users
    graph = graph.timed(users, items, rng.integers(1, 8, len(edges)))
    first, more = graph.n_users, []
    pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
    for window in WINDOWS:
        relation = Relation(f"derived_{window}", "item", "item", True, None, window)
        counts = behind(graph, window)
        n = np.array([counts[i + first, j + first] for i, j in pairs])
        heads, tails = np.array(pairs).T
        more.append(Derived(relation, heads, tails, np.ones(len(pairs)), n))
    return graph.with_derived(more), Learned.all_of(graph)


def change(graph, learned, rng):
    """Interactions that are new or again at other times, or removals, of old and new names."""
    kind, words = rng.integers(4), graph.vocabulary
    if kind < 2:
        new = {"user": {f"aa {k}": "" for k in rng.integers(3, size=kind)}, "item": {"aa": ""}}
        moved = with_entities(graph, learned, new if kind else {})
        n = moved.graph.n_users
        users, items = rng.integers(n, size=5), n + rng.integers(moved.graph.n_items, size=5)
        triples = users, np.full(5, INTERACTION), items
        return moved._replace(graph=with_facts(moved.graph, triples, rng.integers(1, 8, 5)))
    edges, users = graph.interactions
    if kind == 2:
        some = np.unique(rng.integers(len(edges), size=4))
        triples = users[some], np.full(len(some), INTERACTION), graph.tails[edges[some]]
        return without_facts(graph, learned, triples)
    gone = [int(rng.integers(graph.n_users)), int(rng.choice(words.span("item")))]
    return without_entities(graph, learned, gone)


@pytest.mark.parametrize("seed", range(40))
def test_counts_are_those_of_all_histories_and_weights_stay(seed):
    rng = np.random.default_rng(seed)
    graph, learned = start(rng)
    for _ in range(4):
        moved = change(graph, learned, rng)
        later, learned = recounted(graph, moved), moved.learned
        assert later.weights.tobytes() == moved.graph.weights.tobytes()
        graph = later
        for place, relation in enumerate(graph.relations):
            counts = behind(graph, relation.window)
            for head in graph.vocabulary.span("item") if relation.derived else ():
                for tail in graph.neighbours(head, place).tolist():
                    assert graph.people(head, place, tail) == counts[head, tail]
                    assert graph.people(tail, graph.inverse(place), head) == counts[head, tail]
