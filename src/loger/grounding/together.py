"""Compiled loops over several items of one user at once, for rules of three hops.

To look for the paths u → a → b → v of one item after another, N(a) is met with N(v) for each of
them. Where ten items of a list are explained, N(a) is gone through once instead: every b has a
mask that says, bit by bit, to which of the items it leads. Sums are added up in the same order and
are the same to the last bit.
"""

from __future__ import annotations

import numpy as np

from loger.engine.kernels import kernel
from loger.grounding.steps import (
    arriving,
    first_hop,
    inverse,
    leave,
    segment,
    supports_itself,
)

MOST = 62
"""Cells that share a mask: the bits of a signed number but for two."""
FEWEST = 3
"""For fewer it is quicker to meet sorted neighbours one by one."""


@kernel
def run_end(g, users, rules, order, at):  # type: ignore[no-untyped-def]
    """Where the run of cells of one user and rule ends that begins at a place in ``order``."""
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
    """Whether n cells of the rule of cell i go by masks: what the last fact weighs must not depend
    on the item."""
    return n >= FEWEST and rules[i, 2] >= 0 and not g.weighted[rules[i, 2]]


@kernel
def mark(g, u, items, rules, cells, masks):  # type: ignore[no-untyped-def]
    """Set the bit of each cell at the entities that lead to its item by the last relation."""
    # To pass the whole graph on at every edge would count references to all of its arrays there.
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
def unmark(g, items, rules, cells, masks):  # type: ignore[no-untyped-def]
    """Leave the masks as they were."""
    tails = g.tails
    for i in cells:
        lo, hi = segment(g, items[i], inverse(rules[i, 2], g.n_relations))
        for j in range(lo, hi):
            masks[tails[j]] = 0


@kernel
def allowed_after(g, e, items, firsts, cells):  # type: ignore[no-untyped-def]
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
    """Write the first hops of each cell that have a path, from ``rows[cell]`` on; ``rows`` is then
    where each ends."""
    home, n, first = g.home, len(cells), cells[0]
    u, r1, r2, r3 = users[first], rules[first, 0], rules[first, 1], rules[first, 2]
    totals, found = np.zeros(n), np.zeros(n, dtype=np.int64)
    anything = np.empty(0, dtype=np.int64)
    begin = home.segment_starts[home.row_segments[u]]
    tails, facts, weighted = g.tails, g.weights, g.weighted[r2]
    powers, degrees, base = weights.powers[weights.leave[r3]], g.degrees, g.degree_starts[r3]
    lo, hi = segment(home, u, r1)
    mark(g, u, items, rules, cells, masks)
    for e in range(lo, hi):
        a, bits = home.tails[e], allowed_after(g, e, items, anything, cells)
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
    unmark(g, items, rules, cells, masks)


@kernel
def strongest_together(g, weights, users, items, rules, firsts, cells, masks, nodes, strengths):  # type: ignore[no-untyped-def]
    """Keep the strongest paths of each cell, strongest first; if there are ``firsts``, only those
    that begin with the cell's entity."""
    home, n, first = g.home, len(cells), cells[0]
    u, r1, r2, r3 = users[first], rules[first, 0], rules[first, 1], rules[first, 2]
    tails, facts, weighted = g.tails, g.weights, g.weighted[r2]
    powers, degrees, base = weights.powers[weights.leave[r3]], g.degrees, g.degree_starts[r3]
    lo, hi = segment(home, u, r1)
    mark(g, u, items, rules, cells, masks)
    hops = np.empty(n)
    for e in range(lo, hi):
        bits = allowed_after(g, e, items, firsts, cells)
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
                    keep_strongest(hops[k] * out * own, a, b, nodes[cells[k]], strengths[cells[k]])
                left >>= 1
                k += 1
    unmark(g, items, rules, cells, masks)


@kernel
def keep_strongest(strength, a, b, nodes, strengths):  # type: ignore[no-untyped-def]
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
