"""The listwise likelihood: which weights make held-out interactions stand out among their users'
candidates, with the encoder as a teacher where labels are few.

All of it is of arrays; ``mstep`` makes these of a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import Own
from loger.errors import LogerError
from loger.graph.arrays import Doubles
from loger.learning.pools import Pool
from loger.logic.mln import Logic, features, listwise, maximise, typical_strengths, uses_strength
from loger.metrics import ranking

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TEACHER_WEIGHTS = (300.0, 100.0, 30.0, 10.0)
"""What the encoder's expectation may count, in users with one label. Ten labels cannot tell weaker
teachers apart."""
DEFAULT_TEACHER_WEIGHT = 30.0
"""What it counts where there are no two users with labels to learn that from."""
SPREAD = 0.25
"""How far from 0 the logarithm of the temperature is expected to be; -0.33 to 0.02 on four sets."""
FOLDS = 5
ENOUGH_USERS = 100
"""Users with labels by whom teacher weights are compared, …"""
ENOUGH_TAUGHT = 50
"""… and users taught about meanwhile: one number needs no more."""


@dataclass(frozen=True, slots=True)
class Solved:
    """The weights that maximise the likelihood."""

    logic: Logic
    encoder_weight: float
    own: Own | None
    """What items' own parts count beside the encoder's sums, if that was to be learned."""
    sequence: float | None
    """m, the share of the sequence encoder in e, if that was to be learned."""
    bound_before: float
    bound: float
    """The objective with the weights it began with and with those it found."""


@dataclass(frozen=True, eq=False)
class Lists:
    """Candidates with their features, and how likely each is to be: what a softmax is fitted to."""

    columns: csr_array  # [rows, rules]
    beside: Doubles  # [parameters that are not of rules, rows]
    starts: NDArray[np.int64]  # [users + 1]
    hits: NDArray[np.int64]  # rows
    weights: Doubles  # [hits], adding up to 1
    beliefs: Doubles | None = None  # [rows]: the encoder's own scores, where it is to teach

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of_users(self, chosen: NDArray[np.bool_]) -> Lists:
        """Those of some users."""
        sizes = np.diff(self.starts)
        rows = np.repeat(chosen, sizes)
        kept = rows[self.hits]
        weights = self.weights[kept]
        return Lists(
            self.columns[np.flatnonzero(rows)],
            self.beside[:, rows],
            np.concatenate([[0], np.cumsum(sizes[chosen])]),
            np.cumsum(rows)[self.hits[kept]] - 1,
            weights / weights.sum() if len(weights) else weights,
            None if self.beliefs is None else self.beliefs[rows],
        )

    @property
    def labels(self) -> float:
        """What all hits count together, in users with one: a user with m hits counts √m."""
        _, m = np.unique(np.searchsorted(self.starts, self.hits, side="right"), return_counts=True)
        return float(np.sqrt(m).sum())

    def concatenate(self, others: Lists, labels: float) -> Lists:
        """Both, the others counting as much as so many users with one hit."""
        from scipy.sparse import csr_array, vstack

        share = self.labels / (self.labels + labels)
        return Lists(
            csr_array(vstack([self.columns, others.columns], format="csr")),
            np.concatenate([self.beside, others.beside], axis=1),
            np.concatenate([self.starts, self.starts[-1] + others.starts[1:]]),
            np.concatenate([self.hits, self.starts[-1] + others.hits]),
            np.concatenate([share * self.weights, (1 - share) * others.weights]),
        )

    def likelihood(self, w: Doubles, l2: float = 0.0) -> tuple[float, Doubles]:
        """The mean log-likelihood of the hits less ½λ‖w‖², and its gradient."""
        return listwise(w, self.columns, self.starts, self.hits, l2, self.weights, self.beside)

    def scores(self, w: Doubles) -> Doubles:
        """What weights make of the candidates; [rows]."""
        width = len(w) - len(self.beside)
        z: Doubles = self.columns @ w[:width] + w[width:] @ self.beside
        return z

    def per_user_log_likelihood(self, w: Doubles) -> Doubles:
        """What each user's hits add to the mean log-likelihood; [users]."""
        z = self.scores(w)
        totals = np.logaddexp.reduceat(z, self.starts[:-1])
        users = np.searchsorted(self.starts, self.hits, side="right") - 1
        values = self.weights * (z[self.hits] - totals[users])
        out: Doubles = np.bincount(users, weights=values, minlength=len(self)).astype(np.float64)
        return out

    def ndcg(self, w: Doubles, depth: int = 10) -> Doubles:
        """NDCG of each user's hits among the candidates; [users]."""
        z, taken = self.scores(w), np.zeros(len(self.columns.indptr) - 1, dtype=bool)
        taken[self.hits] = True
        found = np.zeros((len(self), depth), dtype=bool)
        for row, (first, end) in enumerate(pairwise(self.starts)):
            best = first + np.argsort(-z[first:end], kind="stable")[:depth]
            found[row, : len(best)] = taken[best]
        return ranking.ndcg(found, np.add.reduceat(taken, self.starts[:-1], dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Listwise:
    """The likelihood of the hits of a pool by weights of rules, popularity and encoder: maximised
    once for each limit of the encoder's weight, on columns that are made once."""

    logic: Logic
    """Which rules, by which feature at which scales."""
    lists: Lists
    unit: float
    """What the encoder's scores are measured in."""
    l2: float
    sequence: float = 0.0
    """What the sequence encoder's scores are measured in, if they have a weight of their own; it
    comes after the encoder's."""

    def objective(self, w: Doubles) -> tuple[float, Doubles]:
        """The likelihood of weights of rules, popularity, encoder and, if they are learned, items'
        own parts; and its gradient."""
        return self.lists.likelihood(w, self.l2)

    def solved(self, start: tuple[Logic, float] | None, max_encoder: float | None = None) -> Solved:
        """The best weights, found from those of a logic of the same rules and of the encoder, whose
        weight rises to ``max_encoder`` at most."""
        width, rest, first = len(self.logic.rules), len(self.lists.beside), self.zero
        if start is not None:
            first[:width] = start[0].weights
            first[width : width + 2] = start[0].popularity, start[1] * self.unit
        most = np.inf if max_encoder is None else max_encoder * self.unit
        first[width + 1] = min(first[width + 1], most)
        w = self.best(first, most)
        weight = float(w[width + 1]) / self.unit
        own = share = None
        if rest > 2 + bool(self.sequence):
            own = (w[-2] / weight, w[-1] / weight) if weight > 0 else (0.0, 0.0)
        if self.sequence:
            of_sequence = float(w[width + 2]) / self.sequence
            share = of_sequence / max(weight + of_sequence, 1e-300)
            weight += of_sequence
        logic = replace(self.logic, weights=w[:width], popularity=float(w[width]))
        return Solved(logic, weight, own, share, self.objective(first)[0], self.objective(w)[0])

    def best(self, first: Doubles, max_encoder: float = np.inf) -> Doubles:
        """The parameters at the maximum, found from some, the encoder's at most ``max_encoder``."""
        width = len(self.logic.rules)
        positive = np.ones(len(first), dtype=bool)
        positive[width] = False  # what is popular may count against,
        # and so may what the encoder knows of the item alone.
        positive[width + 2 + bool(self.sequence) :] = False
        most = np.full(len(first), np.inf)
        most[width + 1] = max_encoder
        dislikes = np.flatnonzero([rule.negative for rule in self.logic.rules])
        positive[dislikes], most[dislikes] = False, 0.0
        return maximise(self.objective, first, positive, most)

    @property
    def zero(self) -> Doubles:
        """Parameters that are all 0."""
        return np.zeros(len(self.logic.rules) + len(self.lists.beside))


# ── the encoder as a teacher (docs/adr/0015) ────────────────────────────────────────────


def temperature(labels: Lists) -> float:
    """The c by which softmax(c·s) of the encoder's own scores suits the hits best; 1, as it was
    trained, unless they say otherwise: log c has a prior, normal around 0."""
    assert labels.beliefs is not None
    if not len(labels.hits):
        return 1.0
    none, s = np.empty((len(labels.beliefs), 0)), labels.beliefs[None, :]
    users = len(np.unique(np.searchsorted(labels.starts, labels.hits, side="right")))
    precision = 1 / (users * SPREAD**2)  # the likelihood is a mean over users

    def by_encoder(x: Doubles) -> tuple[float, Doubles]:
        c = np.exp(x)
        value, slope = listwise(c, none, labels.starts, labels.hits, 0.0, labels.weights, s)
        return value - 0.5 * precision * float(x @ x), c * slope - precision * x

    return float(np.exp(maximise(by_encoder, np.zeros(1))[0]))


def expected(taught: Lists, c: float) -> Lists:
    """What the encoder expects of users: every candidate a hit of weight softmax(c·s), the soft
    targets of Eq. 3; each user counts the same."""
    assert taught.beliefs is not None
    z, starts = c * taught.beliefs, taught.starts
    owner = np.repeat(np.arange(len(taught)), np.diff(starts))
    highest = np.full(len(taught), -np.inf)
    np.maximum.at(highest, owner, z)
    t = np.exp(z - highest[owner])
    t /= len(np.unique(owner)) * np.bincount(owner, t)[owner]
    return replace(taught, hits=np.arange(len(z)), weights=t)


def best_teacher_weight(objective: Listwise, taught: Lists) -> float:
    """What the encoder's expectation counts: the geometric mean of ``TEACHER_WEIGHTS``, each by how
    likely it makes the labels of users who are left out.

    A few labels say little, and then it is a middle weight; many say which is best.
    """
    labels = _some(objective.lists, ENOUGH_USERS)
    if len(labels) < 2 or not len(labels.hits):
        return DEFAULT_TEACHER_WEIGHT
    fewer, some = replace(objective, lists=labels), _some(taught, ENOUGH_TAUGHT)
    likely = cross_validated(fewer, some, TEACHER_WEIGHTS, _log_likelihoods).sum(1)
    shares = np.exp(likely - likely.max())
    return float(np.exp(shares @ np.log(TEACHER_WEIGHTS) / shares.sum()))


def cross_validated(
    objective: Listwise,
    taught: Lists | None,
    teacher_weights: Sequence[float],
    judged: Callable[[Lists, Doubles], Doubles],
) -> Doubles:
    """How each user's labels are judged by the weights that the others' teach, and the encoder at
    each of its weights, in folds of users; [teacher weights, users]."""
    labels = objective.lists
    fold, out = np.arange(len(labels)) % FOLDS, np.zeros((len(teacher_weights), len(labels)))
    for k in range(min(FOLDS, len(labels))):
        known, new = labels.of_users(fold != k), labels.of_users(fold == k)
        lesson, w = taught and expected(taught, temperature(known)), objective.zero
        for row, weight in zip(out, teacher_weights, strict=True):
            lists = known.concatenate(lesson, weight) if lesson and weight else known
            w = replace(objective, lists=lists).best(w)  # from the last one: it is near
            row[fold == k] = judged(new, w)
    return out


def _log_likelihoods(lists: Lists, w: Doubles) -> Doubles:
    """The log-likelihood of each user's labels."""
    return lists.labels * lists.per_user_log_likelihood(w)


def _some(lists: Lists, most: int) -> Lists:
    """Those of so many users at most, evenly from all."""
    if len(lists) <= most:
        return lists
    some = np.zeros(len(lists), dtype=bool)
    some[np.arange(most) * len(lists) // most] = True
    return lists.of_users(some)


# ── from a pool to its likelihood ───────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class ListwiseSettings:
    """How the likelihood of a pool is made: which rules by which feature, and what else counts."""

    logic: Logic
    popularity: Doubles | None
    """log(1 + interactions) [items]; None leaves it out."""
    with_encoder: bool
    l2: float
    scales: Doubles | None = None
    """Of strengths; None: those of the pool."""
    saturation: float = 1.0
    """The scale of ``logwalk`` in median strengths."""
    unit: float = 1.0
    own_parts: NDArray[np.floating] | None = None
    """What items have beside the encoder's sums [2, items], if what it counts is learned too."""
    sequence_unit: float = 0.0
    """What the sequence encoder's scores are measured in, if their weight is learned too."""

    def objective(self, pool: Pool) -> Listwise:
        """The likelihood of a pool's hits and of what the encoder expects of the users of
        ``pool.taught``, which counts as much as the pool says."""
        labels, taught = self._labels(pool), self._taught(pool)
        if taught is None or not pool.teacher:
            return labels
        lesson = expected(taught, temperature(labels.lists))
        return replace(labels, lists=labels.lists.concatenate(lesson, pool.teacher))

    def teacher_weight(self, pool: Pool) -> float:
        """What the encoder's expectation should count, by users with labels who are left out."""
        taught = self._taught(pool)
        return 0.0 if taught is None else best_teacher_weight(self._labels(pool), taught)

    def cross_validated_ndcg(self, pool: Pool) -> Doubles:
        """NDCG of each user with a hit among the candidates, by the weights that others' teach."""
        labels, taught = self._labels(pool), self._taught(pool)
        each: Doubles = cross_validated(labels, taught, (pool.teacher,), Lists.ndcg)[0]
        return each

    def _labels(self, pool: Pool) -> Listwise:
        """The likelihood of the hits alone."""
        if not len(pool.hits) and pool.taught is None:
            raise LogerError(
                "no validation item is among the candidates; check that item IDs match your facts"
            )
        scales = self._scales(pool)
        lists = self._lists(pool.of_hits(), scales)
        logic = replace(self.logic, scales=scales)
        return Listwise(logic, lists, self.unit, self.l2, self.sequence_unit)

    def _taught(self, pool: Pool) -> Lists | None:
        taught = pool.taught
        return None if taught is None else self._lists(taught, self._scales(pool))

    def _scales(self, pool: Pool) -> Doubles | None:
        feature = self.logic.feature
        if self.scales is not None or not uses_strength(feature):
            return self.scales
        return typical_strengths(pool.found) * (self.saturation if feature == "logwalk" else 1)

    def _lists(self, pool: Pool, scales: Doubles | None) -> Lists:
        items = pool.found.items
        popular = np.zeros(len(items)) if self.popularity is None else self.popularity[items]
        own = [] if self.own_parts is None else list(self.own_parts[:, items])
        z = [] if pool.sequence is None else [pool.sequence / self.sequence_unit]
        beside = np.stack([popular, pool.encoder * (self.with_encoder / self.unit), *z, *own])
        columns = features(pool.found, self.logic.feature, scales)
        beliefs = None if pool.beliefs is None else pool.beliefs.astype(np.float64)
        return Lists(columns, beside, pool.starts, pool.hits, pool.hit_weights, beliefs)
