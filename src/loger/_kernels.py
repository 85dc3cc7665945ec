"""The compiled loops that count and weigh groundings; ``grounding`` is their only caller.

All groundings of a user's pairs are counted together. Let a *prefix* be the relations of a
rule less the last. The neighbours b of the items are marked; one walk from the user counts,
for every marked b and prefix p, the walks x[b, p] that lead there; and each pair (u, v) is
the sum of x[b, p] over the edges b –r→ v that can end a rule (p, r). A neighbour a of the
user is walked through either by scanning its row against the marks or, where it is a hub,
by asking its bitmap for each marked entity, whichever is shorter: so no hub costs more than
the marks. What a simple path forbids, and what the pair itself is the only witness of
(METHOD L2, L3), is left out or taken back exactly.

The strength of a path is the product over its hops h –r→ t of out[deg_r(h)] · in[deg_r⁻¹(t)].
These factors belong to nodes, not to edges, so they too are applied once per node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Rows(NamedTuple):
    """The arrays of a KnowledgeGraph, as the loops read them."""

    row_segments: NDArray[np.int64]
    segment_relations: NDArray[np.uint16]
    segment_starts: NDArray[np.int64]
    tails: NDArray[np.int32]
    indptr: NDArray[np.int64]
    pair_tails: NDArray[np.int32]
    pair_relations: NDArray[np.uint16]
    origins: NDArray[np.int32]  # empty where the graph has none
    hub_of: NDArray[np.int32]  # [entities]: row in hub_bits, or -1
    hub_bits: NDArray[np.uint64]  # [hubs, entities / 64]
    n_relations: int  # base relations


class Plan(NamedTuple):
    """A rule set, compiled. Slots number the prefixes that end in one entity type."""

    first: NDArray[np.int64]  # [relations]: slot of prefix (r1), or -1
    second: NDArray[np.int64]  # [relations, relations]: slot of prefix (r1, r2), or -1
    expands: NDArray[np.bool_]  # [relations]: is there a prefix (r1, ·)?
    slots: NDArray[np.int64]  # [relations]: how many slots where it can be last; 0 if never
    rule_of: NDArray[np.int64]  # [relations, slots]: rule by last relation and slot, or -1
    entered: NDArray[np.int64]  # [relations, slots]: slots at whose end a relation stands; -1
    combo_of: NDArray[np.int64]  # [relations, relations]: number of (r2, r3) in some rule, or -1
    long_starts: NDArray[np.int64]  # [relations + 1]: rules of length 3 by r1, as slices of
    long_rules: NDArray[np.int64]  # [long rules]: rule and
    long_combos: NDArray[np.int64]  # [long rules]: combination (r2, r3)
    stride: int  # most slots of any type
    n_combos: int
    n_rules: int
    direct: bool  # are there rules of length 1?


class Weights(NamedTuple):
    """Factors by degree; both empty when only counts are asked for."""

    out: NDArray[np.float64]
    into: NDArray[np.float64]


@njit(cache=True, nogil=True, inline="always")
def _inverse(relation, n):  # type: ignore[no-untyped-def]
    return relation - n if relation >= n else relation + n


@njit(cache=True, nogil=True)
def _degree(g, entity, relation):  # type: ignore[no-untyped-def]
    """How many neighbours an entity has under a relation; rows have few segments."""
    for s in range(g.row_segments[entity], g.row_segments[entity + 1]):
        if g.segment_relations[s] == relation:
            return g.segment_starts[s + 1] - g.segment_starts[s]
    return 0


@njit(cache=True, nogil=True)
def _first_at_least(values, lo, hi, x):  # type: ignore[no-untyped-def]
    while lo < hi:
        mid = (lo + hi) >> 1
        if values[mid] < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


@njit(cache=True, nogil=True, inline="always")
def _bit(bits, entity):  # type: ignore[no-untyped-def]
    return (bits[entity >> 6] >> np.uint64(entity & 63)) & np.uint64(1)


@njit(cache=True, nogil=True)
def round_trips(g, plan, weights, items):  # type: ignore[no-untyped-def]
    """For each item v and combination (r2, r3): the trips v –r2→ b –r3→ v, counted and weighed.

    They are what a walk that comes upon v too early adds to x, and must give back.
    """
    weighted = len(weights.out) > 0
    counts = np.zeros((len(items), plan.n_combos), dtype=np.int64)
    strengths = np.zeros((len(items), plan.n_combos if weighted else 0))
    for k in range(len(items)):
        v = items[k]
        lo, hi = g.indptr[v], g.indptr[v + 1]
        while lo < hi:
            b = g.pair_tails[lo]
            end = lo + 1
            while end < hi and g.pair_tails[end] == b:
                end += 1
            for i in range(lo, end):
                r2 = np.int64(g.pair_relations[i])
                for j in range(lo, end):
                    back = np.int64(g.pair_relations[j])
                    combo = plan.combo_of[r2, _inverse(back, g.n_relations)]
                    if combo >= 0:
                        counts[k, combo] += 1
                        if weighted:
                            strengths[k, combo] += _trip(g, weights, v, r2, b, back)
            lo = end
    return counts, strengths


@njit(cache=True, nogil=True)
def _trip(g, weights, v, r2, b, back):  # type: ignore[no-untyped-def]
    """Weight of v –r2→ b –back⁻¹→ v."""
    return (
        weights.out[_degree(g, v, r2)]
        * weights.into[_degree(g, b, _inverse(r2, g.n_relations))]
        * weights.out[_degree(g, b, _inverse(back, g.n_relations))]
        * weights.into[_degree(g, v, back)]
    )


@njit(cache=True, nogil=True)
def _mark(g, plan, u, items, mark, bits, marked):  # type: ignore[no-untyped-def]
    """Number every entity from which a last hop reaches one of the items; how many there are.

    The user itself is marked only for rules of length 1: a simple path does not come back.
    """
    n = 0
    for v in items:
        for s in range(g.row_segments[v], g.row_segments[v + 1]):
            last = _inverse(np.int64(g.segment_relations[s]), g.n_relations)
            if plan.slots[last] == 0:
                continue
            for e in range(g.segment_starts[s], g.segment_starts[s + 1]):
                b = g.tails[e]
                if mark[b] < 0 and (b != u or plan.direct):
                    mark[b] = n
                    bits[b >> 6] |= np.uint64(1) << np.uint64(b & 63)
                    marked[n] = b
                    n += 1
    return n


@njit(cache=True, nogil=True)
def _through(g, plan, weights, u, r1, a, weight, marks, x, xw):  # type: ignore[no-untyped-def]
    """Add the walks u –r1→ a –r2→ b for all marked b and all r2 that continue a rule."""
    mark, bits, marked, n = marks
    stride = plan.stride
    weighted = len(weights.out) > 0
    hub = g.hub_of[a]
    if hub >= 0 and 2 * n < g.indptr[a + 1] - g.indptr[a]:
        hub_bits = g.hub_bits[hub]
        for j in range(n):
            b = marked[j]
            if _bit(hub_bits, b) and b != u:
                i = _first_at_least(g.pair_tails, g.indptr[a], g.indptr[a + 1], b)
                while i < g.indptr[a + 1] and g.pair_tails[i] == b:
                    r2 = np.int64(g.pair_relations[i])
                    slot = plan.second[r1, r2]
                    if slot >= 0:
                        x[j * stride + slot] += 1
                        if weighted:
                            xw[j * stride + slot] += weight * weights.out[_degree(g, a, r2)]
                    i += 1
        return
    for s in range(g.row_segments[a], g.row_segments[a + 1]):
        slot = plan.second[r1, np.int64(g.segment_relations[s])]
        if slot < 0:
            continue
        lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
        w = weight * weights.out[hi - lo] if weighted else 0.0
        for e in range(lo, hi):
            b = g.tails[e]
            if _bit(bits, b) and b != u:
                j = mark[b]
                x[j * stride + slot] += 1
                if weighted:
                    xw[j * stride + slot] += w


@njit(cache=True, nogil=True)
def _walk(g, plan, weights, u, marks, x, xw):  # type: ignore[no-untyped-def]
    """Fill x[b, p] with the number (and xw with the weight) of walks from u to each marked b.

    The user's own factor out[deg] belongs to r1 and is part of the weight; the factor of
    arriving at b belongs to b and the prefix's last relation and is applied at the end.
    """
    mark, _, marked, n = marks
    stride = plan.stride
    weighted = len(weights.out) > 0
    x[: n * stride] = 0
    if weighted:
        xw[: n * stride] = 0.0
    if plan.direct and mark[u] >= 0:
        x[mark[u] * stride] = 1
        if weighted:
            xw[mark[u] * stride] = 1.0
    for s in range(g.row_segments[u], g.row_segments[u + 1]):
        r1 = np.int64(g.segment_relations[s])
        slot, expands = plan.first[r1], plan.expands[r1]
        if slot < 0 and not expands:
            continue
        lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
        leave = weights.out[hi - lo] if weighted else 0.0
        back = _inverse(r1, g.n_relations)
        for e in range(lo, hi):
            a = g.tails[e]
            if slot >= 0 and mark[a] >= 0:
                x[mark[a] * stride + slot] += 1
                if weighted:
                    xw[mark[a] * stride + slot] += leave
            if expands:
                w = leave * weights.into[_degree(g, a, back)] if weighted else 0.0
                _through(g, plan, weights, u, r1, a, w, marks, x, xw)
    if weighted:
        for j in range(n):
            b = marked[j]
            for s in range(g.row_segments[b], g.row_segments[b + 1]):
                into = _inverse(np.int64(g.segment_relations[s]), g.n_relations)
                degree = g.segment_starts[s + 1] - g.segment_starts[s]
                for k in range(plan.stride):
                    slot = plan.entered[into, k]
                    if slot < 0:
                        break
                    xw[j * stride + slot] *= weights.into[degree]


@njit(cache=True, nogil=True)
def _collect(g, plan, weights, u, v, mark, x, xw, acc, accw, out, outw):  # type: ignore[no-untyped-def]
    """Sum x over the last hops into v, by rule."""
    stride = plan.stride
    weighted = len(weights.out) > 0
    has_origins = len(g.origins) > 0
    for s in range(g.row_segments[v], g.row_segments[v + 1]):
        back = np.int64(g.segment_relations[s])
        last = _inverse(back, g.n_relations)
        n = plan.slots[last]
        if n == 0:
            continue
        acc[:n] = 0
        accw[:n] = 0.0
        lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
        for e in range(lo, hi):
            if has_origins and g.origins[e] == u:
                continue
            b = g.tails[e]
            j = mark[b]
            if j < 0:
                continue
            base = j * stride
            for p in range(n):
                acc[p] += x[base + p]
            if weighted:
                leave = weights.out[_degree(g, b, last)]
                for p in range(n):
                    accw[p] += xw[base + p] * leave
        for p in range(n):
            rule = plan.rule_of[last, p]
            if rule >= 0 and acc[p] > 0:
                out[rule] += acc[p]
                if weighted:
                    outw[rule] += accw[p] * weights.into[hi - lo]


@njit(cache=True, nogil=True)
def _take_back_round_trips(g, plan, weights, u, v, trips, tripsw, out, outw):  # type: ignore[no-untyped-def]
    """Take back the walks u –r1→ v –r2→ b –r3→ v, which pass through their own end."""
    weighted = len(weights.out) > 0
    n = g.n_relations
    lo, hi = g.indptr[u], g.indptr[u + 1]
    at = _first_at_least(g.pair_tails, lo, hi, v)
    home = _first_at_least(g.pair_tails, g.indptr[v], g.indptr[v + 1], u)
    while at < hi and g.pair_tails[at] == v:
        r1 = np.int64(g.pair_relations[at])
        at += 1
        if not plan.expands[r1]:
            continue
        w = 0.0
        if weighted:
            w = weights.out[_degree(g, u, r1)] * weights.into[_degree(g, v, _inverse(r1, n))]
        for k in range(plan.long_starts[r1], plan.long_starts[r1 + 1]):
            rule, combo = plan.long_rules[k], plan.long_combos[k]
            out[rule] -= trips[combo]
            if weighted:
                outw[rule] -= w * tripsw[combo]
        # The trips by way of u itself, or over a last hop that was left out, were not in x.
        _give_back(g, plan, weights, u, v, r1, w, home, out, outw)


@njit(cache=True, nogil=True)
def _give_back(g, plan, weights, u, v, r1, w, home, out, outw):  # type: ignore[no-untyped-def]
    """Undo the taking back of trips v –r2→ b –r3→ v that _collect had not counted."""
    weighted = len(weights.out) > 0
    has_origins = len(g.origins) > 0
    n = g.n_relations
    for s in range(g.row_segments[v], g.row_segments[v + 1]):
        back = np.int64(g.segment_relations[s])
        last = _inverse(back, n)
        if plan.slots[last] == 0:
            continue
        lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
        if has_origins:
            e = lo
        else:
            e = _first_at_least(g.tails, lo, hi, u)
            hi = min(hi, e + 1)
        while e < hi:
            b = g.tails[e]
            if b == u or (has_origins and g.origins[e] == u):
                i = home
                if b != u:
                    i = _first_at_least(g.pair_tails, g.indptr[v], g.indptr[v + 1], b)
                while i < g.indptr[v + 1] and g.pair_tails[i] == b:
                    r2 = np.int64(g.pair_relations[i])
                    slot = plan.second[r1, r2]
                    if slot >= 0 and slot < plan.slots[last]:
                        rule = plan.rule_of[last, slot]
                        if rule >= 0:
                            out[rule] += 1
                            if weighted:
                                outw[rule] += w * _trip(g, weights, v, r2, b, back)
                    i += 1
            e += 1


@njit(cache=True, nogil=True)
def _take_back_own_facts(g, plan, weights, u, v, out, outw):  # type: ignore[no-untyped-def]
    """Take back the walks whose first hop is known from the interaction (u, v) alone (L3)."""
    weighted = len(weights.out) > 0
    n = g.n_relations
    for s in range(g.row_segments[u], g.row_segments[u + 1]):
        r1 = np.int64(g.segment_relations[s])
        if plan.first[r1] < 0 and not plan.expands[r1]:
            continue
        lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
        for e in range(lo, hi):
            a = g.tails[e]
            if g.origins[e] != v or a == v:
                continue
            w = 0.0
            if weighted:
                w = weights.out[hi - lo] * weights.into[_degree(g, a, _inverse(r1, n))]
            for q in range(g.row_segments[v], g.row_segments[v + 1]):
                last = _inverse(np.int64(g.segment_relations[q]), n)
                if plan.slots[last] > 0:
                    _take_back_by(g, plan, weights, u, v, r1, a, w, q, last, out, outw)


@njit(cache=True, nogil=True)
def _take_back_by(g, plan, weights, u, v, r1, a, w, q, last, out, outw):  # type: ignore[no-untyped-def]
    """Take back u –r1→ a (–last→ v) and u –r1→ a –r2→ b –last→ v over v's segment q."""
    weighted = len(weights.out) > 0
    n = g.n_relations
    lo, hi = g.segment_starts[q], g.segment_starts[q + 1]
    arrive = weights.into[hi - lo] if weighted else 0.0
    row, row_end = g.indptr[a], g.indptr[a + 1]
    hub = g.hub_of[a]
    for e in range(lo, hi):
        b = g.tails[e]
        if b == u or g.origins[e] == u:
            continue
        if b == a:
            slot = plan.first[r1]
            rule = plan.rule_of[last, slot] if slot >= 0 else -1
            if rule >= 0:
                out[rule] -= 1
                if weighted:
                    outw[rule] -= w * weights.out[_degree(g, b, last)] * arrive
            continue
        if hub >= 0 and not _bit(g.hub_bits[hub], b):
            continue
        i = _first_at_least(g.pair_tails, row, row_end, b)
        while i < row_end and g.pair_tails[i] == b:
            r2 = np.int64(g.pair_relations[i])
            slot = plan.second[r1, r2]
            rule = plan.rule_of[last, slot] if slot >= 0 else -1
            if rule >= 0:
                out[rule] -= 1
                if weighted:
                    hop = (
                        weights.out[_degree(g, a, r2)]
                        * weights.into[_degree(g, b, _inverse(r2, n))]
                    )
                    outw[rule] -= w * hop * weights.out[_degree(g, b, last)] * arrive
            i += 1


@njit(cache=True, nogil=True)
def ground_block(g, plan, weights, users, starts, items, trip_rows, trips, tripsw):  # type: ignore[no-untyped-def]
    """Counts and strengths for the pairs of a block of users, as compressed rows.

    User ``users[i]`` has the pairs ``starts[i]:starts[i+1]``; ``items`` are entity ids and
    ``trip_rows`` their rows in ``trips``.
    """
    weighted = len(weights.out) > 0
    n_entities = len(g.indptr) - 1
    mark = np.full(n_entities, -1, dtype=np.int32)
    bits = np.zeros((n_entities >> 6) + 1, dtype=np.uint64)
    marked = np.empty(n_entities, dtype=np.int32)
    x = np.empty(1024 * plan.stride, dtype=np.int32)
    xw = np.empty(1024 * plan.stride if weighted else 1)
    acc, accw = np.empty(plan.stride, dtype=np.int64), np.empty(plan.stride)
    out = np.zeros((len(items), plan.n_rules), dtype=np.int64)
    outw = np.zeros((len(items), plan.n_rules) if weighted else (1, 1))
    for i in range(len(users)):
        u = users[i]
        own = items[starts[i] : starts[i + 1]]
        n = _mark(g, plan, u, own, mark, bits, marked)
        if n * plan.stride > len(x):
            x = np.empty(2 * n * plan.stride, dtype=np.int32)
            xw = np.empty(2 * n * plan.stride if weighted else 1)
        _walk(g, plan, weights, u, (mark, bits, marked, n), x, xw)
        for k in range(starts[i], starts[i + 1]):
            v = items[k]
            row, roww = out[k], outw[k if weighted else 0]
            _collect(g, plan, weights, u, v, mark, x, xw, acc, accw, row, roww)
            t = trip_rows[k]
            _take_back_round_trips(
                g, plan, weights, u, v, trips[t], tripsw[t] if weighted else roww, row, roww
            )
            if len(g.origins) > 0:
                _take_back_own_facts(g, plan, weights, u, v, row, roww)
        for j in range(n):
            mark[marked[j]] = -1
            bits[marked[j] >> 6] = np.uint64(0)
    return _compress(out, outw, weighted)


@njit(cache=True, nogil=True)
def _compress(out, outw, weighted):  # type: ignore[no-untyped-def]
    """Dense rows as (row ends, rules, counts, strengths) without the zeros."""
    ends = np.zeros(len(out) + 1, dtype=np.int64)
    for k in range(len(out)):
        n = 0
        for rule in range(out.shape[1]):
            n += out[k, rule] != 0
        ends[k + 1] = ends[k] + n
    rules = np.empty(ends[-1], dtype=np.int32)
    counts = np.empty(ends[-1], dtype=np.int64)
    strengths = np.empty(ends[-1] if weighted else 0)
    for k in range(len(out)):
        at = ends[k]
        for rule in range(out.shape[1]):
            if out[k, rule] != 0:
                rules[at], counts[at] = rule, out[k, rule]
                if weighted:
                    strengths[at] = outw[k, rule]
                at += 1
    return ends, rules, counts, strengths


# ── all items of a user ─────────────────────────────────────────────────────────────────


class Trie(NamedTuple):
    """A rule set as a tree of prefixes: which hops continue a prefix, which end a rule."""

    root: NDArray[np.int64]  # [relations]: node of prefix (r1), or -1
    child_starts: NDArray[np.int64]  # [nodes + 1]
    child_relations: NDArray[np.int64]
    child_nodes: NDArray[np.int64]
    end_starts: NDArray[np.int64]  # [nodes + 1]
    end_relations: NDArray[np.int64]
    end_rules: NDArray[np.int64]
    n_rules: int


@njit(cache=True, nogil=True)
def _push(g, weights, relation, avoid, front, n, x, xw, next_front, y, yw):  # type: ignore[no-untyped-def]
    """Spread walks from the front over one relation, never onto ``avoid``; the new front's size."""
    weighted = len(weights.out) > 0
    size = 0
    for k in range(n):
        a = front[k]
        for s in range(g.row_segments[a], g.row_segments[a + 1]):
            if g.segment_relations[s] != relation:
                continue
            lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
            w = xw[a] * weights.out[hi - lo] if weighted else 0.0
            for e in range(lo, hi):
                b = g.tails[e]
                if b == avoid:
                    continue
                if y[b] == 0:
                    next_front[size] = b
                    size += 1
                y[b] += x[a]
                if weighted:
                    yw[b] += w
    if weighted:
        back = _inverse(relation, g.n_relations)
        for k in range(size):
            b = next_front[k]
            yw[b] *= weights.into[_degree(g, b, back)]
    return size


@njit(cache=True, nogil=True)
def _ends(g, trie, weights, node, u, near, first_item, front, n, x, xw, work, rows):  # type: ignore[no-untyped-def]
    """Take the last hops of all rules with this prefix and add them to the rows of the items."""
    next_front, y, yw = work
    out, outw, seen, touched, n_touched = rows
    weighted = len(weights.out) > 0
    for k in range(trie.end_starts[node], trie.end_starts[node + 1]):
        rule = trie.end_rules[k]
        size = _push(g, weights, trie.end_relations[k], u, front, n, x, xw, next_front, y, yw)
        for i in range(size):
            v = next_front[i]
            item = v - first_item
            if not near[v]:
                if not seen[item]:
                    seen[item] = True
                    touched[n_touched] = item
                    n_touched += 1
                out[item, rule] += y[v]
                if weighted:
                    outw[item, rule] += yw[v]
            y[v] = 0
            if weighted:
                yw[v] = 0.0
    return n_touched


@njit(cache=True, nogil=True)
def reach_block(g, trie, weights, users, first_item, n_items):  # type: ignore[no-untyped-def]
    """For a block of users: all items that some rule reaches and that the user has no edge to.

    Returns (pairs per user, items, row ends, rules, counts, strengths). Items the user has
    an edge to need the care of ``ground_block``.
    """
    weighted = len(weights.out) > 0
    n = len(g.indptr) - 1
    wide = n if weighted else 1
    fronts = np.empty((3, n), dtype=np.int32)
    x = np.zeros((3, n), dtype=np.int64)
    xw = np.zeros((3, wide))
    near = np.zeros(n, dtype=np.bool_)
    out = np.zeros((n_items, trie.n_rules), dtype=np.int64)
    outw = np.zeros((n_items, trie.n_rules) if weighted else (1, 1))
    seen = np.zeros(n_items, dtype=np.bool_)
    touched = np.empty(n_items, dtype=np.int32)
    sizes = np.zeros(len(users), dtype=np.int64)
    all_items, ends = np.empty(1024, dtype=np.int32), np.zeros(1025, dtype=np.int64)
    rules, counts = np.empty(4096, dtype=np.int32), np.empty(4096, dtype=np.int64)
    strengths = np.empty(4096 if weighted else 0)
    n_pairs, n_cells = 0, 0
    for i in range(len(users)):
        u = users[i]
        n_touched = 0
        for e in range(g.indptr[u], g.indptr[u + 1]):
            near[g.tails[e]] = True
        for s in range(g.row_segments[u], g.row_segments[u + 1]):
            r1 = np.int64(g.segment_relations[s])
            node = trie.root[r1]
            if node < 0:
                continue
            fronts[0, 0], x[0, u] = u, 1
            if weighted:
                xw[0, u] = 1.0
            m = _push(g, weights, r1, -1, fronts[0], 1, x[0], xw[0], fronts[1], x[1], xw[1])
            x[0, u] = 0
            if weighted:
                xw[0, u] = 0.0
            work = (fronts[0], x[0], xw[0])
            rows = (out, outw, seen, touched, n_touched)
            n_touched = _ends(
                g, trie, weights, node, u, near, first_item, fronts[1], m, x[1], xw[1], work, rows
            )
            for c in range(trie.child_starts[node], trie.child_starts[node + 1]):
                size = _push(
                    g,
                    weights,
                    trie.child_relations[c],
                    u,
                    fronts[1],
                    m,
                    x[1],
                    xw[1],
                    fronts[2],
                    x[2],
                    xw[2],
                )
                rows = (out, outw, seen, touched, n_touched)
                n_touched = _ends(
                    g,
                    trie,
                    weights,
                    trie.child_nodes[c],
                    u,
                    near,
                    first_item,
                    fronts[2],
                    size,
                    x[2],
                    xw[2],
                    work,
                    rows,
                )
                _clear(fronts[2], size, x[2], xw[2], weighted)
            _clear(fronts[1], m, x[1], xw[1], weighted)
        for e in range(g.indptr[u], g.indptr[u + 1]):
            near[g.tails[e]] = False
        sizes[i] = n_touched
        while n_pairs + n_touched > len(all_items):
            all_items, ends = _doubled(all_items), _doubled(ends)
        while n_cells + n_touched * trie.n_rules > len(rules):
            rules, counts = _doubled(rules), _doubled(counts)
            if weighted:
                strengths = _doubled(strengths)
        found = np.sort(touched[:n_touched])
        for k in range(n_touched):
            item = found[k]
            seen[item] = False
            for rule in range(trie.n_rules):
                if out[item, rule] != 0:
                    rules[n_cells], counts[n_cells] = rule, out[item, rule]
                    out[item, rule] = 0
                    if weighted:
                        strengths[n_cells] = outw[item, rule]
                        outw[item, rule] = 0.0
                    n_cells += 1
            all_items[n_pairs] = item
            n_pairs += 1
            ends[n_pairs] = n_cells
    return (
        sizes,
        all_items[:n_pairs].copy(),
        ends[: n_pairs + 1].copy(),
        rules[:n_cells].copy(),
        counts[:n_cells].copy(),
        strengths[: n_cells if weighted else 0].copy(),
    )


@njit(cache=True, nogil=True)
def _clear(front, n, x, xw, weighted):  # type: ignore[no-untyped-def]
    for k in range(n):
        x[front[k]] = 0
        if weighted:
            xw[front[k]] = 0.0


@njit(cache=True, nogil=True)
def _doubled(array):  # type: ignore[no-untyped-def]
    out = np.empty(2 * len(array), dtype=array.dtype)
    out[: len(array)] = array
    return out


# ── the paths themselves ────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True)
def _segment(g, entity, relation):  # type: ignore[no-untyped-def]
    """The slice of an entity's neighbours under a relation, (0, 0) if none."""
    for s in range(g.row_segments[entity], g.row_segments[entity + 1]):
        if g.segment_relations[s] == relation:
            return g.segment_starts[s], g.segment_starts[s + 1]
    return np.int64(0), np.int64(0)


@njit(cache=True, nogil=True)
def middle_pairs(g, u, v, r1, r2, r3, wanted, nodes):  # type: ignore[no-untyped-def]
    """The (a, b) of all simple paths u –r1→ a –r2→ b –r3→ v, in order; how many there are.

    Writes to ``nodes`` those whose place in the order is in ``wanted`` (ascending).
    """
    has_origins = len(g.origins) > 0
    back_lo, back_hi = _segment(g, v, _inverse(r3, g.n_relations))
    lo, hi = _segment(g, u, r1)
    found, filled = 0, 0
    for e in range(lo, hi):
        a = g.tails[e]
        if a == v or (has_origins and g.origins[e] == v):
            continue
        j, end = _segment(g, a, r2)
        i = back_lo
        # Step through the shorter slice, search in the longer.
        while i < back_hi and j < end:
            if g.tails[i] < g.tails[j]:
                i = (
                    _first_at_least(g.tails, i + 1, back_hi, g.tails[j])
                    if back_hi - i > 8 * (end - j)
                    else i + 1
                )
            elif g.tails[j] < g.tails[i]:
                j = (
                    _first_at_least(g.tails, j + 1, end, g.tails[i])
                    if end - j > 8 * (back_hi - i)
                    else j + 1
                )
            else:
                b = g.tails[i]
                if b != u and not (has_origins and g.origins[i] == u):
                    if filled < len(wanted) and wanted[filled] == found:
                        nodes[filled, 0], nodes[filled, 1] = a, b
                        filled += 1
                    found += 1
                i += 1
                j += 1
    return found
