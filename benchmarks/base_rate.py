"""How the base rate at which q is calibrated affects q + α·p of the preset `paper`.

    python benchmarks/base_rate.py [--set NAME] [--users N] [--keep FOLDER]

Everything is fitted on the training part, the weights by one M-step with the preset's settings.
NDCG@10 is measured on validation, for development users whose held-out items nothing has seen,
among all items and among 100 sampled ones. The encoder alone and HeteroEmbed are shown for
comparison. --keep stores the encoder.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from loger.baselines import HeteroEmbed
from loger.config import LOGERConfig
from loger.data import Split, load, split
from loger.encoder import TransE
from loger.encoder.calibration import Calibration
from loger.engine import LocalEngine
from loger.engine.topk import top_k
from loger.evaluation.evaluate import sampled_candidates
from loger.graph import history
from loger.learning.em import EM
from loger.logic.mining import mine
from loger.metrics import ranking
from loger.ranking.ranker import sampled
from where import DATA as SHARED


class Judge:
    """NDCG@10 of score matrices of the same users, full and among sampled candidates."""

    def __init__(self, parts: Split, users: NDArray[np.int64], held: Any) -> None:
        self.users, self.known = users, history(parts.graph, users)
        part = held[users]
        self.n = np.diff(part.indptr)
        self.pairs = np.repeat(np.arange(len(users)), self.n), part.indices
        among = sampled_candidates(parts, "validation")[users]
        self.out = np.ones(among.shape, dtype=bool)
        self.out[np.repeat(np.arange(len(users)), np.diff(among.indptr)), among.indices] = False

    def __call__(self, name: str, scores: NDArray[Any]) -> None:
        values = []
        for hidden in (None, self.out):
            kept = scores.astype(np.float64)
            if hidden is not None:
                kept[hidden] = -np.inf
            lists, _ = top_k(kept, 10, self.known)
            values.append(100 * ranking.ndcg(ranking.hits(lists, *self.pairs), self.n).mean())
        print(f"{name:<44} full {values[0]:6.2f}   sampled-100 {values[1]:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="amazon-beauty")
    parser.add_argument("--users", type=int, default=1500)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    parts, config = split(load(SHARED / options.set)), LOGERConfig.paper().seeded()
    graph, engine = parts.graph, LocalEngine()
    encoder = TransE(config.encoder).fit(graph, checkpoint=options.keep)
    rules = mine(graph, config.mining, engine).rules
    logic_graph = sampled(graph, config.sample)
    held = parts.pairs("validation")
    em = EM(graph, encoder, rules, held, config.em, logic_graph=logic_graph, engine=engine)
    users = em.dev_users[: options.users]
    judge = Judge(parts, users, em.held_out)
    s = encoder.score_items(users).astype(np.float64)
    judge("the encoder alone", s)
    one = em.m_step(None)[0]
    logit = one.logic.logits(logic_graph, users).astype(np.float64)
    found = {}
    for negatives in (1.0, 10.0, 50.0, float(graph.n_items)):
        em.config = replace(config.em, negatives=negatives)
        q: Calibration = em.calibrated(one).fusion.calibration
        found[negatives] = q
        judge(f"q against {negatives:,.0f}", q(s) + config.em.alpha * expit(logit))
    rate = float(np.log(graph.n_items))
    p = np.where(logit == 0, 0.0, expit(logit - rate))  # no evidence: no more than the base rate
    judge("both at the true base rate", found[float(graph.n_items)](s) + config.em.alpha * p)
    judge("HeteroEmbed", HeteroEmbed().fit(parts).score(users))


if __name__ == "__main__":
    main()
