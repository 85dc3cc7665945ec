"""What mentions are worth: LOGER on amazon-toys with and without the aspects that reviews mention.

    python benchmarks/mentions.py with --out /tmp/mentions
    python benchmarks/mentions.py without --out /tmp/mentions
    python benchmarks/mentions.py compare --out /tmp/mentions

``with`` is the default of ``benchmarks/loger_quality.py`` with seed 0: you can copy its table,
amazon-toys.default.0.full.parquet, to with.parquet.

Both use the same split by time. They are fitted on training, learn weights on validation, are
refitted on both, and measured once on test: full ranking, paired bootstrap over users.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from loger.data import load, split
from loger.data.dataset import Dataset, Facts
from loger.evaluation.evaluate import evaluate
from loger.metrics.report import resampled_means, sign_flip
from loger.model import LOGER, LOGERConfig
from where import DATA as SETS_FOLDER

DATA = SETS_FOLDER / "amazon-toys"
MENTIONS = {"mentions", "described_as"}
METRICS = ("ndcg", "recall", "hit_rate", "precision")


def without_mentions(dataset: Dataset) -> Dataset:
    """The same data without the relations of what reviews say."""
    kept = [k for k, r in enumerate(dataset.relations) if r.name not in MENTIONS]
    number = np.full(len(dataset.relations), -1)
    number[kept] = np.arange(len(kept))
    facts = dataset.facts
    stay = number[facts.relations] >= 0
    return replace(
        dataset,
        relations=tuple(dataset.relations[k] for k in kept),
        facts=Facts(
            facts.heads[stay],
            number[facts.relations[stay]].astype(np.int32),
            facts.tails[stay],
            facts.sources[stay],
        ),
    )


def run(which: str, out: Path) -> None:
    dataset = load(DATA)
    parts = split(dataset if which == "with" else without_mentions(dataset))
    start = time.perf_counter()
    model = LOGER(LOGERConfig(), name=which).fit(parts, checkpoint=out / f"{which}.checkpoint")
    report = evaluate([model], parts)
    table = pl.DataFrame({"user": report.users, **report.values[which]})
    table.write_parquet(out / f"{which}.parquet")
    heads = [str(rule) for rule in model.rules_]
    used = sum(any(name in rule for name in MENTIONS) for rule in heads)
    print(
        f"{which}: {len(heads)} rules, {used} through mentions, {time.perf_counter() - start:.0f} s"
    )


def compare(out: Path) -> None:
    tables = [pl.read_parquet(out / f"{which}.parquet") for which in ("with", "without")]
    assert tables[0]["user"].equals(tables[1]["user"])
    for metric in METRICS:
        a, b = (table[metric].to_numpy().astype(float) for table in tables)
        low, high = np.quantile(resampled_means((a - b)[:, None], 1000, 0), [0.025, 0.975])
        p = float(sign_flip((a - b)[:, None], 10_000, 0)[0])
        print(
            f"{metric:10s} with {100 * a.mean():6.2f}  without {100 * b.mean():6.2f}  difference "
            f"{100 * (a - b).mean():+.2f} ({100 * low:+.2f} … {100 * high:+.2f}), p {p:.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("with", "without", "compare"))
    parser.add_argument("--out", type=Path, default=Path("/tmp/mentions"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "compare":
        compare(options.out)
    else:
        run(options.what, options.out)


if __name__ == "__main__":
    main()
