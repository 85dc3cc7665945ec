"""p and q as probabilities: of held-out pairs against uniform unobserved ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from loger.encoder.calibration import fit_calibration
from loger.engine import Engine
from loger.graph import Graph, whole
from loger.learning.em_config import EMConfig
from loger.learning.fitted import FittedLogic
from loger.learning.mstep import pair_scores, uniform_items
from loger.logic.mln import Floats, additive
from loger.ranking.ranker import Ranker

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]
Labelled = tuple[Pairs, NDArray[np.bool_], Floats]
"""Pairs, which of them are held out, and their scores."""
ENOUGH_PAIRS = 10_000
"""Held-out pairs by which p and q are made probabilities: two numbers each need no more."""


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
