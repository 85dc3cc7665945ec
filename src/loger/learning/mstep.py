"""The M-step (section 3.2 of the paper, METHOD 5): the encoder stays as it is, the weights learn.

``pseudo_m_step`` is the paper's: it maximises the pseudo-likelihood of observed and hidden pairs
(Eq. 3). ``listwise_m_step`` is the default: it maximises the likelihood of held-out interactions
among their users' candidates. Every function here takes a problem and returns a result.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import AdditiveEncoder
from loger.errors import LogerError
from loger.graph import history, whole
from loger.graph.arrays import Doubles
from loger.grounding import Walk
from loger.learning import estep
from loger.learning.fitted import FittedLogic, MStep
from loger.learning.listwise import Lists, Listwise, best_teacher_weight
from loger.learning.pools import Pool, gather, pair_scores, uniform_items
from loger.learning.problem import FIT_PAIRS, FIT_USERS, Problem
from loger.logic.mln import (
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

RATE = 1e-5
"""Step size of gradient ascent, as in the authors' code."""
PSEUDO_USERS = 4000
"""The most users whose pairs the pseudo-likelihood covers; there are a few dozen weights."""
SCREEN_USERS = 1500
"""Users on whom all rules are tried; rules without weight there are dropped."""
SHARE_STEPS = 5
"""Bisection steps by which the encoder's weight is lowered to its share."""


# ── the paper's M-step ──────────────────────────────────────────────────────────────────


def pseudo_m_step(problem: Problem, start: FittedLogic | None) -> MStep:
    """Maximise Σ_G log p + Σ_H [q log p + (1 − q) log(1 − p)] − ½λ‖w‖² by w; Eq. 3 is its gradient.

    It differs from the paper in three ways: there is a penalty λ (0 in the preset ``paper``), q is
    calibrated, and if users are very many, some represent all. The bound includes the entropy of q,
    which makes it the evidence lower bound.
    """
    config, engine = problem.config, problem.engine
    draft = problem.calibrated(start or problem.blank(problem.rules))  # q of the present encoder
    ranker = problem.ranker(draft)
    some = pseudo_users(problem)
    each = problem.graph.n_users / len(some)  # how many users each of them represents
    rows, items = history(whole(ranker.graph), some)
    hidden_users, hidden_items, q = hidden_pairs(problem, ranker)
    u, v = np.concatenate([some[rows], hidden_users]), np.concatenate([items, hidden_items])
    targets = np.concatenate([np.ones(len(items)), q])  # what is observed is true, H has q
    found = draft.logic.ground(ranker.logic_graph, u, v, engine)
    logic = draft.logic
    if uses_strength(logic.feature) and start is None:
        logic = replace(logic, scales=typical_strengths(found))
    phi, prior = features(found, logic.feature, logic.scales), additive(logic.feature)

    # Scaled up to all users, the penalty comes out as λ.
    def objective(w: Doubles) -> tuple[float, Doubles]:
        return pseudo_likelihood(w, phi, targets, config.l2 / each, prior)

    first = logic.weights.astype(np.float64)
    first = np.append(first, logic.prior) if prior else first
    rate, steps = RATE * each, config.steps
    w = ascend(objective, first, rate, steps) if steps else maximise(objective, first)
    dislikes = [rule.negative for rule in logic.rules]  # a dislike must not support an item
    weights = w[: len(logic.rules)]
    logic = replace(
        logic,
        weights=np.where(dislikes, np.minimum(weights, 0), weights),
        prior=float(w[-1]) if prior else 0.0,
        popularity=0.0,
    )
    entropy = -_sum_x_log_x(q) - _sum_x_log_x(1 - q)
    fitted = problem.calibrated(FittedLogic(logic, draft.fusion))
    # In logits, the encoder weighs what its calibration makes of it: logit q = a·s + b.
    fusion = replace(fitted.fusion, encoder_weight=fitted.fusion.calibration.slope)
    before, after = (each * (objective(x)[0] + entropy) for x in (first, w))
    return MStep(replace(fitted, fusion=fusion), before, after)


def pseudo_users(problem: Problem) -> NDArray[np.int64]:
    """The users whose pairs the pseudo-likelihood covers: all, if they aren't too many."""
    everyone = np.arange(problem.graph.n_users)
    if len(everyone) <= PSEUDO_USERS:
        return everyone
    rng = np.random.default_rng([problem.config.seed, 0x95E])
    return np.sort(rng.permutation(everyone)[:PSEUDO_USERS])


def hidden_pairs(
    problem: Problem, ranker: Ranker
) -> tuple[NDArray[np.int32], NDArray[np.int32], Doubles]:
    """H of the paper's M-step with its q: what the encoder proposes, and as many uniform pairs.

    With the proposals alone, nearly all targets would be near 1, and weights would only grow.
    """
    config, n, some = problem.config, estep.HIDDEN, pseudo_users(problem)
    users, items, scores = estep.propose_hidden(ranker, n, problem.engine, some)
    rng = np.random.default_rng([config.seed, 0x417])
    u, v = uniform_items(whole(ranker.graph), some, n, rng)
    u, v = u[v >= 0], v[v >= 0]
    others = pair_scores(ranker, u, v, problem.engine)
    # At even odds, whatever the base rate in S: at lower odds no rule would be worth anything.
    even = ranker.fusion.calibration.at_odds(config.negatives)
    q = even(np.concatenate([scores, others]))
    return np.concatenate([users, u]), np.concatenate([items, v]), q


def _sum_x_log_x(x: Doubles) -> float:
    return float(np.sum(x * np.log(np.maximum(x, 1e-300))))


# ── the default M-step ──────────────────────────────────────────────────────────────────


def listwise_m_step(problem: Problem, candidates: Candidates, start: FittedLogic | None) -> MStep:
    """The weights of rules, popularity and encoder for which the held-out interactions are most
    likely among the candidates, found from the weights of ``start`` or from 0.

    The bound is the penalised mean log-likelihood. This replaces the paper's pseudo-likelihood for
    two reasons. The weights are used for ranking. And neither graph nor encoder knows the held-out
    interactions, so a rule's worth for them is its worth for new ones.
    """
    pool = candidates.present(None if start is None else start.logic.rules)
    if start is None:
        return _finished(problem, pool, candidates.best_weights(pool))
    return _finished(problem, pool, best_weights(problem, pool, start))


def final_m_step(problem: Problem, fitted: FittedLogic) -> FittedLogic:
    """Learn the weights once more, from all held-out users, when nothing is left to choose."""
    same = np.array_equal(problem.all_users, problem.fit_users)
    if problem.config.likelihood == "pseudo" or same:
        return fitted
    pool = candidate_pool(problem, fitted.logic.rules, problem.all_users)
    step = _finished(problem, pool, best_weights(problem, pool, fitted))
    return replace(step.fitted, trace=fitted.trace)


def _finished(problem: Problem, pool: Pool, best: MStep) -> MStep:
    """Limit the encoder's share, drop rules of weight 0, and make p and q probabilities."""
    fitted, before, bound = limit_encoder_share(problem, pool, best)
    return MStep(problem.calibrated(fitted.without_idle_rules()), before, bound)


def limit_encoder_share(problem: Problem, pool: Pool, best: MStep) -> MStep:
    """Lower the encoder's weight until its share is at most ``max_encoder_share``; the other
    weights are learned again next to it."""
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


def best_weights(problem: Problem, pool: Pool, start: FittedLogic | None = None) -> MStep:
    """The best weights for the hits of a pool, found from the weights of ``start`` or from 0."""
    return solve(problem, listwise_of(problem, pool, start), start)


def solve(
    problem: Problem,
    objective: Listwise,
    start: FittedLogic | None,
    max_encoder: float | None = None,
) -> MStep:
    """Maximise an objective, with the encoder's weight at most ``max_encoder``."""
    config, first, width = problem.config, objective.zero, len(objective.logic.rules)
    own, share = None, 0.0
    if start is not None:
        own, share = start.fusion.own, start.fusion.sequence
        first[:width] = start.logic.weights
        encoder = start.fusion.encoder_weight * objective.unit
        first[width : width + 2] = start.logic.popularity, encoder
    most = np.inf if max_encoder is None else max_encoder * objective.unit
    first[width + 1] = min(first[width + 1], most)  # L-BFGS-B starts within its bounds
    w = objective.best(first, most)
    weight = float(w[width + 1]) / objective.unit
    # The objective has a weight for each term; ``Fusion`` has one for the whole encoder, relative
    # to which items' own parts count and the sequence encoder has its share.
    if len(w) > width + 2 + bool(objective.sequence_unit):  # items' own parts are learned too
        own = (w[-2] / weight, w[-1] / weight) if weight > 0 else (0.0, 0.0)
    if objective.sequence_unit:
        of_sequence = float(w[width + 2]) / objective.sequence_unit
        share = of_sequence / max(weight + of_sequence, 1e-300)
        weight += of_sequence
    logic = replace(objective.logic, weights=w[:width], popularity=float(w[width]))
    fusion = Fusion(config.fusion, weight, alpha=config.alpha, own=own, sequence=share)
    return MStep(FittedLogic(logic, fusion), objective(first)[0], objective(w)[0])


def listwise_of(problem: Problem, pool: Pool, start: FittedLogic | None) -> Listwise:
    """The objective for the hits of a pool.

    Without a start, the scales, the weights of items' own parts and the sequence encoder's share
    are learned too; with one, they stay as they are there.
    """
    if not len(pool.hits) and pool.taught is None:
        raise LogerError(
            "no validation item is among the candidates; check that item IDs match your facts"
        )
    config, own_parts, unit = problem.config, None, 1.0
    logic, scales = problem.blank(pool.rules).logic, None
    if problem.sums and isinstance(problem.encoder, AdditiveEncoder):
        own_parts = problem.encoder.own_parts
        # Sums grow with histories. In units of their size, the optimum is as easy to find.
        unit = float(pool.encoder.std(dtype=np.float64)) or 1.0
    if start is not None:
        scales = start.logic.scales
        if start.fusion.own is not None and own_parts is not None:
            pool = pool.with_own(np.array(start.fusion.own, dtype=np.float32) @ own_parts)
            own_parts = None
        pool = pool.with_share(start.fusion.sequence)
    if scales is None and uses_strength(config.feature):
        scales = typical_strengths(pool.found)
        scales = scales * config.saturation if config.feature == "logwalk" else scales
    popularity = log_popularity(problem.graph) if config.popularity else None
    sequence_unit = 0.0 if pool.sequence is None else float(pool.sequence.std()) or 1.0

    def lists(part: Pool) -> Lists:
        items = part.found.items
        popular = np.zeros(len(items)) if popularity is None else popularity[items]
        # Without the encoder, a column of zeros keeps the places of the other parameters.
        encoder = part.encoder * ((config.fusion != "logic") / unit)
        z = [] if part.sequence is None else [part.sequence / sequence_unit]
        own = [] if own_parts is None else list(own_parts[:, items])
        columns = features(part.found, config.feature, scales)
        beliefs = None if part.beliefs is None else part.beliefs.astype(np.float64)
        dense = np.stack([popular, encoder, *z, *own])
        return Lists(columns, dense, part.starts, part.hits, part.hit_weights, beliefs)

    return Listwise(
        replace(logic, scales=scales),
        lists(pool.of_hits()),
        None if pool.taught is None else lists(pool.taught),
        pool.teacher,
        config.l2,
        unit,
        sequence_unit,
    )


# ── candidates ──────────────────────────────────────────────────────────────────────────


class Candidates:
    """The candidates of a problem's fitting users, by the rules that get weight on a few of them.

    They are gathered once, when they are first needed, so that the bounds of all rounds are over
    the same items. A problem that differs from another only in its walk takes that one's candidates
    (``base``) and weighs them by its own walk.
    """

    def __init__(self, problem: Problem, base: Candidates | None = None) -> None:
        self.problem, self.base = problem, base
        self._best: tuple[Pool, MStep] | None = None

    @property
    def walks(self) -> tuple[Walk, ...]:
        """The walks by which the candidates were gathered and then weighed, the problem's last.

        Strengths that are weighed several times differ in the last bit from those weighed once, so
        a result depends on all of these walks.
        """
        before = () if self.base is None else self.base.walks
        return (*before, self.problem.config.walk)

    @cached_property
    def gathered(self) -> Pool:
        """The candidates with the encoder as it was when they were first needed."""
        if self.base is not None:
            return self._scored(self.base.gathered)
        problem = self.problem
        return candidate_pool(problem, screened_rules(problem), problem.fit_users)

    def present(self, rules: RuleSet | None = None) -> Pool:
        """The candidates with the encoder as it is now, by some of the rules or by all."""
        new = "gathered" not in vars(self)
        pool = self.gathered.with_rules(rules or self.gathered.rules)
        return pool if new else self._scored(pool)  # an E-step may have trained the encoder

    def best_weights(self, pool: Pool) -> MStep:
        """The best weights for a pool, found from 0 and without a limit on the encoder's.

        They are found once: the first M-step and the choice of the encoder's share start there.
        """
        if self._best is not None:
            known, best = self._best
            if known.rules == pool.rules and np.array_equal(known.encoder, pool.encoder):
                return best
        self._best = pool, best_weights(self.problem, pool)
        return self._best[1]

    def _scored(self, pool: Pool) -> Pool:
        """A pool with the problem's walk and present encoder."""
        problem = self.problem
        return pool.scored(problem.ranker(problem.blank(pool.rules)), problem.engine)


def candidate_pool(problem: Problem, rules: RuleSet, users: NDArray[np.int64]) -> Pool:
    """The candidates of users with the present encoder.

    If the users are few, the pool also has candidates for the encoder to rank as a teacher, and the
    weight of that ranking.
    """
    ranker, config = problem.ranker(problem.blank(rules)), problem.config
    few = config.teacher != 0 and len(users) < config.many_labels
    held_out, engine = problem.held_out, problem.engine
    pool = gather(ranker, users, held_out, engine, beliefs=few)
    if not few:
        return pool
    taught = gather(ranker, problem.taught_users, held_out, engine, beliefs=True)
    pool, weight = replace(pool, taught=taught), config.teacher
    if weight is None:
        weight = best_teacher_weight(listwise_of(problem, pool, None))
    return replace(pool, teacher=weight)


def screened_rules(problem: Problem) -> RuleSet:
    """The rules that get weight on a few users."""
    users = problem.fit_users
    pairs = FIT_PAIRS * SCREEN_USERS // FIT_USERS  # the same share of pairs as of users
    most = min(SCREEN_USERS, problem.enough(users, pairs))
    if len(users) <= most:
        return problem.rules
    few = users[:: max(1, len(users) // most)]
    screened = best_weights(problem, candidate_pool(problem, problem.rules, few))
    return screened.fitted.without_idle_rules().logic.rules
