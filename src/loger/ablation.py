"""The paper's ablation: how many hidden pairs of a user an E-step should take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loger.em import EM
from loger.errors import LogerError
from loger.evaluation.metrics.significance import resampled_means


def ablate_hidden(em: EM, sizes: Sequence[int] = (0, 10, 20, 30, 40, 50)) -> list[dict[str, float]]:
    """What one round comes to that selects at most so many hidden pairs of each user, by size.

    ``|H⁺|`` of a user (``selected``), how many pairs it is in all, and NDCG on the development
    users with a 95 % interval. Size 0 is the control, the same E-step without H⁺. The encoder
    stands afterwards as before.
    """
    if not len(em.dev_users):
        raise LogerError("too few users have held-out interactions to compare sizes by")
    first, state, out = em.m_step(None)[0], em.encoder.state(), list[dict[str, float]]()
    for size in sizes:
        selected, _ = em.select_hidden(first, size)
        em.e_step(selected)
        ndcg, _ = em.dev_metrics(em.m_step(first)[0])
        low, high = np.quantile(resampled_means(ndcg[:, None], 1000, 0), [0.025, 0.975])
        interval = {"low": float(low), "high": float(high)}
        pairs = len(selected.users)
        out.append({"selected": size, "pairs": pairs, "ndcg": float(ndcg.mean()), **interval})
        em.encoder.load_state(em.graph.given, state)
    return out
