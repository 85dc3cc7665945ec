"""The E-step (METHOD 5): the encoder proposes hidden pairs, the rules select among them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loger.engine import Engine
from loger.graph import history, whole
from loger.logic import Floats
from loger.mstep import BLOCK
from loger.ranker import Ranker, blocks
from loger.topk import top_k
from loger.training.loop import HiddenPairs


def propose_hidden(
    ranker: Ranker, n: int, engine: Engine
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """The n items of highest q of each user, none observed, best first, and their scores s."""
    everyone = np.arange(ranker.graph.n_users)
    parts = engine.map("looking for hidden pairs", _propose, blocks(everyone, BLOCK), (ranker, n))
    lists = list(parts)
    items = np.concatenate([i.ravel() for i, _ in lists])
    scores = np.concatenate([s.ravel() for _, s in lists]).astype(np.float64)
    users = np.repeat(everyone, n).astype(np.int32)
    present = items >= 0
    return users[present], items[present], scores[present]


def _propose(
    shared: tuple[Ranker, int], users: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    ranker, n = shared
    return top_k(ranker.encoder_scores(users), n, history(ranker.graph, users))


def select_hidden(
    ranker: Ranker, hidden: int, max_hidden: int, tau: float, engine: Engine
) -> tuple[HiddenPairs, int]:
    """H⁺ = {i ∈ H : a rule fires, p_i ≥ τ}, weighted by p, and how many were proposed.

    H are the ``hidden`` items of highest q of each user, of which ``max_hidden`` are looked at.
    """
    users, items, _ = propose_hidden(ranker, hidden, engine)
    n_hidden = len(users)
    kept = np.arange(len(users)) - np.searchsorted(users, users) < max_hidden
    users, items = users[kept], items[kept]
    groundings = ranker.logic.ground(ranker.logic_graph, users, items, engine)
    p = 1 / (1 + np.exp(-ranker.logic.pair_logits(ranker.logic_graph, groundings)))
    good = (np.diff(groundings.indptr) > 0) & (p >= tau)
    weights = p[good].astype(np.float32)
    real = len(whole(ranker.graph).interactions[0])
    weights *= np.float32(min(1.0, real / max(float(weights.sum()), 1e-9)))
    return HiddenPairs(users[good], items[good], weights), n_hidden
