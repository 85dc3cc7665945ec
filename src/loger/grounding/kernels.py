"""The compiled loops that count, weigh and add up groundings; ``grounding`` calls them.

All pairs of a user are counted together. Let a *prefix* be the relations of a rule less the
last. Each edge b –r→ v that can be a last hop into one of the user's items is noted at b; then
the user's walks over all prefixes are followed to the noted entities. Where few notes share an
entity, each walk that comes there is completed at once, path by path. Where many do, the walks
x[b, p] are first counted for every noted b and prefix p, and then each note adds its x[b, p] to
its pair for every rule (p, r): the work is that of the hops, however many paths they make.

What a simple path forbids, or what only the pair itself is witness of (METHOD L2, L3), does
not count: no walk enters u again; path by path, the item itself and the item that a first hop
is known from are passed over; otherwise walks u → v → b → v are taken back from (u, v), and
first hops with an origin are followed path by path all the same.

Hubs: neighbours under one relation are a sorted slice and, where that is long, also a bitmap.
A walk through a hub costs the words of its bitmap; an item that is a hub itself is not noted
at its many neighbours but met bitmap against bitmap, 64 entities at a time.

The strength of a path is the product over its hops h –r→ t of a power of deg_r(h), which may be
another for first hops, times a power of deg_r⁻¹(v) on the last hop, times what the first edge
itself is worth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from loger.compiled import kernel


class Plan(NamedTuple):
    """A rule set, compiled, with its prefixes numbered."""

    first: NDArray[np.int64]  # [relations]: prefix (r1), or -1
    second: NDArray[np.int64]  # [relations, relations]: prefix (r1, r2), or -1
    expands: NDArray[np.bool_]  # [relations]: is there a prefix (r1, ·)?
    ends: NDArray[np.bool_]  # [relations]: is it the last relation of a rule?
    rule_of: NDArray[np.int32]  # [relations, prefixes]: rule by last relation and prefix, or -1
    slot: NDArray[np.int64]  # [prefixes]: number among the prefixes that end at the same type
    stride: int  # most slots of any type
    end_starts: NDArray[np.int64]  # [relations + 1]: the rules that a relation ends, slices of
    end_slots: NDArray[np.int64]  # the slots of their prefixes and
    end_rules: NDArray[np.int64]  # their numbers
    n_rules: int
    direct: bool  # are there rules of length 1? Their empty prefix is number 0.


class Weights(NamedTuple):
    """Factors by degree; all empty when only counts are asked for."""

    powers: NDArray[np.float64]  # [exponents, degrees]; an exponent is known by its row
    first: NDArray[np.int64]  # [relations]: of the degree that a first hop leaves
    leave: NDArray[np.int64]  # [relations]: of the degree that a later hop leaves
    into: NDArray[np.int64]  # [relations]: of the degree of v under the last hop's inverse
    edges: NDArray[np.float64]  # [users' edges]: a factor of each as first hop; or nothing


class Notes(NamedTuple):
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


@intrinsic
def _popcount(typing_context, word):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@intrinsic
def _lowest(typing_context, word):  # type: ignore[no-untyped-def]
    """The place of the lowest set bit."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


@kernel(inline="always")
def _inverse(relation, n):  # type: ignore[no-untyped-def]
    return relation - n if relation >= n else relation + n


@kernel(inline="always")
def _degree(g, entity, relation):  # type: ignore[no-untyped-def]
    """How many neighbours an entity of the right type has under a relation."""
    return g.degrees[g.degree_starts[relation] + entity]


@kernel(inline="always")
def _first_hop(weights, relation, edge, degree):  # type: ignore[no-untyped-def]
    """What a user's edge is worth, one of so many."""
    w = weights.powers[weights.first[relation], degree]
    return w * weights.edges[edge] if len(weights.edges) > 0 else w


@kernel(inline="always")
def _leave(g, weights, entity, relation):  # type: ignore[no-untyped-def]
    """What it is worth to leave an entity over a relation, not as a first hop."""
    return weights.powers[weights.leave[relation], _degree(g, entity, relation)]


@kernel(inline="always")
def _arriving(g, weights, item, last):  # type: ignore[no-untyped-def]
    """What it is worth to come to an item over the last relation of a rule."""
    return weights.powers[weights.into[last], _degree(g, item, _inverse(last, g.n_relations))]


@kernel
def _first_at_least(values, lo, hi, x):  # type: ignore[no-untyped-def]
    while lo < hi:
        mid = (lo + hi) >> 1
        if values[mid] < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel(inline="always")
def _set(bits, entity):  # type: ignore[no-untyped-def]
    bits[entity >> 6] |= np.uint64(1) << np.uint64(entity & 63)


@kernel(inline="always")
def _is_set(bits, entity):  # type: ignore[no-untyped-def]
    return (bits[entity >> 6] >> np.uint64(entity & 63)) & np.uint64(1) != np.uint64(0)


@kernel
def _next_common(tails, i, i_end, j, j_end):  # type: ignore[no-untyped-def]
    """From (i, j) on, where two ascending slices first hold the same entity; i = i_end if nowhere.

    Steps through the shorter slice and searches in the longer.
    """
    while i < i_end and j < j_end:
        if tails[i] < tails[j]:
            far = i_end - i > 8 * (j_end - j)
            i = _first_at_least(tails, i + 1, i_end, tails[j]) if far else i + 1
        elif tails[j] < tails[i]:
            far = j_end - j > 8 * (i_end - i)
            j = _first_at_least(tails, j + 1, j_end, tails[i]) if far else j + 1
        else:
            return i, j
    return i_end, j_end


# ── pairs ───────────────────────────────────────────────────────────────────────────────


@kernel
def _note(g, plan, weights, u, items, notes):  # type: ignore[no-untyped-def]
    """Note the last hops into each of the items; whether paths are best counted together.

    An edge known from the interaction of the pair alone is no evidence for it (L3). The user
    itself is noted only for rules of length 1.
    """
    has_origins = len(g.origins) > 0
    weighted = len(weights.leave) > 0
    n, n_big = 0, 0
    for k in range(len(items)):
        v = items[k]
        for s in range(g.row_segments[v], g.row_segments[v + 1]):
            last = _inverse(np.int64(g.segment_relations[s]), g.n_relations)
            if not plan.ends[last]:
                continue
            lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
            arrive = _arriving(g, weights, v, last) if weighted else 0.0
            if _is_big(g, s):
                notes.big_pair[n_big], notes.big_segment[n_big] = k, s
                n_big += 1
                if not plan.direct:
                    continue
                lo = _first_at_least(g.tails, lo, hi, u)  # of a big segment, only u itself
                hi = lo + 1 if lo < hi and g.tails[lo] == u else lo
            for e in range(lo, hi):
                b = np.int64(g.tails[e])
                if (has_origins and g.origins[e] == u) or (b == u and not plan.direct):
                    continue
                _set(notes.noted, b)
                notes.entity[n], notes.pair[n], notes.relation[n] = b, k, last
                if weighted:
                    notes.weight[n] = _leave(g, weights, b, last) * arrive
                n += 1
    total = 0
    for k in range(len(notes.noted)):
        notes.before[k] = total
        total += _popcount(notes.noted[k])
    notes.sizes[0], notes.sizes[1], notes.sizes[2] = n, total, n_big
    notes.head[:total] = -1
    notes.depth[:total] = 0
    crowd = 0
    for i in range(n):
        place = _place(notes, notes.entity[i])
        notes.next[i] = notes.head[place]
        notes.head[place] = i
        notes.depth[place] += 1
        crowd += notes.depth[place]
    together = 2 * crowd > CROWDED * n
    if together:
        notes.hit[:total] = False
    return together


@kernel(inline="always")
def _place(notes, entity):  # type: ignore[no-untyped-def]
    """The place of a noted entity among all that are noted."""
    word = notes.noted[entity >> 6]
    below = word & ((np.uint64(1) << np.uint64(entity & 63)) - np.uint64(1))
    return notes.before[entity >> 6] + _popcount(below)


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
def _arrive(plan, prefix, b, w, notes):  # type: ignore[no-untyped-def]
    """Count a walk that has come to the noted entity b by a prefix."""
    place = np.int64(_place(notes, b))
    base = place * plan.stride
    weighted = len(notes.xw) > 0
    if not notes.hit[place]:
        notes.hit[place] = True
        for p in range(plan.stride):
            notes.x[base + p] = 0
        if weighted:
            for p in range(plan.stride):
                notes.xw[base + p] = 0.0
    notes.x[base + plan.slot[prefix]] += 1
    if weighted:
        notes.xw[base + plan.slot[prefix]] += w


@kernel
def _complete(plan, prefix, b, a, own, w, items, notes, out, outw):  # type: ignore[no-untyped-def]
    """Count the single paths that end over b, having come there by way of a.

    Not for the item a itself, which a simple path does not pass, nor for the item ``own``
    from whose interaction alone the first hop is known.
    """
    i = notes.head[_place(notes, b)]
    while i >= 0:
        k = notes.pair[i]
        rule = plan.rule_of[notes.relation[i], prefix]
        if rule >= 0 and items[k] != a and items[k] != own:
            out[k, rule] += 1
            if len(outw) > 0:
                outw[k, rule] += w * notes.weight[i]
        i = notes.next[i]


@kernel
def _through(g, plan, weights, u, r1, a, own, together, w1, items, notes, out, outw):  # type: ignore[no-untyped-def]
    """Follow u –r1→ a –r2→ b for all r2 that continue a rule, to all noted b and big segments."""
    weighted = len(weights.leave) > 0
    for s in range(g.row_segments[a], g.row_segments[a + 1]):
        r2 = np.int64(g.segment_relations[s])
        prefix = plan.second[r1, r2]
        if prefix < 0:
            continue
        lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
        w = w1 * _leave(g, weights, a, r2) if weighted else 0.0
        at = g.bitmap_of[s]
        if at < 0:
            for e in range(lo, hi):
                b = np.int64(g.tails[e])
                if _is_set(notes.noted, b) and b != u:
                    if together:
                        _arrive(plan, prefix, b, w, notes)
                    else:
                        _complete(plan, prefix, b, a, own, w, items, notes, out, outw)
        else:
            first, end = g.word_spans[r2]
            for k in range(end - first):
                word = g.bitmaps[at + k] & notes.noted[first + k]
                while word != np.uint64(0):
                    b = ((first + k) << 6) + _lowest(word)
                    word &= word - np.uint64(1)
                    if b != u:
                        if together:
                            _arrive(plan, prefix, b, w, notes)
                        else:
                            _complete(plan, prefix, b, a, own, w, items, notes, out, outw)
        for j in range(notes.sizes[2]):
            pair, q = notes.big_pair[j], notes.big_segment[j]
            last = _inverse(np.int64(g.segment_relations[q]), g.n_relations)
            rule = plan.rule_of[last, prefix]
            if rule >= 0 and items[pair] != a and items[pair] != own:
                n, shared = _meet(g, weights, u, items[pair], s, q)
                out[pair, rule] += n
                if weighted:
                    outw[pair, rule] += w * shared


@kernel
def _meet(g, weights, u, v, s, q):  # type: ignore[no-untyped-def]
    """How many entities b ≠ u a segment s and a big segment q of v share, and their weight.

    The weight is that of the last hop b –r3→ v, added up over b.
    """
    n, weight = np.int64(0), 0.0
    weighted = len(weights.leave) > 0
    last = _inverse(np.int64(g.segment_relations[q]), g.n_relations)
    at, big = g.bitmap_of[s], g.bitmap_of[q]
    first, end = g.word_spans[np.int64(g.segment_relations[q])]
    if at < 0:
        bits = g.bitmaps[big : big + end - first]
        for e in range(g.segment_starts[s], g.segment_starts[s + 1]):
            b = np.int64(g.tails[e])
            if b != u and _is_set(bits, b - (first << 6)):
                n += 1
                if weighted:
                    weight += _leave(g, weights, b, last)
    elif weighted:
        for k in range(end - first):
            word = g.bitmaps[at + k] & g.bitmaps[big + k]
            while word != np.uint64(0):
                b = ((first + k) << 6) + _lowest(word)
                word &= word - np.uint64(1)
                if b != u:
                    n += 1
                    weight += _leave(g, weights, b, last)
    else:
        for k in range(end - first):
            n += _popcount(g.bitmaps[at + k] & g.bitmaps[big + k])
        if first <= u >> 6 < end:
            both = g.bitmaps[at + (u >> 6) - first] & g.bitmaps[big + (u >> 6) - first]
            n -= np.int64((both >> np.uint64(u & 63)) & np.uint64(1))
    if weighted:
        weight *= _arriving(g, weights, v, last)
    return n, weight


@kernel
def _walk(g, plan, weights, u, together, items, notes, out, outw):  # type: ignore[no-untyped-def]
    """Walk from the user over all prefixes."""
    home = g.home
    has_origins = len(home.origins) > 0
    weighted = len(weights.leave) > 0
    if plan.direct and _is_set(notes.noted, u):
        if together:
            _arrive(plan, 0, u, 1.0, notes)
        else:
            _complete(plan, 0, u, -1, -1, 1.0, items, notes, out, outw)
    for s in range(home.row_segments[u], home.row_segments[u + 1]):
        r1 = np.int64(home.segment_relations[s])
        prefix, expands = plan.first[r1], plan.expands[r1]
        if prefix < 0 and not expands:
            continue
        lo, hi = home.segment_starts[s], home.segment_starts[s + 1]
        for e in range(lo, hi):
            a = np.int64(home.tails[e])
            own = np.int64(home.origins[e]) if has_origins else np.int64(-1)
            shared = together and own < 0
            w = _first_hop(weights, r1, e, hi - lo) if weighted else 0.0
            if prefix >= 0 and _is_set(notes.noted, a):
                if shared:
                    _arrive(plan, prefix, a, w, notes)
                else:
                    _complete(plan, prefix, a, a, own, w, items, notes, out, outw)
            if expands:
                _through(g, plan, weights, u, r1, a, own, shared, w, items, notes, out, outw)
        if prefix >= 0:
            _meet_directly(g, plan, weights, s, prefix, items, notes, out, outw)


@kernel
def _collect(plan, notes, out, outw):  # type: ignore[no-untyped-def]
    """Give every pair the walks that have come to the entities it is noted at."""
    for i in range(notes.sizes[0]):
        place = np.int64(_place(notes, notes.entity[i]))
        if not notes.hit[place]:
            continue
        base, k, last = place * plan.stride, notes.pair[i], notes.relation[i]
        for j in range(plan.end_starts[last], plan.end_starts[last + 1]):
            walks = notes.x[base + plan.end_slots[j]]
            if walks > 0:
                out[k, plan.end_rules[j]] += walks
                if len(outw) > 0:
                    outw[k, plan.end_rules[j]] += (
                        notes.xw[base + plan.end_slots[j]] * notes.weight[i]
                    )


@kernel
def _take_back(g, plan, weights, u, v, out, outw):  # type: ignore[no-untyped-def]
    """Take back from the pair (u, v) the walks u –r1→ v –r2→ b –r3→ v, which are not simple.

    Those by way of u, over an edge that is the pair's own, or over a first hop that was
    followed path by path, had not been counted.
    """
    home = g.home
    has_origins = len(home.origins) > 0
    weighted = len(weights.leave) > 0
    for t in range(home.row_segments[u], home.row_segments[u + 1]):
        r1 = np.int64(home.segment_relations[t])
        if not plan.expands[r1]:
            continue
        lo, hi = home.segment_starts[t], home.segment_starts[t + 1]
        e = _first_at_least(home.tails, lo, hi, v)
        if e == hi or home.tails[e] != v or (has_origins and home.origins[e] >= 0):
            continue
        w1 = 0.0
        if weighted:
            w1 = _first_hop(weights, r1, e, hi - lo)
        for s in range(g.row_segments[v], g.row_segments[v + 1]):
            prefix = plan.second[r1, np.int64(g.segment_relations[s])]
            if prefix < 0:
                continue
            for q in range(g.row_segments[v], g.row_segments[v + 1]):
                rule = plan.rule_of[
                    _inverse(np.int64(g.segment_relations[q]), g.n_relations), prefix
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
    if s == q and not weighted and not has_origins:
        at = _first_at_least(g.tails, i, end, u)
        return end - i - (1 if at < end and g.tails[at] == u else 0), weight
    out, last = np.int64(g.segment_relations[s]), np.int64(g.segment_relations[q])
    last = _inverse(last, g.n_relations)
    j, j_end = g.segment_starts[s], g.segment_starts[s + 1]
    scale = 0.0
    if weighted:
        scale = _leave(g, weights, v, out) * _arriving(g, weights, v, last)
    i, j = _next_common(g.tails, i, end, j, j_end)
    while i < end:
        b = g.tails[i]
        if b != u and not (has_origins and g.origins[i] == u):
            n += 1
            if weighted:
                weight += scale * _leave(g, weights, b, last)
        i, j = _next_common(g.tails, i + 1, end, j + 1, j_end)
    return n, weight


@kernel
def _meet_directly(g, plan, weights, s, prefix, items, notes, out, outw):  # type: ignore[no-untyped-def]
    """Count the paths u –r1→ a –r2→ v of two hops into big segments, over u's segment s."""
    home = g.home
    has_origins = len(home.origins) > 0
    r1 = np.int64(home.segment_relations[s])
    lo, hi = home.segment_starts[s], home.segment_starts[s + 1]
    for j in range(notes.sizes[2]):
        pair, q = notes.big_pair[j], notes.big_segment[j]
        last = _inverse(np.int64(g.segment_relations[q]), g.n_relations)
        rule = plan.rule_of[last, prefix]
        if rule < 0:
            continue
        at, end = g.segment_starts[q], g.segment_starts[q + 1]
        for i in range(lo, hi):
            a = home.tails[i]
            at = _first_at_least(g.tails, at, end, a)
            if at == end:
                break
            if g.tails[at] != a or (has_origins and home.origins[i] == items[pair]):
                continue
            out[pair, rule] += 1
            if len(weights.leave) > 0:
                first = _first_hop(weights, r1, i, hi - lo)
                arrive = _arriving(g, weights, items[pair], last)
                outw[pair, rule] += first * _leave(g, weights, a, last) * arrive


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
    room, big_room = _most_notes(g, starts, items)
    places = min(room, n_entities)
    notes = Notes(
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
        own, rows, rowsw = items[lo:hi], out[lo:hi], outw[lo:hi]
        together = _note(g, plan, weights, u, own, notes)
        _walk(g, plan, weights, u, together, own, notes, rows, rowsw)
        if together:
            _collect(plan, notes, rows, rowsw)
            for k in range(len(own)):
                _take_back(g, plan, weights, u, own[k], rows[k], rowsw[k] if weighted else none)
        notes.noted[:] = np.uint64(0)
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


class Front(NamedTuple):
    """Where walks stand: entities, and for all entities how many walks of what weight."""

    entities: NDArray[np.int32]
    counts: NDArray[np.int64]
    weights: NDArray[np.float64]


class Reached(NamedTuple):
    """What one user's walks have reached so far."""

    near: NDArray[np.bool_]  # [entities]: the user has an edge to it
    sizes: NDArray[np.int64]  # [rules]: how many items each rule has reached
    counts: NDArray[np.int64]  # [items, rules], or nothing if only sizes are asked for
    strengths: NDArray[np.float64]  # [items, rules], or nothing
    seen: NDArray[np.bool_]  # [items]
    items: NDArray[np.int32]  # the items seen, in order of first sight
    n: NDArray[np.int64]  # [1]: how many they are


@kernel
def _new_front(n_entities, weighted):  # type: ignore[no-untyped-def]
    return Front(
        np.empty(n_entities, dtype=np.int32),
        np.zeros(n_entities, dtype=np.int64),
        np.zeros(n_entities if weighted else 1),
    )


@kernel
def _new_reached(n_entities, n_items, n_rules, sizes_only, weighted):  # type: ignore[no-untyped-def]
    rows = 0 if sizes_only else n_items
    return Reached(
        np.zeros(n_entities, dtype=np.bool_),
        np.zeros(n_rules, dtype=np.int64),
        np.zeros((rows, n_rules), dtype=np.int64),
        np.zeros((rows if weighted else 0, n_rules)),
        np.zeros(n_items, dtype=np.bool_),
        np.empty(n_items, dtype=np.int32),
        np.zeros(1, dtype=np.int64),
    )


@kernel
def _set_out(g, weights, s, there):  # type: ignore[no-untyped-def]
    """Take the first hops over a user's segment s; the size of the front."""
    home = g.home
    relation = np.int64(home.segment_relations[s])
    lo, hi = home.segment_starts[s], home.segment_starts[s + 1]
    for e in range(lo, hi):
        a = home.tails[e]
        there.entities[e - lo], there.counts[a] = a, 1
        if len(weights.leave) > 0:
            there.weights[a] = _first_hop(weights, relation, e, hi - lo)
    return hi - lo


@kernel
def _push(g, weights, relation, avoid, here, n, there):  # type: ignore[no-untyped-def]
    """Spread walks over one relation, never onto ``avoid``; the size of the new front."""
    weighted = len(weights.leave) > 0
    size = 0
    for k in range(n):
        a = here.entities[k]
        for s in range(g.row_segments[a], g.row_segments[a + 1]):
            if g.segment_relations[s] != relation:
                continue
            lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
            w = here.weights[a] * _leave(g, weights, a, relation) if weighted else 0.0
            for e in range(lo, hi):
                b = g.tails[e]
                if b == avoid:
                    continue
                if there.counts[b] == 0:
                    there.entities[size] = b
                    size += 1
                there.counts[b] += here.counts[a]
                if weighted:
                    there.weights[b] += w
    return size


@kernel
def _push_last(g, weights, relation, avoid, here, n, there):  # type: ignore[no-untyped-def]
    """Spread walks over the last relation of a rule, onto items."""
    size = _push(g, weights, relation, avoid, here, n, there)
    if len(weights.leave) > 0 and weights.into[relation] > 0:
        for k in range(size):
            v = there.entities[k]
            there.weights[v] *= _arriving(g, weights, v, relation)
    return size


@kernel
def _end(g, trie, weights, node, u, first_item, here, n, there, reached):  # type: ignore[no-untyped-def]
    """Take the last hops of all rules with this prefix and put down what they reach."""
    for k in range(trie.end_starts[node], trie.end_starts[node + 1]):
        rule = trie.end_rules[k]
        last = trie.end_relations[k]
        size = _push_last(g, weights, last, u, here, n, there)
        for i in range(size):
            v = there.entities[i]
            if not reached.near[v]:
                reached.sizes[rule] += 1
                if len(reached.counts) > 0:
                    item = v - first_item
                    if not reached.seen[item]:
                        reached.seen[item] = True
                        reached.items[reached.n[0]] = item
                        reached.n[0] += 1
                    reached.counts[item, rule] += there.counts[v]
                    if len(reached.strengths) > 0:
                        reached.strengths[item, rule] += there.weights[v]
        _clear(there, size)


@kernel
def _reach(g, trie, weights, u, first_item, fronts, reached):  # type: ignore[no-untyped-def]
    """Walk all rules from one user, to all items that the user has no edge to.

    Such an item cannot be an inner node of its own path, so it is enough not to return to u;
    items the user has an edge to need the care of ``ground_block``.
    """
    one, two, three = fronts
    home = g.home
    row = home.row_segments[u : u + 2]
    near = home.tails[home.segment_starts[row[0]] : home.segment_starts[row[1]]]
    reached.near[near] = True
    for s in range(row[0], row[1]):
        node = trie.root[np.int64(home.segment_relations[s])]
        if node < 0:
            continue
        n = _set_out(g, weights, s, one)
        _end(g, trie, weights, node, u, first_item, one, n, three, reached)
        for c in range(trie.child_starts[node], trie.child_starts[node + 1]):
            r2 = trie.child_relations[c]
            m = _push(g, weights, r2, u, one, n, two)
            _end(g, trie, weights, trie.child_nodes[c], u, first_item, two, m, three, reached)
            _clear(two, m)
        _clear(one, n)
    reached.near[near] = False


@kernel
def _clear(front, n):  # type: ignore[no-untyped-def]
    for k in range(n):
        front.counts[front.entities[k]] = 0
        if len(front.weights) > 1:
            front.weights[front.entities[k]] = 0.0


@kernel
def reach_sizes(g, trie, weights, users, first_item, n_items):  # type: ignore[no-untyped-def]
    """How many items each rule reaches that the user has no edge to; [users, rules]."""
    n = len(g.indptr) - 1
    fronts = (_new_front(n, False), _new_front(n, False), _new_front(n, False))
    reached = _new_reached(n, n_items, trie.n_rules, True, False)
    out = np.zeros((len(users), trie.n_rules), dtype=np.int64)
    for i in range(len(users)):
        _reach(g, trie, weights, users[i], first_item, fronts, reached)
        out[i] = reached.sizes
        reached.sizes[:] = 0
    return out


@kernel
def reach_block(g, trie, weights, users, first_item, n_items):  # type: ignore[no-untyped-def]
    """For a block of users: all items that some rule reaches and that the user has no edge to.

    Returns (pairs per user, items, row ends, rules, counts, strengths).
    """
    weighted = len(weights.leave) > 0
    n = len(g.indptr) - 1
    fronts = (_new_front(n, weighted), _new_front(n, weighted), _new_front(n, weighted))
    reached = _new_reached(n, n_items, trie.n_rules, False, weighted)
    sizes = np.zeros(len(users), dtype=np.int64)
    items, ends = np.empty(1024, dtype=np.int32), np.zeros(1025, dtype=np.int64)
    rules, counts = np.empty(4096, dtype=np.int32), np.empty(4096, dtype=np.int64)
    strengths = np.empty(4096 if weighted else 0)
    n_pairs, n_cells = 0, 0
    for i in range(len(users)):
        _reach(g, trie, weights, users[i], first_item, fronts, reached)
        found = np.sort(reached.items[: reached.n[0]])
        sizes[i] = len(found)
        while n_pairs + len(found) + 1 > len(items):
            items, ends = _doubled(items), _doubled(ends)
        while n_cells + reached.sizes.sum() > len(rules):
            rules, counts = _doubled(rules), _doubled(counts)
            if weighted:
                strengths = _doubled(strengths)
        for item in found:
            for rule in range(trie.n_rules):
                if reached.counts[item, rule] != 0:
                    rules[n_cells], counts[n_cells] = rule, reached.counts[item, rule]
                    if weighted:
                        strengths[n_cells] = reached.strengths[item, rule]
                    n_cells += 1
            items[n_pairs] = item
            n_pairs += 1
            ends[n_pairs] = n_cells
            reached.seen[item] = False
            reached.counts[item] = 0
            if weighted:
                reached.strengths[item] = 0.0
        reached.sizes[:] = 0
        reached.n[0] = 0
    cells = (rules[:n_cells].copy(), counts[:n_cells].copy())
    kept = strengths[: n_cells if weighted else 0].copy()
    return sizes, items[:n_pairs].copy(), ends[: n_pairs + 1].copy(), cells[0], cells[1], kept


@kernel
def _doubled(array):  # type: ignore[no-untyped-def]
    out = np.empty(2 * len(array), dtype=array.dtype)
    out[: len(array)] = array
    return out


# ── the logit of all items of a user ────────────────────────────────────────────────────

SET, MULTISET, COUNT, WALK, LOGWALK = range(5)
"""The features of METHOD 5 and the logarithm of ``walk``, in the order of ``logic.FEATURES``."""


class Formula(NamedTuple):
    """Σ_l w_l φ_l, as the loops read it."""

    feature: int
    weights: NDArray[np.float64]  # [rules]
    scales: NDArray[np.float64]  # [rules]: the strength that is one unit of ``walk``


class Sums(NamedTuple):
    """What a user's items have gathered."""

    seen: NDArray[np.bool_]  # [items]
    items: NDArray[np.int32]  # the items seen, in order of first sight
    n: NDArray[np.int64]  # [1]: how many they are
    above: NDArray[np.float64]  # [items]: Σ w φ, before a mean is taken
    below: NDArray[np.float64]  # [items]: what to divide by where φ is a mean


@kernel
def _add_up(g, trie, weights, formula, node, u, first_item, near, here, n, there, sums):  # type: ignore[no-untyped-def]
    """Take the last hops of all rules with this prefix and add what they are worth."""
    for k in range(trie.end_starts[node], trie.end_starts[node + 1]):
        rule, last = trie.end_rules[k], trie.end_relations[k]
        w, scale = formula.weights[rule], formula.scales[rule]
        size = _push_last(g, weights, last, u, here, n, there)
        for i in range(size):
            v = there.entities[i]
            if near[v]:
                continue
            item = v - first_item
            if not sums.seen[item]:
                sums.seen[item] = True
                sums.items[sums.n[0]] = item
                sums.n[0] += 1
            if formula.feature == SET:
                sums.above[item] += w
                sums.below[item] += 1
            elif formula.feature == MULTISET:
                sums.above[item] += w * there.counts[v]
                sums.below[item] += there.counts[v]
            elif formula.feature == COUNT:
                sums.above[item] += w * np.log1p(np.float64(there.counts[v]))
            elif formula.feature == WALK:
                sums.above[item] += w * there.weights[v] / scale
            else:
                sums.above[item] += w * np.log1p(there.weights[v] / scale)
        _clear(there, size)


class Desk(NamedTuple):
    """Room to work in, all zeros before and after a user; one per thread, not one per call."""

    one: Front
    two: Front
    three: Front
    near: NDArray[np.bool_]  # [entities]
    sums: Sums


@kernel
def new_desk(n_entities, n_items):  # type: ignore[no-untyped-def]
    """Room for ``logit_block``."""
    return Desk(
        _new_front(n_entities, True),
        _new_front(n_entities, True),
        _new_front(n_entities, True),
        np.zeros(n_entities, dtype=np.bool_),
        Sums(
            np.zeros(n_items, dtype=np.bool_),
            np.empty(n_items, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            np.zeros(n_items),
            np.zeros(n_items),
        ),
    )


@kernel
def logit_block(g, trie, weights, formula, users, first_item, desk, out):  # type: ignore[no-untyped-def]
    """Write Σ_l w_l φ_l to ``out`` [users, items] for all items that the user has no edge to.

    The same walks as ``_reach``; each rule is added up as soon as it is complete.
    """
    one, two, three, near, sums = desk
    home = g.home
    for row in range(len(users)):
        u = users[row]
        begin, end = home.row_segments[u], home.row_segments[u + 1]
        own = home.tails[home.segment_starts[begin] : home.segment_starts[end]]
        near[own] = True
        for s in range(begin, end):
            node = trie.root[np.int64(home.segment_relations[s])]
            if node < 0:
                continue
            n = _set_out(g, weights, s, one)
            _add_up(g, trie, weights, formula, node, u, first_item, near, one, n, three, sums)
            for c in range(trie.child_starts[node], trie.child_starts[node + 1]):
                child, r2 = trie.child_nodes[c], trie.child_relations[c]
                m = _push(g, weights, r2, u, one, n, two)
                _add_up(g, trie, weights, formula, child, u, first_item, near, two, m, three, sums)
                _clear(two, m)
            _clear(one, n)
        near[own] = False
        for k in range(sums.n[0]):
            item = sums.items[k]
            mean = formula.feature <= MULTISET
            out[row, item] = sums.above[item] / sums.below[item] if mean else sums.above[item]
            sums.above[item], sums.below[item], sums.seen[item] = 0.0, 0.0, False
        sums.n[0] = 0


# ── the paths themselves ────────────────────────────────────────────────────────────────


@kernel
def _segment(g, entity, relation):  # type: ignore[no-untyped-def]
    """The slice of an entity's neighbours under a relation, (0, 0) if none."""
    for s in range(g.row_segments[entity], g.row_segments[entity + 1]):
        if g.segment_relations[s] == relation:
            return g.segment_starts[s], g.segment_starts[s + 1]
    return np.int64(0), np.int64(0)


@kernel
def middle_pairs(g, u, v, r1, r2, r3, wanted, nodes):  # type: ignore[no-untyped-def]
    """The (a, b) of all simple paths u –r1→ a –r2→ b –r3→ v, in order; how many there are.

    Writes to ``nodes`` those whose place in the order is in ``wanted`` (ascending).
    """
    home = g.home
    has_origins = len(g.origins) > 0
    back, back_end = _segment(g, v, _inverse(r3, g.n_relations))
    lo, hi = _segment(home, u, r1)
    found, filled = 0, 0
    for e in range(lo, hi):
        a = home.tails[e]
        if a == v or (has_origins and home.origins[e] == v):
            continue
        j, end = _segment(g, a, r2)
        i, j = _next_common(g.tails, back, back_end, j, end)
        while i < back_end:
            b = g.tails[i]
            if b != u and not (has_origins and g.origins[i] == u):
                if filled < len(wanted) and wanted[filled] == found:
                    nodes[filled, 0], nodes[filled, 1] = a, b
                    filled += 1
                found += 1
            i, j = _next_common(g.tails, i + 1, back_end, j + 1, end)
    return found


@kernel
def _offer(strength, a, b, nodes, strengths):  # type: ignore[no-untyped-def]
    """Keep a path if it is among the strongest; of equals the one that came first."""
    k = len(strengths) - 1
    if not strength > strengths[k]:
        return
    while k > 0 and strength > strengths[k - 1]:
        strengths[k] = strengths[k - 1]
        nodes[k, 0], nodes[k, 1] = nodes[k - 1, 0], nodes[k - 1, 1]
        k -= 1
    strengths[k] = strength
    nodes[k, 0], nodes[k, 1] = a, b


@kernel
def strongest_paths(g, weights, users, items, rules, nodes, strengths):  # type: ignore[no-untyped-def]
    """The strongest groundings of a rule for each of some pairs, strongest first.

    ``users`` and ``items`` are entity ids, ``rules`` [pairs, 3] relations, -1 where a rule is
    shorter. Fills ``nodes`` [pairs, paths, 2], the entities between the ends, -1 for none,
    and ``strengths`` [pairs, paths]; where there are fewer paths, strengths are 0.
    """
    home = g.home
    has_origins = len(g.origins) > 0
    for i in range(len(users)):
        u, v, r1, r2, r3 = users[i], items[i], rules[i, 0], rules[i, 1], rules[i, 2]
        last = r3 if r3 >= 0 else r2 if r2 >= 0 else r1
        back, back_end = _segment(g, v, _inverse(last, g.n_relations))
        arrive = _arriving(g, weights, v, last)
        lo, hi = _segment(home, u, r1)
        if r2 < 0:
            e = _first_at_least(home.tails, lo, hi, v)
            if e < hi and home.tails[e] == v and not (has_origins and home.origins[e] == v):
                _offer(_leave(g, weights, u, r1) * arrive, -1, -1, nodes[i], strengths[i])
            continue
        for e in range(lo, hi):
            a = home.tails[e]
            if a == v or (has_origins and home.origins[e] == v):
                continue
            w = _first_hop(weights, r1, e, hi - lo) * arrive
            if r3 < 0:
                j = _first_at_least(g.tails, back, back_end, a)
                known = j < back_end and g.tails[j] == a
                if known and a != u and not (has_origins and g.origins[j] == u):
                    _offer(w * _leave(g, weights, a, r2), a, -1, nodes[i], strengths[i])
                continue
            at, end = _segment(g, a, r2)
            w *= _leave(g, weights, a, r2)
            j, at = _next_common(g.tails, back, back_end, at, end)
            while j < back_end:
                b = g.tails[j]
                if b != u and not (has_origins and g.origins[j] == u):
                    _offer(w * _leave(g, weights, b, r3), a, b, nodes[i], strengths[i])
                j, at = _next_common(g.tails, j + 1, back_end, at + 1, end)
