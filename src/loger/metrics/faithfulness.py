"""Measures of whether shown reasons are the real ones (METHOD 8).

Distributions over rules have one row per user, one column per rule, and a last column for paths
that follow no rule of the set. Measures that need new scores take them as arrays or as a callable,
so that they work for any recommender. Nothing here depends on a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.graph import KnowledgeGraph, Path
from loger.graph.arrays import Doubles
from loger.recommender import ExplainedItem
from loger.rules import RuleSet

Edge = tuple[int, int, int]
"""A fact (head, relation, tail), all numbers."""

EMITTED = 20
"""Number of paths per user in Q_f, as in the paper."""

SAMPLED = 1000
"""Number of paths per user in the paper's F."""

# ── distributions over rules ────────────────────────────────────────────────────────────


def shares(masses: ArrayLike) -> Doubles:
    """Rows of numbers ≥ 0, normalised to distributions; a row of zeros becomes NaN.

    >>> shares([[1, 3], [0, 0]])
    array([[0.25, 0.75],
           [ nan,  nan]])
    """
    m = np.asarray(masses, dtype=np.float64)
    total = m.sum(axis=1, keepdims=True)
    out: Doubles = np.divide(m, total, out=np.full_like(m, np.nan), where=total > 0)
    return out


def jensen_shannon(p: ArrayLike, q: ArrayLike) -> Doubles:
    """Jensen–Shannon divergence (base 2) of two arrays of distributions, row by row.

    It is 0 for equal and 1 for disjoint distributions, and NaN if either row is.

    >>> jensen_shannon([[1, 0], [0.5, 0.5]], [[0, 1], [0.5, 0.5]])
    array([1., 0.])
    """
    a, b = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    middle = (a + b) / 2

    def divergence(x: Doubles) -> Doubles:
        # Half of the smallest positive number is 0, so the middle may be 0 too.
        ratio = np.divide(x, middle, out=np.ones_like(x), where=(x > 0) & (middle > 0))
        return np.asarray((x * np.log2(ratio)).sum(axis=1), dtype=np.float64)

    return np.maximum((divergence(a) + divergence(b)) / 2, 0.0)


def drawn(distributions: ArrayLike, n: int, rng: np.random.Generator) -> Doubles:
    """The shares of n draws from each distribution; draws from F itself give the sampling floor."""
    p = np.asarray(distributions)
    known = ~np.isnan(p).any(axis=1)
    out = np.full(p.shape, np.nan)
    # Rounding must not push a row's sum above 1: numpy would raise an error.
    out[known] = rng.multinomial(n, np.clip(p[known], 0, 1) / (1 + 1e-12)) / n
    return out


def sampled_history(counts: ArrayLike, rng: np.random.Generator, n: int = SAMPLED) -> Doubles:
    """F(u) as in the paper: the rules of n paths drawn from the user's, or of all if there are
    fewer."""
    exact = shares(counts)
    few = np.asarray(counts).sum(axis=1) <= n
    return np.where(few[:, None], exact, drawn(exact, n, rng))


def emitted(reasons: Sequence[ExplainedItem], n: int = EMITTED) -> list[tuple[Path, float]]:
    """The best paths of the first n items that have one, with their weights.

    If the method gives a path no weight, it counts as 1.
    """
    shown = [r for r in reasons if r.paths][:n]
    return [(r.paths[0], r.weights[0] if r.weights else 1.0) for r in shown]


def rule_masses(
    lists: Sequence[Sequence[tuple[Path, float]]], rules: RuleSet, weighted: bool = False
) -> Doubles:
    """The number (or weight) of each user's paths along each rule; [users, rules + 1]."""
    place = {rule.relations: k for k, rule in enumerate(rules)}
    out = np.zeros((len(lists), len(rules) + 1))
    for row, paths in enumerate(lists):
        for path, weight in paths:
            out[row, place.get(path.relations, -1)] += max(weight, 0.0) if weighted else 1.0
    return out


def importance(weights: ArrayLike, counts: ArrayLike) -> Doubles:
    """Q_w(u) of LOGER: max(w_l, 0) · n_l(u), normalised (METHOD 5); [users, rules]."""
    return shares(np.maximum(weights, 0) * np.asarray(counts))


# ── the paths themselves ────────────────────────────────────────────────────────────────


def is_valid(path: Path, graph: KnowledgeGraph, user: int, item: int) -> bool:
    """Whether a path leads from the user to the item over facts and visits nothing twice."""
    ends = (user, item + graph.n_users)
    return (path.entities[0], path.entities[-1]) == ends and path.is_simple() and path.exists(graph)


def facts_of(paths: Iterable[Path], graph: KnowledgeGraph) -> tuple[Edge, ...]:
    """The distinct facts of some paths, each in its base direction, sorted."""
    n = len(graph.relations)
    turned = ((h, r, t) if r < n else (t, r - n, h) for path in paths for h, r, t in path.edges)
    return tuple(sorted(set(turned)))


def coverage(lists: Sequence[Sequence[ExplainedItem]]) -> Doubles:
    """Share of each user's recommended items that have a path; NaN without items."""
    return np.array([np.mean([bool(r.paths) for r in own]) if own else np.nan for own in lists])


def digest(lists: Sequence[Sequence[ExplainedItem]]) -> str:
    """A digest of reasons, equal only if they agree to the last bit."""
    out = hashlib.sha256()
    for own in lists:
        for r in own:
            out.update(repr((r.item, r.score, r.weights)).encode())
            out.update(repr([(p.entities, p.relations) for p in r.paths]).encode())
        out.update(b"\n")
    return out.hexdigest()


def changed(
    before: Sequence[Sequence[ExplainedItem]], after: Sequence[Sequence[ExplainedItem]]
) -> Doubles:
    """For each user, the share of first reasons that changed: another item or another path.

    If permuting the rule weights changes none, the weights don't matter.
    """
    out = []
    for one, two in zip(before, after, strict=True):
        first = [(r.item, r.paths[:1]) for r in one]
        other = {(r.item, r.paths[:1]) for r in two}
        out.append(np.mean([x not in other for x in first]) if first else np.nan)
    return np.array(out)


# ── with new scores ─────────────────────────────────────────────────────────────────────


def rank(scores: ArrayLike, item: int, known: ArrayLike) -> int:
    """An item's place in the list, from 0, without known items; the lower number wins ties."""
    s = np.array(scores, dtype=np.float64)
    s[np.asarray(known, dtype=np.int64)] = -np.inf
    return int((s > s[item]).sum() + (s[:item] == s[item]).sum())


def lead(scores: ArrayLike, item: int, known: ArrayLike) -> float:
    """An item's score minus the mean score of all items that could be recommended."""
    s = np.asarray(scores, dtype=np.float64)
    free = np.delete(s, np.asarray(known, dtype=np.int64))
    return float(s[item] - free[np.isfinite(free)].mean())


def lost_lead(before: ArrayLike, after: ArrayLike, item: int, known: ArrayLike) -> float:
    """The share of an item's lead that is lost, comparable between methods with different scales.

    If the shown facts were deleted, this is their comprehensiveness (more is better); if all the
    user's other actions were, it is their insufficiency.
    """
    had = lead(before, item, known)
    return (had - lead(after, item, known)) / had if had > 0 else np.nan


def mean_of_known(values: Sequence[float]) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    known = [v for v in values if not np.isnan(v)]
    return float(np.mean(known)) if known else np.nan


# ── where the truth is known ────────────────────────────────────────────────────────────


def reason_recovery(
    shown: Sequence[Sequence[Path]], causes: Sequence[Path]
) -> tuple[Doubles, Doubles]:
    """For planted purchases: whether the first shown path follows the rule that caused the
    purchase, and whether the causing path is among those shown; 1 or 0 each."""
    both = list(zip(shown, causes, strict=True))
    rule = [bool(own) and own[0].relations == cause.relations for own, cause in both]
    return np.array(rule, dtype=float), np.array([cause in own for own, cause in both], dtype=float)


def reliability(stated: Sequence[float], right: Sequence[float], bins: int = 10) -> Doubles:
    """Reasons in bins of equal width by their stated confidence: for each bin their number, their
    mean confidence, and the share that is right; [bins, 3], NaN in empty bins.

    >>> reliability([0.2, 0.3, 0.9], [False, True, True], bins=2)
    array([[2.  , 0.25, 0.5 ],
           [1.  , 0.9 , 1.  ]])
    """
    likely, true = np.asarray(stated, dtype=np.float64), np.asarray(right, dtype=np.float64)
    place = np.clip((likely * bins).astype(np.int64), 0, bins - 1)
    n = np.bincount(place, minlength=bins).astype(np.float64)
    sums = [np.bincount(place, x, bins) for x in (likely, true)]
    means = [np.divide(x, n, out=np.full(bins, np.nan), where=n > 0) for x in sums]
    return np.stack([n, *means], axis=1)


def reliability_error(stated: Sequence[float], right: Sequence[float]) -> float:
    """The mean over reasons of |mean confidence − share that is right| in their bin; 0 if reasons
    of confidence 41% are right in 41 of 100 cases."""
    if not len(stated):
        return np.nan
    n, likely, true = reliability(stated, right).T
    return float(np.nansum(n * np.abs(likely - true)) / n.sum())


# ── measures of contributions (METHOD 12) ─────────────────────────────────────────────
# Contributions and new leads come as arrays, or as a callable that takes places of actions.


Lead = Callable[[frozenset[int]], float]
"""An item's lead without some actions, given by place."""


def carried(contributions: Doubles, whole: float, n: int) -> float:
    """The share of a whole that the n largest positive contributions carry; NaN unless it is > 0.

    >>> carried(np.array([3.0, -1.0, 2.0]), 10.0, 2)
    0.5
    """
    largest = np.sort(contributions)[::-1][:n]
    return float(largest[largest > 0].sum() / whole) if whole > 0 else np.nan


class Prediction(NamedTuple):
    """Losses predicted by contributions, compared with real ones; sums over items."""

    error: float
    """E[(Σ c − Δ)²]."""
    variance: float
    """Var(Δ)."""
    told_variance: float
    """Var(Σ c)."""
    covariance: float


def infidelity(contributions: Doubles, subsets: NDArray[np.bool_], lost: Doubles) -> Prediction:
    """Compare Σ c of random subsets of actions with Δ, what their removal really costs.

    ``contributions`` is [actions, items], ``subsets`` [subsets, actions], and ``lost`` [subsets,
    items] is how far each item's lead really falls. Variances are within one item.
    """
    predicted = subsets.astype(np.float64) @ contributions
    error = ((predicted - lost) ** 2).mean(axis=0)
    covariance = ((predicted - predicted.mean(axis=0)) * (lost - lost.mean(axis=0))).mean(axis=0)
    parts = (error, lost.var(axis=0), predicted.var(axis=0), covariance)
    return Prediction(*(float(part.sum()) for part in parts))


def by_contribution(contributions: Doubles) -> list[int]:
    """Places of actions, the largest contribution first."""
    return [int(place) for place in np.argsort(-contributions, kind="stable")]


def greedy(n: int, steps: int, cost: Lead) -> list[int]:
    """Places chosen one by one, each to minimise the cost of those chosen so far."""
    chosen: list[int] = []
    for _ in range(steps):
        left = [a for a in range(n) if a not in chosen]
        chosen.append(min(left, key=lambda a: cost(frozenset([*chosen, a]))))
    return chosen


def area(order: Sequence[int], steps: int, cost: Lead) -> float:
    """The mean cost of the first 1 … steps of an order."""
    return float(np.mean([cost(frozenset(order[: k + 1])) for k in range(steps)]))


def normalised(random: float, method: float, oracle: float, least: float) -> float:
    """A method's area on a scale from chance (0) to the greedy oracle (1).

    NaN (undecidable) if chance is within ``least`` of the oracle; above 1 if the method beats the
    oracle, which is greedy.
    """
    way = random - oracle
    return (random - method) / way if way > least else np.nan


def list_change(before: Sequence[int], after: Sequence[int]) -> float:
    """PN-R@k: the share of a list that is new, with weight 1 / log₂(place + 1) for each place."""
    weights = 1 / np.log2(np.arange(len(after)) + 2)
    new = np.array([item not in before for item in after], dtype=bool)
    return float(weights[new].sum() / weights.sum())
