"""The M-step as in the paper: the pseudo-likelihood over observed and hidden pairs (Eq. 2, 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.encoder.calibration import fit_calibration
from loger.engine import Engine
from loger.graph import Graph, KnowledgeGraph, history, whole
from loger.grounding import Groundings
from loger.learning.estep import propose_hidden
from loger.learning.fitted import FittedLogic
from loger.learning.pools import pair_scores, uniform_items
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
    from scipy.sparse import csr_array

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]
Labelled = tuple[Pairs, NDArray[np.bool_], Floats]
"""Pairs, which of them are held out, and their scores."""
ENOUGH_PAIRS = 10_000
"""Held-out pairs by which p and q are made probabilities: two numbers each need no more."""


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


# ── p and q as probabilities: of held-out pairs against uniform unobserved ones ───────────────


def calibration_pairs(held_out: csr_array, users: NDArray[np.int64], seed: int) -> Pairs:
    """Held-out pairs of users; where they are very many, some."""
    part = held_out[users]
    owners = np.repeat(users, np.diff(part.indptr)).astype(np.int32)
    items = part.indices.astype(np.int32)
    if len(owners) <= ENOUGH_PAIRS:
        return owners, items
    rng = np.random.default_rng([seed, 0xCA1B])
    some = np.sort(rng.choice(len(owners), size=ENOUGH_PAIRS, replace=False))
    return owners[some], items[some]


def labelled(ranker: Ranker, pairs: Pairs, seed: int, engine: Engine) -> Labelled:
    """Held-out pairs and uniform unobserved ones, as many: which are held out, and the encoder's
    scores as the model has them."""
    users, items = pairs
    others = uniform_items(whole(ranker.graph), users, 1, np.random.default_rng([seed, 0xCA1]))[1]
    labels = np.repeat([True, False], [len(users), len(others[others >= 0])])
    u = np.concatenate([users, users[others >= 0]])
    v = np.concatenate([items, others[others >= 0]])
    return (u, v), labels, pair_scores(ranker, u, v, engine)


def calibrated(
    fitted: FittedLogic, logic_graph: Graph, pairs: Labelled, config: EMConfig, engine: Engine
) -> FittedLogic:
    """The model with weights scaled, and a prior, so that p and q are probabilities.

    That is, of held-out pairs against uniform unobserved ones, ``negatives`` for each.
    """
    (u, v), labels, s = pairs
    groundings = fitted.logic.ground(logic_graph, u, v, engine)
    weights = np.where(labels, 1.0, config.negatives)  # for how many pairs one stands
    fusion = replace(fitted.fusion, calibration=fit_calibration(s, labels, weights))
    if not additive(config.feature) or config.likelihood == "pseudo":
        return replace(fitted, fusion=fusion)
    logits = fitted.logic.pair_logits(logic_graph, groundings)
    p = fit_calibration(logits, labels, weights)
    scale = p.slope if p.slope > 0 else 1.0
    logic = replace(
        fitted.logic,
        weights=fitted.logic.weights * scale,
        popularity=fitted.logic.popularity * scale,
        prior=p.intercept,
    )
    fusion = replace(fusion, encoder_weight=fusion.encoder_weight * scale)
    return replace(fitted, logic=logic, fusion=fusion)
