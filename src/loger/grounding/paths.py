"""The compiled loops over single paths: all paths of a rule, or walks hop by hop.

They never walk what a simple path forbids (METHOD L2), nor a first or last hop over a fact that is
known from the pair alone (METHOD L3).
"""

from __future__ import annotations

import numpy as np

from loger.engine.kernels import kernel
from loger.grounding.steps import (
    arriving,
    fact,
    first_at_least,
    first_hop,
    interacts,
    inverse,
    leave,
    next_common,
    segment,
    supports_itself,
)

# ── several items of one user at once, for rules of three hops ────────────────────────
# To find the paths u → a → b → v of single items, N(a) is intersected with N(v) for each item. When
# the ten items of a list are explained together, N(a) is scanned once instead: every b has a mask
# whose bits say to which of the items it leads. Sums are added up in the same order, so they have
# the same bits.


MOST = 62
"""Cells that share a mask: the bits of a signed number, less two."""
FEWEST = 3
"""For fewer cells it is faster to intersect sorted neighbours one by one."""


@kernel
def run_end(g, users, rules, order, at):  # type: ignore[no-untyped-def]
    """The end of the run of cells of one user and rule that begins at a place in ``order``."""
    i, end = order[at], at + 1
    while end < len(order) and end - at < MOST:
        j = order[end]
        same = users[j] == users[i] and rules[j, 0] == rules[i, 0]
        if not (same and rules[j, 1] == rules[i, 1] and rules[j, 2] == rules[i, 2]):
            break
        end += 1
    return end


@kernel
def walks_together(g, rules, i, n):  # type: ignore[no-untyped-def]
    """Whether n cells with the rule of cell i use masks: the weight of the last fact must not
    depend on the item."""
    return n >= FEWEST and rules[i, 2] >= 0 and not g.weighted[rules[i, 2]]


@kernel
def _mark(g, u, items, rules, cells, masks):  # type: ignore[no-untyped-def]
    """Set the bit of each cell at the entities that lead to its item by the last relation."""
    # Local names: passing the whole graph on at every edge would count references to its arrays.
    has_origins, tails, origins = len(g.origins) > 0, g.tails, g.origins
    for k in range(len(cells)):
        v, r = items[cells[k]], rules[cells[k]]
        if supports_itself(g, u, v, r[0], r[1], r[2]):
            continue
        lo, hi = segment(g, v, inverse(r[2], g.n_relations))
        for j in range(lo, hi):
            b = tails[j]
            if b != u and not (has_origins and origins[j] == u):
                masks[b] |= np.int64(1) << k


@kernel
def _unmark(g, items, rules, cells, masks):  # type: ignore[no-untyped-def]
    """Reset the masks to 0."""
    tails = g.tails
    for i in cells:
        lo, hi = segment(g, items[i], inverse(rules[i, 2], g.n_relations))
        for j in range(lo, hi):
            masks[tails[j]] = 0


@kernel
def _allowed_after(g, e, items, firsts, cells):  # type: ignore[no-untyped-def]
    """The bits of the cells whose paths may begin with the user's edge e."""
    has_origins, bits = len(g.origins) > 0, np.int64(0)
    a, origin = g.home.tails[e], g.home.origins[e] if has_origins else -1
    for k in range(len(cells)):
        v = items[cells[k]]
        if a == v or origin == v:
            continue
        if len(firsts) == 0 or firsts[cells[k]] == a:
            bits |= np.int64(1) << k
    return bits


@kernel
def add_up_together(g, weights, users, items, rules, cells, masks, rows, edges, strengths, counts):  # type: ignore[no-untyped-def]
    """Write the first hops of each cell that have a path, from ``rows[cell]`` on, and move ``rows``
    to where each cell ends."""
    home, n, first = g.home, len(cells), cells[0]
    u, r1, r2, r3 = users[first], rules[first, 0], rules[first, 1], rules[first, 2]
    totals, found = np.zeros(n), np.zeros(n, dtype=np.int64)
    anything = np.empty(0, dtype=np.int64)
    begin = home.segment_starts[home.row_segments[u]]
    tails, facts, weighted = g.tails, g.weights, g.weighted[r2]
    powers, degrees, base = weights.powers[weights.leave[r3]], g.degrees, g.degree_starts[r3]
    lo, hi = segment(home, u, r1)
    _mark(g, u, items, rules, cells, masks)
    for e in range(lo, hi):
        a, bits = home.tails[e], _allowed_after(g, e, items, anything, cells)
        at, end = segment(g, a, r2)
        for j in range(at, end):
            b = tails[j]
            left = masks[b] & bits
            if left == 0:
                continue
            x = powers[degrees[base + b]] * (np.float64(facts[j]) if weighted else 1.0)
            k = 0
            while left > 0:
                if left & 1:
                    totals[k] += x
                    found[k] += 1
                left >>= 1
                k += 1
        w, out = first_hop(g, weights, weights.fades[r2], r1, e, hi - lo), 0.0
        for k in range(n):
            if found[k] == 0:
                continue
            out, i = leave(g, weights, a, r2), cells[k]
            row, arrive = rows[i], arriving(g, weights, items[i], r3)
            edges[row], counts[row] = e - begin, found[k]
            strengths[row] = totals[k] * (w * arrive) * out
            rows[i] += 1
            totals[k], found[k] = 0.0, 0
    _unmark(g, items, rules, cells, masks)


@kernel
def _strongest_together(g, weights, users, items, rules, firsts, cells, masks, nodes, strengths):  # type: ignore[no-untyped-def]
    """Keep the strongest paths of each cell, strongest first; if there are ``firsts``, only those
    that begin with the cell's entity."""
    home, n, first = g.home, len(cells), cells[0]
    u, r1, r2, r3 = users[first], rules[first, 0], rules[first, 1], rules[first, 2]
    tails, facts, weighted = g.tails, g.weights, g.weighted[r2]
    powers, degrees, base = weights.powers[weights.leave[r3]], g.degrees, g.degree_starts[r3]
    lo, hi = segment(home, u, r1)
    _mark(g, u, items, rules, cells, masks)
    hops = np.empty(n)
    for e in range(lo, hi):
        bits = _allowed_after(g, e, items, firsts, cells)
        if bits == 0:
            continue
        a = home.tails[e]
        for k in range(n):
            hops[k] = first_hop(g, weights, weights.fades[r2], r1, e, hi - lo)
            hops[k] *= arriving(g, weights, items[cells[k]], r3) * leave(g, weights, a, r2)
        at, end = segment(g, a, r2)
        for j in range(at, end):
            b = tails[j]
            left = masks[b] & bits
            if left == 0:
                continue
            out, own = powers[degrees[base + b]], np.float64(facts[j]) if weighted else 1.0
            k = 0
            while left > 0:
                if left & 1:
                    _keep_strongest(hops[k] * out * own, a, b, nodes[cells[k]], strengths[cells[k]])
                left >>= 1
                k += 1
    _unmark(g, items, rules, cells, masks)


@kernel
def _keep_strongest(strength, a, b, nodes, strengths):  # type: ignore[no-untyped-def]
    """Keep a path if it is among the strongest; among equals the first one stays."""
    k = len(strengths) - 1
    if not strength > strengths[k]:
        return
    while k > 0 and strength > strengths[k - 1]:
        strengths[k] = strengths[k - 1]
        nodes[k, 0], nodes[k, 1] = nodes[k - 1, 0], nodes[k - 1, 1]
        k -= 1
    strengths[k] = strength
    nodes[k, 0], nodes[k, 1] = a, b


# ── all paths of a rule ─────────────────────────────────────────────────────────────────


@kernel
def each_path(g, weights, u, v, relations, first, wanted, nodes, strengths):  # type: ignore[no-untyped-def]
    """Visit the simple paths of a rule from u to v, in order; return how many were visited.

    ``relations`` [3] has -1 where the rule is shorter, and so has ``nodes`` [paths, 2], the
    entities between the ends. If ``strengths`` [paths] has room, the strongest paths are kept,
    strongest first. If not, the paths at the places ``wanted`` (ascending) are written to
    ``nodes``, and the visit ends with the last of them; if none is wanted, all are counted. Unless
    ``first`` is -1, only paths whose first hop leads to that entity are visited.
    """
    home, has_origins, weighted = g.home, len(g.origins) > 0, len(strengths) > 0
    r1, r2, r3 = relations[0], relations[1], relations[2]
    last = r3 if r3 >= 0 else r2 if r2 >= 0 else r1
    back, back_end = segment(g, v, inverse(last, g.n_relations))
    arrive = arriving(g, weights, v, last) if weighted else 0.0
    lo, hi = segment(home, u, r1)
    degree = hi - lo  # of the user, whichever of the edges are visited
    if first >= 0:
        lo = first_at_least(home.tails, lo, hi, first)
        hi = lo + 1 if lo < hi and home.tails[lo] == first else lo
    w, seen, kept = 0.0, 0, 0
    facts, own2, own3 = g.weights, r2 >= 0 and g.weighted[r2], r3 >= 0 and g.weighted[r3]
    if supports_itself(g, u, v, r1, r2, r3):
        return seen
    if r2 < 0:
        e = first_at_least(home.tails, lo, hi, v)
        if e < hi and home.tails[e] == v and not (has_origins and home.origins[e] == v):
            if weighted:
                w = leave(g, weights, u, r1) * arrive
                if g.weighted[r1]:
                    w *= home.weights[e]
            _keep(w, -1, -1, seen, wanted, kept, nodes, strengths)
            seen += 1
        return seen
    for e in range(lo, hi):
        a = home.tails[e]
        if a == v or (has_origins and home.origins[e] == v):
            continue
        if weighted:
            w = first_hop(g, weights, weights.fades[r2], r1, e, degree)
            w *= arrive * leave(g, weights, a, r2)
        if r3 < 0:
            i = first_at_least(g.tails, back, back_end, a)
            known = i < back_end and g.tails[i] == a
            if known and not (has_origins and g.origins[i] == u):
                strength = w * fact(own2, facts, i) if weighted else 0.0
                kept = _keep(strength, a, -1, seen, wanted, kept, nodes, strengths)
                seen += 1
                if kept == len(wanted) and kept > 0:
                    return seen
            continue
        j, end = segment(g, a, r2)
        i, j = next_common(g.tails, back, back_end, j, end)
        while i < back_end:
            b = g.tails[i]
            if b != u and not (has_origins and g.origins[i] == u):
                strength = 0.0
                if weighted:
                    strength = w * leave(g, weights, b, r3)
                    strength *= fact(own2, facts, j) * fact(own3, facts, i)
                kept = _keep(strength, a, b, seen, wanted, kept, nodes, strengths)
                seen += 1
                if kept == len(wanted) and kept > 0:
                    return seen
            i, j = next_common(g.tails, i + 1, back_end, j + 1, end)
    return seen


@kernel
def _keep(strength, a, b, place, wanted, kept, nodes, strengths):  # type: ignore[no-untyped-def]
    """Keep a path if it is among the strongest, or at a wanted place; return how many wanted paths
    are kept."""
    if len(strengths) > 0:
        _keep_strongest(strength, a, b, nodes, strengths)
    elif kept < len(wanted) and wanted[kept] == place:
        nodes[kept, 0], nodes[kept, 1] = a, b
        kept += 1
    return kept


@kernel
def strongest_paths(g, weights, users, items, relations, firsts, order, masks, nodes, strengths):  # type: ignore[no-untyped-def]
    """The strongest groundings of a rule for each of some pairs, strongest first.

    Row i is the rule over ``relations[i]`` from ``users[i]`` to ``items[i]``, entity ids; only
    paths that lead over ``firsts[i]``, if there are any. ``order`` has the rows of one user and
    rule together, ``masks`` is room, all 0. Fills ``nodes`` [pairs, paths, 2] and ``strengths``
    [pairs, paths]; where there are fewer paths, strengths are 0.
    """
    nothing = np.empty(0, dtype=np.int64)
    at = 0
    while at < len(order):
        end = run_end(g, users, relations, order, at)
        if walks_together(g, relations, order[at], end - at):
            run = order[at:end]
            _strongest_together(
                g, weights, users, items, relations, firsts, run, masks, nodes, strengths
            )
        else:
            for i in order[at:end]:
                first = firsts[i] if len(firsts) > 0 else -1
                u, v, r = users[i], items[i], relations[i]
                each_path(g, weights, u, v, r, first, nothing, nodes[i], strengths[i])
        at = end


@kernel
def nth_paths(g, weights, users, items, relations, places):  # type: ignore[no-untyped-def]
    """For each pair and rule the path at a place among all of its paths; [paths, 4].

    Rows are as of ``strongest_paths``; unused nodes are -1, and so are all nodes but the user
    where there is no path at the place.
    """
    nodes = np.full((len(users), 4), -1, dtype=np.int32)
    middle, nothing = np.empty((1, 2), dtype=np.int32), np.empty(0)
    for i in range(len(users)):
        u, v, r = users[i], items[i], relations[i]
        nodes[i, 0] = u
        if each_path(g, weights, u, v, r, -1, places[i : i + 1], middle, nothing) <= places[i]:
            continue
        k = 1
        for inner in range(2):
            if r[inner + 1] >= 0:
                nodes[i, k] = middle[0, inner]
                k += 1
        nodes[i, k] = v
    return nodes


# ── hop by hop ──────────────────────────────────────────────────────────────────────────


@kernel
def sets_out(g, u, relation, a, v):  # type: ignore[no-untyped-def]
    """Whether u –relation→ a is a fact of the user u that is not known from (u, v) alone."""
    home = g.home
    lo, hi = segment(home, u, relation)
    e = first_at_least(home.tails, lo, hi, a)
    return e < hi and home.tails[e] == a and not (len(home.origins) > 0 and home.origins[e] == v)


@kernel
def leads(g, b, relation, u, v):  # type: ignore[no-untyped-def]
    """Whether b –relation→ v is a fact that is not known from (u, v) alone."""
    lo, hi = segment(g, v, inverse(relation, g.n_relations))
    e = first_at_least(g.tails, lo, hi, b)
    return e < hi and g.tails[e] == b and not (len(g.origins) > 0 and g.origins[e] == u)


@kernel
def _ends(g, tree, node, b, u, v, known):  # type: ignore[no-untyped-def]
    """Whether one hop from b to v ends some rule."""
    for k in range(tree.starts[node], tree.starts[node + 1]):
        if known and g.derived[tree.relations[k]]:
            continue
        if tree.rules[k] >= 0 and leads(g, b, tree.relations[k], u, v):
            return True
    return False


@kernel
def _reaches(g, tree, node, a, u, v, known):  # type: ignore[no-untyped-def]
    """Whether one hop, or two, from a to v end some rule; no derived one if v is known."""
    if _ends(g, tree, node, a, u, v, known):
        return True
    for k in range(tree.starts[node], tree.starts[node + 1]):
        child = tree.nodes[k]
        if child < 0 or (known and g.derived[tree.relations[k]]):
            continue
        lo, hi = segment(g, a, tree.relations[k])
        for j in range(tree.starts[child], tree.starts[child + 1]):
            if tree.rules[j] < 0 or lo == hi or (known and g.derived[tree.relations[j]]):
                continue
            back, end = segment(g, v, inverse(tree.relations[j], g.n_relations))
            i, at = next_common(g.tails, back, end, lo, hi)
            while i < end:
                if g.tails[i] != u and not (len(g.origins) > 0 and g.origins[i] == u):
                    return True
                i, at = next_common(g.tails, i + 1, end, at + 1, hi)
    return False


@kernel
def _put(out, n, row, relation, entity, node, rule):  # type: ignore[no-untyped-def]
    """Write one continuation; the table, twice as large if it was full."""
    if n == len(out):
        larger = np.empty((2 * n, 5), dtype=np.int64)
        larger[:n] = out
        out = larger
    out[n, 0], out[n, 1], out[n, 2], out[n, 3], out[n, 4] = row, relation, entity, node, rule
    return out


@kernel
def _before_last(g, tree, row, k, entity, u, v, known, out, n):  # type: ignore[no-untyped-def]
    """The continuations by a branch after which one hop is left, by intersection with N(v)."""
    child = tree.nodes[k]
    lo, hi = segment(g, entity, tree.relations[k])
    first = tree.starts[child]
    for j in range(first, tree.starts[child + 1]):
        if tree.rules[j] < 0 or lo == hi or (known and g.derived[tree.relations[j]]):
            continue
        back, end = segment(g, v, inverse(tree.relations[j], g.n_relations))
        i, at = next_common(g.tails, back, end, lo, hi)
        while i < end:
            b = g.tails[i]
            new = b != u and not (len(g.origins) > 0 and g.origins[i] == u)
            for other in range(first, j):  # found before, by another last relation
                if known and g.derived[tree.relations[other]]:
                    continue
                if new and tree.rules[other] >= 0:
                    new = not leads(g, b, tree.relations[other], u, v)
            if new:
                out = _put(out, n, row, tree.relations[k], b, child, -1)
                n += 1
            i, at = next_common(g.tails, i + 1, end, at + 1, hi)
    return out, n


@kernel
def continuations(g, tree, u, items, hop, targets, entities, nodes):  # type: ignore[no-untyped-def]
    """All ways on from walks of ``hop`` hops; rows (walk, relation, entity, node, rule).

    Walk i stands at ``entities[i]``, by the prefix ``nodes[i]``, on its way from u to the item
    ``items[targets[i]]``. A way that ends a rule at that item has the rule and node -1. Any other
    has rule -1, and the item can still be reached from there.
    """
    out, n = np.empty((256, 5), dtype=np.int64), 0
    home, has_origins = g.home, len(g.origins) > 0
    for row in range(len(entities)):
        here, v, node = entities[row], items[targets[row]], nodes[row]
        known = interacts(g, u, v)
        for k in range(tree.starts[node], tree.starts[node + 1]):
            r, child = tree.relations[k], tree.nodes[k]
            if known and g.derived[r]:  # made of this interaction among others (L2)
                continue
            ends = tree.rules[k] >= 0
            if ends:
                ends = sets_out(g, u, r, v, v) if hop == 0 else leads(g, here, r, u, v)
            if ends:
                out = _put(out, n, row, r, v, -1, tree.rules[k])
                n += 1
            if child < 0:
                continue
            if hop == 1:  # of three
                out, n = _before_last(g, tree, row, k, here, u, v, known, out, n)
                continue
            lo, hi = segment(home, here, r)
            for e in range(lo, hi):
                b = home.tails[e]
                inner = b != u and b != v and not (has_origins and home.origins[e] == v)
                if inner and _reaches(g, tree, child, b, u, v, known):
                    out = _put(out, n, row, r, b, child, -1)
                    n += 1
    return out[:n].copy()
