"""The compiled loops that reach all items of a user; ``reach`` and ``logits`` call them.

Walks over all rules are spread front by front, entity by entity, to every item that the user has
no edge to. Such an item cannot be an inner node of its own path, so it is enough not to return to
the user; the items that the user has an edge to are grounded as pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.compiled import kernel
from loger.grounding.steps import arriving, first_hop, leave


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
def _set_out(g, weights, s, next_front):  # type: ignore[no-untyped-def]
    """Take the first hops over a user's segment s; the size of the front."""
    home = g.home
    relation = np.int64(home.segment_relations[s])
    lo, hi = home.segment_starts[s], home.segment_starts[s + 1]
    for e in range(lo, hi):
        a = home.tails[e]
        next_front.entities[e - lo], next_front.counts[a] = a, 1
        if len(weights.leave) > 0:
            next_front.weights[a] = first_hop(weights, relation, e, hi - lo)
    return hi - lo


@kernel
def _push(g, weights, relation, avoid, here, n, next_front):  # type: ignore[no-untyped-def]
    """Spread walks over one relation, never onto ``avoid``; the size of the new front."""
    weighted = len(weights.leave) > 0
    size = 0
    for k in range(n):
        a = here.entities[k]
        for s in range(g.row_segments[a], g.row_segments[a + 1]):
            if g.segment_relations[s] != relation:
                continue
            lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
            w = here.weights[a] * leave(g, weights, a, relation) if weighted else 0.0
            for e in range(lo, hi):
                b = g.tails[e]
                if b == avoid:
                    continue
                if next_front.counts[b] == 0:
                    next_front.entities[size] = b
                    size += 1
                next_front.counts[b] += here.counts[a]
                if weighted:
                    next_front.weights[b] += w
    return size


@kernel
def _push_last(g, weights, relation, avoid, here, n, next_front):  # type: ignore[no-untyped-def]
    """Spread walks over the last relation of a rule, onto items."""
    size = _push(g, weights, relation, avoid, here, n, next_front)
    if len(weights.leave) > 0 and weights.into[relation] > 0:
        for k in range(size):
            v = next_front.entities[k]
            next_front.weights[v] *= arriving(g, weights, v, relation)
    return size


@kernel
def _end(g, trie, weights, node, u, first_item, here, n, next_front, reached):  # type: ignore[no-untyped-def]
    """Take the last hops of all rules with this prefix and put down what they reach."""
    for k in range(trie.end_starts[node], trie.end_starts[node + 1]):
        rule = trie.end_rules[k]
        last = trie.end_relations[k]
        size = _push_last(g, weights, last, u, here, n, next_front)
        for i in range(size):
            v = next_front.entities[i]
            if not reached.near[v]:
                reached.sizes[rule] += 1
                if len(reached.counts) > 0:
                    item = v - first_item
                    if not reached.seen[item]:
                        reached.seen[item] = True
                        reached.items[reached.n[0]] = item
                        reached.n[0] += 1
                    reached.counts[item, rule] += next_front.counts[v]
                    if len(reached.strengths) > 0:
                        reached.strengths[item, rule] += next_front.weights[v]
        _clear(next_front, size)


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
        reached_items = np.sort(reached.items[: reached.n[0]])
        sizes[i] = len(reached_items)
        while n_pairs + len(reached_items) + 1 > len(items):
            items, ends = _doubled(items), _doubled(ends)
        while n_cells + reached.sizes.sum() > len(rules):
            rules, counts = _doubled(rules), _doubled(counts)
            if weighted:
                strengths = _doubled(strengths)
        for item in reached_items:
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
def _add_up(g, trie, weights, formula, node, u, first_item, near, here, n, next_front, sums):  # type: ignore[no-untyped-def]
    """Take the last hops of all rules with this prefix and add what they are worth."""
    for k in range(trie.end_starts[node], trie.end_starts[node + 1]):
        rule, last = trie.end_rules[k], trie.end_relations[k]
        w, scale = formula.weights[rule], formula.scales[rule]
        size = _push_last(g, weights, last, u, here, n, next_front)
        for i in range(size):
            v = next_front.entities[i]
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
                sums.above[item] += w * next_front.counts[v]
                sums.below[item] += next_front.counts[v]
            elif formula.feature == COUNT:
                sums.above[item] += w * np.log1p(np.float64(next_front.counts[v]))
            elif formula.feature == WALK:
                sums.above[item] += w * next_front.weights[v] / scale
            else:
                sums.above[item] += w * np.log1p(next_front.weights[v] / scale)
        _clear(next_front, size)


class Workspace(NamedTuple):
    """Room to work in, all zeros before and after a user; one per thread, not one per call."""

    one: Front
    two: Front
    three: Front
    near: NDArray[np.bool_]  # [entities]
    sums: Sums


@kernel
def new_workspace(n_entities, n_items):  # type: ignore[no-untyped-def]
    """Room for ``logit_block``."""
    return Workspace(
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
def logit_block(g, trie, weights, formula, users, first_item, workspace, out):  # type: ignore[no-untyped-def]
    """Write Σ_l w_l φ_l to ``out`` [users, items] for all items that the user has no edge to.

    The same walks as ``_reach``; each rule is added up as soon as it is complete.
    """
    one, two, three, near, sums = workspace
    home = g.home
    for row in range(len(users)):
        u = users[row]
        begin, end = home.row_segments[u], home.row_segments[u + 1]
        neighbours = home.tails[home.segment_starts[begin] : home.segment_starts[end]]
        near[neighbours] = True
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
        near[neighbours] = False
        for k in range(sums.n[0]):
            item = sums.items[k]
            mean = formula.feature <= MULTISET
            out[row, item] = sums.above[item] / sums.below[item] if mean else sums.above[item]
            sums.above[item], sums.below[item], sums.seen[item] = 0.0, 0.0, False
        sums.n[0] = 0
