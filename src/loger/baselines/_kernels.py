"""Compiled loops: the largest entries of matrices, and walkers over the graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loger.engine.kernels import kernel
from loger.graph.arrays import Floats


@kernel
def largest(
    starts: NDArray[np.int64], values: Floats | NDArray[np.float64], n: int
) -> NDArray[np.int64]:
    """Where the n largest values of each row are, ascending; of equal ones the first."""
    kept, total = np.empty(len(values), dtype=np.int64), 0
    for i in range(len(starts) - 1):
        lo, hi = starts[i], starts[i + 1]
        if hi - lo <= n:
            for e in range(lo, hi):
                kept[total] = e
                total += 1
            continue
        bar = np.partition(values[lo:hi], hi - lo - n)[hi - lo - n]
        equal = n  # so many that equal the bar have a place
        for e in range(lo, hi):
            equal -= values[e] > bar
        for e in range(lo, hi):
            if values[e] > bar or (values[e] == bar and equal > 0):
                equal -= values[e] == bar
                kept[total] = e
                total += 1
    return kept[:total]


@kernel(fastmath=True)
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@kernel
def _keep(x, thing, kept, logs, things):  # type: ignore[no-untyped-def]
    """Take a thing in among the best of a row, of which ``kept`` are there, if it is one of them;
    of equals the first stays ahead. Returns how many are there now."""
    width = len(logs)
    if kept == width and x <= logs[width - 1]:
        return kept
    k = min(kept, width - 1)
    while k > 0 and logs[k - 1] < x:
        logs[k], things[k] = logs[k - 1], things[k - 1]
        k -= 1
    logs[k], things[k] = x, thing
    return min(kept + 1, width)


@kernel
def find_steps(g, visited, owners, scores, vectors, towards, first_item, loop, steps, ends):  # type: ignore[no-untyped-def]
    """Write the steps of each state: relations into ``steps``, where they lead into ``ends``.

    The state of row i has walked ``visited[i]`` and belongs to user ``owners[i]`` of a block.
    Step 0 is to stay; the others come by relation, then entity, and lead to nothing visited.
    If they are more than there is room for, the best stay: an item by ``scores[user, item]``, any
    other entity by the product of its vector with ``towards[user]``. How many there are of each.
    """
    n, room = ends.shape
    counts = np.empty(n, dtype=np.int64)
    n_items = scores.shape[1]
    longest = 0
    for i in range(n):
        here = visited[i, -1]
        low = g.segment_starts[g.row_segments[here]]
        longest = max(longest, g.segment_starts[g.row_segments[here + 1]] - low)
    found_r, found_t = np.empty(longest, dtype=np.int32), np.empty(longest, dtype=np.int32)
    worth = np.empty(longest, dtype=np.float32)
    for i in range(n):
        here = visited[i, -1]
        m = 0
        for s in range(g.row_segments[here], g.row_segments[here + 1]):
            for e in range(g.segment_starts[s], g.segment_starts[s + 1]):
                tail, new = g.tails[e], True
                for v in visited[i]:
                    new = new and v != tail
                if new:
                    found_r[m], found_t[m] = g.segment_relations[s], tail
                    m += 1
        steps[i, 0], ends[i, 0] = loop, here
        if m < room:
            for j in range(m):
                steps[i, j + 1], ends[i, j + 1] = found_r[j], found_t[j]
            counts[i] = m + 1
            continue
        u = owners[i]
        for j in range(m):
            item = found_t[j] - first_item
            if 0 <= item < n_items:
                worth[j] = scores[u, item]
            else:
                worth[j] = _dot(towards[u], vectors[found_t[j]])
        bar = np.partition(worth[:m], m - room + 1)[m - room + 1]
        equal = room - 1  # how many that just reach the bar there is room for
        for j in range(m):
            equal -= worth[j] > bar
        k = 1
        for j in range(m):
            if worth[j] > bar or (worth[j] == bar and equal > 0):
                equal -= worth[j] == bar
                steps[i, k], ends[i, k] = found_r[j], found_t[j]
                k += 1
        counts[i] = k
    return counts


@kernel
def step_products(queries, vectors, ends, counts):  # type: ignore[no-untyped-def]
    """The product of each state's query with the vectors of its steps' ends; [states, steps]."""
    out = np.zeros(ends.shape, dtype=np.float32)
    for i in range(len(counts)):
        for j in range(counts[i]):
            out[i, j] = _dot(queries[i], vectors[ends[i, j]])
    return out


@kernel(fastmath=True)
def step_sums(slopes, vectors, ends, counts):  # type: ignore[no-untyped-def]
    """The way back: for each state the sum of its ends' vectors, weighted by ``slopes``."""
    out = np.zeros((len(counts), vectors.shape[1]), dtype=np.float32)
    for i in range(len(counts)):
        total = out[i]
        for j in range(counts[i]):
            w, vector = slopes[i, j], vectors[ends[i, j]]
            for d in range(len(total)):
                total[d] += w * vector[d]
    return out


@kernel
def best_steps(of_entity, of_relation, vectors, steps, ends, counts, width):  # type: ignore[no-untyped-def]
    """The most probable steps of each state: (places among its steps or -1, log probability).

    The logit of a step by r to e is ``of_relation[i, r]`` + ``of_entity[i]`` · ``vectors[e]``; of
    equal ones the first comes first. Both are [states, width].
    """
    n = len(counts)
    places = np.full((n, width), -1, dtype=np.int64)
    logs = np.full((n, width), -np.inf, dtype=np.float32)
    logits = np.empty(ends.shape[1], dtype=np.float32)
    for i in range(n):
        most = np.float32(-np.inf)
        for j in range(counts[i]):
            logits[j] = of_relation[i, steps[i, j]] + _dot(of_entity[i], vectors[ends[i, j]])
            most = max(most, logits[j])
        total = np.float32(0)
        kept = 0
        for j in range(counts[i]):
            x = logits[j]
            total += np.exp(x - most)
            kept = _keep(x, j, kept, logs[i], places[i])
        logs[i, :kept] -= most + np.log(total)
    return places, logs


@kernel
def ripple_sets(g, users, draws, nodes, steps, parents):  # type: ignore[no-untyped-def]
    """Draw each user's memories: ``nodes[u, h, i]`` = (head, tail) of memory i of hop h,
    ``steps`` its relation, ``parents`` the memory of the hop before it goes on from.

    Memories of hop 0 leave the user's items, those of others the tails before. An entity's
    relations are equally likely, and so are the tails under one; none is on the way already.
    ``draws`` are uniform, [users, hops, memories, 3]. What cannot be drawn stays -1.
    """
    hops, size = steps.shape[1:]
    way = np.empty(hops + 2, dtype=np.int64)
    for k in range(len(users)):
        u = users[k]
        first = g.row_segments[u]
        if first == g.row_segments[u + 1] or g.segment_relations[first] != 0:
            continue  # no history
        begin, end = g.segment_starts[first], g.segment_starts[first + 1]
        for h in range(hops):
            for i in range(size):
                x = draws[k, h, i]
                parent = int(x[0] * size) if h else -1
                if h and nodes[k, h - 1, parent, 1] < 0:
                    continue
                head = g.tails[begin + int(x[0] * (end - begin))]
                if h:
                    head = nodes[k, h - 1, parent, 1]
                length, back = 1, parent
                way[0] = u
                for hop in range(h - 1, -1, -1):
                    way[length] = nodes[k, hop, back, 0]
                    back = parents[k, hop, back]
                    length += 1
                way[length] = head
                low, high = g.row_segments[head], g.row_segments[head + 1]
                s = low + int(x[1] * (high - low))
                lo, hi = g.segment_starts[low], g.segment_starts[high]
                e = g.segment_starts[s]
                e += int(x[2] * (g.segment_starts[s + 1] - e))
                for _ in range(hi - lo):  # on from there to the first edge that leads on
                    new = True
                    for j in range(length + 1):
                        new = new and way[j] != g.tails[e]
                    if new:
                        while s < high and g.segment_starts[s + 1] <= e:
                            s += 1
                        while g.segment_starts[s] > e:
                            s -= 1
                        nodes[k, h, i, 0], nodes[k, h, i, 1] = head, g.tails[e]
                        steps[k, h, i], parents[k, h, i] = g.segment_relations[s], parent
                        break
                    e = lo if e + 1 == hi else e + 1


@kernel
def best_tails(g, visited, relations, queries, vectors, width):  # type: ignore[no-untyped-def]
    """Of each state the best ends of one relation: (entities or -1, log probabilities).

    The state of row i has walked ``visited[i]`` and goes on by ``relations[i]`` to what it has not
    met; its ends are equally likely up to exp(``queries[i]`` · their vectors). Of equal ones the
    first comes first. Both are [states, width].
    """
    n = len(relations)
    tails = np.full((n, width), -1, dtype=np.int32)
    logs = np.full((n, width), -np.inf, dtype=np.float32)
    for i in range(n):
        here = visited[i, -1]
        total, most, kept = 0.0, -np.inf, 0
        for s in range(g.row_segments[here], g.row_segments[here + 1]):
            if g.segment_relations[s] != relations[i]:
                continue
            for e in range(g.segment_starts[s], g.segment_starts[s + 1]):
                tail, new = g.tails[e], True
                for v in visited[i]:
                    new = new and v != tail
                if not new:
                    continue
                x = _dot(queries[i], vectors[tail])
                if x > most:
                    total, most = total * np.exp(most - x) + 1.0, x
                else:
                    total += np.exp(x - most)
                kept = _keep(x, tail, kept, logs[i], tails[i])
        if kept:
            logs[i, :kept] -= most + np.log(total)
    return tails, logs
