"""Simple baselines on the real data: tuned on validation, fitted again, measured once on test.

    python benchmarks/controls.py [--sets NAME ...] [--methods NAME ...] [--out FOLDER] [--untuned]

Each method is tuned on validation over its own grid, fitted again on training and validation, and
evaluated on test by full ranking at 10. In methods whose names end in ``-recency``, histories fade.
Large grids are searched one setting at a time, from coarse to fine. --untuned uses the settings of
METHOD 10 instead: MostPop, P3α with α = 1, EASE^R with λ = 100. ``--set NAME=VALUE`` sets a value
for all chosen methods. --out stores each result as soon as it is there: SET-METHOD.json (settings,
trials, means), and every value of every user as Parquet. Times are wall-clock and mean little on a
busy machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from ast import literal_eval
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from loger import baselines
from loger.data import load, split
from loger.data.splits import Split
from loger.evaluation.evaluate import evaluate
from loger.metrics.grid_search import Tuned, search, tune
from loger.metrics.report import METRICS, Report
from loger.recommender import fit_for
from where import DATA as SHARED

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")


class Control(NamedTuple):
    """A method, the grid it is tuned over, and how."""

    make: str
    grid: str = "GRID"
    choose: Callable[..., Tuned] = tune


METHODS = {
    "mostpop": Control("MostPop"),
    "itemknn": Control("ItemKNN"),
    "p3alpha": Control("P3alpha"),
    "rp3beta": Control("RP3beta"),
    "ials": Control("IALS"),
    "ease": Control("EASE"),
    "itemknn-recency": Control("ItemKNN", "RECENCY_GRID", search),
    "rp3beta-recency": Control("RP3beta", "RECENCY_GRID", search),
    "ease-recency": Control("EASE", "RECENCY_GRID", search),
    "sequence": Control("SequenceRules", choose=search),
    "collective": Control("CollectiveEASE", choose=search),
    "collective-recency": Control("CollectiveEASE", "RECENCY_GRID", search),
    "lightgcn": Control("LightGCN"),
    "sasrec": Control("SASRec"),
}
MEASURED = ("mostpop", "p3alpha", "ease")


def one(
    control: Control, parts: Split, given: Mapping[str, Any], tuned: bool
) -> tuple[Report, dict[str, Any]]:
    """One method's report, and what is to be known of how it came about."""
    made = getattr(baselines, control.make)
    grid = {k: v for k, v in getattr(made, control.grid).items() if k not in given}
    clock = [time.perf_counter()]
    found = Tuned({}, float("nan"), ())
    if tuned and grid:
        found = control.choose(lambda **chosen: made(**given, **chosen), grid, parts)
    clock.append(time.perf_counter())
    model = fit_for(made(**given, **found.settings), parts)
    clock.append(time.perf_counter())
    report = evaluate([model], parts)
    clock.append(time.perf_counter())
    seconds = [round(end - start, 1) for start, end in pairwise(clock)]
    return report, {
        "title": model.name,
        "settings": {**given, **found.settings},
        "validation_ndcg": found.value,
        "test": {m: 100 * report.mean(model.name, m) for m in METRICS},
        "seconds": dict(zip(("tune", "fit", "evaluate"), seconds, strict=True)),
        "trials": found.trials,
        "command": " ".join(["python", *sys.argv]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, help="folder for per-user values and JSON")
    parser.add_argument("--untuned", action="store_true", help="the settings of METHOD 10")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    chosen = parser.parse_args()
    given = {name: literal_eval(value) for name, _, value in (s.partition("=") for s in chosen.set)}
    for name in chosen.sets:
        parts = split(load(SHARED / name))
        for method in MEASURED if chosen.untuned else chosen.methods:
            report, told = one(METHODS[method], parts, given, tuned=not chosen.untuned)
            shown = {k: v for k, v in told.items() if k not in ("trials", "command")}
            print(f"{name}, {method}: {shown}", flush=True)
            print(report.table("markdown"), flush=True)
            if chosen.out:
                chosen.out.mkdir(parents=True, exist_ok=True)
                report.write_users(chosen.out / f"{name}-{method}.parquet")
                text = json.dumps(told, indent=2, ensure_ascii=False)
                (chosen.out / f"{name}-{method}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
