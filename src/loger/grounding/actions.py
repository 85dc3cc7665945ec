"""Groundings by the action they begin with: how much of a rule's strength each first hop carries.

All paths of a rule that leave the user by the same edge belong to one action (METHOD 11). Their
strengths add up to what ``ground`` gives for the pair and the rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loger.compiled import kernel
from loger.graph import Graph
from loger.grounding.api import Walk, _weights
from loger.grounding.hops import relation_table
from loger.grounding.kernels import (
    _arriving,
    _first_at_least,
    _first_hop,
    _inverse,
    _leave,
    _next_common,
    _offer,
    _segment,
)
from loger.grounding.layout import layout
from loger.rules import RuleSet


@dataclass(frozen=True, eq=False)
class FirstHops:
    """What each first hop carries of the groundings of (pair, rule) cells, cell by cell."""

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
    relations = relation_table(rules)[places]
    g, weights = layout(graph), _weights(graph, walk or Walk.uniform(0.0))
    u, v = users.astype(np.int64), items.astype(np.int64) + graph.n_users
    room = int(_room(g, u, relations))
    edges, counts = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    strengths, starts = np.empty(room), np.zeros(len(u) + 1, dtype=np.int64)
    _fill(g, weights, u, v, relations, starts, edges, strengths, counts)
    n = starts[-1]
    return FirstHops(starts, edges[:n], strengths[:n], counts[:n])


def strongest_through(
    graph: Graph,
    rules: RuleSet,
    places: NDArray[np.integer],
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    firsts: NDArray[np.integer],
    n: int,
    walk: Walk | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """As ``strongest_paths``, of paths whose first hop leads to the entity ``firsts[i]``."""
    nodes = np.full((len(users), n, 2), -1, dtype=np.int32)
    strengths = np.zeros((len(users), n))
    relations = relation_table(rules)[places]
    u, v = users.astype(np.int64), items.astype(np.int64) + graph.n_users
    weights = _weights(graph, walk or Walk.uniform(0.0))
    _through(layout(graph), weights, u, v, relations, firsts.astype(np.int64), nodes, strengths)
    return nodes, strengths


@kernel
def _room(g, users, rules):  # type: ignore[no-untyped-def]
    """How many first hops there are at most, all cells together."""
    total = 0
    for i in range(len(users)):
        lo, hi = _segment(g.home, users[i], rules[i, 0])
        total += hi - lo
    return total


@kernel
def _carried(g, weights, u, v, r2, r3, e, w, back, back_end):  # type: ignore[no-untyped-def]
    """Strength and number of the paths that leave the user by the edge e; w is that of the hop."""
    home, has_origins = g.home, len(g.origins) > 0
    a = home.tails[e]
    if a == v or (has_origins and home.origins[e] == v):
        return 0.0, 0
    if r3 < 0:
        j = _first_at_least(g.tails, back, back_end, a)
        known = j < back_end and g.tails[j] == a and a != u
        if known and not (has_origins and g.origins[j] == u):
            return w * _leave(g, weights, a, r2), 1
        return 0.0, 0
    total, n = 0.0, 0
    at, end = _segment(g, a, r2)
    j, at = _next_common(g.tails, back, back_end, at, end)
    while j < back_end:
        b = g.tails[j]
        if b != u and not (has_origins and g.origins[j] == u):
            total += _leave(g, weights, b, r3)
            n += 1
        j, at = _next_common(g.tails, j + 1, back_end, at + 1, end)
    return total * w * _leave(g, weights, a, r2), n


@kernel
def _fill(g, weights, users, items, rules, starts, edges, strengths, counts):  # type: ignore[no-untyped-def]
    """Write the first hops of each cell that have a path."""
    home, n = g.home, 0
    for i in range(len(users)):
        u, v, r1, r2, r3 = users[i], items[i], rules[i, 0], rules[i, 1], rules[i, 2]
        last = r3 if r3 >= 0 else r2 if r2 >= 0 else r1
        back, back_end = _segment(g, v, _inverse(last, g.n_relations))
        arrive = _arriving(g, weights, v, last)
        lo, hi = _segment(home, u, r1)
        begin = home.segment_starts[home.row_segments[u]]
        for e in range(lo, hi):
            if r2 < 0:
                own = home.tails[e] == v and not (len(home.origins) > 0 and home.origins[e] == v)
                strength, count = (_leave(g, weights, u, r1) * arrive, 1) if own else (0.0, 0)
            else:
                w = _first_hop(weights, r1, e, hi - lo) * arrive
                strength, count = _carried(g, weights, u, v, r2, r3, e, w, back, back_end)
            if count > 0:
                edges[n], strengths[n], counts[n] = e - begin, strength, count
                n += 1
        starts[i + 1] = n


@kernel
def _through(g, weights, users, items, rules, firsts, nodes, strengths):  # type: ignore[no-untyped-def]
    """The strongest paths of each cell that lead over a given first entity."""
    home, has_origins = g.home, len(g.origins) > 0
    for i in range(len(users)):
        u, v, r1, r2, r3 = users[i], items[i], rules[i, 0], rules[i, 1], rules[i, 2]
        a = firsts[i]
        last = r3 if r3 >= 0 else r2 if r2 >= 0 else r1
        back, back_end = _segment(g, v, _inverse(last, g.n_relations))
        lo, hi = _segment(home, u, r1)
        e = _first_at_least(home.tails, lo, hi, a)
        if e == hi or home.tails[e] != a:
            continue
        arrive = _arriving(g, weights, v, last)
        if r2 < 0:
            _offer(_leave(g, weights, u, r1) * arrive, -1, -1, nodes[i], strengths[i])
            continue
        w = _first_hop(weights, r1, e, hi - lo) * arrive * _leave(g, weights, a, r2)
        if r3 < 0:
            _offer(w, a, -1, nodes[i], strengths[i])
            continue
        at, end = _segment(g, a, r2)
        j, at = _next_common(g.tails, back, back_end, at, end)
        while j < back_end:
            b = g.tails[j]
            if b != u and not (has_origins and g.origins[j] == u):
                _offer(w * _leave(g, weights, b, r3), a, b, nodes[i], strengths[i])
            j, at = _next_common(g.tails, j + 1, back_end, at + 1, end)
