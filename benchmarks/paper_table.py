"""Tables of the paper's shape: its baselines and the controls by ``loger compare``, and LOGER.

    python benchmarks/loger_quality.py --variants default paper heteroembed --out results
    for SET in amazon-beauty amazon-cellphones amazon-toys ml1m; do
        loger compare ../shared/data/$SET --out results/compare/$SET --protocol full \
            --protocol sampled-100 \
            --methods mostpop,itemknn,ease,cke,ripplenet,kgat,pgpr,pgpr-free,cafe,heteroembed
    done
    rm results/compare/ml1m/pgpr.*  # there with the settings of TUNED in faithfulness.py:
    python benchmarks/faithfulness.py --results results --alone --sets ml1m --methods pgpr
    python benchmarks/paper_table.py --out results --write

Nothing is fitted here: values of users that the two commands kept are put side by side, for the
same users and candidates. What ran with several seeds is shown with its spread over them, the rest
with a 95 % interval over users. p is the largest over the four metrics of the paired sign-flip test
against LOGER's default, both of seed 0. HeteroEmbed of other seeds: ``loger_quality.py --write``.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file

from loger.metrics.report import resampled_means, sign_flip
from tables import COMMIT, METRICS, cell, markdown, store

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
PROTOCOLS = {"full": "compare", "sampled-100": "compare-sampled"}
"""By protocol how the tables' names begin."""
LOGER = {
    "default": "**LOGER**",
    "paper": "LOGER, preset `paper`",
    "heteroembed": "our rules, HeteroEmbed's vectors",
}

ABOUT: dict[str, Any] = {
    "command": "as the first lines of benchmarks/paper_table.py have it",
    "commit": f"written at {COMMIT}",
}
RETRIEVED = ("ndcg_retrieved", "mrr")

Values = NDArray[np.float64]  # [users, metrics]


PUBLISHED = {
    "KGAT": ".31 / .24", "CKE": ".30 / .23", "PGPR": ".28 / .21", "CAFE": ".21 / .15",
    "MostPop": ".26 / .22",
}  # fmt: skip
"""Retrieved NDCG / MRR on the same split of `ml1m`, from rep-path-reasoning (METHOD 13)."""
BEYOND = {"KGGLM": ".41 / .31", "PEARLM": "about .44", "UCPR": ".26 / .19"}
"""The same of methods that are not here."""


class Run(NamedTuple):
    """One method with one seed."""

    values: Values
    retrieved: list[float]
    """NDCG of the retrieved hits and MRR, as the literature on `ml1m` has them."""
    seconds: list[float]
    """Of tuning, fitting and evaluating; of LOGER's fit alone, which tunes."""


Runs = dict[str, dict[int, Run]]
"""By title and seed."""


def compared(out: Path, name: str, protocol: str) -> Runs:
    """What ``loger compare`` kept of one set."""
    found: Runs = defaultdict(dict)
    for folder in sorted(out.glob(f"compare/{name}*")):
        for file in sorted(folder.glob("*.safetensors")):
            told = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
            if protocol not in told["means"]:
                continue
            kept = load_file(file)
            values = np.stack([kept[f"{protocol}/{m}"] for m in METRICS], 1)
            values = values[np.argsort(kept["users"])]
            seconds = [told["seconds"][stage] for stage in ("tune", "fit", "evaluate")]
            retrieved = [float(kept[f"{protocol}/{m}"].mean()) for m in RETRIEVED]
            found[told["title"]][told["about"]["seed"]] = Run(values, retrieved, seconds)
    return found


def ours(out: Path, name: str, protocol: str) -> Runs:
    """What ``loger_quality.py`` kept."""
    found: Runs = defaultdict(dict)
    for variant, title in LOGER.items():
        for file in sorted(out.glob(f"{name}.{variant}.*.{protocol}.parquet")):
            seed = int(file.name.split(".")[2])
            told = json.loads((out / f"{name}.{variant}.{seed}.json").read_text(encoding="utf-8"))
            table = pl.read_parquet(file).sort("user")
            retrieved = [float(x) for x in table.select(RETRIEVED).mean().row(0)]
            values = table.select(METRICS).to_numpy()
            found[title][seed] = Run(values, retrieved, [told["fit_seconds"]])
    return found


def rows(name: str, of: Mapping[str, Mapping[int, Run]]) -> list[list[Any]]:
    """Means in per cent, best NDCG first."""
    base = of[LOGER["default"]][0].values
    out = list[list[Any]]()
    for title, runs in of.items():
        first = runs[0]
        if len(first.values) != len(base):
            raise SystemExit(f"{name}, {title}: {len(first.values)} users, LOGER has {len(base)}")
        means = 100 * np.array([run.values.mean(0) for run in runs.values()])
        p = None if first.values is base else float(sign_flip(base - first.values, 1000, 0).max())
        cells = [float(mean) for mean in means.mean(0)]
        ndcg = {"mean": cells[0], **_spread(means[:, 0], first.values[:, 0])}
        seconds = [round(s) for s in first.seconds]
        out.append([title, len(runs), ndcg, *cells[1:], p, seconds])
    return sorted(out, key=lambda row: -row[2]["mean"])


def _spread(means: NDArray[np.float64], users: NDArray[np.float64]) -> dict[str, Any]:
    if len(means) > 1:
        return {"sd": float(means.std(ddof=1))}
    ends = 100 * np.quantile(resampled_means(users[:, None], 1000, 0), [0.025, 0.975])
    return {"interval": ends.tolist()}


def as_published(of: Mapping[str, Mapping[int, Run]]) -> list[list[Any]]:
    """`ml1m` in the measures of its literature, best first."""
    rows = [[title, *runs[0].retrieved, PUBLISHED.get(title)] for title, runs in of.items()]
    rows += [[title, None, None, figures] for title, figures in BEYOND.items()]
    return sorted(rows, key=lambda row: -(row[1] or 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--write", action="store_true", help="to docs/tables")
    options = parser.parse_args()
    for protocol, kind in PROTOCOLS.items():
        for name in options.sets:
            of = compared(options.out, name, protocol) | ours(options.out, name, protocol)
            if LOGER["default"] not in of:
                continue
            columns = [name, "seeds", *("NDCG", "Recall", "HR", "Precision"), "p",
                       "tune + fit + evaluate, s"]  # fmt: skip
            formats = ["", "d", *[".2f"] * 4, ".3f", "d"]
            found = rows(name, of)
            cells = [[cell(x, f) for x, f in zip(row, formats, strict=True)] for row in found]
            print(protocol, markdown(columns, cells), sep="\n\n", end="\n\n")
            if options.write:
                seeds = sorted({seed for runs in of.values() for seed in runs})
                store(f"{kind}-{name}", columns, formats, found, seeds=seeds, **ABOUT)
                if (protocol, name) == ("full", "ml1m"):
                    head = ["ml1m", "retrieved NDCG", "MRR", "published"]
                    store(
                        "retrieved-ml1m", head, ["", ".3f", ".3f", ""], as_published(of),
                        seeds=[0], **ABOUT,
                    )  # fmt: skip


if __name__ == "__main__":
    main()
