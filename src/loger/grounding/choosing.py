"""The compiled loop that collects what rules reach from users: all of it, or the best by each rule.

The walks are those of ``reaching``. What they reach is recorded rule by rule, as it comes. When a
user is done, the items that are among the best of some rule are looked up in these records, so
only they are ever sorted and held, with the groundings of all rules.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.engine.kernels import kernel
from loger.grounding.reaching import Front, clear, new_front, push, push_last, set_out

ROOM = 4
"""Up to this many times the wanted items are kept before they are cut down."""


class Reached(NamedTuple):
    """Cells of groundings; ``items`` is unused where rows already name the item."""

    items: NDArray[np.int32]
    counts: NDArray[np.int64]
    strengths: NDArray[np.float64]  # empty if only counts are asked for


class Near(NamedTuple):
    """Groundings of the items that users have an edge to, by user, then by rule."""

    rows: NDArray[np.int64]  # [users of the block]: the row of each in ``starts``
    starts: NDArray[np.int64]  # [rows · rules + 1]
    cells: Reached


class Wanted(NamedTuple):
    """Which of the reached items are kept."""

    most: NDArray[np.int64]  # [rules]: how many of the strongest by each rule
    also: NDArray[np.int32]  # [users, any]: more items, reached or not; -1 is none


class _Space(NamedTuple):
    """Scratch space, in the same state before and after each user."""

    one: Front
    two: Front
    three: Front
    near: NDArray[np.bool_]  # [entities]
    spans: NDArray[np.int64]  # [rules, 2]: where the records of each rule begin and end
    place: NDArray[np.int32]  # [items]: a kept item's place among the user's, else -1
    kept: NDArray[np.int32]  # [items]: the items kept
    best: NDArray[np.int32]  # items that may be among the best of a rule, …
    values: NDArray[np.float64]  # … and their strengths


@kernel
def _new_space(n_entities, n_items, n_rules, most, weighted):  # type: ignore[no-untyped-def]
    return _Space(
        new_front(n_entities, weighted),
        new_front(n_entities, weighted),
        new_front(n_entities, weighted),
        np.zeros(n_entities, dtype=np.bool_),
        np.zeros((n_rules, 2), dtype=np.int64),
        np.full(n_items, -1, dtype=np.int32),
        np.empty(n_items, dtype=np.int32),
        np.empty(ROOM * most, dtype=np.int32),
        np.empty(ROOM * most),
    )


# ── walking ─────────────────────────────────────────────────────────────────────────────


@kernel
def _doubled(array, n):  # type: ignore[no-untyped-def]
    """The array, or a longer one that begins with it if it has no room for n."""
    if n <= len(array):
        return array
    out = np.empty(max(n, 2 * len(array)), dtype=array.dtype)
    out[: len(array)] = array
    return out


@kernel
def _nothing(weighted):  # type: ignore[no-untyped-def]
    return Reached(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(1 if weighted else 0))


@kernel
def _with_room(cells, n):  # type: ignore[no-untyped-def]
    """The cells with room for n in all."""
    return Reached(
        _doubled(cells.items, n),
        _doubled(cells.counts, n),
        _doubled(cells.strengths, n if len(cells.strengths) > 0 else 0),
    )


@kernel
def _end(g, trie, weights, node, u, first_item, here, n, space, cells, n_cells):  # type: ignore[no-untyped-def]
    """Take the last hops of all rules with this prefix and record what they reach."""
    near, front = space.near, space.three
    weighted = len(weights.leave) > 0
    for k in range(trie.end_starts[node], trie.end_starts[node + 1]):
        size = push_last(g, weights, trie.end_relations[k], u, here, n, front)
        cells = _with_room(cells, n_cells + size)
        rule = trie.end_rules[k]
        space.spans[rule, 0] = n_cells
        for i in range(size):
            v = front.entities[i]
            if not near[v]:
                cells.items[n_cells], cells.counts[n_cells] = v - first_item, front.counts[v]
                if weighted:
                    cells.strengths[n_cells] = front.weights[v]
                n_cells += 1
        space.spans[rule, 1] = n_cells
        clear(front, size)
    return cells, n_cells


@kernel
def _walk(g, trie, weights, u, first_item, space, cells):  # type: ignore[no-untyped-def]
    """Record what all rules reach from a user, except items that the user has an edge to."""
    home, n_cells = g.home, 0
    space.spans[:] = 0
    begin, end = home.row_segments[u], home.row_segments[u + 1]
    neighbours = home.tails[home.segment_starts[begin] : home.segment_starts[end]]
    space.near[neighbours] = True
    for s in range(begin, end):
        for fade in range(len(trie.root)):
            node = trie.root[fade, np.int64(home.segment_relations[s])]
            if node < 0:
                continue
            n = set_out(g, weights, fade, s, space.one)
            cells, n_cells = _end(
                g, trie, weights, node, u, first_item, space.one, n, space, cells, n_cells
            )
            for c in range(trie.child_starts[node], trie.child_starts[node + 1]):
                m = push(g, weights, trie.child_relations[c], u, space.one, n, space.two)
                to = trie.child_nodes[c]
                cells, n_cells = _end(
                    g, trie, weights, to, u, first_item, space.two, m, space, cells, n_cells
                )
                clear(space.two, m)
            clear(space.one, n)
    space.near[neighbours] = False
    return cells


# ── choosing ────────────────────────────────────────────────────────────────────────────


@kernel
def _cut_down(items, values, size, k):  # type: ignore[no-untyped-def]
    """Move the k best to the front, ties by the lower item; return the value and item of the last
    of them."""
    bar = np.partition(values[:size], size - k)[size - k]
    free = k
    for j in range(size):
        free -= values[j] > bar
    tied = np.sort(items[:size][values[:size] == bar])
    last, kept = tied[free - 1], 0
    for j in range(size):
        if values[j] > bar or (values[j] == bar and items[j] <= last):
            items[kept], values[kept] = items[j], values[j]
            kept += 1
    return bar, last


@kernel
def _offer(cells, lo, hi, k, state, items, values):  # type: ignore[no-untyped-def]
    """Consider more cells; ``state`` is how many are kept and, once k are, the last of them."""
    size, bar, last = state
    for j in range(lo, hi):
        x = cells.strengths[j]
        if x > bar or (x == bar and cells.items[j] < last):
            items[size], values[size] = cells.items[j], x
            size += 1
            if size == ROOM * k:
                bar, last = _cut_down(items, values, size, k)
                size = k
    return size, bar, last


@kernel
def _keep(item, n, space):  # type: ignore[no-untyped-def]
    """Keep an item, once."""
    if space.place[item] < 0:
        space.place[item] = 0
        space.kept[n] = item
        return n + 1
    return n


@kernel
def _choose(row, wanted, near, cells, space):  # type: ignore[no-untyped-def]
    """Choose a user's items, sort them and give each its place; return how many there are."""
    n, n_rules = 0, len(wanted.most)
    for rule in range(n_rules):
        k, (lo, hi) = wanted.most[rule], space.spans[rule]
        at = near.rows[row] * n_rules + rule
        near_lo, near_hi = near.starts[at], near.starts[at + 1]
        if hi - lo + near_hi - near_lo <= k:  # the rule reaches no more than it may keep
            for j in range(lo, hi):
                n = _keep(cells.items[j], n, space)
            for j in range(near_lo, near_hi):
                n = _keep(near.cells.items[j], n, space)
        elif k > 0:
            state = _offer(cells, lo, hi, k, (0, -np.inf, 0), space.best, space.values)
            state = _offer(near.cells, near_lo, near_hi, k, state, space.best, space.values)
            if state[0] > k:
                _cut_down(space.best, space.values, state[0], k)
            for j in range(k):
                n = _keep(space.best[j], n, space)
    for item in wanted.also[row]:
        if item >= 0:
            n = _keep(item, n, space)
    space.kept[:n].sort()
    for j in range(n):
        space.place[space.kept[j]] = j
    return n


@kernel
def _sizes(row, near, cells, space, n):  # type: ignore[no-untyped-def]
    """How many rules fire for each of the n kept items."""
    out, n_rules = np.zeros(n, dtype=np.int64), len(space.spans)
    for rule in range(n_rules):
        for j in range(space.spans[rule, 0], space.spans[rule, 1]):
            if space.place[cells.items[j]] >= 0:
                out[space.place[cells.items[j]]] += 1
    at = near.rows[row] * n_rules
    for j in range(near.starts[at], near.starts[at + n_rules]):
        if space.place[near.cells.items[j]] >= 0:
            out[space.place[near.cells.items[j]]] += 1
    return out


@kernel
def _fill(cells, lo, hi, rule, place, free, rules, found):  # type: ignore[no-untyped-def]
    """Write the cells of kept items, each at its item's next free place."""
    for j in range(lo, hi):
        at = place[cells.items[j]]
        if at >= 0:
            rules[free[at]], found.counts[free[at]] = rule, cells.counts[j]
            if len(found.strengths) > 0:
                found.strengths[free[at]] = cells.strengths[j]
            free[at] += 1


@kernel
def _fill_all(row, near, cells, space, free, rules, found):  # type: ignore[no-untyped-def]
    """Write the cells of the kept items, rules ascending."""
    n_rules = len(space.spans)
    for rule in range(n_rules):
        lo, hi = space.spans[rule]
        _fill(cells, lo, hi, rule, space.place, free, rules, found)
        at = near.rows[row] * n_rules + rule
        lo, hi = near.starts[at], near.starts[at + 1]
        _fill(near.cells, lo, hi, rule, space.place, free, rules, found)


@kernel
def choose_block(g, trie, weights, users, first_item, n_items, near, wanted):  # type: ignore[no-untyped-def]
    """The wanted items of a block of users, with the groundings of all rules.

    Returns (items per user, items, row ends, rules, counts, strengths).
    """
    weighted, most = len(weights.leave) > 0, 1
    for k in wanted.most:  # a rule that keeps everything needs no room to be cut down
        most = max(most, k) if k < n_items else most
    space = _new_space(len(g.indptr) - 1, n_items, trie.n_rules, most, weighted)
    cells, found = _with_room(_nothing(weighted), 4096), _nothing(weighted)
    rules, ends = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
    items, sizes, n_pairs = found.items, np.zeros(len(users), dtype=np.int64), 0
    for i in range(len(users)):
        cells = _walk(g, trie, weights, users[i], first_item, space, cells)
        n = _choose(i, wanted, near, cells, space)
        items, ends = _doubled(items, n_pairs + n), _doubled(ends, n_pairs + n + 1)
        items[n_pairs : n_pairs + n] = space.kept[:n]
        fired = _sizes(i, near, cells, space, n)
        for j in range(n):
            ends[n_pairs + j + 1] = ends[n_pairs + j] + fired[j]
        free = ends[n_pairs : n_pairs + n].copy()
        sizes[i] = n  # rules fill the rows one by one, so rules ascend within a row
        n_pairs += n
        rules, found = _doubled(rules, ends[n_pairs]), _with_room(found, ends[n_pairs])
        _fill_all(i, near, cells, space, free, rules, found)
        space.place[space.kept[:n]] = -1
    held = ends[n_pairs]
    strengths = found.strengths[: held if weighted else 0].copy()
    rows = sizes, items[:n_pairs].copy(), ends[: n_pairs + 1].copy()
    return *rows, rules[:held].copy(), found.counts[:held].copy(), strengths


@kernel
def reach_sizes(g, trie, weights, users, first_item):  # type: ignore[no-untyped-def]
    """How many items each rule reaches that the user has no edge to; [users, rules]."""
    space = _new_space(len(g.indptr) - 1, 1, trie.n_rules, 1, len(weights.leave) > 0)
    cells = _with_room(_nothing(len(weights.leave) > 0), 4096)
    out = np.empty((len(users), trie.n_rules), dtype=np.int64)
    for i in range(len(users)):
        cells = _walk(g, trie, weights, users[i], first_item, space, cells)
        out[i] = space.spans[:, 1] - space.spans[:, 0]
    return out
