"""The M-step as in the paper: the pseudo-likelihood over observed and hidden pairs (Eq. 2, 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loger.engine import Engine
from loger.graph import KnowledgeGraph, history, whole
from loger.learning.em_config import EMConfig
from loger.learning.estep import propose_hidden
from loger.learning.fitted import FittedLogic
from loger.learning.mstep import pair_scores, solve_pseudo, uniform_items
from loger.logic.mln import Floats
from loger.ranking.ranker import Ranker


def pseudo_m_step(
    ranker: Callable[[FittedLogic], Ranker],
    calibrated: Callable[[FittedLogic], FittedLogic],
    start: FittedLogic,
    config: EMConfig,
    engine: Engine,
    *,
    rescale: bool,
) -> tuple[FittedLogic, float, float]:
    """Σ_O log p + Σ_H [q log p + (1 − q) log(1 − p)] − ½λ‖w‖², by w.

    ``ranker`` puts what is fitted beside the present encoder, ``calibrated`` makes its p and q
    probabilities.
    """
    draft = calibrated(start)  # q of the present encoder
    present = ranker(draft)
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
        rescale=rescale,
    )
    entropy = -_sum_x_log_x(q) - _sum_x_log_x(1 - q)
    fitted = calibrated(FittedLogic(logic, draft.fusion))
    fusion = replace(fitted.fusion, encoder_weight=fitted.fusion.calibration.slope)
    return replace(fitted, fusion=fusion), each * (before + entropy), each * (after + entropy)


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
