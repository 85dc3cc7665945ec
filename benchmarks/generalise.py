"""LOGER with default settings against tuned controls, on data it was not made for.

    python benchmarks/generalise.py                       # everything; hours
    python benchmarks/generalise.py --sets ml-100k filmtrust --seeds 0 1 2
    python benchmarks/generalise.py --table               # docs/tables/generalise.json anew

Three kinds of data: the shared sets; sets that packages carry (``packaged.py``); invented worlds of
known structure (``worlds.py``). Every control is tuned on validation of the set and looked at on
test once, by full ranking at 10; where there are times, the controls know them. p is of the paired
sign-flip test of LOGER against the control of the highest test NDCG (and Recall), the largest over
seeds. Results are kept in OUT/SET; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from loger.data import load, split
from loger.data.splits import Split
from loger.engine import LocalEngine
from loger.evaluation.compare import Compared, Result, compare
from loger.evaluation.metrics.significance import sign_flip
from packaged import PACKAGED
from tables import TABLES
from worlds import WORLDS, made

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
REAL = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
SETS = (*REAL, *PACKAGED, *WORLDS)
PLAIN = ("mostpop", "itemknn", "rp3beta", "ease", "slim", "ials", "collective")
FADING = (
    "itemknn-recency", "rp3beta-recency", "ease-recency", "slim-recency", "collective-recency",
    "sequence",
)  # fmt: skip
NEURAL = ("lightgcn", "sasrec")
FORMATS = ["", ".2f", ".2f", "", ".2f", ".2f", "+.2f", ".4f", ".4f"]
COLUMNS = [
    "", "LOGER, NDCG", "Recall", "best control", "NDCG", "Recall", "difference", "p, NDCG",
    "p, Recall",
]  # fmt: skip


def parts_of(name: str, scratch: Path) -> Split:
    """The split of a data set, by the name of a shared one, a package's, or a world."""
    if name in WORLDS:
        return split(made(name))
    return split(PACKAGED[name](scratch) if name in PACKAGED else load(SHARED / name))


def run(name: str, controls: list[str], seeds: list[int], out: Path) -> None:
    """The controls once and LOGER with each seed."""
    parts, folder = parts_of(name, out / "scratch"), out / slug(name)
    timed = parts.dataset.interactions.times is not None
    able = [c for c in controls if timed or c not in (*FADING, "sasrec")]
    engine = LocalEngine(1)
    for seed in seeds:
        shown(name, compare(parts, ["loger"], folder / f"seed-{seed}", seed=seed, engine=engine))
    shown(name, compare(parts, able, folder / "controls", engine=engine))


def shown(name: str, compared: Compared) -> None:
    """Print what was measured, and what failed."""
    for r in compared.results:
        means = r.means["full"]
        print(
            f"{name}, {r.title}: {100 * means['ndcg']:.2f} {100 * means['recall']:.2f}", flush=True
        )
    for method, error in compared.failures.items():
        print(f"{name}, {method} failed: {error}", flush=True)


def slug(name: str) -> str:
    return name.replace(", ", ".").replace(" ", "-")


def row(name: str, controls: list[str], seeds: list[int], out: Path) -> list[Any] | None:
    """One line of the table, of what has been run."""
    folder = out / slug(name)
    runs = [s for s in seeds if (folder / f"seed-{s}" / "loger.json").exists()]
    done = [c for c in controls if (folder / "controls" / f"{c}.json").exists()]
    if not runs or not done:
        return None
    parts = parts_of(name, out / "scratch")
    ours = [compare(parts, ["loger"], folder / f"seed-{s}", seed=s).results[0] for s in runs]
    others = compare(parts, done, folder / "controls").results
    best = max(others, key=lambda r: r.means["full"]["ndcg"])
    most = max(others, key=lambda r: r.means["full"]["recall"])
    ndcg, recall = (_mean(ours, m) for m in ("ndcg", "recall"))
    control = best.means["full"]
    return [
        name, ndcg, recall, best.method, 100 * control["ndcg"], 100 * most.means["full"]["recall"],
        float(np.mean([100 * (r.means["full"]["ndcg"] - control["ndcg"]) for r in ours])),
        _p(ours, best, "ndcg"), _p(ours, most, "recall"),
    ]  # fmt: skip


def _mean(results: list[Result], metric: str) -> Any:
    values = [100 * r.means["full"][metric] for r in results]
    if len(values) == 1:
        return values[0]
    return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1))}


def _p(ours: list[Result], other: Result, metric: str) -> float:
    """The largest over seeds."""
    return max(
        float(
            sign_flip(
                (r.values["full"][metric] - other.values["full"][metric])[:, None], 10_000, 0
            )[0]
        )
        for r in ours
    )


def table(controls: list[str], seeds: list[int], out: Path) -> dict[str, Any]:
    """All lines that can be made, in the form of docs/tables."""
    rows = [r for name in SETS if (r := row(name, controls, seeds, out)) is not None]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "command": "python benchmarks/generalise.py, then --table",
        "seeds": seeds,
        "commit": commit.stdout.strip(),
        "machine": "two shared cores",
        "columns": COLUMNS,
        "formats": FORMATS,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--controls", nargs="+", default=[*PLAIN, *FADING, *NEURAL])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/generalise"))
    parser.add_argument("--table", action="store_true", help="write the table of what was run")
    options = parser.parse_args()
    if options.table:
        text = json.dumps(table(options.controls, options.seeds, options.out), indent=1)
        (TABLES / "generalise.json").write_text(text + "\n", encoding="utf-8")
        print(text)
        return
    for name in options.sets:
        run(name, options.controls, options.seeds, options.out)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
