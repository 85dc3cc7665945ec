"""Groundings by first hop: how much of a rule's strength each of the user's actions carries.

All paths of a rule that leave the user by the same edge belong to one action (METHOD 11). Their
strengths add up to the strength that ``ground`` returns for the pair and the rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from loger.engine.kernels import kernel
from loger.graph import Graph, KnowledgeGraph, UserView
from loger.graph.arrays import Doubles
from loger.grounding.layout import Walk, layout, weights_of
from loger.grounding.listing import in_runs, masks_of, queries
from loger.grounding.paths import add_up_together, run_end, walks_together
from loger.grounding.steps import (
    arriving,
    fact,
    first_at_least,
    first_hop,
    inverse,
    leave,
    next_common,
    segment,
    supports_itself,
)
from loger.rules import RuleSet


@dataclass(frozen=True, eq=False)
class FirstHops:
    """What each first hop carries of the groundings of (pair, rule) cells, in their order."""

    starts: NDArray[np.int64]  # [cells + 1]
    edges: NDArray[np.int64]  # the user's edge, counted from the first of the user's row
    strengths: NDArray[np.float64]
    counts: NDArray[np.int64]


def by_first_hop(
    graph: Graph,
    rules: RuleSet,
    places: NDArray[np.integer],
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    walk: Walk | None = None,
) -> FirstHops:
    """The groundings of the rule at ``places[i]`` for (users[i], items[i]), by first hop.

    First hops without a path are left out. Without a walk every path has strength 1.
    """
    u, v, relations = queries(graph, rules, places, users, items)
    g, weights = layout(graph), weights_of(graph, walk or Walk.uniform(0.0))
    room = np.concatenate([[0], np.cumsum(_room(g, u, relations))])
    edges, counts = np.empty(room[-1], dtype=np.int64), np.empty(room[-1], dtype=np.int64)
    strengths, ends = np.empty(room[-1]), room[:-1].copy()
    with masks_of(graph) as masks:
        order = in_runs(u, relations)
        _fill(g, weights, u, v, relations, order, masks, ends, edges, strengths, counts)
    sizes = ends - room[:-1]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    kept = np.arange(starts[-1]) + np.repeat(room[:-1] - starts[:-1], sizes)
    return FirstHops(starts, edges[kept], strengths[kept], counts[kept])


@kernel
def _room(g, users, rules):  # type: ignore[no-untyped-def]
    """The most first hops that each cell can have."""
    out = np.empty(len(users), dtype=np.int64)
    for i in range(len(users)):
        lo, hi = segment(g.home, users[i], rules[i, 0])
        out[i] = hi - lo
    return out


@kernel
def _carried(g, weights, u, v, r2, r3, e, w, back, back_end):  # type: ignore[no-untyped-def]
    """Strength and number of the paths that leave the user by the edge e, whose strength is w."""
    home, has_origins = g.home, len(g.origins) > 0
    a = home.tails[e]
    if a == v or (has_origins and home.origins[e] == v):
        return 0.0, 0
    if r3 < 0:
        j = first_at_least(g.tails, back, back_end, a)
        known = j < back_end and g.tails[j] == a and a != u
        if known and not (has_origins and g.origins[j] == u):
            return w * leave(g, weights, a, r2) * fact(g.weighted[r2], g.weights, j), 1
        return 0.0, 0
    total, n, facts = 0.0, 0, g.weights
    own2, own3 = g.weighted[r2], g.weighted[r3]
    at, end = segment(g, a, r2)
    j, at = next_common(g.tails, back, back_end, at, end)
    while j < back_end:
        b = g.tails[j]
        if b != u and not (has_origins and g.origins[j] == u):
            total += leave(g, weights, b, r3) * fact(own3, facts, j) * fact(own2, facts, at)
            n += 1
        j, at = next_common(g.tails, j + 1, back_end, at + 1, end)
    return total * w * leave(g, weights, a, r2), n


@kernel
def _fill(g, weights, users, items, rules, order, masks, ends, edges, strengths, counts):  # type: ignore[no-untyped-def]
    """Write the first hops of each cell that have a path, from ``ends[cell]`` on."""
    at = 0
    while at < len(order):
        end = run_end(g, users, rules, order, at)
        if walks_together(g, rules, order[at], end - at):
            run = order[at:end]
            add_up_together(
                g, weights, users, items, rules, run, masks, ends, edges, strengths, counts
            )
        else:
            for i in order[at:end]:
                ends[i] = _fill_one(
                    g, weights, users[i], items[i], rules[i], ends[i], edges, strengths, counts
                )
        at = end


@kernel
def _fill_one(g, weights, u, v, relations, n, edges, strengths, counts):  # type: ignore[no-untyped-def]
    """Write the first hops of one cell that have a path, from place n on; return the place after
    them."""
    home, r1, r2, r3 = g.home, relations[0], relations[1], relations[2]
    last = r3 if r3 >= 0 else r2 if r2 >= 0 else r1
    back, back_end = segment(g, v, inverse(last, g.n_relations))
    arrive = arriving(g, weights, v, last)
    lo, hi = segment(home, u, r1)
    if supports_itself(g, u, v, r1, r2, r3):  # METHOD L2
        hi = lo
    begin = home.segment_starts[home.row_segments[u]]
    for e in range(lo, hi):
        if r2 < 0:
            own = home.tails[e] == v and not (len(home.origins) > 0 and home.origins[e] == v)
            w = leave(g, weights, u, r1) * arrive
            if g.weighted[r1]:
                w *= home.weights[e]
            strength, count = (w, 1) if own else (0.0, 0)
        else:
            w = first_hop(g, weights, weights.fades[r2], r1, e, hi - lo) * arrive
            strength, count = _carried(g, weights, u, v, r2, r3, e, w, back, back_end)
        if count > 0:
            edges[n], strengths[n], counts[n] = e - begin, strength, count
            n += 1
    return n


# ── what a user's actions give all items together ─────────────────────────────────────
# Every action's paths contribute to the mean item. How much each action contributes (METHOD 11) can
# be computed without looking at single items: the strength that reaches all items over the rest of
# a rule depends only on the entity that the first hop leads to. It is the same for all users,
# except for the few paths that a user may not take. So these numbers divide up a known sum.


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
    """The strength that reaches all items over the rest of a rule, by the entity where that begins;
    [beginnings]. It is cached with the graph, because rules share their ends."""
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
    """What each entity passes on over a relation to entities numbered from ``then`` on."""
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
