"""The compiled loops of the encoder for the CPU."""

from __future__ import annotations

import numpy as np

from loger.engine.kernels import kernel


@kernel(fastmath=True)
def adam_rows(table, first, second, rows, owners, weights, gradient, rate):  # type: ignore[no-untyped-def]
    """Row-wise Adam; ``rows`` ascending, equal ones are one row whose gradients add up."""
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
        step = rate / (np.sqrt(v) + np.float32(1e-8))
        m, x = first[row], table[row]
        for j in range(d):
            m[j] = keep_1 * m[j] + new_1 * g[j]
            x[j] -= step * m[j]


@kernel
def order_of(rows):  # type: ignore[no-untyped-def]
    """The places of ids, none negative, in ascending order of id, of equal ones the first first.

    A radix sort by 11 bits at a time: a batch's rows are many and their ids short, and sorting
    them by comparison took a sixth of a step where histories are long.
    """
    n = len(rows)
    order, other = np.arange(n), np.empty(n, dtype=np.int64)
    most = rows.max() if n > 0 else 0
    shift = 0
    while shift == 0 or most >> shift > 0:
        ends = np.zeros(2049, dtype=np.int64)
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
