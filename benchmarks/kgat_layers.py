"""Why KGAT may rank below CKE, whose vectors it starts from: each layer by itself, epoch by epoch.

    python benchmarks/kgat_layers.py amazon-cellphones --every 6

On a cut of a data set (every so many users, all facts): validation NDCG of CKE, and of KGAT in all
and by layer after some epochs; and how often a training pair outscores a random item (AUC).
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np

from cluster import cut
from loger.baselines import CKE, KGAT
from loger.baselines._shared import Factors
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.evaluation.evaluate import evaluate
from tables import aligned
from where import DATA

SETTINGS = {
    "untrained layers": {"epochs": 1, "rate": 1e-9, "final_rate": 1e-9},
    "3 epochs": {"epochs": 3},
    "10 epochs, the default": {"epochs": 10},
    "20 epochs": {"epochs": 20},
}


class Part(Factors):
    """Scores by some coordinates of all vectors."""

    def __init__(self, name: str, users: np.ndarray, items: np.ndarray) -> None:
        self.name, self.users_, self.items_ = name, users, items

    def fit(self, split: Split, *, progress: Progress = silent) -> Part:
        """Nothing: the vectors are those of a fitted model."""
        return self


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a shared set")
    parser.add_argument("--every", type=int, default=6)
    options = parser.parse_args()
    parts = cut(str(DATA / options.data), options.every)
    n, users, items = parts.dataset.n_users, *parts.pairs("train")
    rng = np.random.default_rng(0)
    some, others = rng.choice(len(users), 2000), rng.integers(parts.dataset.n_items, size=2000)
    cke = CKE().fit(parts)
    ndcg = evaluate([cke], parts, "validation").mean(cke.name, "ndcg")
    rows = [["CKE", f"{100 * ndcg:.2f}", "", "", "", ""]]
    for what, settings in SETTINGS.items():
        model = KGAT(**settings).fit(parts)
        vectors, ends = model.vectors_.numpy(), np.cumsum([0, 64, *model.config.layers])
        spans = {"all": slice(0, None)}
        spans |= {f"layer {k}": slice(a, b) for k, (a, b) in enumerate(pairwise(ends))}
        of = [
            Part(name, vectors[:n, span], vectors[n : n + parts.dataset.n_items, span])
            for name, span in spans.items()
        ]
        report = evaluate(of, parts, "validation")
        true, wrong = (
            (vectors[users[some]] * vectors[n + ids]).sum(1) for ids in (items[some], others)
        )
        figures = [f"{100 * report.mean(name, 'ndcg'):.2f}" for name in spans]
        rows.append([f"KGAT, {what}", *figures, f"{(true > wrong).mean():.3f}"])
        print(rows[-1], flush=True)
    print(aligned(["validation NDCG", "all", "layer 0", "layer 1", "layer 2", "AUC, train"], rows))


if __name__ == "__main__":
    main()
