"""What a fit chooses on development users: walks, whether the order of interactions and derived
relations are of use, and the dial between rules and encoder (METHOD 11): how much of the leads the
encoder carries, what it costs to let it carry less, and the least that costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np

from loger.config import with_setting
from loger.encoder.sequence import Sequence as SequenceEncoder
from loger.graph.arrays import Doubles
from loger.learning.em import EM
from loger.learning.fitted import FittedLogic, Round
from loger.learning.mstep import listwise_of, listwise_settings, solve
from loger.learning.pools import Pool
from loger.logic.config import EMConfig, Tried
from loger.metrics.report import resampled_means
from loger.rules import RuleSet

RECENCY_EXPONENTS = (0.0, 0.5, 1.0)
"""What a fit tries where the data have times, unless told otherwise, …"""
STRENGTH_EXPONENTS = (0.0, 0.5, 1.0)
"""… where they have strengths of interactions: not at all, by the root, in proportion …"""
POPULARITY_EXPONENTS = (0.0, 0.75)
"""… and then of the exponent by which popular items are discounted: dense data want it."""


SHARES = (0.0, 0.25, 0.5, 0.75)
"""Of the encoder's best weight, what is tried."""
MAX_LOSS = 0.005
"""Of NDCG: the mean loss that a lower encoder share may cost, if chance may have made it too."""
USERS = 1500
"""Development users on whom encoder shares are compared."""
MAX_RISK = 0.05
"""Of NDCG: what it may cost at the lower end of the interval, which is to be no wider than twice
that. By few users little can be told: four whose items no list has would vote for no encoder."""


Start = Callable[[EM], FittedLogic]
"""The first M-step of a problem."""


def tuned(
    problem: Callable[[EMConfig], EM],
    config: EMConfig,
    tune: Mapping[str, Sequence[Any]],
    start: Start = methodcaller("start"),
) -> tuple[EM, FittedLogic, list[Tried]]:
    """The problem with settings chosen on development users, one after another; its first M-step,
    and what was tried.

    Other walks are tried on the candidates of the settings that were given. Where users with labels
    are few, none of them is a development user, and labels that are left out choose. ``start``
    makes the first M-step of a problem, or reads it where it was kept.
    """
    best, tried = problem(config), list[Tried]()
    if best.few:
        return _tuned_by_folds(problem, best, tune, start)
    first = start(best)
    for name, values in tune.items():
        results: list[tuple[float, EM, FittedLogic]] = []
        for value in values:
            em = _other(problem, best, with_setting(best.config, name, value))
            fitted = first if em is best else start(em)
            results.append((fitted.trace[0].ndcg, em, fitted))
            tried.append((name, value, fitted.trace[0].ndcg))
        _, best, first = max(results, key=lambda row: row[0])
    return best, first, tried


def _tuned_by_folds(
    problem: Callable[[EMConfig], EM], best: EM, tune: Mapping[str, Sequence[Any]], start: Start
) -> tuple[EM, FittedLogic, list[Tried]]:
    """The problem whose settings are best for labels that are left out. Exponents of a walk are
    the mean of the values tried, each as often as it is best for resampled users: a few labels tell
    little, and then it is a middle one."""
    tried = list[Tried]()
    for name, values in tune.items():
        others = [_other(problem, best, with_setting(best.config, name, v)) for v in values]
        shares = _shares([cross_validated_ndcg(em) for em in others])
        tried += [(name, v, float(share)) for v, share in zip(values, shares, strict=True)]
        likeliest = others[int(shares.argmax())]
        if all(replace(em.config, walk=best.config.walk) == best.config for em in others):
            mean = round(float(shares @ np.array(values, dtype=np.float64)), 2)
            likeliest = _other(problem, best, with_setting(best.config, name, mean))
        best = likeliest
    return best, start(best), tried


def _shares(values: Sequence[Doubles]) -> Doubles:
    """How often each is best in the mean over users, if these are drawn again and again."""
    if not len(values[0]):
        return np.full(len(values), 1 / len(values))
    means = resampled_means(np.stack(values, axis=1), 1000, 0)
    best = means >= means.max(1, keepdims=True) - 1e-12
    out: Doubles = (best / best.sum(1, keepdims=True)).mean(0)
    return out


def choose_encoders(
    em: EM, first: FittedLogic, sequence: SequenceEncoder | None, start: Start
) -> tuple[EM, FittedLogic, list[Tried]]:
    """The first M-step with TransE alone, or with the sequence encoder too where that is better on
    development users by more than chance (one standard error); the problem of that, and what each
    came to. If TransE gets no weight beside it, the sequence encoder stands alone."""
    if sequence is None:
        return em, first, []
    both = em.with_sequence(sequence)
    second = start(both)
    gain = both.dev_metrics(second)[0] - em.dev_metrics(first)[0]
    share = second.fusion.sequence
    which = "sequence and histories" if share < 1 else "sequence"
    came_to = {"histories": first.trace[0].ndcg, which: second.trace[0].ndcg}
    tried: list[Tried] = [("encoder", name, ndcg) for name, ndcg in came_to.items()]
    if share > 0 and gain.mean() > gain.std() / np.sqrt(len(gain)):
        return both, second, tried
    return em, first, tried


def drop_derived_rules_if_harmful(em: EM, first: FittedLogic) -> tuple[FittedLogic, list[Tried]]:
    """The first M-step with rules over derived relations, or without where these are better without
    on development users by more than chance (one standard error), and what each came to."""
    derived = np.array([rule.derived for rule in first.logic.rules])
    if not derived.any() or derived.all() or not (em.few or len(em.dev_users)):
        return first, []
    worth = None
    if em.few:
        worth = _shares([cross_validated_ndcg(em, derived=each) for each in (True, False)])
    if worth is not None and worth[0] >= worth[1]:
        return first, _of_derived(*worth.tolist())
    logic = replace(first.logic, weights=np.where(derived, 0.0, first.logic.weights))
    fewer = replace(first, logic=logic).without_idle_rules()
    plain, before, bound = em.m_step(fewer)
    if worth is not None:
        row = replace(first.trace[0], bound_before=before, bound=bound)
        return replace(plain, trace=(row,)), _of_derived(*worth.tolist())
    used, _ = em.dev_metrics(first)
    unused, recalls = em.dev_metrics(plain)
    ndcg, recall, gain = float(unused.mean()), float(recalls.mean()), unused - used
    tried = _of_derived(first.trace[0].ndcg, ndcg)
    if gain.mean() <= gain.std() / np.sqrt(len(gain)):
        return first, tried
    return replace(plain, trace=(Round(0, before, bound, 0, 0, ndcg, recall),)), tried


def cross_validated_ndcg(em: EM, derived: bool = True) -> Doubles:
    """NDCG of users with labels by what those of others teach, with or without rules over derived
    relations: where labels are few, settings are compared by it; [users with hits]."""
    pool = _pool(em, derived)
    return listwise_settings(em, pool, None)[0].cross_validated_ndcg(pool)


def _pool(em: EM, derived: bool) -> Pool:
    """The present candidates, by all rules or by those over given relations alone."""
    rules = tuple(r for r in em.candidates.gathered(em).rules if derived or not r.derived)
    return em.candidates.present(em, RuleSet(rules))


def _of_derived(used: float, unused: float) -> list[Tried]:
    return [("derived", True, used), ("derived", False, unused)]


def _other(problem: Callable[[EMConfig], EM], best: EM, settings: EMConfig) -> EM:
    """The problem with other settings, on the same candidates if only its walk is another."""
    if settings == best.config:
        return best
    if replace(settings, walk=best.config.walk) != best.config:
        return problem(settings)
    return best.with_walk(settings.walk)


# ── the encoder's share ───────────────────────────────────────────────────────────────────────


class EncoderShare(NamedTuple):
    """What one setting of the dial comes to on development users."""

    weight: float
    """As a share of the encoder's best weight."""
    share: float
    """How much of the leads the encoder then carries."""
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
        return f"encoder carries {self.share:.0%}: NDCG {change} ({low} … {high})"


def encoder_share_curve(em: EM, shares: Sequence[float] = (*SHARES, 1.0)) -> list[EncoderShare]:
    """What lower weights of the encoder come to, the rules' weights learned beside each."""
    return [row for row, _ in _tried(em, shares, derived=True)]


def smallest_encoder_share(em: EM, first: FittedLogic) -> tuple[EM, FittedLogic, list[Tried]]:
    """The first M-step with the smallest encoder share that is free, the problem with that limit,
    and what was tried; as they were where a limit was given or there is nothing to lower."""
    config = em.config
    settled = config.max_encoder_share is not None or not len(em.dev_users)
    if settled or config.likelihood != "listwise" or config.fusion != "logit":
        return em, first, []
    if first.fusion.encoder_weight <= 0:
        return em.with_max_encoder_share(0.0), first, []
    found = _tried(em, SHARES, any(rule.derived for rule in first.logic.rules))
    tried: list[Tried] = [("max_encoder_share", str(row), row.ndcg) for row, _ in found]
    for row, fitted in found:
        if row.free:
            return em.with_max_encoder_share(row.share), fitted, tried
    return em.with_max_encoder_share(1.0), first, tried


def encoder_lowered(em: EM, shares: Sequence[float], derived: bool = True) -> list[FittedLogic]:
    """The first M-step with the encoder's weight lowered to some shares of what is best, with or
    without rules over derived relations."""
    pool = _pool(em, derived)
    free = em.candidates.best_weights(em, pool)
    objective = listwise_of(em, pool, free.fitted)
    steps, nearest = {1.0: free}, free.fitted
    for share in sorted({*shares} - {1.0}, reverse=True):  # each from its neighbour
        most = share * free.fitted.fusion.encoder_weight
        steps[share] = solve(em, objective, nearest, most)
        nearest = steps[share].fitted
    out, pairs = [], em.labelled_pairs(free.fitted)
    for share in shares:
        step = steps[share]
        fitted = em.calibrated(step.fitted.without_idle_rules(), pairs)
        nothing = float("nan")  # nobody has been ranked yet
        row = Round(0, step.bound_before, step.bound, 0, 0, nothing, nothing)
        out.append(replace(fitted, trace=(row,)))
    return out


def _tried(
    em: EM, shares: Sequence[float], derived: bool
) -> list[tuple[EncoderShare, FittedLogic]]:
    *fitted, best = encoder_lowered(em, (*shares, 1.0), derived)
    free = em.dev_metrics(best, USERS)[0]
    out = []
    for share, one in zip(shares, fitted, strict=True):
        ndcg, recall = em.dev_metrics(one, USERS)
        means = resampled_means((ndcg - free)[:, None], 1000, 0)
        low, high = (float(x) for x in np.quantile(means, [0.025, 0.975]))
        mean, difference = float(ndcg.mean()), float((ndcg - free).mean())
        row = replace(one.trace[0], ndcg=mean, recall=float(recall.mean()))
        reached = EncoderShare(share, em.encoder_share(one), mean, difference, low, high)
        out.append((reached, replace(one, trace=(row,))))
    return out
