"""From the published model to the default, one change per row, compared with HeteroEmbed.

    python benchmarks/ladder.py --out results                       # amazon-beauty
    python benchmarks/ladder.py --set amazon-toys --out results
    python benchmarks/ladder.py --set ml1m --brief                  # only the rows of the claims

Everything is fitted on the training part, weights by one M-step (no rounds). The measure is
validation NDCG@10 of development users, whose held-out items nothing has seen, among all items and
among 100 sampled ones. Rows share encoders, which are stored in OUT/checkpoints. Each row goes to
OUT/ladder-SET.json, a table of docs/tables, as soon as it is there (for seeds other than 0 to
OUT/ladder-SET.SEED.json). Existing rows aren't made again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from loger.config import LOGERConfig
from loger.data import Split, load, split
from loger.encoder import Encoder, TransE, TransEConfig
from loger.engine import LocalEngine
from loger.engine.topk import top_k
from loger.evaluation.evaluate import sampled_candidates
from loger.graph import history
from loger.grounding import Walk
from loger.learning.em import EM
from loger.logic.config import EMConfig
from loger.logic.mining import MiningConfig, mine
from loger.metrics import ranking
from loger.metrics.report import resampled_means
from loger.ranking.ranker import sampled
from loger_quality import HeteroVectors
from tables import COMMIT
from where import DATA as SHARED

Floats = NDArray[np.float64]
Both = tuple[Floats, Floats]
"""NDCG of each user, full and among sampled candidates."""
BLOCK = 500
BRIEF = (
    "HeteroEmbed",
    "encoder of `paper` alone",
    "… q against ten items: `paper`",
    "… a score that is a sum: the default, no derived relations",
    "our rules + HeteroEmbed's own vectors",
)
"""The rows that the claims of the paper are about."""


class Bench:
    """One set: its split, its encoders, rules and users who judge."""

    def __init__(self, name: str, seed: int, users: int, scratch: Path) -> None:
        self.name, self.seed, self.scratch = name, seed, scratch
        self.parts: Split = split(load(SHARED / name))
        self.graph, self.engine = self.parts.graph, LocalEngine()
        any_em = self.em(EMConfig(), None, self.rules(1), None)
        self.users = any_em.dev_users[:users]
        self.held = any_em.held_out[self.users]
        self.among = sampled_candidates(self.parts, "validation")[self.users]

    @cache  # noqa: B019
    def rules(self, min_hops: int) -> Any:
        """Mined rules, of three hops as in the paper or of all lengths."""
        config = LOGERConfig.paper().mining if min_hops == 3 else MiningConfig()
        return mine(self.graph, replace(config, seed=self.seed), self.engine).rules

    @cache  # noqa: B019
    def encoder(self, kind: str) -> Any:
        """An encoder of train: the paper's as published, trained well, the default's, or
        HeteroEmbed."""
        if kind == "heteroembed":
            return HeteroVectors(self.seed).fit(self.graph)
        configs = {
            "literal": LOGERConfig.paper_literal().encoder,
            "free": LOGERConfig.paper().encoder,
            "history": TransEConfig(),
        }
        folder = self.scratch / f"{self.name}.{kind}.{self.seed}"
        return TransE(replace(configs[kind], seed=self.seed)).fit(self.graph, checkpoint=folder)

    def em(self, config: EMConfig, encoder: Encoder | None, rules: Any, nodes: int | None) -> EM:
        """The problem of one row."""
        held, sample = self.parts.pairs("validation"), None if nodes is None else (nodes, self.seed)
        config = replace(config, seed=self.seed)
        logic_graph = sampled(self.graph, sample)
        return EM(self.graph, encoder, rules, held, config, logic_graph=logic_graph)

    def judge(self, score: Callable[[NDArray[np.int64]], NDArray[Any]]) -> Both:
        """NDCG of scores, block by block."""
        parts = [self._judge(score, lo) for lo in range(0, len(self.users), BLOCK)]
        full, among = (np.concatenate(x) for x in zip(*parts, strict=True))
        return full, among

    def _judge(self, score: Callable[[NDArray[np.int64]], NDArray[Any]], lo: int) -> Both:
        users = self.users[lo : lo + BLOCK]
        scores = score(users).astype(np.float64)
        part, among = self.held[lo : lo + BLOCK], self.among[lo : lo + BLOCK]
        n = np.diff(part.indptr)
        pairs = np.repeat(np.arange(len(users)), n), part.indices
        outside = np.ones(scores.shape, dtype=bool)
        outside[np.repeat(np.arange(len(users)), np.diff(among.indptr)), among.indices] = False
        known = history(self.graph, users)
        out = []
        for kept in (scores, np.where(outside, -np.inf, scores)):
            lists, _ = top_k(kept.copy(), 10, known)
            out.append(ranking.ndcg(ranking.hits(lists, *pairs), n))
        return out[0], out[1]

    # ── rows ────────────────────────────────────────────────────────────────────────────

    def alone(self, kind: str) -> Both:
        """An encoder by itself."""
        return self.judge(self.encoder(kind).score_items)

    def row(self, config: EMConfig, kind: str, min_hops: int, nodes: int | None) -> Both:
        """One M-step with some settings, rules and encoder."""
        em = self.em(config, self.encoder(kind), self.rules(min_hops), nodes)
        return self.judge(em.ranker(em.m_step(None)[0]).score)

    def true_rate(self, config: EMConfig, kind: str, min_hops: int, nodes: int | None) -> Both:
        """The same, with p and q both of the true base rate: no evidence is no more than that."""
        negatives = float(self.graph.n_items)
        em = self.em(
            replace(config, negatives=negatives), self.encoder(kind), self.rules(min_hops), nodes
        )
        fitted = em.m_step(None)[0]
        ranker = em.ranker(fitted)

        def score(users: NDArray[np.int64]) -> NDArray[Any]:
            logit = fitted.logic.logits(em.logic_graph, users).astype(np.float64)
            p = np.where(logit == 0, 0.0, expit(logit - np.log(negatives)))
            return fitted.fusion.calibration(ranker.encoder_scores(users)) + config.alpha * p

        return self.judge(score)

    def rows(self) -> Iterator[tuple[str, Callable[[], Both]]]:
        """The ladder: each row's name and what makes it."""
        paper, literal = LOGERConfig.paper().em, LOGERConfig.paper_literal().em
        walked = {"feature": "logwalk", "walk": Walk(0.0, 0.25, 0.5, 0.5, 0.5)}
        strong = replace(paper, **walked, steps=0, l2=1e-3)  # solved to the optimum
        listed = replace(EMConfig(), fusion="sum", alpha=0.3, popularity=False)
        yield "HeteroEmbed", partial(self.alone, "heteroembed")
        yield "encoder of `paper-literal` alone", partial(self.alone, "literal")
        yield "`paper-literal`: Eq. 1, q + α·p", partial(self.row, literal, "literal", 3, 100)
        yield "encoder of `paper` alone", partial(self.alone, "free")
        yield "… with the encoder trained well", partial(self.row, literal, "free", 3, 100)
        yield "… q against ten items: `paper`", partial(self.row, paper, "free", 3, 100)
        yield "… or p and q at the true base rate", partial(self.true_rate, paper, "free", 3, 100)
        yield "… exact groundings", partial(self.row, paper, "free", 3, None)
        yield "… rules of one to three hops", partial(self.row, paper, "free", 1, None)
        many = replace(paper, feature="multiset")
        yield "… `multiset`", partial(self.row, many, "free", 1, None)
        yield "… `logwalk`, solved to the optimum", partial(self.row, strong, "free", 1, None)
        yield "… listwise weights", partial(self.row, listed, "free", 1, None)
        fused = replace(listed, fusion="logit")
        yield "… fused as logits", partial(self.row, fused, "free", 1, None)
        whole = replace(EMConfig(), additive=False, saturation=1.0)
        yield (
            "… users as their histories, popularity",
            partial(self.row, whole, "history", 1, None),
        )
        yield (
            "… a score that is a sum: the default, no derived relations",
            partial(self.row, EMConfig(), "history", 1, None),
        )
        yield "default encoder alone", partial(self.alone, "history")
        yield (
            "our rules + HeteroEmbed's own vectors",
            partial(self.row, EMConfig(), "heteroembed", 1, None),
        )


def cell(values: Floats, beside: Floats | None) -> Any:
    """A mean in per cent, or the mean paired difference with a 95 % interval over users."""
    if beside is None:
        return 100 * float(values.mean())
    gap = 100 * (values - beside)
    low, high = np.quantile(resampled_means(gap[:, None], 2000, 0), [0.025, 0.975])
    return {"mean": float(gap.mean()), "interval": [float(low), float(high)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", default="amazon-beauty")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--users", type=int, default=1500)
    parser.add_argument("--brief", action="store_true", help="only the rows of the claims")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    label = f"{options.set}.{options.seed}" if options.seed else options.set
    kept = options.out / f"ladder-{label}.{options.users}.npz"
    values = dict(np.load(kept)) if kept.exists() else {}
    bench = Bench(options.set, options.seed, options.users, options.out / "checkpoints")
    for name, make in bench.rows():
        if options.brief and name not in BRIEF:
            continue
        start = time.perf_counter()
        if name not in values:
            values[name] = np.stack(make())
            np.savez(kept, **values)
        first = values["HeteroEmbed"]
        rows = [
            [
                of,
                *(cell(x, None) for x in both),
                *(cell(x, y) for x, y in zip(both, first, strict=True)),
            ]
            for of, both in values.items()
        ]
        rows[0][3:] = [None, None]
        told = {
            "command": f"python benchmarks/ladder.py --set {options.set}"
            + (" --brief" if options.brief else ""),
            "seeds": [options.seed], "commit": COMMIT, "machine": "2 cores, busy",
            "note": f"NDCG@10, {len(bench.users)} development users of validation, one M-step",
            "columns": [options.set, "full ranking", "sampled-100",
                        "full, less HeteroEmbed", "sampled-100, less HeteroEmbed"],
            "formats": ["", ".2f", ".2f", "+.2f", "+.2f"], "rows": rows,
        }  # fmt: skip
        file = options.out / f"ladder-{label}.json"
        file.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        seconds = time.perf_counter() - start
        print(f"{name:<52} {rows[-1][1]:6.2f} {rows[-1][2]:6.2f}  {seconds:5.0f} s", flush=True)


if __name__ == "__main__":
    main()
