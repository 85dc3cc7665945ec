"""What explainability costs in accuracy: gradient-boosted trees on the same evidence as the logic.

    python benchmarks/boosted.py [--sets NAME ...] [--checkpoints FOLDER] [--out FILE]

NAME is any data set of ``generalise.py``.

The evidence for a pair is φ of every rule, the encoder's score, the item's popularity and the
length of the history. The additive model and the trees (LightGBM, lambdarank, early stopping on a
fifth of the fitting users) learn from the fitting users of an EM problem, which knows the training
part only. Both rank the same candidates for its development users; an item that isn't among the
candidates is a miss for both. The output is NDCG@10 of each, and the paired difference with a 95%
bootstrap interval over users.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from generalise import parts_of
from loger.config import LOGERConfig
from loger.engine import LocalEngine, silent
from loger.engine.topk import top_k
from loger.learning.em import EM
from loger.learning.fit import Fit, started
from loger.learning.fitted import FittedLogic
from loger.learning.mstep import candidate_pool
from loger.learning.pools import Pool
from loger.learning.tune import tuned
from loger.logic.mln import features, log_popularity
from loger.metrics import ranking
from loger.metrics.report import resampled_means, sign_flip
from loger.model import LOGER

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
K, STOPPING = 10, 0.2
TREES = {
    "objective": "lambdarank", "metric": "ndcg", "eval_at": [K], "num_leaves": 31,
    "learning_rate": 0.05, "min_data_in_leaf": 50, "lambdarank_truncation_level": 20,
    "num_threads": 1, "verbosity": -1, "seed": 0, "deterministic": True,
}  # fmt: skip


def evidence(em: EM, fitted: FittedLogic, pool: Pool) -> np.ndarray:
    """φ of each rule, encoder, popularity and length of the history; [candidates, columns]."""
    phi = features(pool.found, fitted.logic.feature, fitted.logic.scales).toarray()
    popularity = log_popularity(em.graph)[pool.found.items]
    _, heads = em.graph.interactions
    lengths = np.bincount(heads, minlength=em.graph.n_users)[pool.found.users]
    return np.column_stack([phi, pool.encoder, popularity, np.log1p(lengths)]).astype(np.float32)


def additive(em: EM, fitted: FittedLogic, x: np.ndarray) -> np.ndarray:
    """S of candidates by their evidence, as the ranker has it up to w₀."""
    logic = fitted.logic
    weights = [*logic.weights, fitted.fusion.encoder_weight, logic.popularity, 0.0]
    return x.astype(np.float64) @ np.array(weights)


def trees(x: np.ndarray, pool: Pool) -> Any:
    """A boosted ranker of the users of a pool who have a hit."""
    import lightgbm

    labels = np.zeros(len(x), dtype=np.int8)
    labels[pool.hits] = 1
    sizes = np.diff(pool.starts)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    useful = np.unique(owner[pool.hits])
    late = useful[:: round(1 / STOPPING)]
    parts = []
    for users in (np.setdiff1d(useful, late), late):
        rows = np.isin(owner, users)
        parts.append(lightgbm.Dataset(x[rows], labels[rows], group=sizes[users]))
    stop = lightgbm.early_stopping(30, verbose=False)
    return lightgbm.train(TREES, parts[0], 600, valid_sets=[parts[1]], callbacks=[stop])


def ndcg(em: EM, pool: Pool, scores: np.ndarray) -> np.ndarray:
    """NDCG@10 of the users of a pool, ranked by scores."""
    users = em.dev_users
    dense = np.full((len(users), em.graph.n_items), -np.inf, dtype=np.float32)
    dense[np.searchsorted(users, pool.found.users), pool.found.items] = scores
    lists, _ = top_k(dense, K)
    part = em.held_out[users]
    n = np.diff(part.indptr)
    hits = ranking.hits(lists, np.repeat(np.arange(len(users)), n), part.indices)
    return ranking.ndcg(hits, n)


def run(name: str, checkpoints: Path | None, scratch: Path, seed: int = 0) -> dict[str, Any]:
    """One data set: what each comes to, and the difference."""
    parts = parts_of(name, scratch)
    model = LOGER(LOGERConfig(seed=seed))
    folder = None if checkpoints is None else checkpoints / name
    fit = Fit(model.config, model.make_encoder, LocalEngine(), silent, folder)
    start = partial(started, stages=fit.stages)
    em, fitted, _ = tuned(fit.problem(parts), model.config.em, fit.grid(parts), start)
    # The encoder's scores as the fitted model has them, items' own parts included.
    fitting, judging = (
        candidate_pool(em, fitted.logic.rules, users).scored(em.ranker(fitted), em.engine)
        for users in (em.fit_users, em.dev_users)
    )
    ranker = trees(evidence(em, fitted, fitting), fitting)
    x = evidence(em, fitted, judging)
    one, two = ndcg(em, judging, additive(em, fitted, x)), ndcg(em, judging, ranker.predict(x))
    difference = (two - one)[:, None]
    low, high = np.quantile(resampled_means(difference, 1000, seed), [0.025, 0.975])
    return {
        "set": name,
        "users": len(one),
        "trees": ranker.best_iteration,
        "additive": 100 * float(one.mean()),
        "boosted": 100 * float(two.mean()),
        "difference": 100 * float(difference.mean()),
        "low": 100 * float(low),
        "high": 100 * float(high),
        "p": float(sign_flip(difference, 10_000, seed)[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--checkpoints", type=Path, help="share encoders with other runs")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--scratch", type=Path, default=Path("results/generalise/scratch"))
    options = parser.parse_args()
    found = list[dict[str, Any]]()
    for name in options.sets:
        found.append(run(name, options.checkpoints, options.scratch))
        print(found[-1], flush=True)
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
