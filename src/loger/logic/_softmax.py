"""The kernel of the listwise likelihood; ``mln.listwise`` calls it."""

from __future__ import annotations

import numpy as np

from loger.engine.kernels import kernel


@kernel
def softmax_lists(w, data, indices, indptr, dense, starts, mass, hits, weight, z, gradient):  # type: ignore[no-untyped-def]
    """Σ over hits of weight · log p; adds its gradient to ``gradient``.

    It works user by user, while a user's rows are in cache. The first parameters belong to the
    sparse columns, the last to the rows of ``dense``, which have a value for every candidate. It
    skips users without a hit, whose candidates don't matter.
    """
    value, width = 0.0, len(w) - len(dense)
    for k in range(len(mass)):
        lo, hi = starts[k], starts[k + 1]
        if mass[k] == 0.0:
            continue
        # 1. The scores, and the highest, which is subtracted so that exp can't overflow.
        highest = -np.inf
        for i in range(lo, hi):
            x = 0.0
            for j in range(indptr[i], indptr[i + 1]):
                x += data[j] * w[indices[j]]
            for c in range(len(dense)):
                x += w[width + c] * dense[c, i]
            z[i] = x
            highest = max(highest, x)
        # 2. log Σ exp, which all hits of the user share: mass is the sum of their weights.
        total = 0.0
        share = np.empty(hi - lo)
        for i in range(lo, hi):
            share[i - lo] = np.exp(z[i] - highest)
            total += share[i - lo]
        value -= mass[k] * (highest + np.log(total))
        # 3. Its gradient: every candidate is pushed down by its probability.
        for i in range(lo, hi):
            share[i - lo] *= -mass[k] / total
            pull = share[i - lo]
            for j in range(indptr[i], indptr[i + 1]):
                gradient[indices[j]] += pull * data[j]
        for c in range(len(dense)):
            pulled = 0.0
            for i in range(lo, hi):
                pulled += share[i - lo] * dense[c, i]
            gradient[width + c] += pulled
    # 4. The hits themselves are pulled up by their weights.
    for h in range(len(hits)):
        i = hits[h]
        value += weight[h] * z[i]
        for j in range(indptr[i], indptr[i + 1]):
            gradient[indices[j]] += weight[h] * data[j]
        for c in range(len(dense)):
            gradient[width + c] += weight[h] * dense[c, i]
    return value
