"""The listwise likelihood: which weights make held-out interactions stand out among candidates.

Where labels are few, the encoder also teaches: its own ranking of some users' candidates counts as
soft labels. Everything here works on arrays; ``mstep`` makes these from a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.graph.arrays import Doubles
from loger.logic.mln import Logic, listwise, maximise
from loger.metrics import ranking

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TEACHER_WEIGHTS = (300.0, 100.0, 30.0, 10.0)
"""Weights of the encoder's ranking that are tried, in users with one label. Ten labels cannot tell
weaker teachers apart."""
DEFAULT_TEACHER_WEIGHT = 30.0
"""The weight if fewer than two users have labels."""
SPREAD = 0.25
"""Prior standard deviation of the log temperature; on four data sets it was -0.33 to 0.02."""
FOLDS = 5
ENOUGH_USERS = 100
"""Users with labels on whom teacher weights are compared …"""
ENOUGH_TAUGHT = 50
"""… and users whose candidates the encoder ranks meanwhile: one number needs no more."""


@dataclass(frozen=True, eq=False)
class Lists:
    """Candidates with their features, and which of them are hits: the data of a softmax."""

    columns: csr_array  # [rows, rules]
    dense: Doubles  # [other parameters, rows]: popularity, encoder, …
    starts: NDArray[np.int64]  # [users + 1]
    hits: NDArray[np.int64]  # rows
    weights: Doubles  # [hits], with sum 1
    beliefs: Doubles | None = None  # [rows]: the encoder's own scores, if it teaches

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of_users(self, chosen: NDArray[np.bool_]) -> Lists:
        """The candidates of some users."""
        sizes = np.diff(self.starts)
        rows = np.repeat(chosen, sizes)
        kept = rows[self.hits]
        weights = self.weights[kept]
        return Lists(
            self.columns[np.flatnonzero(rows)],
            self.dense[:, rows],
            np.concatenate([[0], np.cumsum(sizes[chosen])]),
            np.cumsum(rows)[self.hits[kept]] - 1,
            weights / weights.sum() if len(weights) else weights,
            None if self.beliefs is None else self.beliefs[rows],
        )

    def at_most(self, n: int) -> Lists:
        """The candidates of at most n users, evenly spread."""
        if len(self) <= n:
            return self
        some = np.zeros(len(self), dtype=bool)
        some[np.arange(n) * len(self) // n] = True
        return self.of_users(some)

    @property
    def labels(self) -> float:
        """What all hits count together, in users with one hit: a user with m hits counts √m."""
        _, m = np.unique(np.searchsorted(self.starts, self.hits, side="right"), return_counts=True)
        return float(np.sqrt(m).sum())

    def concatenate(self, others: Lists, labels: float) -> Lists:
        """Both, where the others count as much as ``labels`` users with one hit."""
        from scipy.sparse import csr_array, vstack

        # Both lists' weights add up to 1; so do these.
        share = self.labels / (self.labels + labels)
        return Lists(
            csr_array(vstack([self.columns, others.columns], format="csr")),
            np.concatenate([self.dense, others.dense], axis=1),
            np.concatenate([self.starts, self.starts[-1] + others.starts[1:]]),
            np.concatenate([self.hits, self.starts[-1] + others.hits]),
            np.concatenate([share * self.weights, (1 - share) * others.weights]),
        )

    def likelihood(self, w: Doubles, l2: float = 0.0) -> tuple[float, Doubles]:
        """The mean log-likelihood of the hits minus ½λ‖w‖², and its gradient."""
        return listwise(w, self.columns, self.starts, self.hits, l2, self.weights, self.dense)

    def scores(self, w: Doubles) -> Doubles:
        """The candidates' scores for some weights; [rows]."""
        width = len(w) - len(self.dense)
        z: Doubles = self.columns @ w[:width] + w[width:] @ self.dense
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
    """The objective of the listwise M-step.

    Its parameters are, in this order: the rules' weights, the weights of popularity and of the
    encoder's scores, that of the sequence encoder's if it is learned, and those of items' own parts
    if they are learned.
    """

    logic: Logic
    """Which rules, by which feature at which scales."""
    labels: Lists
    """The hits of users with labels."""
    taught: Lists | None
    """The candidates that the encoder ranks as a teacher."""
    teacher: float
    """The weight of that ranking, in users with one label."""
    l2: float
    unit: float
    """The encoder's scores are measured in this."""
    sequence_unit: float
    """The sequence encoder's scores are measured in this; 0 if its weight isn't learned."""

    def __call__(self, w: Doubles) -> tuple[float, Doubles]:
        """The penalised mean log-likelihood, and its gradient."""
        return self.lists.likelihood(w, self.l2)

    @cached_property
    def lists(self) -> Lists:
        """The labels and, if the encoder teaches, its ranking as soft labels."""
        if self.taught is None or not self.teacher:
            return self.labels
        lesson = expected(self.taught, temperature(self.labels))
        return self.labels.concatenate(lesson, self.teacher)

    def best(self, first: Doubles, max_encoder: float = np.inf) -> Doubles:
        """The parameters at the maximum, found from ``first``, with the encoder's weight at most
        ``max_encoder``."""
        width = len(self.logic.rules)
        positive = np.ones(len(first), dtype=bool)
        # Popularity may count against an item, and so may its own parts; rules may not.
        positive[width] = False
        positive[width + 2 + bool(self.sequence_unit) :] = False
        most = np.full(len(first), np.inf)
        most[width + 1] = max_encoder
        dislikes = np.flatnonzero([rule.negative for rule in self.logic.rules])
        positive[dislikes], most[dislikes] = False, 0.0
        return maximise(self, first, positive, most)

    @property
    def zero(self) -> Doubles:
        """Parameters that are all 0."""
        return np.zeros(len(self.logic.rules) + len(self.labels.dense))


# ── the encoder as a teacher (docs/adr/0015) ────────────────────────────────────────────


def temperature(labels: Lists) -> float:
    """The c for which softmax(c·s) of the encoder's own scores fits the hits best.

    It was trained with c = 1, so log c has a normal prior around 0, and labels must say otherwise.
    """
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
    """The encoder's ranking as soft labels, like q in Eq. 3.

    Every candidate is a hit of weight softmax(c·s), and each user counts the same.
    """
    assert taught.beliefs is not None
    z, starts = c * taught.beliefs, taught.starts
    owner = np.repeat(np.arange(len(taught)), np.diff(starts))
    highest = np.full(len(taught), -np.inf)  # subtracted, so that exp can't overflow
    np.maximum.at(highest, owner, z)
    t = np.exp(z - highest[owner])
    t /= len(np.unique(owner)) * np.bincount(owner, t)[owner]
    return replace(taught, hits=np.arange(len(z)), weights=t)


def best_teacher_weight(objective: Listwise) -> float:
    """The geometric mean of ``TEACHER_WEIGHTS``, each weighted by how likely it makes the labels of
    left-out users.

    A few labels say little, and the mean is a middle weight; many labels say which is best.
    """
    if objective.taught is None:
        return 0.0
    labels = objective.labels.at_most(ENOUGH_USERS)
    if len(labels) < 2 or not len(labels.hits):
        return DEFAULT_TEACHER_WEIGHT
    fewer = replace(objective, labels=labels, taught=objective.taught.at_most(ENOUGH_TAUGHT))
    likely = cross_validated(fewer, TEACHER_WEIGHTS, _log_likelihoods).sum(1)
    shares = np.exp(likely - likely.max())
    return float(np.exp(shares @ np.log(TEACHER_WEIGHTS) / shares.sum()))


def cross_validated(
    objective: Listwise,
    teacher_weights: Sequence[float],
    judged: Callable[[Lists, Doubles], Doubles],
) -> Doubles:
    """How good each user's labels are under weights learned from the other users.

    Users are left out in folds, once for each weight of the teacher. ``judged`` takes the left-out
    users' candidates and the learned weights. Returns [teacher weights, users].
    """
    labels, taught = objective.labels, objective.taught
    # Users' numbers say nothing about their labels, so every fifth is as good as a random fifth.
    fold, out = np.arange(len(labels)) % FOLDS, np.zeros((len(teacher_weights), len(labels)))
    for k in range(min(FOLDS, len(labels))):
        known, new = labels.of_users(fold != k), labels.of_users(fold == k)
        lesson, w = taught and expected(taught, temperature(known)), objective.zero
        for row, weight in zip(out, teacher_weights, strict=True):
            lists = known.concatenate(lesson, weight) if lesson and weight else known
            w = replace(objective, labels=lists, taught=None).best(w)  # the last w is near
            row[fold == k] = judged(new, w)
    return out


def _log_likelihoods(lists: Lists, w: Doubles) -> Doubles:
    """The log-likelihood of each user's labels."""
    return lists.labels * lists.per_user_log_likelihood(w)
