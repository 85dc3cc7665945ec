"""The compiled loop that counts and weighs the groundings of pairs; ``ground`` calls it.

All pairs of a user are counted together. Let a *prefix* be the relations of a rule less the
last. Each edge b –r→ v that can be a last hop into one of the user's items is noted at b; then
the user's walks over all prefixes are followed to the noted entities. Where few notes share an
entity, each walk that comes there is completed at once, path by path. Where many do, the walks
x[b, p] are first counted for every noted b and prefix p, and then each note adds its x[b, p] to
its pair for every rule (p, r): the work is that of the hops, however many paths they make.

What a simple path forbids, or what only the pair itself is witness of (METHOD L2, L3), does
not count: no walk enters u again; path by path, the item itself and the item that a first hop
is known from are passed over; otherwise walks u → v → b → v are subtracted from (u, v), and
first hops with an origin are followed path by path all the same.

Hubs: neighbours under one relation are a sorted slice and, where that is long, also a bitmap.
A walk through a hub costs the words of its bitmap; an item that is a hub itself is not noted
at its many neighbours but met bitmap against bitmap, 64 entities at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.engine.kernels import kernel
from loger.grounding.steps import (
    arriving,
    fact,
    first_at_least,
    first_hop,
    interacts,
    inverse,
    is_set,
    leave,
    lowest,
    next_common,
    popcount,
    set_bit,
)


class LastHops(NamedTuple):
    """The last hops into a user's items, noted at the entities they leave from."""

    noted: NDArray[np.uint64]  # bitmap of entities with notes
    before: NDArray[np.int32]  # [words]: how many noted entities lie before the word
    hit: NDArray[np.bool_]  # [noted entities]: has the walk come there?
    depth: NDArray[np.int32]  # [noted entities]: how many notes are made there
    head: NDArray[np.int32]  # [noted entities]: the last of them
    next: NDArray[np.int32]  # [notes]: the one before it, or -1
    pair: NDArray[np.int32]  # [notes]: which of the user's pairs it completes
    relation: NDArray[np.int32]  # [notes]: the last relation
    entity: NDArray[np.int32]  # [notes]
    weight: NDArray[np.float64]  # [notes]: factors of the last hop
    big_pair: NDArray[np.int32]  # [big segments]: items' segments too long to be noted
    big_segment: NDArray[np.int64]
    sizes: NDArray[np.int64]  # how many notes, noted entities and big segments there are
    x: NDArray[np.int32]  # [noted entities · slots]: walks from the user; only where hit
    xw: NDArray[np.float64]  # [noted entities · slots]: their weight


CROWDED = 6
"""Paths are counted together, not singly, where a note on average has so many at its entity."""

BIG = 4
"""An item's segment of more edges than this times the words of its bitmap is not noted."""


@kernel
def _note_last_hops(g, plan, weights, u, items, hops):  # type: ignore[no-untyped-def]
    """Note the last hops into each of the items; whether paths are best counted together.

    An edge known from the interaction of the pair alone is no evidence for it (L3). The user
    itself is noted only for rules of length 1.
    """
    has_origins = len(g.origins) > 0
    weighted, facts = len(weights.leave) > 0, g.weights
    n, n_big = 0, 0
    for k in range(len(items)):
        v = items[k]
        for s in range(g.row_segments[v], g.row_segments[v + 1]):
            last = inverse(np.int64(g.segment_relations[s]), g.n_relations)
            if not plan.ends[last]:
                continue
            lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
            arrive = arriving(g, weights, v, last) if weighted else 0.0
            own = g.weighted[last]
            if _is_big(g, s):
                hops.big_pair[n_big], hops.big_segment[n_big] = k, s
                n_big += 1
                if not plan.direct:
                    continue
                lo = first_at_least(g.tails, lo, hi, u)  # of a big segment, only u itself
                hi = lo + 1 if lo < hi and g.tails[lo] == u else lo
            for e in range(lo, hi):
                b = np.int64(g.tails[e])
                if (has_origins and g.origins[e] == u) or (b == u and not plan.direct):
                    continue
                set_bit(hops.noted, b)
                hops.entity[n], hops.pair[n], hops.relation[n] = b, k, last
                if weighted:
                    hops.weight[n] = leave(g, weights, b, last) * arrive * fact(own, facts, e)
                n += 1
    # Number the noted entities by the place of their bit, so that arrays need room only for them.
    total = 0
    for k in range(len(hops.noted)):
        hops.before[k] = total
        total += popcount(hops.noted[k])
    hops.sizes[0], hops.sizes[1], hops.sizes[2] = n, total, n_big
    hops.head[:total] = -1
    hops.depth[:total] = 0
    crowd = 0
    for i in range(n):
        place = _place(hops, hops.entity[i])
        hops.next[i] = hops.head[place]
        hops.head[place] = i
        hops.depth[place] += 1
        crowd += hops.depth[place]
    # m notes at an entity add m(m+1)/2, so 2·crowd/n is about how many a note shares it with.
    together = 2 * crowd > CROWDED * n
    if together:
        hops.hit[:total] = False
    return together


@kernel(inline="always")
def _place(hops, entity):  # type: ignore[no-untyped-def]
    """The place of a noted entity among all that are noted."""
    word = hops.noted[entity >> 6]
    below = word & ((np.uint64(1) << np.uint64(entity & 63)) - np.uint64(1))
    return hops.before[entity >> 6] + popcount(below)


@kernel
def _is_big(g, s):  # type: ignore[no-untyped-def]
    """Whether a segment is met by its bitmap; not where an edge may be the pair's own."""
    if g.bitmap_of[s] < 0:
        return False
    lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
    first, end = g.word_spans[np.int64(g.segment_relations[s])]
    if hi - lo <= BIG * (end - first):
        return False
    if len(g.origins) > 0:
        for e in range(lo, hi):
            if g.origins[e] >= 0:
                return False
    return True


@kernel(inline="always")
def _arrive(plan, prefix, b, w, hops):  # type: ignore[no-untyped-def]
    """Count a walk that has come to the noted entity b by a prefix."""
    place = np.int64(_place(hops, b))
    base = place * plan.stride
    weighted = len(hops.xw) > 0
    if not hops.hit[place]:  # x is reset here, not everywhere: most places are never hit
        hops.hit[place] = True
        for p in range(plan.stride):
            hops.x[base + p] = 0
        if weighted:
            for p in range(plan.stride):
                hops.xw[base + p] = 0.0
    hops.x[base + plan.slot[prefix]] += 1
    if weighted:
        hops.xw[base + plan.slot[prefix]] += w


@kernel
def _complete(plan, prefix, b, a, origin, w, items, hops, out, outw):  # type: ignore[no-untyped-def]
    """Count the single paths that end over b, having come there by way of a.

    Not for the item a itself, which a simple path does not pass, nor for the item ``origin``
    from whose interaction alone the first hop is known.
    """
    i = hops.head[_place(hops, b)]
    while i >= 0:
        k = hops.pair[i]
        rule = plan.rule_of[hops.relation[i], prefix]
        if rule >= 0 and items[k] != a and items[k] != origin:
            out[k, rule] += 1
            if len(outw) > 0:
                outw[k, rule] += w * hops.weight[i]
        i = hops.next[i]


@kernel
def _through(g, plan, weights, u, fade, r1, a, origin, together, w1, items, hops, out, outw):  # type: ignore[no-untyped-def]
    """Follow u –r1→ a –r2→ b for all r2 that continue a rule, to all noted b and big segments."""
    weighted, tails, facts = len(weights.leave) > 0, g.tails, g.weights
    for s in range(g.row_segments[a], g.row_segments[a + 1]):
        r2 = np.int64(g.segment_relations[s])
        prefix = plan.second[fade, r1, r2]
        if prefix < 0:
            continue
        lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
        w = w1 * leave(g, weights, a, r2) if weighted else 0.0
        at, own = g.bitmap_of[s], g.weighted[r2]
        if at < 0:
            for e in range(lo, hi):
                b = np.int64(tails[e])
                if is_set(hops.noted, b) and b != u:
                    we = w * fact(own, facts, e)
                    if together:
                        _arrive(plan, prefix, b, we, hops)
                    else:
                        _complete(plan, prefix, b, a, origin, we, items, hops, out, outw)
        else:
            first, end = g.word_spans[r2]
            for k in range(end - first):
                # 64 entities at once; then each set bit, from the lowest.
                word = g.bitmaps[at + k] & hops.noted[first + k]
                while word != np.uint64(0):
                    b = ((first + k) << 6) + lowest(word)
                    word &= word - np.uint64(1)
                    if b != u:
                        if together:
                            _arrive(plan, prefix, b, w, hops)
                        else:
                            _complete(plan, prefix, b, a, origin, w, items, hops, out, outw)
        for j in range(hops.sizes[2]):
            pair, q = hops.big_pair[j], hops.big_segment[j]
            last = inverse(np.int64(g.segment_relations[q]), g.n_relations)
            rule = plan.rule_of[last, prefix]
            if rule >= 0 and items[pair] != a and items[pair] != origin:
                n, shared = _meet(g, weights, u, items[pair], s, q)
                out[pair, rule] += n
                if weighted:
                    outw[pair, rule] += w * shared


@kernel
def _meet(g, weights, u, v, s, q):  # type: ignore[no-untyped-def]
    """How many entities b ≠ u a segment s and a big segment q of v share, and their weight.

    The weight is that of the last hop b –r3→ v and of the fact that leads to b, added up over b;
    facts that are kept as bitmaps count 1.
    """
    n, weight = np.int64(0), 0.0
    weighted = len(weights.leave) > 0
    last = inverse(np.int64(g.segment_relations[q]), g.n_relations)
    at, big = g.bitmap_of[s], g.bitmap_of[q]
    first, end = g.word_spans[np.int64(g.segment_relations[q])]
    if at < 0:
        bits, facts = g.bitmaps[big : big + end - first], g.weights
        own = g.weighted[np.int64(g.segment_relations[s])]
        for e in range(g.segment_starts[s], g.segment_starts[s + 1]):
            b = np.int64(g.tails[e])
            if b != u and is_set(bits, b - (first << 6)):
                n += 1
                if weighted:
                    weight += leave(g, weights, b, last) * fact(own, facts, e)
    elif weighted:
        for k in range(end - first):
            word = g.bitmaps[at + k] & g.bitmaps[big + k]
            while word != np.uint64(0):
                b = ((first + k) << 6) + lowest(word)
                word &= word - np.uint64(1)
                if b != u:
                    n += 1
                    weight += leave(g, weights, b, last)
    else:
        for k in range(end - first):
            n += popcount(g.bitmaps[at + k] & g.bitmaps[big + k])
        if first <= u >> 6 < end:  # u has been counted with its word
            both = g.bitmaps[at + (u >> 6) - first] & g.bitmaps[big + (u >> 6) - first]
            n -= np.int64((both >> np.uint64(u & 63)) & np.uint64(1))
    if weighted:
        weight *= arriving(g, weights, v, last)
    return n, weight


@kernel
def _walk(g, plan, weights, u, together, items, hops, out, outw):  # type: ignore[no-untyped-def]
    """Walk from the user over all prefixes."""
    home = g.home
    if plan.direct and is_set(hops.noted, u):
        if together:
            _arrive(plan, 0, u, 1.0, hops)
        else:
            _complete(plan, 0, u, -1, -1, 1.0, items, hops, out, outw)
    for s in range(home.row_segments[u], home.row_segments[u + 1]):
        r1 = np.int64(home.segment_relations[s])
        for fade in range(len(plan.first)):
            if plan.first[fade, r1] >= 0 or plan.expands[fade, r1]:
                _walk_over(g, plan, weights, u, fade, s, together, items, hops, out, outw)


@kernel
def _walk_over(g, plan, weights, u, fade, s, together, items, hops, out, outw):  # type: ignore[no-untyped-def]
    """Walk over the user's segment s, for the rules for which its edges fade so."""
    home = g.home
    has_origins = len(home.origins) > 0
    weighted = len(weights.leave) > 0
    r1 = np.int64(home.segment_relations[s])
    prefix, expands = plan.first[fade, r1], plan.expands[fade, r1]
    lo, hi = home.segment_starts[s], home.segment_starts[s + 1]
    for e in range(lo, hi):
        a = np.int64(home.tails[e])
        origin = np.int64(home.origins[e]) if has_origins else np.int64(-1)
        shared = together and origin < 0
        w = first_hop(g, weights, fade, r1, e, hi - lo) if weighted else 0.0
        if prefix >= 0 and is_set(hops.noted, a):
            if shared:
                _arrive(plan, prefix, a, w, hops)
            else:
                _complete(plan, prefix, a, a, origin, w, items, hops, out, outw)
        if expands:
            _through(g, plan, weights, u, fade, r1, a, origin, shared, w, items, hops, out, outw)
    if prefix >= 0:
        _meet_directly(g, plan, weights, fade, s, prefix, items, hops, out, outw)


@kernel
def _collect(plan, hops, out, outw):  # type: ignore[no-untyped-def]
    """Give every pair the walks that have come to the entities it is noted at."""
    for i in range(hops.sizes[0]):
        place = np.int64(_place(hops, hops.entity[i]))
        if not hops.hit[place]:
            continue
        base, k, last = place * plan.stride, hops.pair[i], hops.relation[i]
        for j in range(plan.end_starts[last], plan.end_starts[last + 1]):
            walks = hops.x[base + plan.end_slots[j]]
            if walks > 0:
                out[k, plan.end_rules[j]] += walks
                if len(outw) > 0:
                    outw[k, plan.end_rules[j]] += hops.xw[base + plan.end_slots[j]] * hops.weight[i]


@kernel
def _subtract_non_simple(g, plan, weights, u, v, out, outw):  # type: ignore[no-untyped-def]
    """Subtract from the pair (u, v) the walks u –r1→ v –r2→ b –r3→ v, which are not simple.

    Those by way of u, over an edge that is the pair's own, or over a first hop that was
    followed path by path, had not been counted.
    """
    home = g.home
    has_origins = len(home.origins) > 0
    weighted = len(weights.leave) > 0
    for t in range(home.row_segments[u], home.row_segments[u + 1]):
        r1 = np.int64(home.segment_relations[t])
        expands = False
        for fade in range(len(plan.expands)):
            expands |= plan.expands[fade, r1]
        if not expands:
            continue
        lo, hi = home.segment_starts[t], home.segment_starts[t + 1]
        e = first_at_least(home.tails, lo, hi, v)
        if e == hi or home.tails[e] != v or (has_origins and home.origins[e] >= 0):
            continue
        for s in range(g.row_segments[v], g.row_segments[v + 1]):
            prefix, w1 = np.int64(-1), 0.0
            for fade in range(len(plan.first)):  # of which a second relation has one
                if plan.second[fade, r1, np.int64(g.segment_relations[s])] >= 0:
                    prefix = plan.second[fade, r1, np.int64(g.segment_relations[s])]
                    if weighted:
                        w1 = first_hop(g, weights, fade, r1, e, hi - lo)
            if prefix < 0:
                continue
            for q in range(g.row_segments[v], g.row_segments[v + 1]):
                rule = plan.rule_of[
                    inverse(np.int64(g.segment_relations[q]), g.n_relations), prefix
                ]
                if rule >= 0 and not _is_big(g, q):
                    n, shared = _round_trips(g, weights, u, v, s, q)
                    out[rule] -= n
                    if weighted:
                        outw[rule] -= w1 * shared


@kernel
def _round_trips(g, weights, u, v, s, q):  # type: ignore[no-untyped-def]
    """Number and weight of the trips v –r2→ b –r3→ v out over segment s and home over q of v."""
    has_origins = len(g.origins) > 0
    weighted = len(weights.leave) > 0
    n, weight = np.int64(0), 0.0
    i, end = g.segment_starts[q], g.segment_starts[q + 1]
    if s == q and not weighted and not has_origins:  # every neighbour but u leads out and home
        at = first_at_least(g.tails, i, end, u)
        return end - i - (1 if at < end and g.tails[at] == u else 0), weight
    out, last = np.int64(g.segment_relations[s]), np.int64(g.segment_relations[q])
    last = inverse(last, g.n_relations)
    j, j_end = g.segment_starts[s], g.segment_starts[s + 1]
    scale, facts, own_out, own_last = 0.0, g.weights, g.weighted[out], g.weighted[last]
    if weighted:
        scale = leave(g, weights, v, out) * arriving(g, weights, v, last)
    i, j = next_common(g.tails, i, end, j, j_end)
    while i < end:
        b = g.tails[i]
        if b != u and not (has_origins and g.origins[i] == u):
            n += 1
            if weighted:
                own = fact(own_last, facts, i) * fact(own_out, facts, j)
                weight += scale * leave(g, weights, b, last) * own
        i, j = next_common(g.tails, i + 1, end, j + 1, j_end)
    return n, weight


@kernel
def _meet_directly(g, plan, weights, fade, s, prefix, items, hops, out, outw):  # type: ignore[no-untyped-def]
    """Count the paths u –r1→ a –r2→ v of two hops into big segments, over u's segment s."""
    home = g.home
    has_origins = len(home.origins) > 0
    r1 = np.int64(home.segment_relations[s])
    lo, hi = home.segment_starts[s], home.segment_starts[s + 1]
    for j in range(hops.sizes[2]):
        pair, q = hops.big_pair[j], hops.big_segment[j]
        last = inverse(np.int64(g.segment_relations[q]), g.n_relations)
        rule = plan.rule_of[last, prefix]
        if rule < 0:
            continue
        at, end = g.segment_starts[q], g.segment_starts[q + 1]
        for i in range(lo, hi):
            a = home.tails[i]
            at = first_at_least(g.tails, at, end, a)  # both ascend, so it never goes back
            if at == end:
                break
            if g.tails[at] != a or (has_origins and home.origins[i] == items[pair]):
                continue
            out[pair, rule] += 1
            if len(weights.leave) > 0:
                first = first_hop(g, weights, fade, r1, i, hi - lo)
                arrive = arriving(g, weights, items[pair], last)
                outw[pair, rule] += first * leave(g, weights, a, last) * arrive


@kernel
def _most_notes(g, starts, items):  # type: ignore[no-untyped-def]
    """Room for the notes, and for the big segments, of any one user of a block."""
    edges, segments = np.int64(0), np.int64(0)
    for i in range(len(starts) - 1):
        n, m = np.int64(0), np.int64(0)
        for k in range(starts[i], starts[i + 1]):
            n += g.indptr[items[k] + 1] - g.indptr[items[k]]
            m += g.row_segments[items[k] + 1] - g.row_segments[items[k]]
        edges, segments = max(edges, n), max(segments, m)
    return edges, segments


@kernel
def ground_block(g, plan, weights, users, starts, items):  # type: ignore[no-untyped-def]
    """Counts and strengths for the pairs of a block of users, as compressed rows.

    User ``users[i]`` has the pairs ``starts[i]:starts[i+1]``; ``items`` are entity ids.
    """
    weighted = len(weights.leave) > 0
    n_entities = len(g.indptr) - 1
    # Made once for the block, with room for its largest user.
    room, big_room = _most_notes(g, starts, items)
    places = min(room, n_entities)
    hops = LastHops(
        np.zeros((n_entities >> 6) + 1, dtype=np.uint64),
        np.empty((n_entities >> 6) + 1, dtype=np.int32),
        np.empty(places, dtype=np.bool_),
        np.empty(places, dtype=np.int32),
        np.empty(places, dtype=np.int32),
        np.empty(room, dtype=np.int32),
        np.empty(room, dtype=np.int32),
        np.empty(room, dtype=np.int32),
        np.empty(room, dtype=np.int32),
        np.empty(room if weighted else 0),
        np.empty(big_room, dtype=np.int32),
        np.empty(big_room, dtype=np.int64),
        np.zeros(3, dtype=np.int64),
        np.empty(places * plan.stride, dtype=np.int32),
        np.empty(places * plan.stride if weighted else 0),
    )
    out = np.zeros((len(items), plan.n_rules), dtype=np.int64)
    outw, none = np.zeros((len(items) if weighted else 0, plan.n_rules)), np.empty(0)
    for i in range(len(users)):
        u, lo, hi = users[i], starts[i], starts[i + 1]
        user_items, rows, rowsw = items[lo:hi], out[lo:hi], outw[lo:hi]
        together = _note_last_hops(g, plan, weights, u, user_items, hops)
        _walk(g, plan, weights, u, together, user_items, hops, rows, rowsw)
        if together:
            _collect(plan, hops, rows, rowsw)
            for k in range(len(user_items)):
                _subtract_non_simple(
                    g, plan, weights, u, user_items[k], rows[k], rowsw[k] if weighted else none
                )
        hops.noted[:] = np.uint64(0)
        if len(plan.derived) > 0:
            for k in range(len(user_items)):
                if interacts(g, u, user_items[k]):  # derived facts are made of it (L2)
                    for rule in plan.derived:
                        rows[k, rule] = 0
    return _compress(out, outw, weighted)


@kernel
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
