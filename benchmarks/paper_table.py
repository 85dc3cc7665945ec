"""Tables of the paper's shape: its baselines and the controls by ``loger compare``, and LOGER.

    python benchmarks/loger_quality.py --variants default paper --seeds 0 --out results
    for SET in amazon-beauty amazon-cellphones amazon-toys ml1m; do
        loger compare ../shared/data/$SET --out results/compare/$SET --protocol full \
            --protocol sampled-100 --methods mostpop,itemknn,ease,cke,ripplenet,pgpr,kgat
    done
    python benchmarks/paper_table.py --out results

Nothing is fitted here: values of users that the two commands kept are put side by side, for the
same users and candidates. p is the largest over the four metrics of the paired sign-flip test
against LOGER's default.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file

from loger.evaluation.metrics.significance import sign_flip
from tables import METRICS, markdown

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
LOGER = {"default": "**LOGER**", "paper": "LOGER, preset `paper`"}

Values = NDArray[np.float64]  # [users, metrics]


def compared(folder: Path, protocol: str) -> dict[str, tuple[Values, str]]:
    """What ``loger compare`` kept of one set: by title the values of users, and the costs."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        told = json.loads(file.with_suffix(".json").read_text())
        if protocol not in told["means"]:
            continue
        kept = load_file(file)
        values = np.stack([kept[f"{protocol}/{m}"] for m in METRICS], 1)[np.argsort(kept["users"])]
        costs = " + ".join(f"{told['seconds'][k]:.0f}" for k in ("tune", "fit", "evaluate"))
        found[told["title"]] = (values, costs)
    return found


def ours(out: Path, name: str, protocol: str) -> dict[str, tuple[Values, str]]:
    """What ``loger_quality.py`` kept of seed 0."""
    found = {}
    for variant, title in LOGER.items():
        file = out / f"{name}.{variant}.0.{protocol}.parquet"
        if file.exists():
            seconds = json.loads((out / f"{name}.{variant}.0.json").read_text())["fit_seconds"]
            table = pl.read_parquet(file).sort("user")
            found[title] = (table.select(METRICS).to_numpy(), f"{seconds:.0f}")
    return found


def table(name: str, of: Mapping[str, tuple[Values, str]]) -> str:
    """Means in per cent, best NDCG first; LOGER's time is that of its fit."""
    rows = []
    base = of[LOGER["default"]][0]
    for title, (values, costs) in sorted(of.items(), key=lambda x: -x[1][0][:, 0].mean()):
        if len(values) != len(base):
            raise SystemExit(f"{name}, {title}: {len(values)} users, LOGER has {len(base)}")
        means = [f"{100 * mean:.2f}" for mean in values.mean(0)]
        p = "" if values is base else f"{sign_flip(base - values, 1000, 0).max():.3f}"
        rows.append([title, *means, p, costs])
    columns = (name, "NDCG", "Recall", "HR", "Precision", "p", "tune + fit + evaluate, s")
    return markdown(columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    options = parser.parse_args()
    for protocol in ("full", "sampled-100"):
        print(f"{protocol}\n")
        for name in options.sets:
            of = compared(options.out / "compare" / name, protocol)
            of |= ours(options.out, name, protocol)
            if LOGER["default"] in of:
                print(table(name, of), end="\n\n")


if __name__ == "__main__":
    main()
