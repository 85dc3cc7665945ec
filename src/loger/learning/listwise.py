"""The listwise likelihood as a question: which weights make held-out interactions stand out among
their users' candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.encoder.folding import Own
from loger.logic.mln import Floats, Logic, listwise, maximise
from loger.metrics import ranking

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, slots=True)
class Solved:
    """What an M-step came to: the logic, the encoder's weight, the objective before and after."""

    logic: Logic
    encoder_weight: float
    own: Own | None
    """What items' own parts count beside the encoder's sums, if that was to be learned."""
    before: float
    after: float


@dataclass(frozen=True, eq=False)
class Lists:
    """Candidates with their features, and how likely each is to be: what a softmax is fitted to."""

    columns: csr_array  # [rows, rules]
    beside: Floats  # [parameters that are not of rules, rows]
    starts: NDArray[np.int64]  # [users + 1]
    hits: NDArray[np.int64]  # rows
    weights: Floats  # [hits], adding up to 1
    beliefs: Floats | None = None  # [rows]: the encoder's own scores, where it is to teach

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

    def and_also(self, others: Lists, labels: float) -> Lists:
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

    def likelihood(self, w: Floats, l2: float = 0.0) -> tuple[float, Floats]:
        """The mean log-likelihood of the hits less ½λ‖w‖², and its gradient."""
        return listwise(w, self.columns, self.starts, self.hits, l2, self.weights, self.beside)

    def scores(self, w: Floats) -> Floats:
        """What weights make of the candidates; [rows]."""
        width = len(w) - len(self.beside)
        z: Floats = self.columns @ w[:width] + w[width:] @ self.beside
        return z

    def of_each(self, w: Floats) -> Floats:
        """What each user's hits add to the mean log-likelihood; [users]."""
        z = self.scores(w)
        totals = np.logaddexp.reduceat(z, self.starts[:-1])
        users = np.searchsorted(self.starts, self.hits, side="right") - 1
        values = self.weights * (z[self.hits] - totals[users])
        out: Floats = np.bincount(users, weights=values, minlength=len(self)).astype(np.float64)
        return out

    def ndcg(self, w: Floats, depth: int = 10) -> Floats:
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
    """Which weights of rules, popularity and encoder make the hits of a pool most likely: asked
    once for each limit of the encoder's, on columns that are made once."""

    logic: Logic
    """Which rules, by which feature at which scales."""
    lists: Lists
    unit: float
    """What the encoder's scores are measured in."""
    l2: float

    def objective(self, w: Floats) -> tuple[float, Floats]:
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
        own = None
        if rest > 2:
            own = (w[-2] / weight, w[-1] / weight) if weight > 0 else (0.0, 0.0)
        logic = replace(self.logic, weights=w[:width], popularity=float(w[width]))
        return Solved(logic, weight, own, self.objective(first)[0], self.objective(w)[0])

    def best(self, first: Floats, max_encoder: float = np.inf) -> Floats:
        """The parameters at the maximum, found from some, the encoder's at most ``max_encoder``."""
        width = len(self.logic.rules)
        positive = np.ones(len(first), dtype=bool)
        positive[width] = False  # what is popular may count against,
        positive[width + 2 :] = False  # and so may what the encoder knows of the item alone
        most = np.full(len(first), np.inf)
        most[width + 1] = max_encoder
        return maximise(self.objective, first, positive, most)

    @property
    def zero(self) -> Floats:
        """Parameters that say nothing."""
        return np.zeros(len(self.logic.rules) + len(self.lists.beside))
