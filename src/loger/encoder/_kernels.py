"""The compiled loops of TransE's training on a CPU.

They fill users' bags with items, and they compute scores and gradients of many small groups on the
unit sphere. The product of two by two vectors costs less than a library call, and separate calls
would read the vectors several times. Here each group is read once for its scores and once for its
gradients.
"""

from __future__ import annotations

import numpy as np

from loger.engine.kernels import kernel

SMALL = 8
"""Groups of up to this size are scored here; larger ones are faster as matrix products."""
SHORTEST, ZERO_VECTOR_NORM = np.float32(1e-12), np.float32(1e18)
"""A vector shorter than the first has no direction, for example that of a user whose only item is
sought. Its length counts as the second, so its score and its gradient are 0. Divided by its true
length, its gradient would be 10¹² times that of the rest of the batch."""


@kernel(fastmath=True)
def group_scores(x, y, gamma, x_lengths, y_lengths, scores):  # type: ignore[no-untyped-def]
    """γ · cosine of every x and y of a group, and the vectors' lengths."""
    groups, n, d = x.shape
    for g in range(groups):
        for vectors, lengths in ((x, x_lengths), (y, y_lengths)):
            for i in range(vectors.shape[1]):
                square = np.float32(0)
                for c in range(d):
                    square += vectors[g, i, c] * vectors[g, i, c]
                length = np.sqrt(square)
                lengths[g, i] = length if length > SHORTEST else ZERO_VECTOR_NORM
        for i in range(n):
            for j in range(y.shape[1]):
                dot = np.float32(0)
                for c in range(d):
                    dot += x[g, i, c] * y[g, j, c]
                scores[g, i, j] = gamma * dot / (x_lengths[g, i] * y_lengths[g, j])


@kernel(fastmath=True)
def group_gradients(x, y, gamma, x_lengths, y_lengths, slope, gx, gy):  # type: ignore[no-untyped-def]
    """The gradients by x and by y, from the slopes by score."""
    for g in range(len(x)):
        _through(x[g], y[g], gamma, x_lengths[g], y_lengths[g], slope[g], gx[g])
        _through(y[g], x[g], gamma, y_lengths[g], x_lengths[g], slope[g].T, gy[g])


@kernel(fastmath=True)
def _through(x, y, gamma, x_lengths, y_lengths, slope, out):  # type: ignore[no-untyped-def]
    """The gradient by the x of one group, through x ↦ x/‖x‖."""
    n, d = x.shape
    for i in range(n):
        own = out[i]
        own[:] = np.float32(0)
        for j in range(len(y)):
            weight = gamma * slope[i, j] / y_lengths[j]
            for c in range(d):
                own[c] += weight * y[j, c]
        dot, length = np.float32(0), x_lengths[i]
        for c in range(d):
            dot += own[c] * x[i, c]
        dot /= length * length
        for c in range(d):
            own[c] = (own[c] - x[i, c] * dot) / length


@kernel
def fill_bags(items, starts, entities, taken, excluded, draws, turns):  # type: ignore[no-untyped-def]
    """The rows of all bags, where each bag begins, and each row's owner and weight.

    If only some items of a history are ``taken``, they are distinct, and each has the same chance:
    the history is cut into as many stretches, and one item is drawn from each. Stretches differ in
    length by one, so all draws are shifted by the same random number.
    """
    most = taken.sum()
    rows, owners = np.empty(most, np.int64), np.empty(most, np.int64)
    begins, weights = np.empty(len(entities), np.int64), np.empty(most, np.float32)
    read = held = 0
    for k in range(len(entities)):
        # ``held`` rows are written so far, of at most ``most``: an excluded item takes none.
        first = starts[entities[k]]
        n, wanted = starts[entities[k] + 1] - first, taken[k]
        begins[k], lo = held, 0
        turn = np.int64(turns[k] * n) if len(draws) > 0 else 0
        for p in range(wanted):
            hi = p + 1 if n == wanted else (p + 1) * n // wanted
            place = lo + turn
            if len(draws) > 0:
                place += np.int64(draws[read] * (hi - lo))
            place -= n if place >= n else 0
            read, lo = read + 1, hi
            row = items[first + place]
            if len(excluded) == 0 or row != excluded[k]:
                rows[held], owners[held] = row, k
                held += 1
        for p in range(begins[k], held):
            weights[p] = np.float32(1 / np.sqrt(held - begins[k]))
    return rows[:held], begins, owners[:held], weights[:held]


@kernel(fastmath=True)
def adam_rows(table, first, second, rows, owners, weights, gradient, rate):  # type: ignore[no-untyped-def]
    """Row-wise Adam; ``rows`` are ascending, and the gradients of equal rows add up."""
    n, d = len(rows), table.shape[1]
    g = np.empty(d, dtype=np.float32)
    keep_1, new_1 = np.float32(0.9), np.float32(0.1)
    keep_2, new_2 = np.float32(0.999), np.float32(0.001)
    k = 0
    while k < n:
        row = rows[k]
        g[:] = np.float32(0)
        while k < n and rows[k] == row:
            w = weights[k] if len(weights) > 0 else np.float32(1)
            own = gradient[owners[k]]
            for j in range(d):
                g[j] += w * own[j]
            k += 1
        square = np.float32(0)
        for j in range(d):
            square += g[j] * g[j]
        v = keep_2 * second[row] + new_2 * square / np.float32(d)
        second[row] = v
        # One second moment per row: what a step costs is reading and writing rows.
        step = rate / (np.sqrt(v) + np.float32(1e-8))
        m, x = first[row], table[row]
        for j in range(d):
            m[j] = keep_1 * m[j] + new_1 * g[j]
            x[j] -= step * m[j]


@kernel
def order_of(rows):  # type: ignore[no-untyped-def]
    """A stable argsort of IDs, none of them negative.

    It is a radix sort by 11 bits at a time: a batch has many rows with short IDs, and sorting by
    comparison took a sixth of a step with long histories.
    """
    n = len(rows)
    order, other = np.arange(n), np.empty(n, dtype=np.int64)
    most = rows.max() if n > 0 else 0
    shift = 0
    while shift == 0 or most >> shift > 0:
        ends = np.zeros(2049, dtype=np.int64)  # counts, then where each digit's IDs begin
        for k in range(n):
            ends[((rows[k] >> shift) & 2047) + 1] += 1
        for k in range(2048):
            ends[k + 1] += ends[k]
        for place in order:
            digit = (rows[place] >> shift) & 2047
            other[ends[digit]] = place
            ends[digit] += 1
        order, other = other, order
        shift += 11
    return order


@kernel(fastmath=True)
def l1_distances(x, y, out):  # type: ignore[no-untyped-def]
    """‖x − y‖₁ of every row of x and every row of y."""
    for i in range(len(x)):
        for j in range(len(y)):
            total = np.float32(0)
            for c in range(x.shape[1]):
                total += abs(x[i, c] - y[j, c])
            out[i, j] = total


@kernel(fastmath=True)
def l1_gradients(x, y, slope, gx, gy):  # type: ignore[no-untyped-def]
    """Add the gradients by x and by y, from the slopes by −‖x − y‖₁, most of which are 0."""
    for i in range(len(x)):
        for j in range(len(y)):
            weight = slope[i, j]
            if weight == 0:
                continue
            for c in range(x.shape[1]):
                towards = weight if y[j, c] > x[i, c] else -weight
                gx[i, c] += towards
                gy[j, c] -= towards
