"""Calibration: from an encoder's scores to probabilities q that are comparable with p (METHOD 2).

S = q + α·p depends on the scale of q. So q = σ(a·s + b) is fitted on held-out pairs against
uniform unobserved items of the same users. What q means depends on how many of these there are per
held-out pair. Against one, q is the probability of being the observed of two items. That is near 1
for all of a user's best items, so it can't tell them apart. Against all of them, q is the
probability that the user takes the item. A few sampled negatives are enough for any base rate,
because their weights let them represent the others (importance weighting).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import Encoder
from loger.engine import Engine, LocalEngine
from loger.errors import LogerError
from loger.graph.arrays import Doubles, expit

if TYPE_CHECKING:
    from loger.data.splits import Split

log = logging.getLogger(__name__)
BLOCK = 1024
"""Users whose items are scored at a time."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """q = σ(slope · s + intercept)."""

    slope: float = 1.0
    intercept: float = 0.0

    def __call__(self, scores: NDArray[np.floating]) -> Doubles:
        """The probabilities for some scores."""
        out: Doubles = expit(self.logit(scores))
        return out

    def logit(self, scores: NDArray[np.floating]) -> Doubles:
        """The calibrated scores before σ."""
        return self.slope * np.asarray(scores, dtype=np.float64) + self.intercept

    def at_odds(self, times: float) -> Calibration:
        """The calibration if observed pairs are ``times`` times as frequent."""
        return Calibration(self.slope, self.intercept + float(np.log(times)))


def calibrate(
    encoder: Encoder, split: Split, seed: int = 0, engine: Engine | None = None
) -> Calibration:
    """Calibrate an encoder, trained on a split's graph, with the split's validation pairs."""
    scores, labels = validation_scores(encoder, split, seed, engine)
    return fit_calibration(scores, labels)


def validation_scores(
    encoder: Encoder, split: Split, seed: int = 0, engine: Engine | None = None
) -> tuple[Doubles, NDArray[np.bool_]]:
    """Scores of all validation pairs and of as many unobserved ones, and which are which."""
    users, items = split.pairs("validation")
    if not len(users):
        raise LogerError(
            "calibration needs validation pairs, but the split has none; split with validation=0.1"
        )
    others = split.unobserved(users, 1, seed)[:, 0]
    order = np.argsort(users, kind="stable")
    users, items, others = users[order], items[order], others[order]
    distinct, rows = np.unique(users, return_inverse=True)
    blocks = [
        (distinct[lo : lo + BLOCK], rows[a:b] - lo, items[a:b], others[a:b])
        for lo in range(0, len(distinct), BLOCK)
        for a, b in (np.searchsorted(rows, [lo, lo + BLOCK]),)
    ]
    parts = list((engine or LocalEngine()).map("calibrating", _scored, blocks, encoder))
    labels = np.repeat([True, False], len(users))
    return np.concatenate([seen for seen, _ in parts] + [other for _, other in parts]), labels


def _scored(encoder: Encoder, block: tuple[NDArray[np.integer], ...]) -> tuple[Doubles, Doubles]:
    """The scores of a block's pairs, and of the unobserved pairs of the same users."""
    users, rows, items, others = block
    scores = encoder.score_items(users)
    return scores[rows, items].astype(np.float64), scores[rows, others].astype(np.float64)


def fit_calibration(
    scores: NDArray[np.floating],
    labels: NDArray[np.bool_],
    weights: NDArray[np.floating] | None = None,
) -> Calibration:
    """Maximum likelihood of σ(a·s + b), by Newton's method.

    Targets are softened as in Platt (1999), so that the fit exists even if scores separate the
    labels. ``weights`` are how many pairs each one represents. The slope is at least 0: scores that
    are lower for true labels are taken to say nothing, rather than the opposite.
    """
    s, spread = np.asarray(scores, dtype=np.float64), float(np.std(scores)) or 1.0
    centre = float(np.mean(s))
    x = np.stack([(s - centre) / spread, np.ones(len(s))], axis=1)
    each = np.ones(len(s)) if weights is None else np.asarray(weights, dtype=np.float64)
    n_pos, n_neg = float(each[labels].sum()), float(each[~labels].sum())
    target = np.where(labels, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    w = np.zeros(2)
    for _ in range(100):
        p = expit(x @ w)
        gradient = x.T @ (each * (p - target))
        curvature = (x * (each * p * (1 - p))[:, None]).T @ x + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        step *= min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
        w -= step
        if np.abs(step).max() < 1e-10:
            break
    if w[0] <= 0:
        log.warning("calibration: the %d true pairs score no higher than the others", labels.sum())
        rate = float(np.average(target, weights=each))
        return Calibration(0.0, float(np.log(rate / (1 - rate))))
    return Calibration(float(w[0] / spread), float(w[1] - w[0] * centre / spread))
