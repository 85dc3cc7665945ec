"""How sure a mean or a difference over users is: resampling, vectorised and seeded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_CHUNK = 1 << 21
"""Random draws held in memory at a time."""


def resampled_means(values: Values, samples: int, seed: int) -> Values:
    """Means of bootstrap samples of users; [users, columns] gives [samples, columns].

    All columns share the samples, so differences of columns are those of a paired bootstrap.
    """
    n, columns = values.shape
    rng = np.random.default_rng([seed, 0xB007])
    out = np.empty((samples, columns))
    step = max(1, _CHUNK // n)
    for start in range(0, samples, step):
        rows = min(step, samples - start)
        drawn = rng.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        out[start : start + rows] = counts.astype(np.float64) @ values / n
    return out


def sign_flip(differences: Values, flips: int, seed: int) -> Values:
    """Two-sided p of the paired permutation test for each column of [users, columns].

    Under the null hypothesis the two models may change places for any user, so the sign of
    each difference is a coin. p = (1 + flips at least as extreme) / (1 + flips).
    """
    n, columns = differences.shape
    rng = np.random.default_rng([seed, 0xF11B])
    seen = np.abs(differences.sum(axis=0))
    # Sums of the same numbers in another order may differ in the last bits: those are ties.
    bar = seen - 1e-9 * np.abs(differences).sum(axis=0)
    extreme = np.zeros(columns, dtype=np.int64)
    step = max(1, _CHUNK // n)
    for start in range(0, flips, step):
        rows = min(step, flips - start)
        heads = rng.integers(0, 2, size=(rows, n), dtype=np.int8)
        flipped = (2.0 * heads - 1.0) @ differences
        extreme += (np.abs(flipped) >= bar).sum(axis=0)
    return np.asarray((1 + extreme) / (1 + flips), dtype=np.float64)


def wilcoxon(differences: Values) -> Values:
    """Two-sided p of Wilcoxon's signed-rank test for each column; 1 where all are equal."""
    from scipy import stats  # takes as long to import as all of loger.metrics

    return np.array(
        [
            stats.wilcoxon(column, method="approx").pvalue if column.any() else 1.0
            for column in differences.T
        ]
    )
