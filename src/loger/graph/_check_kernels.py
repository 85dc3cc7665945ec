"""The loops of ``loger.graph.checks`` over all facts, compiled."""

from __future__ import annotations

import numpy as np

from loger.engine.kernels import kernel


@kernel
def bad_segment(spans, rows, relations, starts, tails):  # type: ignore[no-untyped-def]
    """The first entity whose segments are not sorted, empty, or of the wrong types; else -1."""
    for head in range(len(rows) - 1):
        before = -1
        for s in range(rows[head], rows[head + 1]):
            r = int(relations[s])
            if r <= before or r >= len(spans) or starts[s] == starts[s + 1]:
                return head
            before = r
            low, high = spans[r, 2], spans[r, 3]
            if head < spans[r, 0] or head >= spans[r, 1]:
                return head
            last = low - 1
            for k in range(starts[s], starts[s + 1]):
                if tails[k] <= last or tails[k] == head:
                    return head
                last = np.int64(tails[k])
            if last >= high:
                return head
    return -1


@kernel
def bad_pair(spans, starts, tails, relations):  # type: ignore[no-untyped-def]
    """The first entity whose pairs are not sorted or of the wrong types; else -1."""
    for head in range(len(starts) - 1):
        last, before = np.int64(-1), -1
        for k in range(starts[head], starts[head + 1]):
            tail, r = np.int64(tails[k]), int(relations[k])
            if r >= len(spans) or tail < last or (tail == last and r <= before):
                return head
            if head < spans[r, 0] or head >= spans[r, 1]:
                return head
            if tail < spans[r, 2] or tail >= spans[r, 3]:
                return head
            last, before = tail, r
    return -1
