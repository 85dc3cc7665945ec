"""The compiled loops that go through single paths: all of a rule, or hop by hop.

What a simple path forbids, or what only the pair itself is witness of (METHOD L2, L3), is never
walked: the first hop is not a fact known from the pair alone, nor is the last.
"""

from __future__ import annotations

import numpy as np

from loger.compiled import kernel
from loger.grounding.steps import (
    arriving,
    first_at_least,
    first_hop,
    inverse,
    leave,
    next_common,
    segment,
)

# ── all paths of a rule ─────────────────────────────────────────────────────────────────


@kernel
def each_path(g, weights, u, v, relations, wanted, nodes, strengths):  # type: ignore[no-untyped-def]
    """Go through the simple paths of a rule from u to v, in order; how many were seen.

    ``relations`` [3] has -1 where the rule is shorter, and so have ``nodes`` [paths, 2], the
    entities between the ends. With room in ``strengths`` [paths] the strongest paths are kept,
    strongest first. Without, paths at the places ``wanted`` (ascending) are written to ``nodes``,
    and no more are looked at when all of these are there; if none is wanted, paths are counted.
    """
    home, has_origins, weighted = g.home, len(g.origins) > 0, len(strengths) > 0
    r1, r2, r3 = relations[0], relations[1], relations[2]
    last = r3 if r3 >= 0 else r2 if r2 >= 0 else r1
    back, back_end = segment(g, v, inverse(last, g.n_relations))
    arrive = arriving(g, weights, v, last) if weighted else 0.0
    lo, hi = segment(home, u, r1)
    w, seen, kept = 0.0, 0, 0
    if r2 < 0:
        e = first_at_least(home.tails, lo, hi, v)
        if e < hi and home.tails[e] == v and not (has_origins and home.origins[e] == v):
            if weighted:
                w = leave(g, weights, u, r1) * arrive
            _keep(w, -1, -1, seen, wanted, kept, nodes, strengths)
            seen += 1
        return seen
    for e in range(lo, hi):
        a = home.tails[e]
        if a == v or (has_origins and home.origins[e] == v):
            continue
        if weighted:
            w = first_hop(weights, r1, e, hi - lo) * arrive * leave(g, weights, a, r2)
        if r3 < 0:
            i = first_at_least(g.tails, back, back_end, a)
            known = i < back_end and g.tails[i] == a
            if known and not (has_origins and g.origins[i] == u):
                kept = _keep(w, a, -1, seen, wanted, kept, nodes, strengths)
                seen += 1
                if kept == len(wanted) and kept > 0:
                    return seen
            continue
        j, end = segment(g, a, r2)
        i, j = next_common(g.tails, back, back_end, j, end)
        while i < back_end:
            b = g.tails[i]
            if b != u and not (has_origins and g.origins[i] == u):
                strength = w * leave(g, weights, b, r3) if weighted else 0.0
                kept = _keep(strength, a, b, seen, wanted, kept, nodes, strengths)
                seen += 1
                if kept == len(wanted) and kept > 0:
                    return seen
            i, j = next_common(g.tails, i + 1, back_end, j + 1, end)
    return seen


@kernel
def _keep(strength, a, b, place, wanted, kept, nodes, strengths):  # type: ignore[no-untyped-def]
    """Keep a path if it is among the strongest, or at a place that is wanted; how many of the
    wanted ones there are then."""
    if len(strengths) > 0:
        offer(strength, a, b, nodes, strengths)
    elif kept < len(wanted) and wanted[kept] == place:
        nodes[kept, 0], nodes[kept, 1] = a, b
        kept += 1
    return kept


@kernel
def offer(strength, a, b, nodes, strengths):  # type: ignore[no-untyped-def]
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
def strongest_paths(g, weights, users, items, relations, nodes, strengths):  # type: ignore[no-untyped-def]
    """The strongest groundings of a rule for each of some pairs, strongest first.

    Row i is the rule over ``relations[i]`` from ``users[i]`` to ``items[i]``, entity ids. Fills
    ``nodes`` [pairs, paths, 2] and ``strengths`` [pairs, paths]; where there are fewer paths,
    strengths are 0.
    """
    nothing = np.empty(0, dtype=np.int64)
    for i in range(len(users)):
        each_path(g, weights, users[i], items[i], relations[i], nothing, nodes[i], strengths[i])


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
        if each_path(g, weights, u, v, r, places[i : i + 1], middle, nothing) <= places[i]:
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
def _ends(g, tree, node, b, u, v):  # type: ignore[no-untyped-def]
    """Whether one hop from b to v ends some rule."""
    for k in range(tree.starts[node], tree.starts[node + 1]):
        if tree.rules[k] >= 0 and leads(g, b, tree.relations[k], u, v):
            return True
    return False


@kernel
def _reaches(g, tree, node, a, u, v):  # type: ignore[no-untyped-def]
    """Whether one hop, or two, from a to v end some rule."""
    if _ends(g, tree, node, a, u, v):
        return True
    for k in range(tree.starts[node], tree.starts[node + 1]):
        child = tree.nodes[k]
        if child < 0:
            continue
        lo, hi = segment(g, a, tree.relations[k])
        for j in range(tree.starts[child], tree.starts[child + 1]):
            if tree.rules[j] < 0 or lo == hi:
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
def _before_last(g, tree, row, k, entity, u, v, out, n):  # type: ignore[no-untyped-def]
    """The continuations by a branch after which one hop is left, by intersection with N(v)."""
    child = tree.nodes[k]
    lo, hi = segment(g, entity, tree.relations[k])
    first = tree.starts[child]
    for j in range(first, tree.starts[child + 1]):
        if tree.rules[j] < 0 or lo == hi:
            continue
        back, end = segment(g, v, inverse(tree.relations[j], g.n_relations))
        i, at = next_common(g.tails, back, end, lo, hi)
        while i < end:
            b = g.tails[i]
            new = b != u and not (len(g.origins) > 0 and g.origins[i] == u)
            for other in range(first, j):  # found before, by another last relation
                if new and tree.rules[other] >= 0:
                    new = not leads(g, b, tree.relations[other], u, v)
            if new:
                out = _put(out, n, row, tree.relations[k], b, child, -1)
                n += 1
            i, at = next_common(g.tails, i + 1, end, at + 1, hi)
    return out, n


@kernel
def continuations(g, tree, u, items, hop, targets, entities, nodes, reach):  # type: ignore[no-untyped-def]
    """All ways on from walks of ``hop`` hops; rows (walk, relation, entity, node, rule).

    Walk i stands at ``entities[i]``, by the prefix ``nodes[i]``, on its way from u to the item
    ``items[targets[i]]``. A way that ends a rule at that item has the rule and node -1, any
    other has rule -1. With ``reach`` only ways from which the item can be reached are given.
    """
    out, n = np.empty((256, 5), dtype=np.int64), 0
    home, has_origins = g.home, len(g.origins) > 0
    for row in range(len(entities)):
        here, v, node = entities[row], items[targets[row]], nodes[row]
        for k in range(tree.starts[node], tree.starts[node + 1]):
            r, child = tree.relations[k], tree.nodes[k]
            ends = tree.rules[k] >= 0
            if ends:
                ends = sets_out(g, u, r, v, v) if hop == 0 else leads(g, here, r, u, v)
            if ends:
                out = _put(out, n, row, r, v, -1, tree.rules[k])
                n += 1
            if child < 0:
                continue
            if reach and hop == 1:
                out, n = _before_last(g, tree, row, k, here, u, v, out, n)
                continue
            if hop == 0:
                lo, hi = segment(home, here, r)
            else:
                lo, hi = segment(g, here, r)
            for e in range(lo, hi):
                b = home.tails[e] if hop == 0 else g.tails[e]
                inner = b != u and b != v
                if hop == 0 and has_origins and home.origins[e] == v:
                    inner = False
                if inner and (not reach or _reaches(g, tree, child, b, u, v)):
                    out = _put(out, n, row, r, b, child, -1)
                    n += 1
    return out[:n].copy()
