"""Whether reasons are the reasons: measures of paths that a recommender shows (METHOD 8).

Distributions over rules have one row per user and one column per rule, and a last column for
paths that follow no rule of the set. What needs new scores takes them as arrays or as a
callable, so that any recommender can be measured. Nothing here depends on a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.graph import KnowledgeGraph, Path
from loger.graph.arrays import Doubles
from loger.recommender import ExplainedItem
from loger.rules import RuleSet

Edge = tuple[int, int, int]
"""A fact (head, relation, tail), by number."""

EMITTED = 20
"""Paths per user that Q_f is made of, as in the paper."""

SAMPLED = 1000
"""Paths per user that the paper's F is made of."""

# ── distributions over rules ────────────────────────────────────────────────────────────


def shares(masses: ArrayLike) -> Doubles:
    """Rows of numbers ≥ 0 as distributions; a row of zeros has none and is NaN.

    >>> shares([[1, 3], [0, 0]])
    array([[0.25, 0.75],
           [ nan,  nan]])
    """
    m = np.asarray(masses, dtype=np.float64)
    total = m.sum(axis=1, keepdims=True)
    out: Doubles = np.divide(m, total, out=np.full_like(m, np.nan), where=total > 0)
    return out


def jensen_shannon(p: ArrayLike, q: ArrayLike) -> Doubles:
    """Jensen–Shannon divergence of the rows of two arrays of distributions, base 2.

    Between 0 for equal and 1 for disjoint distributions; NaN where either is.

    >>> jensen_shannon([[1, 0], [0.5, 0.5]], [[0, 1], [0.5, 0.5]])
    array([1., 0.])
    """
    a, b = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    middle = (a + b) / 2

    def divergence(x: Doubles) -> Doubles:
        # Half of the least positive number is 0.
        ratio = np.divide(x, middle, out=np.ones_like(x), where=(x > 0) & (middle > 0))
        return np.asarray((x * np.log2(ratio)).sum(axis=1), dtype=np.float64)

    return np.maximum((divergence(a) + divergence(b)) / 2, 0.0)


def drawn(distributions: ArrayLike, n: int, rng: np.random.Generator) -> Doubles:
    """The shares of n draws from each distribution; of F itself they give the sampling floor."""
    p = np.asarray(distributions)
    known = ~np.isnan(p).any(axis=1)
    out = np.full(p.shape, np.nan)
    # Rounding must not lift a row's sum over 1, which would be refused.
    out[known] = rng.multinomial(n, np.clip(p[known], 0, 1) / (1 + 1e-12)) / n
    return out


def sampled_history(counts: ArrayLike, rng: np.random.Generator, n: int = SAMPLED) -> Doubles:
    """F(u) as in the paper: the rules of n paths drawn from u's, or of all if there are fewer."""
    exact = shares(counts)
    few = np.asarray(counts).sum(axis=1) <= n
    return np.where(few[:, None], exact, drawn(exact, n, rng))


def emitted(reasons: Sequence[ExplainedItem], n: int = EMITTED) -> list[tuple[Path, float]]:
    """The best path of each item of a list, by rank, until there are n; with their weights.

    A path without a weight by its method's own account weighs 1.
    """
    shown = [r for r in reasons if r.paths][:n]
    return [(r.paths[0], r.weights[0] if r.weights else 1.0) for r in shown]


def rule_masses(
    lists: Sequence[Sequence[tuple[Path, float]]], rules: RuleSet, weighted: bool = False
) -> Doubles:
    """How many of each user's paths follow each rule, or what they weigh; [users, rules + 1]."""
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
    """Whether a path leads from the user to the item over facts only, and nowhere twice."""
    ends = (user, item + graph.n_users)
    return (path.entities[0], path.entities[-1]) == ends and path.is_simple() and path.exists(graph)


def facts_of(paths: Iterable[Path], graph: KnowledgeGraph) -> tuple[Edge, ...]:
    """The facts that some paths are made of, each once and in its base direction, sorted."""
    n = len(graph.relations)
    turned = ((h, r, t) if r < n else (t, r - n, h) for path in paths for h, r, t in path.edges)
    return tuple(sorted(set(turned)))


def coverage(lists: Sequence[Sequence[ExplainedItem]]) -> Doubles:
    """Share of each user's recommended items that have a path; NaN without any item."""
    return np.array([np.mean([bool(r.paths) for r in own]) if own else np.nan for own in lists])


def digest(lists: Sequence[Sequence[ExplainedItem]]) -> str:
    """A digest of reasons to the last bit: equal for two runs that agree."""
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
    """Per user the share of first reasons that are not the same: another item, or another path.

    With permuted rule weights they should change, or the weights do not matter.
    """
    out = []
    for one, two in zip(before, after, strict=True):
        first = [(r.item, r.paths[:1]) for r in one]
        other = {(r.item, r.paths[:1]) for r in two}
        out.append(np.mean([x not in other for x in first]) if first else np.nan)
    return np.array(out)


# ── with new scores ─────────────────────────────────────────────────────────────────────


def rank(scores: ArrayLike, item: int, known: ArrayLike) -> int:
    """The place of an item in the list, from 0, known items left out; ties by number."""
    s = np.array(scores, dtype=np.float64)
    s[np.asarray(known, dtype=np.int64)] = -np.inf
    return int((s > s[item]).sum() + (s[:item] == s[item]).sum())


def lead(scores: ArrayLike, item: int, known: ArrayLike) -> float:
    """By how much an item's score lies above the mean of all that could be recommended."""
    s = np.asarray(scores, dtype=np.float64)
    free = np.delete(s, np.asarray(known, dtype=np.int64))
    return float(s[item] - free[np.isfinite(free)].mean())


def lost_lead(before: ArrayLike, after: ArrayLike, item: int, known: ArrayLike) -> float:
    """Which share of an item's lead is lost; comparable between methods of different scales.

    After the shown facts are deleted this is the comprehensiveness of what was shown (more is
    better); after all other actions of the user are, it is what was shown's insufficiency.
    """
    had = lead(before, item, known)
    return (had - lead(after, item, known)) / had if had > 0 else np.nan


def mean_of_known(values: Sequence[float]) -> float:
    """The mean of those that are not NaN; NaN if none is."""
    known = [v for v in values if not np.isnan(v)]
    return float(np.mean(known)) if known else np.nan


# ── where the truth is known ────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Recovery:
    """For planted purchases: whether what is shown is what caused them; [cases] each."""

    rule_first: NDArray[np.bool_]
    """The first path follows the rule that caused the purchase."""
    rule_any: NDArray[np.bool_]
    path_first: NDArray[np.bool_]
    """The first path is the very path that caused it."""
    path_any: NDArray[np.bool_]


def reason_recovery(shown: Sequence[Sequence[Path]], causes: Sequence[Path]) -> Recovery:
    """Whether what was shown for some purchases is what caused them; nothing shown is a miss."""
    rule = [[p.relations == c.relations for p in own] for own, c in zip(shown, causes, strict=True)]
    same = [[p == c for p in own] for own, c in zip(shown, causes, strict=True)]

    def first(matches: list[list[bool]]) -> NDArray[np.bool_]:
        return np.array([any(own[:1]) for own in matches], dtype=bool)

    def some(matches: list[list[bool]]) -> NDArray[np.bool_]:
        return np.array([any(own) for own in matches], dtype=bool)

    return Recovery(first(rule), some(rule), first(same), some(same))


def reliability(stated: Sequence[float], right: Sequence[float], bins: int = 10) -> Doubles:
    """Of reasons in bins of equal width, by how likely they are said to be right: how many, how
    likely on average, and which part of them is right; [bins, 3], NaN where there is none.

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


def reliability_error(stated: Sequence[float], right: Sequence[float], bins: int = 10) -> float:
    """How far what is said is from how often it is right: the mean over reasons, in bins of equal
    width, of |mean of what is said − part that is right|; 0 if "41 %" is right in 41 of 100."""
    if not len(stated):
        return np.nan
    n, likely, true = reliability(stated, right, bins).T
    return float(np.nansum(n * np.abs(likely - true)) / n.sum())


# ── measures of contributions (METHOD 12) ─────────────────────────────────────────────
# Contributions and re-scored leads come as arrays, or as a callable that is given places of
# actions.


Lead = Callable[[frozenset[int]], float]
"""The lead of an item when some actions, by place, are removed."""


def carried(contributions: Doubles, whole: float, n: int) -> float:
    """The share of a whole that the n largest contributions carry, those above 0; NaN of none.

    >>> carried(np.array([3.0, -1.0, 2.0]), 10.0, 2)
    0.5
    """
    largest = np.sort(contributions)[::-1][:n]
    return float(largest[largest > 0].sum() / whole) if whole > 0 else np.nan


class Prediction(NamedTuple):
    """Losses predicted by contributions compared with real ones; added up over items."""

    error: float
    """E[(Σ c − Δ)²]."""
    variance: float
    """Var(Δ)."""
    told_variance: float
    """Var(Σ c)."""
    covariance: float


def infidelity(contributions: Doubles, subsets: NDArray[np.bool_], lost: Doubles) -> Prediction:
    """How far Σ c of random subsets of actions is from Δ, what their removal really costs.

    ``contributions`` is [actions, items], ``subsets`` [subsets, actions], ``lost`` [subsets,
    items]: by how much the lead of each item really falls. Variances are those within one item.
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
