"""Settings of the logic model, chosen on development users: walks, and whether derived relations
are of use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loger.config import with_setting
from loger.learning.derived_config import Tried
from loger.learning.em import EM
from loger.learning.em_config import EMConfig
from loger.learning.fitted import FittedLogic, Round
from loger.learning.stages import NOTHING_KEPT, Stages, started
from loger.logic.mln import Floats
from loger.metrics.significance import resampled_means

RECENCIES = (0.0, 0.5, 1.0)
"""What a fit tries where the data have times, unless told otherwise, …"""
STRENGTHS = (0.0, 0.5, 1.0)
"""… where they have strengths of interactions: not at all, by the root, in proportion …"""
POPULARITIES = (0.0, 0.75)
"""… and then of the exponent by which popular items are discounted: dense data want it."""


def tuned(
    problem: Callable[[EMConfig], EM],
    config: EMConfig,
    tune: Mapping[str, Sequence[Any]],
    stages: Stages = NOTHING_KEPT,
) -> tuple[EM, FittedLogic, list[Tried]]:
    """The problem with settings chosen on development users, one after another; its first M-step,
    and what was tried.

    Other walks are tried on the candidates of the settings that were given. Where users with labels
    are few, none of them is a development user, and labels that are left out choose.
    """
    best, tried = problem(config), list[Tried]()
    if best.few:
        return _likely(problem, best, tune, stages)
    first = started(best, stages)
    for name, values in tune.items():
        results: list[tuple[float, EM, FittedLogic]] = []
        for value in values:
            em = _other(problem, best, with_setting(best.config, name, value))
            fitted = first if em is best else started(em, stages)
            results.append((fitted.trace[0].ndcg, em, fitted))
            tried.append((name, value, fitted.trace[0].ndcg))
        _, best, first = max(results, key=lambda row: row[0])
    return best, first, tried


def _likely(
    problem: Callable[[EMConfig], EM], best: EM, tune: Mapping[str, Sequence[Any]], stages: Stages
) -> tuple[EM, FittedLogic, list[Tried]]:
    """The problem whose settings are best for labels that are left out. Exponents of a walk are
    the mean of the values tried, each as often as it is best of users drawn anew: a few labels tell
    little, and then it is a middle one."""
    tried = list[Tried]()
    for name, values in tune.items():
        others = [_other(problem, best, with_setting(best.config, name, v)) for v in values]
        shares = _shares([em.left_out() for em in others])
        tried += [(name, v, float(share)) for v, share in zip(values, shares, strict=True)]
        likeliest = others[int(shares.argmax())]
        if all(replace(em.config, walk=best.config.walk) == best.config for em in others):
            mean = round(float(shares @ np.array(values, dtype=np.float64)), 2)
            likeliest = _other(problem, best, with_setting(best.config, name, mean))
        best = likeliest
    return best, started(best, stages), tried


def _shares(told: Sequence[Floats]) -> Floats:
    """How often each is best in the mean over users, if these are drawn again and again."""
    if not len(told[0]):
        return np.full(len(told), 1 / len(told))
    means = resampled_means(np.stack(told, axis=1), 1000, 0)
    best = means >= means.max(1, keepdims=True) - 1e-12
    out: Floats = (best / best.sum(1, keepdims=True)).mean(0)
    return out


def with_or_without(em: EM, first: FittedLogic) -> tuple[FittedLogic, list[Tried]]:
    """The first M-step with rules over derived relations, or without where these are better without
    on development users by more than chance (one standard error), and what each came to."""
    derived = np.array([rule.derived for rule in first.logic.rules])
    if not derived.any() or derived.all() or not (em.few or len(em.dev_users)):
        return first, []
    worth = _shares([em.left_out(), em.left_out(derived=False)]) if em.few else None
    if worth is not None and worth[0] >= worth[1]:
        return first, _of_derived(*worth.tolist())
    logic = replace(first.logic, weights=np.where(derived, 0.0, first.logic.weights))
    fewer = replace(first, logic=logic).without_idle_rules()
    plain, before, after = em.m_step(fewer)
    if worth is not None:
        row = replace(first.trace[0], bound_before=before, bound=after)
        return replace(plain, trace=(row,)), _of_derived(*worth.tolist())
    used, _ = em.dev_metrics(first)
    unused, recalls = em.dev_metrics(plain)
    ndcg, recall, gain = float(unused.mean()), float(recalls.mean()), unused - used
    tried = _of_derived(first.trace[0].ndcg, ndcg)
    if gain.mean() <= gain.std() / np.sqrt(len(gain)):
        return first, tried
    return replace(plain, trace=(Round(0, before, after, 0, 0, ndcg, recall),)), tried


def _of_derived(used: float, unused: float) -> list[Tried]:
    return [("derived", True, used), ("derived", False, unused)]


def _other(problem: Callable[[EMConfig], EM], best: EM, settings: EMConfig) -> EM:
    """The problem with other settings, on the same candidates if only its walk is another."""
    if settings == best.config:
        return best
    if replace(settings, walk=best.config.walk) != best.config:
        return problem(settings)
    return best.with_walk(settings.walk)
