"""Whether actions carry an item as they are said to: measures of contributions (METHOD 12).

Nothing here depends on a model: contributions and re-scored leads come as arrays, or as a
callable that is given places of actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Lead = Callable[[frozenset[int]], float]
"""The lead of an item when some actions, by place, are removed."""


def carried(contributions: Values, whole: float, n: int) -> float:
    """The share of a whole that the n largest contributions carry, those above 0; NaN of none.

    >>> carried(np.array([3.0, -1.0, 2.0]), 10.0, 2)
    0.5
    """
    largest = np.sort(contributions)[::-1][:n]
    return float(largest[largest > 0].sum() / whole) if whole > 0 else np.nan


class Foretold(NamedTuple):
    """Losses foretold by contributions beside real ones; added up over items."""

    error: float
    """E[(Σ c − Δ)²]."""
    variance: float
    """Var(Δ)."""
    told_variance: float
    """Var(Σ c)."""
    covariance: float


def infidelity(contributions: Values, subsets: NDArray[np.bool_], lost: Values) -> Foretold:
    """How far Σ c of random subsets of actions is from Δ, what their removal really costs.

    ``contributions`` is [actions, items], ``subsets`` [subsets, actions], ``lost`` [subsets,
    items]: by how much the lead of each item really falls. Variances are those within one item.
    """
    told = subsets.astype(np.float64) @ contributions
    error = ((told - lost) ** 2).mean(axis=0)
    covariance = ((told - told.mean(axis=0)) * (lost - lost.mean(axis=0))).mean(axis=0)
    parts = (error, lost.var(axis=0), told.var(axis=0), covariance)
    return Foretold(*(float(part.sum()) for part in parts))


def by_contribution(contributions: Values) -> list[int]:
    """Places of actions, the largest contribution first."""
    return [int(place) for place in np.argsort(-contributions, kind="stable")]


def greedy(n: int, steps: int, cost: Lead) -> list[int]:
    """Places chosen one by one, each so that the cost of those chosen is least."""
    chosen: list[int] = []
    for _ in range(steps):
        left = [a for a in range(n) if a not in chosen]
        chosen.append(min(left, key=lambda a: cost(frozenset([*chosen, a]))))
    return chosen


def area(order: Sequence[int], steps: int, cost: Lead) -> float:
    """The mean cost of the first 1 … steps of an order."""
    return float(np.mean([cost(frozenset(order[: k + 1])) for k in range(steps)]))


def normalised(random: float, method: float, oracle: float, least: float) -> float:
    """Where a method's area lies from chance (0) to the greedy oracle (1).

    NaN, undecidable, if chance is less than ``least`` from the oracle. Above 1 where greed is
    not best.
    """
    way = random - oracle
    return (random - method) / way if way > least else np.nan


def list_change(before: Sequence[int], after: Sequence[int]) -> float:
    """PN-R@k: the share of a list that is new, places weighing 1 / log₂(place + 1)."""
    weights = 1 / np.log2(np.arange(len(after)) + 2)
    new = np.array([item not in before for item in after], dtype=bool)
    return float(weights[new].sum() / weights.sum())
