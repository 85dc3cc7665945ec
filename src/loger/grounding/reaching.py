"""The compiled loops that walk from a user to all items: the steps, and the logits of all items.

Walks over all rules are spread front by front, entity by entity, to every item that the user has
no edge to. Such an item cannot be an inner node of its own path, so it is enough not to return to
the user; the items that the user has an edge to are grounded as pairs. ``choosing`` takes the same
steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.engine.kernels import kernel
from loger.grounding.steps import (
    arriving,
    fetch,
    first_hop,
    inverse,
    leave,
    log_from_1,
    lowest,
)


class Front(NamedTuple):
    """Where walks stand: entities, and for all entities how many walks of what weight."""

    entities: NDArray[np.int32]
    counts: NDArray[np.int64]
    weights: NDArray[np.float64]


@kernel
def new_front(n_entities, weighted):  # type: ignore[no-untyped-def]
    """An empty front."""
    return Front(
        np.empty(n_entities, dtype=np.int32),
        np.zeros(n_entities, dtype=np.int64),
        np.zeros(n_entities if weighted else 1),
    )


@kernel
def set_out(g, weights, fade, s, next_front):  # type: ignore[no-untyped-def]
    """Take the first hops over a user's segment s and return the size of the front. ``fade`` is the
    row of ``weights.edges`` that says how interactions fade."""
    home = g.home
    relation = np.int64(home.segment_relations[s])
    lo, hi = home.segment_starts[s], home.segment_starts[s + 1]
    for e in range(lo, hi):
        a = home.tails[e]
        next_front.entities[e - lo], next_front.counts[a] = a, 1
        if len(weights.leave) > 0:
            next_front.weights[a] = first_hop(g, weights, fade, relation, e, hi - lo)
    return hi - lo


@kernel
def push(g, weights, relation, avoid, here, n, next_front):  # type: ignore[no-untyped-def]
    """Spread walks over one relation, never onto ``avoid``; return the size of the new front."""
    weighted = len(weights.leave) > 0
    size = 0
    # Local names: passing the whole graph on at every edge would count references to its arrays.
    tails, own_weights, facts = g.tails, g.weighted[relation], g.weights
    entities, counts, strengths = next_front.entities, next_front.counts, next_front.weights
    for k in range(n):
        a = here.entities[k]
        for s in range(g.row_segments[a], g.row_segments[a + 1]):
            if g.segment_relations[s] != relation:
                continue
            lo, hi = g.segment_starts[s], g.segment_starts[s + 1]
            w = here.weights[a] * leave(g, weights, a, relation) if weighted else 0.0
            n_walks = here.counts[a]
            for e in range(lo, hi):
                b = tails[e]
                if b == avoid:
                    continue
                if counts[b] == 0:
                    entities[size] = b
                    size += 1
                counts[b] += n_walks
                if own_weights and weighted:
                    strengths[b] += w * facts[e]
                elif weighted:
                    strengths[b] += w
    return size


@kernel
def push_last(g, weights, relation, avoid, here, n, next_front):  # type: ignore[no-untyped-def]
    """Spread walks over the last relation of a rule, onto items."""
    size = push(g, weights, relation, avoid, here, n, next_front)
    if len(weights.leave) > 0 and weights.into[relation] > 0:
        for k in range(size):
            v = next_front.entities[k]
            next_front.weights[v] *= arriving(g, weights, v, relation)
    return size


@kernel
def clear(front, n):  # type: ignore[no-untyped-def]
    """Reset a front of n entities."""
    for k in range(n):
        front.counts[front.entities[k]] = 0
        if len(front.weights) > 1:
            front.weights[front.entities[k]] = 0.0


# ── the logit of all items of a user ────────────────────────────────────────────────────

SET, MULTISET, COUNT, WALK, LOGWALK = range(5)
"""The features of METHOD 5 and the logarithm of ``walk``, in the order of ``logic.FEATURES``."""


STRETCH, AHEAD = 128, 16
"""Entities whose edges are looked up at a time, and how far ahead they are prefetched."""
PACKED = 1024
"""Items of a rule that are added up at a time."""


class Formula(NamedTuple):
    """Σ_l w_l φ_l, as the loops read it."""

    feature: int
    weights: NDArray[np.float64]  # [rules]
    scales: NDArray[np.float64]  # [rules]: the strength that is one unit of ``walk``


class Crowd(NamedTuple):
    """Where walks stand, and for all entities the strength or the number of walks there. It is one
    array, not two as in ``Front``, because in a large graph cache misses are what walks cost."""

    entities: NDArray[np.int32]
    amounts: NDArray[np.float64]


class Ways(NamedTuple):
    """The edges that lead on from each entity of a stretch, and the worth of a walk over one."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    worth: NDArray[np.float64]


class Workspace(NamedTuple):
    """Scratch space, all zeros before and after a user; one per thread, not one per call."""

    one: Crowd
    two: Crowd
    three: Crowd
    above: NDArray[np.float64]  # [items]: Σ w φ, before a mean is taken
    below: NDArray[np.float64]  # [items]: the divisor where φ is a mean
    touched: NDArray[np.uint64]  # a bit per item: did a walk of the current rule reach it?
    packed: Crowd  # some of the items that the current rule reached, without gaps
    ways: Ways


def new_workspace(n_entities: int, n_items: int) -> Workspace:
    """A workspace for ``logit_block``. NumPy makes it, not a kernel, because NumPy asks for large
    memory pages: looking up a small page takes as long as reading from it."""

    def crowd() -> Crowd:
        return Crowd(np.empty(n_entities, dtype=np.int32), np.zeros(n_entities))

    begin, end = np.empty((2, STRETCH), dtype=np.int64)
    ways = Ways(begin, end, np.empty(STRETCH))
    touched = np.zeros(-(-n_items // 64), dtype=np.uint64)
    packed = Crowd(np.empty(PACKED, dtype=np.int32), np.empty(PACKED))
    sums = np.zeros(n_items), np.zeros(n_items)
    return Workspace(crowd(), crowd(), crowd(), *sums, touched, packed, ways)


@kernel
def _start(g, weights, weighted, fade, s, there):  # type: ignore[no-untyped-def]
    """As ``set_out``."""
    home = g.home
    relation = np.int64(home.segment_relations[s])
    lo, hi = home.segment_starts[s], home.segment_starts[s + 1]
    for e in range(lo, hi):
        a = home.tails[e]
        there.entities[e - lo] = a
        there.amounts[a] = first_hop(g, weights, fade, relation, e, hi - lo) if weighted else 1.0
    return hi - lo


@kernel
def _spread(g, weights, weighted, relation, avoid, here, n, there):  # type: ignore[no-untyped-def]
    """As ``push``. An amount of 0 means that no walk is there yet, so amounts of 0 are skipped."""
    size = 0
    tails, facts, of_facts = g.tails, g.weights, weighted and g.weighted[relation]
    entities, amounts = there.entities, there.amounts
    for k in range(n):
        a = here.entities[k]
        for s in range(g.row_segments[a], g.row_segments[a + 1]):
            if g.segment_relations[s] != relation:
                continue
            w = here.amounts[a]
            if weighted:
                w *= leave(g, weights, a, relation)
            for e in range(g.segment_starts[s], g.segment_starts[s + 1]):
                b, x = tails[e], w * facts[e] if of_facts else w
                if b == avoid or x == 0.0:
                    continue
                if amounts[b] == 0.0:  # the first walk that comes here
                    entities[size] = b
                    size += 1
                amounts[b] += x
    return size


@kernel
def _find_ways(g, spans, weights, relation, here, start, n, ways):  # type: ignore[no-untyped-def]
    """Look up the edges of a stretch of a crowd and what each is worth; return its length.

    In a large graph hardly any of this is in the cache, so it is prefetched some entities ahead.
    So are the first and the last edge: few entities have edges in more than two cache lines.
    """
    edges, first, tails = spans.edges, spans.starts[relation], g.tails
    entities, degrees, base = here.entities, g.degrees, g.degree_starts[relation]
    end = min(start + STRETCH, n)
    for k in range(start, end):
        if k + AHEAD < n:
            a = entities[k + AHEAD]
            fetch(edges, 2 * (first + a))
            fetch(degrees, base + a)
            fetch(here.amounts, a)
        a, i = entities[k], k - start
        at = 2 * (first + a)
        ways.worth[i] = here.amounts[a] * leave(g, weights, a, relation)
        ways.begin[i], ways.end[i] = edges[at], edges[at + 1]
        fetch(tails, ways.begin[i])
        fetch(tails, ways.end[i] - 1)
    return end - start


@kernel
def _pour(g, spans, weights, relation, here, n, first_item, amounts, work):  # type: ignore[no-untyped-def]
    """As ``_spread``, onto items. A bit notes that an item was reached, whatever it had before, so
    that no branch depends on an amount that is not in the cache yet."""
    tails, facts, of_facts = g.tails, g.weights, g.weighted[relation]
    ways, touched = work.ways, work.touched
    for start in range(0, n, STRETCH):
        for i in range(_find_ways(g, spans, weights, relation, here, start, n, ways)):
            w = ways.worth[i]
            for e in range(ways.begin[i], ways.end[i]):
                v = np.uint64(tails[e] - first_item)  # unsigned: numba need not look for negatives
                amounts[v] += w * facts[e] if of_facts else w
                touched[v >> np.uint64(6)] |= np.uint64(1) << (v & np.uint64(63))


@kernel
def _leave_all(crowd, n):  # type: ignore[no-untyped-def]
    """Reset a crowd of n entities."""
    for k in range(n):
        crowd.amounts[crowd.entities[k]] = 0.0


@kernel(error_model="numpy")
def _add_strengths(g, weights, last, w, scale, logarithm, first_item, amounts, work):  # type: ignore[no-untyped-def]
    """Add what a rule contributes, by the strength of its walks, and reset the items.

    Items are packed first, so that the work grows with what was reached, not with the catalogue,
    and the compiler handles several of them at a time.
    """
    touched, packed = work.touched, work.packed
    items, values = packed.entities, packed.amounts
    unit, arrives = 1.0 / scale, len(weights.into) > 0 and weights.into[last] > 0
    powers = weights.powers[weights.into[last]] if arrives else weights.powers[0]
    degrees, first = g.degrees, g.degree_starts[inverse(last, g.n_relations)] + first_item
    n = 0
    for word in range(len(touched)):
        bits = touched[word]  # the items that were reached, without a look at the others
        touched[word] = 0
        while bits != 0:
            v = (word << 6) + lowest(bits)
            bits &= bits - np.uint64(1)
            items[n], values[n] = v, amounts[v]
            amounts[v] = 0.0
            n += 1
        # A word may add 64 items, so they are added up while there is still room for those.
        if n > len(items) - 64 or word == len(touched) - 1:
            for k in range(n):
                x = values[k]
                values[k] = x * (powers[degrees[first + items[k]]] * unit) if arrives else x * unit
            for k in range(n):
                values[k] = w * (log_from_1(1.0 + values[k]) if logarithm else values[k])
            for k in range(n):
                work.above[items[k]] += values[k]
            n = 0


@kernel
def _add_counts(feature, w, first_item, n, work):  # type: ignore[no-untyped-def]
    """Add what a rule contributes, by the number of its walks, and reset the items."""
    (items, amounts), above, below = work.three, work.above, work.below
    for i in range(n):
        v = items[i]
        item = v - first_item
        if feature == SET:
            above[item] += w
            below[item] += 1
        elif feature == MULTISET:
            above[item] += w * amounts[v]
            below[item] += amounts[v]
        else:
            above[item] += w * np.log1p(amounts[v])
    _leave_all(work.three, n)


@kernel
def _add_up(g, spans, trie, weights, formula, n_items, node, u, first_item, here, n, work):  # type: ignore[no-untyped-def]
    """Take the last hops of all rules with this prefix and add what they contribute."""
    feature = formula.feature
    weighted = feature >= WALK
    for k in range(trie.end_starts[node], trie.end_starts[node + 1]):
        rule, last = trie.end_rules[k], trie.end_relations[k]
        w, scale = formula.weights[rule], formula.scales[rule]
        if w == 0.0 and feature > MULTISET:
            continue  # it adds nothing, except to the divisor of a mean
        if weighted:
            amounts = work.three.amounts[first_item : first_item + n_items]
            _pour(g, spans, weights, last, here, n, first_item, amounts, work)
            logarithm = feature == LOGWALK
            _add_strengths(g, weights, last, w, scale, logarithm, first_item, amounts, work)
        else:
            size = _spread(g, weights, weighted, last, u, here, n, work.three)
            _add_counts(feature, w, first_item, size, work)


@kernel
def logit_block(g, trie, weights, spans, formula, users, first_item, work, out):  # type: ignore[no-untyped-def]
    """Write Σ_l w_l φ_l to ``out`` [users, items] for all items that the user has no edge to.

    Each rule is added up as soon as its walks are complete.
    """
    one, two, home, weighted = work.one, work.two, g.home, formula.feature >= WALK
    n_items = out.shape[1]
    for row in range(len(users)):
        u = users[row]
        begin, end = home.row_segments[u], home.row_segments[u + 1]
        for s in range(begin, end):
            for fade in range(len(trie.root)):
                node = trie.root[fade, np.int64(home.segment_relations[s])]
                if node < 0:
                    continue
                n = _start(g, weights, weighted, fade, s, one)
                _add_up(
                    g, spans, trie, weights, formula, n_items, node, u, first_item, one, n, work
                )
                for c in range(trie.child_starts[node], trie.child_starts[node + 1]):
                    relation, to = trie.child_relations[c], trie.child_nodes[c]
                    m = _spread(g, weights, weighted, relation, u, one, n, two)
                    _add_up(
                        g, spans, trie, weights, formula, n_items, to, u, first_item, two, m, work
                    )
                    _leave_all(two, m)
                _leave_all(one, n)
        # Items that the user has an edge to could be inner nodes of their own paths: ``ground``
        # scores them.
        for v in home.tails[home.segment_starts[begin] : home.segment_starts[end]]:
            if first_item <= v < first_item + out.shape[1]:
                work.above[v - first_item] = work.below[v - first_item] = 0.0
        _write(formula.feature <= MULTISET, work, out[row])


@kernel
def _write(mean, work, out):  # type: ignore[no-untyped-def]
    """Write a user's sums, or means, to a row of items and reset the workspace."""
    for item in range(len(out)):
        x = work.above[item]
        if mean and work.below[item] > 0:
            x /= work.below[item]
            work.below[item] = 0.0
        out[item] = x
        work.above[item] = 0.0
