"""How strong each interaction was: play counts, quantities, ratings.

Amounts of one pair add up, of its ratings the highest counts; so the order in which they come does
not matter. What is not above 0 says nothing, and counts like the user's others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

UNIT = 2.0**-20
"""Amounts are rounded to this, about a millionth: then sums are the same in any order."""


def as_strengths(values: ArrayLike) -> Floats:
    """Numbers as strengths: rounded, 0 for what is not above 0."""
    x = np.asarray(values, dtype=np.float64)
    x = np.where(np.isfinite(x) & (x > 0), x, 0.0)
    out: Floats = np.minimum(np.rint(x / UNIT), 2.0**52) * UNIT
    return out


def merged(a: Floats, b: Floats, rated: bool) -> Floats:
    """The strengths of pairs that were told twice."""
    return np.maximum(a, b) if rated else a + b


def merged_runs(strengths: Floats, starts: NDArray[np.int64], rated: bool) -> Floats:
    """The strengths of runs of rows, each of one pair, that begin at these places."""
    if not len(starts):
        return strengths[:0]
    out: Floats = (np.maximum if rated else np.add).reduceat(strengths, starts)
    return out


def relative(strengths: Floats, users: NDArray[np.integer], power: float) -> Floats:
    """What interactions count by their strength: x^power by the mean of its user, 1 where x is not
    known; so a user's known interactions count 1 on average."""
    known = strengths > 0
    x = np.where(known, strengths, 1.0) ** power
    n = np.bincount(users, known)
    total = np.bincount(users, x * known)
    mean = np.where(n > 0, total / np.maximum(n, 1), 1.0)
    out: Floats = np.where(known, x / mean[users], 1.0)
    return out
