"""Graphs compared by the names in them, and built from scratch to compare grown graphs with."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np

from loger.graph import INTERACTION, KnowledgeGraph, Vocabulary

ARRAYS = ("row_segments", "segment_relations", "segment_starts", "tails", "pair_tails")


def assert_same(one: KnowledgeGraph, other: KnowledgeGraph) -> None:
    assert one.vocabulary.names == other.vocabulary.names
    assert one.vocabulary.labels == other.vocabulary.labels
    assert one.relations == other.relations
    for name in (*ARRAYS, "pair_relations"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.dtype == theirs.dtype, name
        assert mine.tolist() == theirs.tolist(), name
    assert one.rated == other.rated
    for name in ("times", "weights", "support", "origins", "strengths"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if name == "origins":  # that no edge has one may be said in two ways
            mine, theirs = (np.full(len(one.tails), -1) if x is None else x for x in (mine, theirs))
        if name == "times" and not len(one.interactions[0]):  # when nothing was is nothing
            continue
        assert (mine is None) == (theirs is None), name
        assert mine is None or mine.tolist() == theirs.tolist(), name


def named(graph: KnowledgeGraph):
    """All that a graph says, by names: facts with the time of interactions, and origins."""
    words, out = graph.vocabulary, {}
    of = [(words.type_of(e), words.names[e]) for e in range(graph.n_entities)]
    for h, r, t in zip(*(x.tolist() for x in graph.triples()), strict=True):
        edge = graph.rows.edge(h, r, t)
        origin = -1 if graph.origins is None else int(graph.origins[edge])
        back = graph.rows.edge(t, graph.inverse(r), h)
        behind = -1 if graph.origins is None else int(graph.origins[back])
        pair = None
        if origin >= 0:
            pair = (of[h], of[origin]) if h < graph.n_users else (of[origin], of[h])
        elif behind >= 0:
            pair = (of[t], of[behind]) if t < graph.n_users else (of[behind], of[t])
        when = int(graph.times[edge]) if graph.times is not None and r == INTERACTION else None
        out[of[h], graph.relations[r].name, of[t]] = (pair, when)
    return out


def scratch(words: Vocabulary, relations, facts) -> KnowledgeGraph:
    """The graph of named facts, built by ``from_triples``."""
    number = {(t, words.names[e]): e for t in words.types for e in words.span(t)}
    places = {r.name: k for k, r in enumerate(relations)}
    rows = [(number[h], places[r], number[t]) for h, r, t in facts]
    h, r, t = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    pairs = [pair for pair, _ in facts.values()]
    origins = None
    if any(pairs):
        origins = tuple(
            np.array([-1 if p is None else number[p[side]] for p in pairs]) for side in (0, 1)
        )
    graph = KnowledgeGraph.from_triples(words, relations, h, r, t, origins=origins)
    times = [when for _, when in facts.values()]
    if not any(when is not None for when in times):
        return graph
    took = r == INTERACTION
    first = len(words.span("user"))
    return graph.timed(h[took], t[took] - first, np.array([x for x in times if x is not None]))


def behind(graph: KnowledgeGraph, window: int | None) -> Counter[tuple[int, int]]:
    """How many users have both items of each pair or, if there is a window, the second with the
    first or less than that many interactions after it; by the plainest loops over histories."""
    out: Counter[tuple[int, int]] = Counter()
    for user in range(graph.n_users):
        has = graph.neighbours(user, INTERACTION).tolist()
        edges = [graph.rows.edge(user, INTERACTION, item) for item in has]
        when = [0 if graph.times is None else int(graph.times[edge]) for edge in edges]
        for i, j in permutations(range(len(has)), 2):
            between = sum(when[i] < time < when[j] for time in when)
            soon = when[i] <= when[j] and between < (window or 0)
            if window is None or when[i] == when[j] or soon:
                out[has[i], has[j]] += 1
    return out
