"""What a fit chooses on development users: walks, whether the order of interactions and derived
relations help, and how much the encoder may contribute (METHOD 11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np

from loger.encoder.sequence import Sequence as SequenceEncoder
from loger.errors import UnknownNameError
from loger.graph.arrays import Doubles
from loger.grounding import Walk
from loger.learning.em import EM, interval
from loger.learning.fitted import FittedLogic, Round
from loger.learning.listwise import Lists, cross_validated
from loger.learning.mstep import listwise_of, solve
from loger.learning.pools import Pool
from loger.logic.config import EMConfig, Tried
from loger.metrics.report import resampled_means
from loger.rules import RuleSet

RECENCY_EXPONENTS = (0.0, 0.5, 1.0)
"""What a fit tries by default if the data has times."""
STRENGTH_EXPONENTS = (0.0, 0.5, 1.0)
"""What it tries if interactions have strengths: ignore them, or count their root or themselves."""
POPULARITY_EXPONENTS = (0.0, 0.75)
"""What it tries for the exponent that discounts popular items; dense data needs it."""

SHARES = (0.0, 0.25, 0.5, 0.75)
"""The shares of the encoder's best weight that are tried."""
MAX_RISK = 0.05
"""The lower end of the interval may cost this much of NDCG, and the interval may be twice as wide.
Otherwise four users whose items nobody recommends would vote for no encoder."""

Start = Callable[[EM], FittedLogic]
"""Makes the first M-step of a problem."""


# ── settings, one after another ─────────────────────────────────────────────────────────


def tuned(
    problem: Callable[[EMConfig], EM],
    config: EMConfig,
    tune: Mapping[str, Sequence[Any]],
    start: Start = methodcaller("start"),
) -> tuple[EM, FittedLogic, list[Tried]]:
    """The problem with the best settings, its first M-step, and what was tried.

    Settings are chosen one after another, on development users or, if users with labels are few, by
    cross-validation. Walks are all tried on the candidates of the first one.

    Args:
        problem: makes a problem with some settings.
        config: the settings to start from.
        tune: for each setting of ``EMConfig`` or ``Walk`` the values to try.
        start: makes the first M-step of a problem, or reads it if it has been kept.
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
        _, best, first = max(results, key=lambda row: row[0])  # of equals, the first that was tried
    return best, first, tried


def _tuned_by_folds(
    problem: Callable[[EMConfig], EM], best: EM, tune: Mapping[str, Sequence[Any]], start: Start
) -> tuple[EM, FittedLogic, list[Tried]]:
    """Choose by cross-validation. An exponent of a walk becomes the mean of the values, weighted by
    how often each is best for resampled users: a few labels say little, and then it's a middle
    one."""
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


def _other(problem: Callable[[EMConfig], EM], best: EM, settings: EMConfig) -> EM:
    """The problem with other settings, on the same candidates if only the walk differs."""
    if settings == best.config:
        return best
    if replace(settings, walk=best.config.walk) != best.config:
        return problem(settings)
    return best.with_walk(settings.walk)


def with_setting(config: EMConfig, name: str, value: Any) -> EMConfig:
    """The settings with one of them, or of their walk, changed."""
    of_walk, known = ([f.name for f in fields(kind)] for kind in (Walk, EMConfig))
    if name in of_walk:
        return replace(config, walk=replace(config.walk, **{name: value}))
    if name not in known:
        raise UnknownNameError("setting", name, [*known, *of_walk])
    return replace(config, **{name: value})


def cross_validated_ndcg(em: EM, derived: bool = True) -> Doubles:
    """NDCG of each user with hits, by weights learned from the others; [users with hits].

    ``derived`` says whether rules over derived relations take part.
    """
    pool = _pool(em, derived)
    each: Doubles = cross_validated(listwise_of(em, pool, None), (pool.teacher,), Lists.ndcg)[0]
    return each


def _pool(em: EM, derived: bool) -> Pool:
    """The present candidates, with or without rules over derived relations."""
    rules = tuple(r for r in em.candidates.gathered.rules if derived or not r.derived)
    return em.candidates.present(RuleSet(rules))


def _shares(values: Sequence[Doubles]) -> Doubles:
    """How often each of some values has the best mean if users are resampled."""
    if not len(values[0]):
        return np.full(len(values), 1 / len(values))
    means = resampled_means(np.stack(values, axis=1), 1000, 0)
    best = means >= means.max(1, keepdims=True) - 1e-12
    out: Doubles = (best / best.sum(1, keepdims=True)).mean(0)
    return out


# ── parts of the model that must prove their worth ──────────────────────────────────────


def choose_encoders(
    em: EM, first: FittedLogic, sequence: SequenceEncoder | None, start: Start
) -> tuple[EM, FittedLogic, list[Tried]]:
    """Add the sequence encoder if it raises NDCG of development users by more than one standard
    error; returns the problem, its first M-step, and what was tried.

    If TransE gets no weight next to it, the sequence encoder is used alone.
    """
    if sequence is None:
        return em, first, []
    both = em.with_sequence(sequence)
    second = start(both)
    gain = both.dev_metrics(second)[0] - em.dev_metrics(first)[0]
    share = second.fusion.sequence
    which = "sequence and histories" if share < 1 else "sequence"
    tried: list[Tried] = [
        ("encoder", "histories", first.trace[0].ndcg), ("encoder", which, second.trace[0].ndcg)
    ]  # fmt: skip
    if share > 0 and _above_chance(gain):
        return both, second, tried
    return em, first, tried


def drop_derived_rules_if_harmful(em: EM, first: FittedLogic) -> tuple[FittedLogic, list[Tried]]:
    """Drop rules over derived relations if that raises NDCG of development users by more than one
    standard error; returns the first M-step and what was tried.

    If users with labels are few, the rules go if most resamplings of users are better off.
    """
    derived = np.array([rule.derived for rule in first.logic.rules])
    if not derived.any() or derived.all() or not (em.few or len(em.dev_users)):
        return first, []
    worth = None
    if em.few:
        used, unused = _shares([cross_validated_ndcg(em, derived=each) for each in (True, False)])
        worth = float(used), float(unused)
        if used >= unused:
            return first, _tried_derived(*worth)
    logic = replace(first.logic, weights=np.where(derived, 0.0, first.logic.weights))
    fewer = replace(first, logic=logic).without_idle_rules()
    plain, before, bound = em.m_step(fewer)
    if worth is not None:
        row = replace(first.trace[0], bound_before=before, bound=bound)
        return replace(plain, trace=(row,)), _tried_derived(*worth)
    with_them, _ = em.dev_metrics(first)
    without, recalls = em.dev_metrics(plain)
    ndcg, recall = float(without.mean()), float(recalls.mean())
    tried = _tried_derived(first.trace[0].ndcg, ndcg)
    if not _above_chance(without - with_them):
        return first, tried
    return replace(plain, trace=(Round(0, before, bound, 0, 0, ndcg, recall),)), tried


def _tried_derived(used: float, unused: float) -> list[Tried]:
    return [("derived", True, used), ("derived", False, unused)]


def _above_chance(gain: Doubles) -> bool:
    """Whether a mean gain over users exceeds its standard error."""
    return bool(gain.mean() > gain.std() / np.sqrt(len(gain)))


# ── the encoder's share ───────────────────────────────────────────────────────────────────────


class EncoderShare(NamedTuple):
    """What one limit of the encoder's weight achieves on development users."""

    weight: float
    """The limit, as a share of the encoder's best weight."""
    share: float
    """The encoder's share of the leads."""
    ndcg: float
    difference: float
    """NDCG compared with the encoder's best weight, paired by user, …"""
    low: float
    high: float
    """… with a 95% interval."""

    @property
    def free(self) -> bool:
        """Whether it costs nothing: no loss on average, and surely not much."""
        best = self.ndcg - self.difference
        sure = self.low >= -MAX_RISK * best and self.high - self.low <= 2 * MAX_RISK * best
        return self.difference >= 0 and sure

    def __str__(self) -> str:
        best = max(self.ndcg - self.difference, 1e-12)
        change, low, high = (f"{x / best:+.1%}" for x in (self.difference, self.low, self.high))
        return f"encoder carries {self.share:.0%}: NDCG {change} ({low} … {high})"


def encoder_share_curve(em: EM, shares: Sequence[float] = (*SHARES, 1.0)) -> list[EncoderShare]:
    """What lower weights of the encoder achieve, with the rules' weights learned next to each."""
    return [row for row, _ in _compared(em, shares, derived=True)]


def smallest_encoder_share(em: EM, first: FittedLogic) -> tuple[EM, FittedLogic, list[Tried]]:
    """The problem limited to the smallest encoder share that costs nothing, its first M-step, and
    what was tried.

    If the settings have a limit, or there is nothing to lower, both stay as they are.
    """
    config = em.config
    settled = config.max_encoder_share is not None or not len(em.dev_users)
    if settled or config.likelihood != "listwise" or config.fusion != "logit":
        return em, first, []
    if first.fusion.encoder_weight <= 0:
        return em.with_max_encoder_share(0.0), first, []
    found = _compared(em, SHARES, any(rule.derived for rule in first.logic.rules))
    tried: list[Tried] = [("max_encoder_share", str(row), row.ndcg) for row, _ in found]
    for row, fitted in found:
        if row.free:
            return em.with_max_encoder_share(row.share), fitted, tried
    return em.with_max_encoder_share(1.0), first, tried


def encoder_lowered(em: EM, shares: Sequence[float], derived: bool = True) -> list[FittedLogic]:
    """The first M-step with the encoder's weight lowered to some shares of its best value.

    ``derived`` says whether rules over derived relations take part.
    """
    pool = _pool(em, derived)
    free = em.candidates.best_weights(pool)
    objective = listwise_of(em, pool, free.fitted)
    steps, nearest = {1.0: free}, free.fitted
    # From the best weight downwards: each solution is near the one before it.
    for share in sorted({*shares} - {1.0}, reverse=True):
        most = share * free.fitted.fusion.encoder_weight
        steps[share] = solve(em, objective, nearest, most)
        nearest = steps[share].fitted
    out, pairs = [], em.labelled_pairs(free.fitted)
    for share in shares:
        step = steps[share]
        fitted = em.calibrated(step.fitted.without_idle_rules(), pairs)
        unknown = float("nan")  # nobody has been ranked yet
        row = Round(0, step.bound_before, step.bound, 0, 0, unknown, unknown)
        out.append(replace(fitted, trace=(row,)))
    return out


def _compared(
    em: EM, shares: Sequence[float], derived: bool
) -> list[tuple[EncoderShare, FittedLogic]]:
    """Each share of the encoder's best weight, compared with that weight."""
    *fitted, best = encoder_lowered(em, (*shares, 1.0), derived)
    free = em.dev_metrics(best)[0]
    out = []
    for share, one in zip(shares, fitted, strict=True):
        ndcg, recall = em.dev_metrics(one)
        mean, difference = float(ndcg.mean()), float((ndcg - free).mean())
        row = replace(one.trace[0], ndcg=mean, recall=float(recall.mean()))
        reached = em.encoder_share(one)
        compared = EncoderShare(share, reached, mean, difference, *interval(ndcg - free))
        out.append((compared, replace(one, trace=(row,))))
    return out
