"""The M-step as section 3.2 of the paper has it: the pseudo-likelihood over G ∪ H."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.engine import Engine
from loger.graph import KnowledgeGraph, history, whole
from loger.grounding import Groundings
from loger.learning.estep import propose_hidden
from loger.learning.fitted import FittedLogic, MStep
from loger.learning.pools import pair_scores, uniform_items
from loger.learning.problem import Problem
from loger.logic.config import EMConfig
from loger.logic.mln import (
    Floats,
    Logic,
    additive,
    ascend,
    features,
    maximise,
    pseudo_likelihood,
    typical_strengths,
    uses_strength,
)
from loger.ranking.ranker import Ranker

if TYPE_CHECKING:
    pass


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
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
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


def _sum_x_log_x(x: Floats) -> float:
    return float(np.sum(x * np.log(np.maximum(x, 1e-300))))


def solve_pseudo(
    logic: Logic,
    found: Groundings,
    targets: Floats,
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

    def objective(w: Floats) -> tuple[float, Floats]:
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
