"""The paper's ablation: how many hidden pairs of a user an E-step should take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loger.errors import LogerError
from loger.learning.em import EM
from loger.metrics.significance import resampled_means


def ablate_hidden(em: EM, sizes: Sequence[int] = (0, 10, 20, 30, 40, 50)) -> list[dict[str, float]]:
    """What one round comes to that selects at most so many hidden pairs of each user, by size.

    ``|H⁺|`` of a user (``selected``), how many pairs it is in all, NDCG on the development users
    with a 95 % interval, how far it lies above that of the first size, paired over users
    (``more``), and NDCG of the encoder alone. Size 0 is the control, the same E-step without H⁺.
    The encoder stands afterwards as before.
    """
    if not len(em.dev_users):
        raise LogerError("too few users have held-out interactions to compare sizes by")
    first, state, out = em.m_step(None)[0], em.encoder.state(), list[dict[str, float]]()
    control = None
    for size in sizes:
        selected, _ = em.select_hidden(first, size)
        em.e_step(selected)
        fitted = em.m_step(first)[0]
        ndcg = em.dev_metrics(fitted)[0]
        control = ndcg if control is None else control
        out.append(
            {
                "selected": size,
                "pairs": len(selected.users),
                "ndcg": float(ndcg.mean()),
                **_ends("low", "high", ndcg),
                "more": float((ndcg - control).mean()),
                **_ends("more_low", "more_high", ndcg - control),
                "encoder": float(em.encoder_ndcg(fitted).mean()),
            }
        )
        em.encoder.load_state(em.graph.given, state)
    return out


def _ends(low: str, high: str, values: np.ndarray) -> dict[str, float]:
    """The ends of a 95 % interval of a mean over users, by their names."""
    ends = np.quantile(resampled_means(values[:, None], 1000, 0), [0.025, 0.975])
    return dict(zip((low, high), map(float, ends), strict=True))
