"""LOGER on the real data sets: default, paper, and what each part is worth.

    python benchmarks/loger_quality.py  # as docs/research/results.md quotes
    python benchmarks/loger_quality.py --sets amazon-beauty --seeds 0 --variants default

Every variant is fitted on the training part, tuned on validation, refitted on both, and measured
once on test. Those in TUNED tune themselves; the others use what the default of their seed chose.
``heteroembed`` is the default with HeteroEmbed's vectors instead of its own encoder's. Values of
each user go to OUT/SET.VARIANT.SEED.PROTOCOL.parquet; existing runs aren't made again. Variants
share encoders through checkpoints. The models of default and paper are stored in OUT/bundles for
the benchmarks of explanations.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from loger.baselines.heteroembed import HeteroEmbed
from loger.data import load, split
from loger.data.splits import Split
from loger.encoder.folding import score_users
from loger.evaluation.evaluate import Protocol, evaluate
from loger.evaluation.methods import EncoderAlone
from loger.graph import KnowledgeGraph
from loger.logic.config import DerivedConfig, EMConfig, FollowedByConfig
from loger.logic.mining import MiningConfig
from loger.metrics.report import resampled_means, sign_flip
from loger.model import LOGER, LOGERConfig
from tables import COMMIT, METRICS, TABLES, markdown
from where import DATA

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
KEPT = ("default", "paper")
ENCODERS = {
    "default": "encoder", "paper": "encoder-of-paper", "heteroembed": "encoder-of-heteroembed",
}  # fmt: skip
"""The variants of the headlines, and what their encoders alone are called; that of the last is
HeteroEmbed itself."""


def em(**settings: Any) -> Callable[[int], LOGERConfig]:
    return lambda seed: LOGERConfig(em=replace(EMConfig(), **settings), seed=seed)


VARIANTS: dict[str, Callable[[int], LOGERConfig]] = {
    "default": lambda seed: LOGERConfig(seed=seed),
    "logic": em(fusion="logic", rounds=0),
    "paper": lambda seed: LOGERConfig.paper(seed=seed),
    "heteroembed": lambda seed: LOGERConfig(seed=seed),
    "no-em": em(rounds=0),
    "one-round": em(rounds=1, max_hidden=50),
    "set": em(feature="set", rounds=0),
    "multiset": em(feature="multiset", rounds=0),
    "count": em(feature="count", rounds=0),
    "walk": em(feature="walk", rounds=0),
    "sum": em(fusion="sum", alpha=4.0, rounds=0),
    "no-popularity": em(popularity=False, rounds=0),
    "two-hops": lambda seed: LOGERConfig(
        mining=MiningConfig(max_hops=2), em=EMConfig(rounds=0), seed=seed
    ),
    "three-hops": lambda seed: LOGERConfig(
        mining=MiningConfig(min_hops=3), em=EMConfig(rounds=0), seed=seed
    ),
    "shuffled-kg": em(rounds=0),
    "no-times": lambda seed: LOGERConfig(seed=seed),
    "no-sequence": lambda seed: LOGERConfig(
        derived=DerivedConfig(followed_by=FollowedByConfig(facts=0)), seed=seed
    ),
    "no-derived": lambda seed: LOGERConfig(derived=DerivedConfig.none(), seed=seed),
    "no-facts": lambda seed: LOGERConfig(seed=seed),
}
TUNED = (
    "default",
    "heteroembed",
    "one-round",
    "logic",
    "no-times",
    "no-sequence",
    "no-derived",
    "no-facts",
)


class HeteroVectors:
    """HeteroEmbed where LOGER expects an encoder: as much of one as a fit without rounds needs."""

    def __init__(self, seed: int) -> None:
        self.fitted = HeteroEmbed(seed=seed)

    def fit(self, graph: KnowledgeGraph, **_: Any) -> Self:
        self.fitted.learn(graph)
        return self

    def score_items(self, users: ArrayLike) -> NDArray[np.float32]:
        return self.fitted.score(users)

    def state(self) -> dict[str, NDArray[np.generic]]:
        tables = (self.fitted.entities_, self.fitted.relations_, self.fitted.biases_)
        return {str(k): rows.table.numpy() for k, rows in enumerate(tables)}


class Encoder(EncoderAlone):
    """The encoder of a fitted LOGER alone, with the recency that it chose."""

    def __init__(self, model: LOGER) -> None:
        super().__init__(type(model.encoder_), "encoder")
        self.model, self.encoder_ = model, model.encoder_

    def score(self, users: ArrayLike) -> np.ndarray:
        m = self.model
        return score_users(m.encoder_, m.graph_, users, m.config_.em.walk)


def shuffled(parts: Split, seed: int = 0) -> Split:
    """The split of the same interactions with every fact led to another tail of its relation."""
    facts = parts.dataset.facts
    tails = facts.tails.copy()
    rng = np.random.default_rng(seed)
    for r in np.unique(facts.relations):
        rows = np.flatnonzero(facts.relations == r)
        tails[rows] = tails[rng.permutation(rows)]
    keep = facts.heads != tails
    columns = {c: getattr(facts, c)[keep] for c in ("heads", "relations", "sources")}
    dataset = replace(parts.dataset, facts=replace(facts, tails=tails[keep], **columns))
    return replace(parts, dataset=dataset)


def without_facts(parts: Split) -> Split:
    """The same interactions, and nothing known about anything."""
    facts, columns = parts.dataset.facts, ("heads", "relations", "tails", "sources")
    none = replace(facts, **{c: getattr(facts, c)[:0] for c in columns})
    return replace(parts, dataset=replace(parts.dataset, facts=none))


def without_times(parts: Split) -> Split:
    """The same interactions in the same parts, but nobody knows when they were."""
    dataset = parts.dataset
    interactions = replace(dataset.interactions, times=None)
    return replace(parts, dataset=replace(dataset, interactions=interactions))


DATA_OF = {"shuffled-kg": shuffled, "no-facts": without_facts, "no-times": without_times}
"""Variants of which the data are others."""


def run(name: str, variant: str, seed: int, out: Path, scratch: Path) -> None:
    target = out / f"{name}.{variant}.{seed}.json"
    if target.exists():
        return
    parts = split(load(DATA / name))
    data = DATA_OF.get(variant, lambda parts: parts)(parts)
    kind = variant if variant in ("paper", "heteroembed", *DATA_OF) else "shared"
    start = time.perf_counter()
    encoder: Any = partial(HeteroVectors, seed) if variant == "heteroembed" else None
    model = LOGER(VARIANTS[variant](seed), encoder=encoder, name=variant)
    tune = None if variant in TUNED else chosen(out, name, seed)
    model.fit(data, tune=tune, checkpoint=scratch / f"{name}.{kind}.{seed}")
    seconds = time.perf_counter() - start
    models = [model, Encoder(model)] if variant in ENCODERS else [model]
    if variant in KEPT:
        model.save(out / "bundles" / f"{name}.{variant}.{seed}")
    start = time.perf_counter()
    model.top(np.arange(model.graph_.n_users), 10)
    ranking = time.perf_counter() - start
    told: dict[str, object] = {
        "set": name, "variant": variant, "seed": seed, "commit": COMMIT, "fit_seconds": seconds,
        "rank_all_seconds": ranking, "rules": len(model.rules_),
        "recency": model.config_.em.walk.recency,
        "tried": [list(row) for row in model.tried_],
        "trace": [[r.number, r.bound, r.selected, r.ndcg] for r in model.trace_],
    }  # fmt: skip
    protocols: tuple[Protocol, ...] = ("full", "sampled-100") if variant in ENCODERS else ("full",)
    for protocol in protocols:
        report = evaluate(models, parts, protocol=protocol)
        for m in models:
            label = ENCODERS[variant] if m.name == "encoder" else m.name
            values = report.values[m.name]
            told[f"{protocol}.{label}"] = {k: float(v.mean()) for k, v in values.items()}
            told[f"{protocol}.{label}.coverage"] = report.coverage[m.name]
            table = pl.DataFrame({"user": report.users, **values})
            table.write_parquet(out / f"{name}.{label}.{seed}.{protocol}.parquet")
    target.write_text(json.dumps(told, indent=1))
    full = told[f"full.{variant}"]
    assert isinstance(full, dict)
    cells = "  ".join(f"{m} {100 * full[m]:6.2f}" for m in METRICS)
    print(f"{name:18s} {variant:14s} seed {seed}  {cells}  fit {seconds:.0f} s", flush=True)


def chosen(out: Path, name: str, seed: int) -> dict[str, tuple[float, ...]]:
    """What the default of the same seed chose on validation, where it has been run."""
    file = out / f"{name}.default.{seed}.json"
    best: dict[str, tuple[float, float]] = {}
    for setting, value, ndcg in json.loads(file.read_text())["tried"] if file.exists() else ():
        if setting not in ("recency", "strength", "popular"):
            continue
        if setting not in best or ndcg > best[setting][1]:
            best[setting] = (value, ndcg)
    return {setting: (value,) for setting, (value, _) in best.items()}


def table(out: Path, protocol: str) -> str:
    """What has been run, as Markdown: means over users and seeds, the spread over seeds, and
    p of the paired test against ``default`` of the same seed, the largest over seeds."""
    rows = []
    for name in SETS:
        best = {s: pl.read_parquet(f) for s, f in _found(out, name, "default", protocol).items()}
        for variant in ("default", "encoder", "encoder-of-paper", *list(VARIANTS)[1:]):
            runs = {s: pl.read_parquet(f) for s, f in _found(out, name, variant, protocol).items()}
            if not runs:
                continue
            means = np.array([[run[m].mean() for m in METRICS] for run in runs.values()])
            cells = [
                f"{100 * m:.2f}" + (f" ± {100 * d:.2f}" if len(runs) > 1 else "")
                for m, d in zip(means.mean(0), means.std(0, ddof=len(runs) > 1), strict=True)
            ]
            both = sorted(set(runs) & set(best)) if variant != "default" else []
            p = [
                sign_flip((best[s]["ndcg"] - runs[s]["ndcg"]).to_numpy()[:, None], 1000, 0)[0]
                for s in both
            ]
            tail = f"{max(p):.4f}" if p else ""
            rows.append([f"{name}, {variant}", len(runs), *cells, tail])
    return markdown(("", "seeds", "NDCG", "Recall", "HR", "Precision", "p, NDCG"), rows)


def figures(out: Path) -> dict[str, object]:
    """The default on all sets as a table of docs/tables: means over users and seeds, spread over
    seeds."""
    rows, seeds, commits = list[list[object]](), set[int](), set[str]()
    for name in SETS:
        for seed in _found(out, name, "default", "full"):
            seeds.add(seed)
            commits.add(json.loads((out / f"{name}.default.{seed}.json").read_text())["commit"])
        found = {
            of: [pl.read_parquet(f) for f in _found(out, name, of, "full").values()]
            for of in ("default", "encoder")
        }
        if not found["default"]:
            continue
        cells = [
            _spread([run[metric].mean() for run in found[of]])
            for of, metric in (*(("default", m) for m in METRICS), ("encoder", "ndcg"))
        ]
        rows.append([name, len(found["default"]), *cells])
    return {
        "command": "python benchmarks/loger_quality.py --variants default",
        "seeds": sorted(seeds), "commit": ", ".join(sorted(commits)), "machine": "2 cores, busy",
        "columns": ["test, full ranking at 10, per cent", "seeds", "NDCG", "Recall", "HR",
                    "Precision", "its encoder alone, NDCG"],
        "formats": ["", "d", ".2f", ".2f", ".2f", ".2f", ".2f"], "rows": rows,
    }  # fmt: skip


def claims(out: Path) -> dict[str, object]:
    """The paper's claims beside HeteroEmbed, over seeds: what our rules add to its vectors in full
    ranking, and how far `paper` is before it among sampled items. Differences are paired over
    users, each user's mean over seeds, with 95 % intervals over users."""
    rows, commits = list[list[object]](), set[str]()
    for name in SETS:
        cells: list[object] = []
        for variant, protocol in (("heteroembed", "full"), ("paper", "sampled-100")):
            theirs = _found(out, name, ENCODERS["heteroembed"], protocol)
            runs = _found(out, name, variant, protocol)
            seeds = sorted(set(theirs) & set(runs))
            if not seeds:
                break
            values = [
                np.array([pl.read_parquet(of[s]).sort("user")["ndcg"] for s in seeds])
                for of in (theirs, runs)
            ]
            for seed in seeds:
                told = json.loads((out / f"{name}.{variant}.{seed}.json").read_text())
                commits.add(told["commit"])
            gap = 100 * (values[1] - values[0]).mean(0)
            ends = np.quantile(resampled_means(gap[:, None], 1000, 0), [0.025, 0.975])
            more = {"mean": float(gap.mean()), "interval": ends.tolist()}
            cells += [len(seeds), *(_spread(list(v.mean(1))) for v in values), more]
            if protocol == "full":
                cells.append(100 * (values[1].mean() / values[0].mean() - 1))
        else:
            rows.append([name, *cells])
    return {
        "command": "python benchmarks/loger_quality.py --variants paper heteroembed",
        "seeds": [0, 1, 2], "commit": ", ".join(sorted(commits)), "machine": "2 cores, busy",
        "columns": ["test NDCG at 10, per cent", "seeds", "HeteroEmbed, full ranking",
                    "our rules, its vectors", "difference", "in %",
                    "seeds", "HeteroEmbed, sampled-100", "`paper`", "difference"],
        "formats": ["", "d", ".2f", ".2f", "+.2f", "+.1f", "d", ".2f", ".2f", "+.2f"],
        "rows": rows,
    }  # fmt: skip


def encoder_shares(out: Path) -> dict[str, object]:
    """What lower weights of the encoder came to on development users of seed 0."""
    rows = []
    for name in SETS:
        file = out / f"{name}.default.0.json"
        if file.exists():
            tried = json.loads(file.read_text(encoding="utf-8"))["tried"]
            curve = [str(value) for setting, value, _ in tried if setting == "max_encoder_share"]
            rows.append([name, *(text.removeprefix("encoder carries ") for text in curve)])
    return {
        **{k: v for k, v in figures(out).items() if k in ("command", "commit", "machine")},
        "seeds": [0],
        "columns": ["share of the leads that the encoder carries: NDCG, 95 % interval",
                    "no encoder", "a quarter of its best weight", "half", "three quarters"],
        "formats": [""] * 5, "rows": rows,
    }  # fmt: skip


FACTORIAL = {
    "no-facts": "without facts",
    "no-sequence": "without `followed_by`",
    "no-derived": "without derived relations",
    "no-times": "without times",
}


def factorial(out: Path) -> dict[str, object]:
    """What is knowledge, what order, what recency: NDCG without each, seed 0, with the 95 %
    interval over users of the difference from the default of that seed."""
    rows = []
    for name in SETS:
        runs = {v: out / f"{name}.{v}.0.full.parquet" for v in ("default", *FACTORIAL)}
        if not runs["default"].exists() or not any(runs[v].exists() for v in FACTORIAL):
            continue
        values = {v: pl.read_parquet(f)["ndcg"].to_numpy() for v, f in runs.items() if f.exists()}
        cells: list[object] = [name, 100 * float(values["default"].mean())]
        for variant in FACTORIAL:
            if variant not in values:
                cells.append(None)
                continue
            difference = (values[variant] - values["default"])[:, None]
            ends = 100 * np.quantile(resampled_means(difference, 1000, 0), [0.025, 0.975])
            mean = 100 * values[variant].mean()
            cells.append(f"{mean:.2f} ({ends[0]:+.2f} … {ends[1]:+.2f})")
        rows.append(cells)
    return {
        **{k: v for k, v in figures(out).items() if k in ("commit", "machine")},
        "command": f"python benchmarks/loger_quality.py --seeds 0 --variants {' '.join(FACTORIAL)}",
        "seeds": [0],
        "columns": ["test NDCG, full ranking at 10, per cent", "LOGER", *FACTORIAL.values()],
        "formats": ["", ".2f", "", "", "", ""], "rows": rows,
    }  # fmt: skip


def _spread(means: list[Any]) -> dict[str, float] | float:
    values = 100 * np.array(means, dtype=np.float64)
    if len(values) == 1:
        return float(values[0])
    return {"mean": float(values.mean()), "sd": float(values.std(ddof=1))}


def _found(out: Path, name: str, variant: str, protocol: str) -> dict[int, Path]:
    files = out.glob(f"{name}.{variant}.*.{protocol}.parquet")
    return {int(f.name.split(".")[2]): f for f in sorted(files)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--table", action="store_true", help="print what was run before")
    parser.add_argument("--write", action="store_true", help="the same to docs/tables")
    options = parser.parse_args()
    if options.write:
        made = {
            "default": figures, "encoder-share": encoder_shares,
            "factorial": factorial, "claims": claims,
        }  # fmt: skip
        for name, told in ((name, make(options.out)) for name, make in made.items()):
            if not told["rows"]:
                continue
            text = json.dumps(told, indent=1, ensure_ascii=False)
            (TABLES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        return
    if options.table:
        print(table(options.out, "full"), table(options.out, "sampled-100"), sep="\n\n")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        for seed in options.seeds:
            for variant in options.variants:
                run(name, variant, seed, options.out, options.out / "checkpoints")


if __name__ == "__main__":
    main()
