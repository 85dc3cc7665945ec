"""The dial between rules and encoder (METHOD 11): how much of the leads the encoder carries, what
it costs to let it carry less, and the least that costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from loger.learning.derived_config import Tried
from loger.learning.em import EM
from loger.learning.fitted import FittedLogic
from loger.metrics.significance import resampled_means

SHARES = (0.0, 0.25, 0.5, 0.75)
"""Of the encoder's best weight, what is tried."""
MAX_LOSS = 0.005
"""Of NDCG: the mean loss that a lower opacity may cost, if chance may have made it too."""
USERS = 1500
"""Development users on whom opacities are compared."""
MAX_RISK = 0.05
"""Of NDCG: what it may cost at the lower end of the interval, which is to be no wider than twice
that. By few users little can be told: four whose items no list has would vote for no encoder."""


class Opacity(NamedTuple):
    """What one setting of the dial comes to on development users."""

    share: float
    """Of the encoder's best weight."""
    opacity: float
    ndcg: float
    difference: float
    """From the encoder's best weight, paired by user, …"""
    low: float
    high: float
    """… with a 95 % interval."""

    @property
    def free(self) -> bool:
        """Whether it costs nothing that can be told from chance, little in the mean, and surely not
        much."""
        best = self.ndcg - self.difference
        sure = self.low >= -MAX_RISK * best and self.high - self.low <= 2 * MAX_RISK * best
        return self.high >= 0 and self.difference >= -MAX_LOSS * best and sure

    def __str__(self) -> str:
        best = max(self.ndcg - self.difference, 1e-12)
        change, low, high = (f"{x / best:+.1%}" for x in (self.difference, self.low, self.high))
        return f"encoder carries {self.opacity:.0%}: NDCG {change} ({low} … {high})"


def opacity_curve(em: EM, shares: Sequence[float] = (*SHARES, 1.0)) -> list[Opacity]:
    """What lower weights of the encoder come to, the rules' weights learned beside each."""
    return [row for row, _ in _tried(em, shares, derived=True)]


def least_opaque(em: EM, first: FittedLogic) -> tuple[EM, FittedLogic, list[Tried]]:
    """The first M-step with the least opacity that is free, the problem with that limit, and what
    was tried; as they were where a limit was given or there is nothing to lower."""
    config = em.config
    settled = config.opacity is not None or not len(em.dev_users)
    if settled or config.likelihood != "listwise" or config.fusion != "logit":
        return em, first, []
    if first.fusion.encoder_weight <= 0:
        return em.with_opacity(0.0), first, []
    found = _tried(em, SHARES, any(rule.derived for rule in first.logic.rules))
    tried: list[Tried] = [("opacity", str(row), row.ndcg) for row, _ in found]
    for row, fitted in found:
        if row.free:
            return em.with_opacity(row.opacity), fitted, tried
    return em.with_opacity(1.0), first, tried


def _tried(em: EM, shares: Sequence[float], derived: bool) -> list[tuple[Opacity, FittedLogic]]:
    *fitted, best = em.with_encoder((*shares, 1.0), derived)
    free = em.dev_metrics(best, USERS)[0]
    out = []
    for share, one in zip(shares, fitted, strict=True):
        ndcg, recall = em.dev_metrics(one, USERS)
        means = resampled_means((ndcg - free)[:, None], 1000, 0)
        low, high = (float(x) for x in np.quantile(means, [0.025, 0.975]))
        mean, difference = float(ndcg.mean()), float((ndcg - free).mean())
        row = replace(one.trace[0], ndcg=mean, recall=float(recall.mean()))
        told = Opacity(share, em.opacity(one), mean, difference, low, high)
        out.append((told, replace(one, trace=(row,))))
    return out
