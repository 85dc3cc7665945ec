"""Modern transformers on data with times: tuned on validation, then measured once on test.

    python benchmarks/peers.py ml1m
    python benchmarks/peers.py amazon-toys --set batch=128
    python benchmarks/peers.py ml-100k --scratch /tmp/packaged --tuning-epochs 16

Each method tries the points of its grid on validation with a short training (--tuning-epochs) and
keeps the best. That point is trained in full on train and validation, and measured on test by full
ranking at 10. docs/tables/peers-SET.json is written after each method.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from loger.data import load, split
from loger.data.splits import Split
from loger.engine.settings import parsed
from loger.evaluation.evaluate import evaluate
from loger.evaluation.methods import METHODS
from loger.recommender import fit_for
from packaged import PACKAGED
from tables import COMMIT, METRICS, TABLES
from where import DATA

PEERS = ("esasrec", "hstu")
COLUMNS = [
    "test NDCG", "Recall", "HR", "Precision", "validation NDCG", "chosen", "minutes, tuning",
    "minutes, fit",
]  # fmt: skip
FORMATS = ["", ".2f", ".2f", ".2f", ".2f", ".2f", "", ".1f", ".1f"]


def tuned(
    name: str, parts: Split, settings: dict[str, Any], seed: int, epochs: int
) -> tuple[dict[str, Any], list[tuple[dict[str, Any], float]]]:
    """The best point of a method's grid on validation, and all points with their NDCG."""
    method = METHODS[name]
    grid = {k: values for k, values in method.grid.items() if k not in settings}
    trials = []
    for values in product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        model = method.make(seed, **(settings | point | {"epochs": epochs}))
        report = evaluate([model.fit(parts)], parts, "validation")
        trials.append((point, 100 * report.mean(model.name, "ndcg")))
        print(f"  {name} {point}: validation NDCG {trials[-1][1]:.2f}", flush=True)
    return max(trials, key=lambda trial: trial[1])[0], trials


def measured(name: str, parts: Split, options: argparse.Namespace) -> tuple[list[Any], Any]:
    """The row of a method, and the points that were tried."""
    settings = parsed(options.set)
    clock = [time.process_time()]
    best, trials = tuned(name, parts, settings, options.seed, options.tuning_epochs)
    clock.append(time.process_time())
    model = fit_for(METHODS[name].make(options.seed, **(settings | best)), parts)
    clock.append(time.process_time())
    report = evaluate([model], parts)
    minutes = [(b - a) / 60 for a, b in pairwise(clock)]
    figures = [
        {"mean": 100 * report.mean(model.name, m),
         "interval": [100 * end for end in report.interval(model.name, m)]}
        for m in METRICS
    ]  # fmt: skip
    chosen = ", ".join(f"{k}={v}" for k, v in (settings | best).items())
    row = [model.name, *figures, max(value for _, value in trials), chosen, *minutes]
    return row, {model.name: trials}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a shared set, or one that a package carries")
    parser.add_argument("--methods", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--tuning-epochs", type=int, default=4)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scratch", type=Path, default=Path("results/scratch"))
    options = parser.parse_args()
    found = PACKAGED.get(options.data)
    parts = split(found(options.scratch) if found else load(DATA / options.data))
    out = TABLES / f"peers-{options.data}.json"
    stored = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"rows": []}
    rows = {row[0]: row for row in stored["rows"]}
    trials = dict(stored.get("trials", {}))
    for name in options.methods:
        row, tried = measured(name, parts, options)
        rows[row[0]] = row
        trials |= tried
        table = {
            "command": shlex.join(["python", *sys.argv]),
            "seeds": [options.seed],
            "commit": COMMIT,
            "machine": "one of two shared cores; minutes are processor time",
            "note": f"{options.tuning_epochs} epochs for each point of the grid",
            "columns": [options.data, *COLUMNS],
            "formats": FORMATS,
            "rows": list(rows.values()),
            "trials": trials,
        }
        out.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        print(row, flush=True)


if __name__ == "__main__":
    main()
