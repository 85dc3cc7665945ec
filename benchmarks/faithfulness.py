"""How faithful LOGER's reasons are on the real data, beside random valid paths for the same items.

    python benchmarks/faithfulness.py [--sets NAME ...] [--users N] [--probed N] [--paths N]
                                      [--paper] [--keep FOLDER] [--bundle FOLDER] [--out FOLDER]

LOGER is fitted with seed 0 on train and validation, as for test; test items are not looked at.
--users 0 asks all users for the divergences; --probed users are scored anew without facts. The
encoder's checkpoints are kept in --keep. NAME may be demo: then planted reasons are compared too.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from loger.data import load, split
from loger.data.demo import shop
from loger.faithfulness import (
    FaithfulnessConfig,
    RandomPaths,
    faithfulness_report,
    loger_probes,
)
from loger.model import LOGER, LOGERConfig

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def one(name: str, options: argparse.Namespace) -> None:
    """Fit on one set, and print both reports."""
    demo = shop() if name == "demo" else None
    parts = split(demo.dataset if demo is not None else load(SHARED / name))
    start = time.perf_counter()
    kind = "paper" if options.paper else "default"
    keep = None if options.keep is None else options.keep / f"{name}.{kind}"
    if options.bundle is not None:
        model = LOGER.load(options.bundle)
    else:
        model = LOGER(LOGERConfig.paper() if options.paper else None).fit(parts, checkpoint=keep)
    print(f"{name}, {kind}: fitted in {time.perf_counter() - start:.0f} s", flush=True)
    whole, rules = parts.refit(), model.rules_
    config = FaithfulnessConfig(
        paths=options.paths, users=options.users or None, probed=options.probed
    )
    probes = loger_probes(model, demo)
    control = RandomPaths(model, whole.graph, rules)
    bare = replace(
        probes, weights=None, decompose=None, permuted=None, explain=control.explain_paths
    )
    for recommender, own in ((model, probes), (control, bare)):
        start = time.perf_counter()
        report = faithfulness_report(recommender, whole, rules, config, probes=own)
        print(report.table(), f"\n{time.perf_counter() - start:.0f} s\n", flush=True)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            who = "loger" if recommender is model else "random"
            file = options.out / f"faithfulness.{name}.{kind}.{who}.{options.users}.json"
            file.write_text(report.to_json(), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--probed", type=int, default=50)
    parser.add_argument("--paths", type=int, default=3)
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--bundle", type=Path, help="of a model that is fitted already")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for name in options.sets:
        one(name, options)


if __name__ == "__main__":
    main()
