"""What EM is worth with few labels: rules taught by the encoder, compared with rules that aren't.

    python benchmarks/few_labels.py --out results                   # all sets, 6 draws
    python benchmarks/few_labels.py --sets amazon-beauty
    python benchmarks/few_labels.py --sets demo demo:hubs --draws 3  # invented shops

Everything that a fit learns from validation (walks, whether derived relations help, the encoder's
share, rule weights) is learned from the held-out interactions of 10, 30, 100 and 600 users, once
with the encoder as a teacher (the default) and once without (``no-em``). Users are drawn six times.
One encoder per data set, fitted on the training part and stored in OUT/checkpoints, serves all
runs. Derived relations have their default settings. The measure is NDCG@10 of 1,500 other
validation users over all items: no test data, no refits. Figures go to OUT/few-labels.json, a table
of docs/tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.data import Split, load, split
from loger.data.demo import shop
from loger.encoder import TransE
from loger.encoder.folding import score_users
from loger.engine import LocalEngine, silent
from loger.engine.topk import top_k
from loger.graph import history
from loger.grounding import Walk
from loger.learning.fit import Fit
from loger.logic.config import DerivedConfig, EMConfig
from loger.metrics import ranking
from loger.metrics.report import resampled_means
from loger.model import LOGERConfig
from tables import COMMIT
from where import DATA

SETS = ("demo", "amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
SIZES, DRAWS, FIT, DEV = (10, 30, 100), 6, 600, 1500
SHOP = {"seed": 7, "users": 2500, "items": 1000}
"""The invented shop, larger than the demo's, so that there are users to judge by."""
Floats = NDArray[np.float64]


def data(name: str) -> Split:
    """A set by its name, or an invented shop: ``demo`` or ``demo:VARIANT``."""
    if not name.startswith("demo"):
        return split(load(DATA / name))
    return split(shop(**SHOP, variant=name.partition(":")[2] or "plain").dataset)


class Problem:
    """A set with its encoder, users who may have labels, and those who judge."""

    def __init__(self, name: str, seed: int, scratch: Path) -> None:
        self.parts = data(name)
        config = LOGERConfig(derived=replace(DerivedConfig(), tune=False), seed=seed).seeded()
        self.fit = Fit(config, lambda: TransE(config.encoder), LocalEngine(), silent)
        graph = self.parts.graph
        self.encoder = TransE(config.encoder).fit(
            graph, checkpoint=scratch / f"{name}.history.{seed}"
        )
        self.mined = self.fit.mined(self.parts)
        users = np.unique(self.parts.pairs("validation")[0]).astype(np.int64)
        order = np.random.default_rng([seed, 0xF3]).permutation(users)
        self.labelled, self.dev = order[:FIT], np.sort(order[FIT : FIT + DEV])
        self.grid = self.fit.grid(self.parts)
        derived = self.fit.derived(self.parts)[0]  # nothing is tried
        make = self.fit.problem(self.parts, self.mined, derived, self.encoder)
        self.whole = make(config.em)  # the graph and rules of all draws

    def solve(self, users: NDArray[np.int64], teacher: float | None) -> Floats:
        """NDCG of those who judge, with all that is learned from the labels of some users."""
        owners, items = self.parts.pairs("validation")
        kept = np.isin(owners, users)
        held_out = owners[kept], items[kept]
        config = replace(self.fit.config, em=replace(self.fit.config.em, teacher=teacher))

        def problem(settings: EMConfig) -> Any:
            em = self.whole
            return type(em)(em.graph, em.encoder, em.rules, held_out, settings, engine=em.engine)

        em, fitted, _ = replace(self.fit, config=config).learned(problem, self.grid)
        return self.ndcg(em.ranker(fitted).score)

    def alone(self, recency: float) -> Floats:
        """NDCG of the encoder by itself."""
        graph, walk = self.whole.graph, Walk(recency=recency)
        return self.ndcg(lambda users: score_users(self.encoder, graph, users, walk))

    def ndcg(self, score: Callable[[NDArray[np.int64]], NDArray[Any]]) -> Floats:
        """NDCG@10 of each user who judges, over all items."""
        out = []
        for lo in range(0, len(self.dev), 250):
            users = self.dev[lo : lo + 250]
            truth = self.whole.held_out[users]
            lists, _ = top_k(score(users), 10, history(self.whole.graph, users))
            n = np.diff(truth.indptr)
            hits = ranking.hits(lists, np.repeat(np.arange(len(n)), n), truth.indices)
            out.append(ranking.ndcg(hits, n))
        return np.concatenate(out)


def measured(problem: Problem, size: int | None, times: int) -> tuple[Floats, Floats]:
    """NDCG with and without teaching, [draws, users]; of all users with labels if size is None."""
    some = problem.labelled
    draws = [some] if size is None else [some[k * 100 :][:size] for k in range(times)]
    with_em, without = (
        np.stack([problem.solve(d, t) for d in draws]) for t in (EMConfig().teacher, 0.0)
    )
    return with_em, without


def interval(differences: Floats) -> dict[str, Any]:
    """The mean of paired differences, in per cent, with a 95 % interval over users."""
    means = resampled_means(100 * differences[:, None], 2000, 0)
    low, high = np.quantile(means, [0.025, 0.975])
    return {"mean": float(100 * differences.mean()), "interval": [float(low), float(high)]}


def rows(name: str, seed: int, scratch: Path, draws: int) -> Iterator[list[Any]]:
    """The lines of one set, as they are measured."""
    problem = Problem(name, seed, scratch)
    encoder = max((problem.alone(r) for r in problem.grid.get("recency", (0.0,))), key=np.mean)
    for size in (*SIZES, None):
        ours, plain = measured(problem, size, draws)
        users = len(problem.labelled) if size is None else size
        row = [
            f"{name}, {users} users", 100 * float(encoder.mean()), 100 * float(plain.mean()),
            100 * float(ours.mean()), 100 * float(ours.mean(1).min()),
            interval(ours.mean(0) - plain.mean(0)), interval(ours.mean(0) - encoder),
        ]  # fmt: skip
        print(json.dumps(row), flush=True)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=DRAWS, choices=range(1, DRAWS + 1))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "few-labels.json"
    kept = json.loads(file.read_text())["rows"] if file.exists() else []
    for name in options.sets:
        kept = [row for row in kept if not row[0].startswith(f"{name},")]
        for row in rows(name, options.seed, options.out / "checkpoints", options.draws):
            kept.append(row)
            told = {
                "command": "python benchmarks/few_labels.py", "seeds": [options.seed],
                "commit": COMMIT, "machine": "2 cores, busy",
                "columns": ["labels of", "encoder alone", "`no-em`", "with EM", "its worst draw",
                            "with EM less `no-em`", "with EM less encoder"],
                "formats": ["", ".2f", ".2f", ".2f", ".2f", "+.2f", "+.2f"],
                "rows": kept,
            }  # fmt: skip
            text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
