"""What another policy would have earned, by the log of the one that was in use.

Each answer was given with a logged probability (its propensity). With w = π(answer) / propensity,

    IPS   = Σ w·r / n          (Horvitz and Thompson 1952: right on average)
    SNIPS = Σ w·r / Σ w        (Swaminathan and Joachims 2015: less spread, and within the rewards)

Answers to one person are one observation: a person gets the same variant again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError
from loger.updates.feedback.rates import Interval, Z

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a policy would have earned for each answer."""

    ips: Interval
    snips: Interval
    effective: float
    """How many answers of the policy itself these are worth: (Σw)² / Σw²."""


def estimate(
    rewards: ArrayLike,
    propensities: ArrayLike,
    target: ArrayLike,
    people: ArrayLike | None = None,
) -> Estimate:
    """IPS and SNIPS of a policy that gives each answer of the log with probability ``target``.

    All are [answers]; ``people`` says whose each is, everybody's own if left out.
    """
    r, p, pi = (np.asarray(x, dtype=np.float64) for x in (rewards, propensities, target))
    if not len(r) or not len(r) == len(p) == len(pi):
        raise LogerError(f"give as many rewards ({len(r)}) as propensities and targets, and some")
    if not ((p > 0) & (p <= 1)).all() or not ((pi >= 0) & (pi <= 1)).all():
        raise LogerError("propensities are above 0 and at most 1, targets 0 to 1")
    w = pi / p
    _, who = np.unique(
        np.arange(len(r)) if people is None else np.asarray(people), return_inverse=True
    )
    ips = float((w * r).mean())
    weight = float(w.mean())
    snips = float("nan") if weight == 0 else ips / weight
    effective = float(w.sum() ** 2 / (w @ w)) if weight else 0.0
    return Estimate(
        _with_interval(ips, _sums(who, w * r - ips), len(r)),
        _with_interval(snips, _sums(who, w * (r - snips)) / (weight or 1.0), len(r)),
        effective,
    )


def _sums(who: NDArray[np.int64], values: Doubles) -> Doubles:
    """The sum of each person's values."""
    return np.bincount(who, weights=values).astype(np.float64)


def _with_interval(value: float, sums: Doubles, n: int) -> Interval:
    """An estimate that is a mean of n values, by how the sums of people spread about 0."""
    people = len(sums)
    spread = people / max(people - 1, 1) * float(sums @ sums)
    half = Z * sqrt(spread) / n if people > 1 else float("inf")
    return value, value - half, value + half
