"""Markov logic: features of groundings, probability, likelihoods and their gradients (METHOD 5).

A pair i with groundings of rules l has logit p_i = Σ_l w_l φ_il + w₀. The feature φ is one of

- ``set``: ``1[n_l > 0] / |L_i|``, Eq. 1 of the paper;
- ``multiset``: n_l / Σ n, which the authors' code computes;
- ``count``: log(1 + n_l), with a prior w₀, so more evidence never counts against an item;
- ``walk``: x_l / s_l, the strength of the paths relative to the rule's usual strength;
- ``logwalk``: log(1 + x_l / s_l), the default: strength with diminishing returns.

The first two are means and have no prior, so another path of a good rule can lower p. The others
add up over rules. Within a rule, each path's share of φ is its share of n or x, which follows from
Aumann and Shapley's axioms for a function of a sum. An item's popularity can be a second unit
clause: + w_pop · log(1 + interactions of v).

All functions here are pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine, LocalEngine
from loger.engine.threads import numpy_on_one_thread
from loger.errors import UnknownNameError
from loger.graph import Graph
from loger.graph.arrays import Doubles, expit
from loger.grounding import Formula, Groundings, Walk, ground, logits, near_items
from loger.logic._softmax import softmax_lists
from loger.rules import RuleSet

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Feature = Literal["set", "multiset", "count", "walk", "logwalk"]
FEATURES: tuple[Feature, ...] = get_args(Feature)
"""In the order of their numbers in the kernels."""

Valued = tuple[float, Doubles]
"""A value and its gradient."""


def additive(feature: Feature) -> bool:
    """Whether a feature adds up over rules and so has a prior w₀."""
    return feature not in ("set", "multiset")


def uses_strength(feature: Feature) -> bool:
    """Whether a feature uses strengths of paths rather than their number."""
    return feature in ("walk", "logwalk")


def features(found: Groundings, feature: Feature, scales: ArrayLike | None = None) -> csr_array:
    """φ as a sparse matrix, pairs × rules; ``scales`` are the s_l of strengths."""
    return found.as_matrix(feature_cells(found, feature, scales))


def feature_cells(
    found: Groundings, feature: Feature, scales: ArrayLike | None = None
) -> NDArray[np.float64]:
    """φ where it isn't zero, in the order of the groundings' cells."""
    if feature not in FEATURES:
        raise UnknownNameError("feature", feature, FEATURES)
    if uses_strength(feature):
        x = found.weighed
        if scales is not None:
            x = x / np.asarray(scales, dtype=np.float64)[found.rules]
        return np.log1p(x) if feature == "logwalk" else x
    n = found.counts.astype(np.float64)
    if feature == "count":
        return np.log1p(n)
    if feature == "set":
        n = np.ones_like(n)
    return n / np.repeat(found.row_sums(n), np.diff(found.indptr))


def pseudo_likelihood(
    parameters: Doubles, phi: csr_array, targets: Doubles, l2: float = 0.0, prior: bool = True
) -> Valued:
    """Σ_i [t_i log p_i + (1 − t_i) log(1 − p_i)] − ½λ‖w‖² and its gradient (Eq. 2 and 3).

    The target t is 1 for observed pairs and q for hidden ones. With ``prior``, the last parameter
    is w₀, which isn't penalised.
    """
    w = parameters[:-1] if prior else parameters
    z = phi @ w + (parameters[-1] if prior else 0.0)
    value = float(np.sum(targets * z - np.logaddexp(0.0, z)) - 0.5 * l2 * w @ w)
    rest = targets - expit(z)
    gradient = phi.T @ rest - l2 * w
    return value, np.append(gradient, rest.sum()) if prior else gradient


def listwise(
    parameters: Doubles,
    phi: csr_array | Doubles,
    starts: NDArray[np.int64],
    hits: NDArray[np.int64],
    l2: float = 0.0,
    weight: Doubles | None = None,
    dense: Doubles | None = None,
) -> Valued:
    """Mean log-likelihood of the hits, each among its user's candidates, and its gradient.

    Row i of ``phi`` is a candidate of user k if starts[k] ≤ i < starts[k+1]; every user has
    candidates. p(i) is the softmax of φ·w over the user's candidates. ``weight`` is what each hit
    counts, with sum 1; by default a user's m hits count 1/√m each (``hit_weights``). The penalty
    ½λ‖w‖² is subtracted from the mean. Columns that are nowhere zero are cheaper in ``dense``
    [columns, rows]; their parameters come after those of ``phi``.
    """
    users = np.searchsorted(starts, hits, side="right") - 1
    weight = hit_weights(starts, hits) if weight is None else weight
    mass = np.bincount(users, weight, minlength=len(starts) - 1)
    from scipy.sparse import csr_array  # slow to import, and only a fit needs it

    x = csr_array(phi)
    # The kernel adds to ``gradient`` and keeps its scores in ``z``; both are made here, so that
    # it allocates nothing that grows with the candidates of all users.
    gradient, z = np.zeros(len(parameters)), np.empty(x.shape[0])
    dense = np.empty((0, len(z))) if dense is None else dense
    value: float = softmax_lists(
        parameters, x.data, x.indices, x.indptr, dense, starts, mass, hits, weight, z, gradient
    )
    return value - 0.5 * l2 * float(parameters @ parameters), gradient - l2 * parameters


def hit_weights(starts: NDArray[np.int64], hits: NDArray[np.int64]) -> Doubles:
    """What hits count: 1/√m each for a user with m of them, scaled to the sum 1."""
    users = np.searchsorted(starts, hits, side="right") - 1
    weight: Doubles = 1 / np.sqrt(np.bincount(users)[users])
    weight /= weight.sum()
    return weight


def maximise(
    function: Callable[[Doubles], Valued],
    start: Doubles,
    positive: NDArray[np.bool_] | None = None,
    most: Doubles | None = None,
) -> Doubles:
    """The parameters at the maximum of a concave function, found by L-BFGS-B from ``start``.

    Parameters marked ``positive`` stay at 0 or above, and none rises above ``most``.
    """

    def downhill(x: Doubles) -> Valued:
        value, gradient = function(x)
        return -value, -gradient

    kept = np.zeros(len(start), dtype=bool) if positive is None else positive
    highest = np.full(len(start), np.inf) if most is None else most
    low = np.where(kept, 0.0, -np.inf)
    bounds = [
        (a if np.isfinite(a) else None, b if np.isfinite(b) else None)
        for a, b in zip(low.tolist(), highest.tolist(), strict=True)
    ]
    options = {"maxiter": 300, "ftol": 1e-10, "gtol": 1e-6, "maxcor": 20}
    from scipy.optimize import minimize  # slow to import, and only a fit needs it

    with numpy_on_one_thread():  # a step has a few dozen numbers: threads would only wait
        found = minimize(  # type: ignore[call-overload]
            downhill, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options
        )
    best: Doubles = found.x
    return best


def ascend(
    function: Callable[[Doubles], Valued], start: Doubles, rate: float, steps: int
) -> Doubles:
    """Plain gradient ascent, as in the paper's M-step."""
    x = start
    for _ in range(steps):
        x = x + rate * function(x)[1]
    return x


def typical_strengths(found: Groundings) -> Doubles:
    """s_l: each rule's median strength over pairs for which it fires; 1 if it never does."""
    assert found.strengths is not None
    out = np.ones(found.n_rules)
    kind = np.uint16 if found.n_rules < 1 << 16 else np.int64  # NumPy sorts 16 bits by radix
    order = np.argsort(found.rules.astype(kind), kind="stable")
    # The upper median, a strength that occurs: np.median would take a mean of two.
    ends = np.searchsorted(found.rules[order], np.arange(found.n_rules + 1))
    for rule, (lo, hi) in enumerate(pairwise(ends.tolist())):
        if hi > lo:
            own = found.strengths[order[lo:hi]]
            out[rule] = np.partition(own, (hi - lo) // 2)[(hi - lo) // 2]
    return out


@dataclass(frozen=True, eq=False)
class Logic:
    """The learned logic model: logit p(u, v) = Σ_l w_l φ_l(u, v) + w₀ + w_pop · log(1 + pop(v))."""

    rules: RuleSet
    weights: Doubles  # [rules]
    feature: Feature = "logwalk"
    walk: Walk | None = None
    scales: Doubles | None = None  # [rules]; None for features of counts
    prior: float = 0.0
    popularity: float = 0.0  # w_pop
    expected: Doubles | None = None  # [items]: added to items that came after the fit

    def unit(self, graph: Graph) -> Doubles:
        """What the unit clauses contribute to each item: w₀ and its appeal; [items]."""
        return self.prior + self.appeal(graph)

    def appeal(self, graph: Graph) -> Doubles:
        """w_pop · log(1 + pop(v)), plus what similar items suggest for new ones; [items]."""
        appeal: Doubles = self.popularity * log_popularity(graph)
        return appeal if self.expected is None else appeal + self.expected

    def ground(
        self,
        graph: Graph,
        users: ArrayLike,
        items: ArrayLike,
        engine: Engine | None = None,
    ) -> Groundings:
        """The groundings of pairs, with strengths if the feature needs them."""
        return ground(graph, self.rules, users, items, walk=self.walk, engine=engine)

    def contributions(self, found: Groundings) -> Doubles:
        """w_l φ_l of each pair and rule that fires, in the order of the groundings' cells."""
        return feature_cells(found, self.feature, self.scales) * self.weights[found.rules]

    def pair_logits(self, graph: Graph, found: Groundings) -> Doubles:
        """logit p of grounded pairs."""
        return found.row_sums(self.contributions(found)) + self.unit(graph)[found.items]

    def logits(
        self,
        graph: Graph,
        users: ArrayLike,
        engine: Engine | None = None,
        *,
        observed: bool = True,
    ) -> NDArray[np.float32]:
        """logit p of all items for a block of users; [users, items].

        An observed pair is scored as if it hadn't been observed. ``observed=False`` skips the
        rules of observed pairs, for callers that leave these pairs out anyway.
        """
        own = np.asarray(users, dtype=np.int64)
        alone = LocalEngine(1) if engine is None else engine
        out = logits(graph, self.rules, own, self._formula, walk=self.walk, engine=alone)
        distinct, place = np.unique(own, return_inverse=True)
        near_users, near = near_items(graph, distinct, observed)
        if len(near):
            found = self.ground(graph, near_users, near, alone)
            by_rules = found.row_sums(self.contributions(found))
            rows = np.searchsorted(distinct, near_users)
            ends = np.searchsorted(rows, np.arange(len(distinct) + 1))
            for k, d in enumerate(place):
                span = slice(ends[d], ends[d + 1])
                out[k, near[span]] = by_rules[span]
        out += self.unit(graph).astype(np.float32)
        return out

    @property
    def _formula(self) -> Formula:
        scales = np.ones(len(self.rules)) if self.scales is None else self.scales
        return Formula(FEATURES.index(self.feature), self.weights, scales)


def blank_logic(rules: RuleSet, feature: Feature, walk: Walk | None) -> Logic:
    """A logic model whose rules all have weight 0."""
    scales = np.ones(len(rules)) if uses_strength(feature) else None
    return Logic(rules, np.zeros(len(rules)), feature, walk, scales)


_popularity: WeakKeyDictionary[Graph, Doubles] = WeakKeyDictionary()


def log_popularity(graph: Graph) -> Doubles:
    """log(1 + interactions) of each item of a graph; cached per graph."""
    known = _popularity.get(graph)
    if known is None:
        known = _popularity[graph] = np.log1p(graph.popularity)
        known.flags.writeable = False
    return known
