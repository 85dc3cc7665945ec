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

from loger.engine.kernels import kernel
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
    out = np.zeros(len(graph.rows.tails[graph.rows.span(user)]))
    for rule, factor in zip(rules, factors, strict=True):
        if factor:
            rest, last = rule.relations[1:], rule.relations[-1]
            onward, second = _onward(base, rest, last, walk), (*rest, rule.relations[0])[0]
            begin, hop = _beginnings(base, rest).start, rule.relations[0]
            _add_first_hops(g, weights, user, hop, second, float(factor), begin, onward, out)
    return out


def _beginnings(graph: KnowledgeGraph, rest: tuple[int, ...]) -> range:
    """The entities at which the rest of a rule can begin: those of one type."""
    return graph.vocabulary.span(graph.signature(rest[0])[0] if rest else "item")


def _onward(graph: KnowledgeGraph, rest: tuple[int, ...], last: int, walk: Walk) -> Doubles:
    """The strength that comes to all items over the rest of a rule, by where it begins;
    [beginnings]. It is kept for the graph: rules share their ends."""
    known = _known.setdefault(graph, {})
    key = walk, (*rest, last)
    if key not in known:
        g, weights, begins = layout(graph), weights_of(graph, walk), _beginnings(graph, rest)
        out = np.zeros(len(begins))
        if rest:
            onward, then = _onward(graph, rest[1:], last, walk), _beginnings(graph, rest[1:])
            _step(g, weights, rest[0], then.start, onward, begins.start, out)
        else:
            _arrive(g, weights, last, begins.start, out)
        known[key] = out
    return known[key]


@kernel
def _arrive(g, weights, last, begin, out):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = arriving(g, weights, begin + k, last)


@kernel
def _step(g, weights, relation, then, onward, begin, out):  # type: ignore[no-untyped-def]
    """What an entity passes on over a relation, to those numbered from ``then`` on."""
    weighted = g.weighted[relation]
    for k in range(len(out)):
        lo, hi = segment(g, begin + k, relation)
        total = 0.0
        for e in range(lo, hi):
            total += fact(weighted, g.weights, e) * onward[g.tails[e] - then]
        if hi > lo:
            out[k] = total * leave(g, weights, begin + k, relation)


@kernel
def _add_first_hops(g, weights, user, relation, second, factor, then, onward, out):  # type: ignore[no-untyped-def]
    lo, hi = segment(g.home, user, relation)
    begin = g.home.segment_starts[g.home.row_segments[user]]
    fade = weights.fades[second]
    for e in range(lo, hi):
        w = first_hop(g, weights, fade, relation, e, hi - lo)
        out[e - begin] += factor * w * onward[g.home.tails[e] - then]
