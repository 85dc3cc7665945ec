"""What a user's actions give all items together, by walking on from each entity but once.

The mean item gets its part of every action's paths. To know how much of it each action gives
(METHOD 11), no item need be looked at by itself: the strength that comes to all items over the
rest of a rule is a number of the entity that a first hop leads to, the same for all users but for
the few paths that a user may not take. So these numbers divide up a sum that is known exactly.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from loger.compiled import kernel
from loger.graph import Graph, KnowledgeGraph, UserView
from loger.grounding.layout import layout
from loger.grounding.steps import arriving, fact, first_hop, leave, segment
from loger.grounding.walk import Walk, weights_of
from loger.rules import RuleSet

Doubles = NDArray[np.float64]
_known: WeakKeyDictionary[KnowledgeGraph, dict[tuple[Walk, tuple[int, ...]], Doubles]] = (
    WeakKeyDictionary()
)


def given_to_all(
    graph: Graph, rules: RuleSet, user: int, factors: NDArray[np.floating], walk: Walk | None
) -> Doubles:
    """Σ over items and rules of factor times strength, by first hop; [the user's edges].

    Without a walk every path has strength 1.
    """
    walk = walk or Walk.uniform(0.0)
    base = graph.base if isinstance(graph, UserView) else graph
    g, weights = layout(graph), weights_of(graph, walk)
    rows = graph.rows
    first, end = rows.segment_starts[rows.row_segments[user : user + 2]]
    out = np.zeros(end - first)
    for rule, factor in zip(rules, factors, strict=True):
        if factor:
            onward = _onward(base, rule.relations[1:], rule.relations[-1], walk)
            second = rule.relations[1] if len(rule) > 1 else rule.relations[0]
            _add_first_hops(g, weights, user, rule.relations[0], second, float(factor), onward, out)
    return out


def _onward(graph: KnowledgeGraph, rest: tuple[int, ...], last: int, walk: Walk) -> Doubles:
    """The strength that comes to all items over the rest of a rule, by where it begins;
    [entities]. It is kept for the graph: rules share their ends."""
    known = _known.setdefault(graph, {})
    key = walk, (*rest, last)
    if key not in known:
        g, weights, out = layout(graph), weights_of(graph, walk), np.zeros(graph.n_entities)
        if rest:
            _step(g, weights, rest[0], _onward(graph, rest[1:], last, walk), out)
        else:
            _arrive(g, weights, last, graph.n_users, graph.n_items, out)
        known[key] = out
    return known[key]


@kernel
def _arrive(g, weights, last, first_item, n_items, out):  # type: ignore[no-untyped-def]
    for v in range(first_item, first_item + n_items):
        out[v] = arriving(g, weights, v, last)


@kernel
def _step(g, weights, relation, onward, out):  # type: ignore[no-untyped-def]
    """What an entity passes on over a relation."""
    weighted = g.weighted[relation]
    for a in range(len(out)):
        lo, hi = segment(g, a, relation)
        total = 0.0
        for e in range(lo, hi):
            total += fact(weighted, g.weights, e) * onward[g.tails[e]]
        if hi > lo:
            out[a] = total * leave(g, weights, a, relation)


@kernel
def _add_first_hops(g, weights, user, relation, second, factor, onward, out):  # type: ignore[no-untyped-def]
    lo, hi = segment(g.home, user, relation)
    begin = g.home.segment_starts[g.home.row_segments[user]]
    fade = weights.fades[second]
    for e in range(lo, hi):
        w = first_hop(g, weights, fade, relation, e, hi - lo)
        out[e - begin] += factor * w * onward[g.home.tails[e]]
