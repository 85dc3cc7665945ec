"""The M-step (section 3.2 of the paper, METHOD 5): the best weights, the encoder standing still.

``listwise_m_step`` is the default: held-out interactions are to stand out among their users'
candidates. The paper's own, by the pseudo-likelihood over observed and hidden pairs, is
``pseudo_m_step``. Every function here takes a problem and returns a result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import AdditiveEncoder
from loger.engine import Engine
from loger.graph import KnowledgeGraph, history, whole
from loger.graph.arrays import Doubles
from loger.grounding import Groundings, Walk
from loger.learning.estep import propose_hidden
from loger.learning.fitted import FittedLogic, MStep
from loger.learning.listwise import Listwise, ListwiseSettings
from loger.learning.pools import Pool, gather, pair_scores, uniform_items
from loger.learning.problem import FIT_PAIRS, Problem
from loger.logic.config import EMConfig
from loger.logic.mln import (
    Logic,
    additive,
    ascend,
    features,
    log_popularity,
    maximise,
    pseudo_likelihood,
    typical_strengths,
    uses_strength,
)
from loger.ranking.ranker import Fusion, Ranker
from loger.rules import RuleSet

if TYPE_CHECKING:
    pass

SCREEN_USERS = 1500
"""Users on whom all rules are tried; those of no weight are not looked at again."""
SHARE_STEPS = 5
"""Halvings by which the encoder's weight is lowered to its share."""


def listwise_m_step(problem: Problem, candidates: Candidates, start: FittedLogic | None) -> MStep:
    """The weights of rules, popularity and encoder that make the held-out interactions among the
    candidates most likely, from nothing or from those of a start.

    The bound is the penalised mean log-likelihood. It replaces the paper's pseudo-likelihood:
    ranking is what the weights are for, and neither the graph nor the encoder knows the held-out
    interactions, so what a rule is worth to them is what it is worth to new ones.
    """
    pool = candidates.present(problem, None if start is None else start.logic.rules)
    if start is None:
        return _finished(problem, pool, candidates.best_weights(problem, pool))
    return _finished(problem, pool, best_weights(problem, pool, start))


def final_m_step(problem: Problem, fitted: FittedLogic) -> FittedLogic:
    """The weights once more, from all held-out users, when nothing is left to choose."""
    same = np.array_equal(problem.all_users, problem.fit_users)
    if problem.config.likelihood == "pseudo" or same:
        return fitted
    pool = candidate_pool(problem, fitted.logic.rules, problem.all_users)
    step = _finished(problem, pool, best_weights(problem, pool, fitted))
    return replace(step.fitted, trace=fitted.trace)


def _finished(problem: Problem, pool: Pool, best: MStep) -> MStep:
    """The encoder's share limited, rules of no weight dropped, and p and q made probabilities."""
    fitted, before, bound = limit_encoder_share(problem, pool, best)
    return MStep(problem.calibrated(fitted.without_idle_rules()), before, bound)


def best_weights(
    problem: Problem,
    pool: Pool,
    start: FittedLogic | None = None,
    max_encoder: float | None = None,
) -> MStep:
    """The best weights for the hits of a pool, found from a start, the encoder's at most
    ``max_encoder``."""
    return solve(problem, listwise_of(problem, pool, start), start, max_encoder)


def solve(
    problem: Problem,
    objective: Listwise,
    start: FittedLogic | None,
    max_encoder: float | None = None,
) -> MStep:
    """The weights at the maximum of an objective, as a model beside the encoder."""
    begun = None if start is None else (start.logic, start.fusion.encoder_weight)
    solved = objective.solved(begun, max_encoder)
    own, share = solved.own, solved.sequence
    if own is None and start is not None:
        own = start.fusion.own
    if share is None:
        share = 0.0 if start is None else start.fusion.sequence
    config = problem.config
    weight = solved.encoder_weight
    fusion = Fusion(config.fusion, weight, alpha=config.alpha, own=own, sequence=share)
    return MStep(FittedLogic(solved.logic, fusion), solved.bound_before, solved.bound)


def limit_encoder_share(problem: Problem, pool: Pool, best: MStep) -> MStep:
    """The best weights, the encoder's lowered until it carries no more than ``max_encoder_share``
    allows; the others are learned again beside it."""
    limit = problem.config.max_encoder_share
    if limit is None or limit >= 1 or problem.config.fusion != "logit":
        return best
    if problem.encoder_share(best.fitted) <= limit:
        return best
    low, high = 0.0, best.fitted.fusion.encoder_weight
    objective = listwise_of(problem, pool, best.fitted)
    best = tried = solve(problem, objective, best.fitted, low)
    # Bisection: the share rises with the weight, but by no formula.
    for _ in range(SHARE_STEPS if limit > 0 else 0):
        tried = solve(problem, objective, tried.fitted, (low + high) / 2)
        if problem.encoder_share(tried.fitted) <= limit:
            best, low = tried, (low + high) / 2
        else:
            high = (low + high) / 2
    return best


def listwise_of(problem: Problem, pool: Pool, start: FittedLogic | None) -> Listwise:
    """The objective that weights for the hits of a pool maximise: at the scales of a start, and
    with what items' own parts and the sequence encoder count there beside the encoder's sums;
    without a start that is learned too."""
    settings, pool = listwise_settings(problem, pool, start)
    return settings.objective(pool)


def listwise_settings(
    problem: Problem, pool: Pool, start: FittedLogic | None
) -> tuple[ListwiseSettings, Pool]:
    """How the likelihood of a pool's hits is made, and the pool with items' own parts as the start
    has them."""
    config, parts, unit = problem.config, None, 1.0
    own = None if start is None else start.fusion.own
    if problem.sums and isinstance(problem.encoder, AdditiveEncoder):
        parts = problem.encoder.own_parts
        # Sums grow with histories: in units of their own size they are no worse to climb.
        unit = float(pool.encoder.std(dtype=np.float64)) or 1.0
    if own is not None and parts is not None:
        pool = pool.with_own(np.array(own, dtype=np.float32) @ parts)
    if start is not None:
        pool = pool.with_share(start.fusion.sequence)
    settings = ListwiseSettings(
        problem.blank(pool.rules).logic,
        log_popularity(problem.graph) if config.popularity else None,
        with_encoder=config.fusion != "logic",
        l2=config.l2,
        scales=None if start is None else start.logic.scales,
        saturation=config.saturation,
        unit=unit,
        own_parts=parts if own is None else None,
        sequence_unit=0.0 if pool.sequence is None else float(pool.sequence.std()) or 1.0,
    )
    return settings, pool


# ── candidates ──────────────────────────────────────────────────────────────────────────


def candidate_pool(problem: Problem, rules: RuleSet, users: NDArray[np.int64]) -> Pool:
    """The candidates of users, with the present encoder; see ``pools.gather``. If the users are
    few, also those of users that the encoder teaches by, and how much that counts."""
    ranker, config = problem.ranker(problem.blank(rules)), problem.config
    few = config.teacher != 0 and len(users) < config.many_labels
    settings = replace(config.pools, beliefs=few)
    pool = gather(ranker, users, problem.held_out, settings, problem.engine)
    if not few:
        return pool
    taught = gather(ranker, problem.taught_users, problem.held_out, settings, problem.engine)
    pool, weight = replace(pool, taught=taught), config.teacher
    if weight is None:
        weight = listwise_settings(problem, pool, None)[0].teacher_weight(pool)
    return replace(pool, teacher=weight)


def screened_rules(problem: Problem) -> RuleSet:
    """The rules less those that get no weight on a few users."""
    config, users = problem.config, problem.fit_users
    # As small a part of the interactions that are enough as of the users.
    pairs = FIT_PAIRS * SCREEN_USERS // config.fit_users
    most = min(SCREEN_USERS, problem.enough(users, pairs))
    if len(users) <= most:
        return problem.rules
    few = users[:: max(1, len(users) // most)]
    screened = best_weights(problem, candidate_pool(problem, problem.rules, few))
    return screened.fitted.without_idle_rules().logic.rules


class Candidates:
    """The candidates of a problem's fitting users, by the rules that get weight on a few of them.

    They are gathered once, when they are first asked for, so that the bounds of all rounds are over
    the same items. A problem that differs from another only in its walk takes over that one's
    (``base``) and weighs them by its own.
    """

    def __init__(self, base: tuple[Problem, Candidates] | None = None) -> None:
        self._base = base
        self._gathered: Pool | None = None
        self._best: tuple[Pool, MStep] | None = None

    def walks(self, problem: Problem) -> tuple[Walk, ...]:
        """The problem's walk, after those by which its candidates were gathered and then weighed.

        Strengths that are weighed again and again are not to the last bit those weighed once, so
        what was tried before is part of what determines a result.
        """
        before = () if self._base is None else self._base[1].walks(self._base[0])
        return (*before, problem.config.walk)

    def gathered(self, problem: Problem) -> Pool:
        """The candidates as the encoder and the walk saw them when they were first asked for."""
        if self._gathered is None and self._base is not None:
            before, candidates = self._base
            self._gathered = _scored(problem, candidates.gathered(before))
        elif self._gathered is None:
            self._gathered = candidate_pool(problem, screened_rules(problem), problem.fit_users)
        return self._gathered

    def present(self, problem: Problem, rules: RuleSet | None = None) -> Pool:
        """The candidates as the present encoder sees them, by some of the rules; None: by all."""
        new, gathered = self._gathered is None, self.gathered(problem)
        pool = gathered.with_rules(rules or gathered.rules)
        return pool if new else _scored(problem, pool)  # an E-step may have trained the encoder

    def best_weights(self, problem: Problem, pool: Pool) -> MStep:
        """The best weights for a pool, from nothing and with no limit on the encoder's.

        They are found once: the first M-step and the choice of the encoder's share begin there.
        """
        if self._best is not None:
            known, best = self._best
            if known.rules == pool.rules and np.array_equal(known.encoder, pool.encoder):
                return best
        self._best = pool, best_weights(problem, pool)
        return self._best[1]


def _scored(problem: Problem, pool: Pool) -> Pool:
    """The same candidates by the problem's walk and present encoder."""
    return pool.scored(problem.ranker(problem.blank(pool.rules)), problem.engine)


def pseudo_m_step(problem: Problem, start: FittedLogic | None) -> MStep:
    """Maximise Σ_G log p + Σ_H [q log p + (1 − q) log(1 − p)] − ½λ‖w‖² by w; Eq. 3 is its gradient.

    It differs from the paper in the penalty λ (0 in the preset ``paper``), in that q is calibrated,
    and in that where users are very many some stand for all. The bound has the entropy of q added,
    which makes it the evidence lower bound.
    """
    config, engine = problem.config, problem.engine
    draft = problem.calibrated(start or problem.blank(problem.rules))  # q of the present encoder
    present = problem.ranker(draft)
    graph = whole(present.graph)
    some = pseudo_users(graph, config)
    each = graph.n_users / len(some)  # for how many users one stands
    rows, items = history(graph, some)
    hidden_users, hidden_items, q = hidden_pairs(present, config, engine)
    u, v = np.concatenate([some[rows], hidden_users]), np.concatenate([items, hidden_items])
    targets = np.concatenate([np.ones(len(items)), q])
    logic, before, after = solve_pseudo(
        draft.logic,
        draft.logic.ground(present.logic_graph, u, v, engine),
        targets,
        l2=config.l2 / each,
        rate=config.rate * each,
        steps=config.steps,
        rescale=start is None,
    )
    dislikes = [rule.negative for rule in logic.rules]  # no dislike may speak for an item
    logic = replace(logic, weights=np.where(dislikes, np.minimum(logic.weights, 0), logic.weights))
    entropy = -_sum_x_log_x(q) - _sum_x_log_x(1 - q)
    fitted = problem.calibrated(FittedLogic(logic, draft.fusion))
    fusion = replace(fitted.fusion, encoder_weight=fitted.fusion.calibration.slope)
    fitted = replace(fitted, fusion=fusion)
    return MStep(fitted, each * (before + entropy), each * (after + entropy))


def pseudo_users(graph: KnowledgeGraph, config: EMConfig) -> NDArray[np.int64]:
    """The users that the pseudo-likelihood is of; all, if they are not too many."""
    everyone = np.arange(graph.n_users)
    rng = np.random.default_rng([config.seed, 0x95E])
    few = len(everyone) > config.pseudo_users
    return np.sort(rng.permutation(everyone)[: config.pseudo_users]) if few else everyone


def hidden_pairs(
    ranker: Ranker, config: EMConfig, engine: Engine
) -> tuple[NDArray[np.int32], NDArray[np.int32], Doubles]:
    """H of the paper's M-step: what the encoder proposes and as many uniform pairs, with q."""
    graph, n = whole(ranker.graph), config.hidden
    some = pseudo_users(graph, config)
    users, items, scores = propose_hidden(ranker, n, engine, some)
    u, v = uniform_items(graph, some, n, np.random.default_rng([config.seed, 0x417]))
    u, v = u[v >= 0], v[v >= 0]
    others = pair_scores(ranker, u, v, engine)
    # At even odds, whatever S has: at lower ones no rule would ever be worth anything.
    even = ranker.fusion.calibration.at_odds(config.negatives)
    q = even(np.concatenate([scores, others]))
    return np.concatenate([users, u]), np.concatenate([items, v]), q


def _sum_x_log_x(x: Doubles) -> float:
    return float(np.sum(x * np.log(np.maximum(x, 1e-300))))


def solve_pseudo(
    logic: Logic,
    found: Groundings,
    targets: Doubles,
    *,
    l2: float,
    rate: float,
    steps: int,
    rescale: bool,
) -> tuple[Logic, float, float]:
    """The weights at the maximum of Σ t log p + (1 − t) log(1 − p) − ½λ‖w‖² over grounded pairs
    (or after so many steps of gradient ascent), and the objective before and after."""
    scales = logic.scales
    if uses_strength(logic.feature) and rescale:
        scales = typical_strengths(found)
    phi = features(found, logic.feature, scales)
    prior = additive(logic.feature)
    first = logic.weights.astype(np.float64)
    first = np.append(first, logic.prior) if prior else first

    def objective(w: Doubles) -> tuple[float, Doubles]:
        return pseudo_likelihood(w, phi, targets, l2, prior)

    w = ascend(objective, first, rate, steps) if steps else maximise(objective, first)
    solved = replace(
        logic,
        weights=w[: len(logic.rules)],
        scales=scales,
        prior=float(w[-1]) if prior else 0.0,
        popularity=0.0,
    )
    return solved, objective(first)[0], objective(w)[0]
