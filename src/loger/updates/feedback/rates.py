"""Rates with intervals: of one group, of two, and of groups at the same places of lists."""

from __future__ import annotations

from math import exp, inf, isfinite, log, sqrt

import numpy as np
from numpy.typing import NDArray

Z = 1.959963984540054
"""Of a 95 % interval."""
Counts = NDArray[np.int64]
Interval = tuple[float, float, float]
"""An estimate, and the ends of its 95 % interval."""


def wilson(k: int, n: int) -> Interval:
    """The share k of n with Wilson's interval (1927), which also holds for few and for none.

    >>> [round(x, 3) for x in wilson(0, 10)]
    [0.0, 0.0, 0.278]
    """
    if n == 0:
        return 0.0, 0.0, 1.0
    p, z2 = k / n, Z * Z
    middle, half = p + z2 / (2 * n), Z * sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low, high = (middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)
    return p, max(0.0, low), min(1.0, high)


def difference(one: tuple[int, int], other: tuple[int, int]) -> Interval:
    """The share of the first less that of the second, with Newcombe's interval (1998, method 10),
    made of two of Wilson's."""
    (p, a, b), (q, c, d) = wilson(*one), wilson(*other)
    low = p - q - sqrt((p - a) ** 2 + (d - q) ** 2)
    return p - q, low, p - q + sqrt((b - p) ** 2 + (q - c) ** 2)


def ratio_at_same_places(
    clicked: Counts, shown: Counts, all_clicked: Counts, all_shown: Counts
) -> Interval:
    """How many times as often as others a group is clicked at the same places: the risk ratio of
    Mantel and Haenszel over places, with the interval of Greenland and Robins (1985).

    Arrays are [places]: of the group, and of all. Places where only one of both was shown say
    nothing. Of a group that was never compared, or never clicked, the interval is open.
    """
    a, n = clicked.astype(np.float64), shown.astype(np.float64)
    b, m = all_clicked - a, all_shown - n
    total = np.maximum(all_shown, 1)
    with_, without = float((a * m / total).sum()), float((b * n / total).sum())
    if with_ == 0 or without == 0:
        return (0.0 if without else float("nan")), 0.0, inf
    ratio = with_ / without
    spread = float(((n * m * (a + b) - a * b * all_shown) / total**2).sum()) / (with_ * without)
    half = Z * sqrt(max(spread, 0.0))
    return ratio, exp(log(ratio) - half), exp(log(ratio) + half)


def plain(value: float) -> float | None:
    """A number as JSON has it; None for what is not finite."""
    return round(value, 6) if isfinite(value) else None
