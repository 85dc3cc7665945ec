"""The paper's baselines on the real data: ranking quality, and the time they take.

    python benchmarks/baselines.py --methods HeteroEmbed CKE KGAT          # test, as results.md
    python benchmarks/baselines.py --part validation --sets amazon-beauty --methods CKE --set l2=0.1

Each method runs with its default settings, which were chosen with ``--part validation``. For test,
it is fitted on the whole published training set. The seed is the model's. ``--out`` stores the
values of each user as Parquet. ``--reasons N`` finds paths for the ten items of N users, and times
it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import loger.baselines
from loger.data import Split, load, split
from loger.engine.settings import parsed
from loger.evaluation.evaluate import evaluate
from loger.recommender import fit_for
from tables import METRICS, in_percent
from where import DATA

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")


def one(model: Any, parts: Split, options: argparse.Namespace, told: str) -> list[float]:
    """Fit, evaluate and print; the means."""
    start = time.perf_counter()
    fit_for(model, parts, options.part)
    fitted = time.perf_counter()
    report = evaluate([model], parts, options.part, protocol=options.protocol)
    done = time.perf_counter()
    means = [report.mean(model.name, m) for m in METRICS]
    half = [np.ptp(report.interval(model.name, m)) / 2 for m in METRICS]
    times = f"fit {fitted - start:.0f} s, evaluation {done - fitted:.0f} s"
    print(f"  {told}  {in_percent(means, half)}  {times}", flush=True)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        report.write_users(options.out / f"{told.replace(' ', '-')}.parquet")
    if options.reasons and hasattr(model, "reasons"):
        explain(model, parts, options.reasons)
    return means


def explain(model: Any, parts: Split, n: int) -> None:
    """Time the reasons of n users, and say how many of their items have one."""
    users = np.unique(parts.pairs("test")[0])[:n]
    model.explained(users[:2], 10)
    start = time.perf_counter()
    given = [x for reasons in model.explained(users, 10) for x in reasons]
    seconds = time.perf_counter() - start
    share = np.mean([bool(x.paths) for x in given])
    lengths = np.bincount([len(p) for x in given for p in x.paths], minlength=4)[1:]
    each = 1000 * seconds / len(users)
    print(f"    reasons: {each:.2f} ms per user; {share:.1%} of items have a path; hops {lengths}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="+", default=["HeteroEmbed", "CKE", "KGAT"])
    parser.add_argument("--part", choices=["validation", "test"], default="test")
    parser.add_argument("--protocol", choices=["full", "sampled-100"], default="full")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings")
    parser.add_argument("--out", type=Path, help="folder for per-user values")
    parser.add_argument("--reasons", type=int, default=0, metavar="N", help="users to explain to")
    options = parser.parse_args()
    settings = parsed(options.set)
    print(f"{options.protocol} ranking @10 on {options.part}, % ± half a 95 % interval over users")
    for name in options.sets:
        parts = split(load(DATA / name))
        for method in options.methods:
            make = getattr(loger.baselines, method)
            rows = [
                one(make(seed=seed, **settings), parts, options, f"{name} {method} seed {seed}")
                for seed in options.seeds
            ]
            if len(rows) > 1:
                spread = np.std(rows, axis=0, ddof=1)
                means = np.mean(rows, axis=0)
                told = in_percent(means, spread)
                print(f"  {name} {method} mean    {told}  (± over seeds)", flush=True)


if __name__ == "__main__":
    main()
