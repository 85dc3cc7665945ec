"""LOGER with default settings against tuned baselines, on data it wasn't made for.

    python benchmarks/generalise.py                       # everything; hours
    python benchmarks/generalise.py --sets ml-100k filmtrust --seeds 0 1 2
    python benchmarks/generalise.py --table               # generalise, controls-SET of docs/tables
    python benchmarks/generalise.py --ours results --table     # LOGER's values of the shared sets
                                                               # as loger_quality.py left them

There are three kinds of data: the shared sets, sets that packages carry (``packaged.py``), and
invented worlds with known structure (``worlds.py``). Every baseline is tuned on validation, except
those named in ``--untuned``, and measured once on test by full ranking at 10. Where the data has
times, the baselines use them. p belongs to the paired sign-flip test of LOGER against the baseline
with the highest test NDCG (and Recall), the largest over seeds. Results are stored in OUT/SET;
existing ones aren't run again. Without ``--seeds``, only the baselines run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from loger.data import load, split
from loger.data.splits import Split
from loger.engine import LocalEngine
from loger.evaluation.compare import Compared, Result, compare
from loger.evaluation.methods import METHODS
from loger.metrics.report import sign_flip
from packaged import PACKAGED
from tables import COMMIT, TABLES
from where import DATA as SHARED
from worlds import WORLDS, made

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
    "", "LOGER, NDCG", "Recall", "best baseline", "NDCG", "Recall", "difference", "p, NDCG",
    "p, Recall",
]  # fmt: skip
BEYOND = {"diversity": 1.0, "calibration": 1.0, "novelty": 0.01, "popularity_lift": 0.01}
"""What else a user's list is like, and what makes it of per cent what the table has."""
METHOD_COLUMNS = [
    "NDCG", "Recall", "p, NDCG", "p, Recall", "items shown, %", "diversity", "calibration",
    "novelty, bits", "popularity, times that of the history",
]  # fmt: skip
METHOD_FORMATS = ["", ".2f", ".2f", ".4f", ".4f", ".0f", ".0f", ".0f", ".1f", ".2f"]


def parts_of(name: str, scratch: Path) -> Split:
    """The split of a data set, by the name of a shared one, a package's, or a world."""
    if name in WORLDS:
        return split(made(name))
    return split(PACKAGED[name](scratch) if name in PACKAGED else load(SHARED / name))


def run(
    name: str, controls: list[str], seeds: list[int], out: Path, untuned: Sequence[str] = ()
) -> None:
    """The controls once and LOGER with each seed."""
    parts, folder = parts_of(name, out / "scratch"), out / slug(name)
    timed = parts.dataset.interactions.times is not None
    able = [c for c in controls if timed or c not in (*FADING, "sasrec")]
    engine = LocalEngine(1)
    for seed in seeds:
        shown(name, compare(parts, ["loger"], folder / f"seed-{seed}", seed=seed, engine=engine))
    for compared in of_controls(parts, able, folder / "controls", untuned, engine):
        shown(name, compared)


def of_controls(
    parts: Split,
    names: list[str],
    folder: Path,
    untuned: Sequence[str] = (),
    engine: LocalEngine | None = None,
) -> Iterator[Compared]:
    """Controls, each tuned on validation of the set unless it is named ``untuned``."""
    for name in names:
        yield compare(parts, [name], folder, tune=name not in untuned, engine=engine)


def tuned(result: Result) -> bool:
    """Whether more than its own settings were tried."""
    return len(result.trials) > 1 or not METHODS[result.method].grid


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


class Runs(NamedTuple):
    """What was run of one set: LOGER with each seed, and the controls."""

    ours: list[pl.DataFrame]
    """For each seed the values of every metric, user by user."""
    coverage: list[float]
    others: list[Result]


def runs_of(
    name: str, controls: list[str], seeds: list[int], out: Path, shared: Path | None
) -> Runs | None:
    folder = out / slug(name)
    done = [c for c in controls if (folder / "controls" / f"{c}.json").exists()]
    if shared is not None and name in REAL:
        stems = [shared / f"{name}.default.{s}" for s in seeds]
        stems = [stem for stem in stems if stem.with_name(f"{stem.name}.json").exists()]
        ours = [pl.read_parquet(f"{stem}.full.parquet") for stem in stems]
        told = [json.loads(Path(f"{stem}.json").read_text(encoding="utf-8")) for stem in stems]
        coverage = [t["full.default.coverage"] for t in told]
    else:
        runs = [s for s in seeds if (folder / f"seed-{s}" / "loger.json").exists()]
        parts = parts_of(name, out / "scratch") if runs else None
        fits = [
            compare(parts, ["loger"], folder / f"seed-{s}", seed=s).results[0]
            for s in runs
            if parts is not None
        ]
        ours = [pl.DataFrame({"user": r.users, **r.values["full"]}) for r in fits]
        coverage = [r.coverage["full"] for r in fits]
    if not ours or not done:
        return None
    parts = parts_of(name, out / "scratch")
    own = [c for c in done if _trials(folder / "controls" / f"{c}.json") <= 1]
    others = [c.results[0] for c in of_controls(parts, done, folder / "controls", own)]
    return Runs(ours, coverage, others)


def row(name: str, runs: Runs) -> list[Any]:
    """LOGER compared with the best baseline on a data set."""
    ours, _, others = runs
    best = max(others, key=lambda r: r.means["full"]["ndcg"])
    most = max(others, key=lambda r: r.means["full"]["recall"])
    control = best.means["full"]
    ndcg, recall = _mean(ours, "ndcg"), _mean(ours, "recall")
    lead = _mean(ours, "ndcg", spread=False) - 100 * control["ndcg"]
    return [
        name, ndcg, recall, titled(best), 100 * control["ndcg"], 100 * most.means["full"]["recall"],
        lead, _p(ours, best, "ndcg"), _p(ours, most, "recall"),
    ]  # fmt: skip


def titled(result: Result) -> str:
    """What tables call a control: two may be of one class."""
    title = result.title + (", fading histories" if result.method in FADING[:-1] else "")
    return title if tuned(result) else f"{title}, its default settings"


def _trials(file: Path) -> int:
    """How many settings a stored control was tried with."""
    return len(json.loads(file.read_text(encoding="utf-8"))["trials"])


def every_row(runs: Runs) -> list[list[Any]]:
    """All methods of a set, best first, with what lists are like beyond being right."""
    ours, coverage, others = runs
    first = [
        f"**LOGER, {len(ours)} seeds**" if len(ours) > 1 else "**LOGER**",
        _mean(ours, "ndcg"), _mean(ours, "recall"), None, None, 100 * float(np.mean(coverage)),
        *(f * _mean(ours, m, spread=False) for m, f in BEYOND.items()),
    ]  # fmt: skip
    rows: list[list[Any]] = [
        [
            titled(r), 100 * r.means["full"]["ndcg"], 100 * r.means["full"]["recall"],
            _p(ours, r, "ndcg"), _p(ours, r, "recall"), 100 * r.coverage["full"],
            *(f * 100 * r.means["full"][m] for m, f in BEYOND.items()),
        ]
        for r in others
    ]  # fmt: skip
    return [first, *sorted(rows, key=lambda cells: -cells[1])]


def _mean(runs: list[pl.DataFrame], metric: str, *, spread: bool = True) -> Any:
    values = 100 * np.array([run[metric].mean() for run in runs], dtype=np.float64)
    if len(values) == 1 or not spread:
        return float(values.mean())
    return {"mean": float(values.mean()), "sd": float(values.std(ddof=1))}


def _p(ours: list[pl.DataFrame], other: Result, metric: str) -> float:
    """The largest over seeds."""
    theirs = other.values["full"][metric]
    for run in ours:
        assert np.array_equal(run["user"], other.users), "runs of other users"
    differences = np.column_stack([run[metric].to_numpy() - theirs for run in ours])
    return float(sign_flip(differences, 10_000, 0).max())


def tables(
    controls: list[str], seeds: list[int], out: Path, shared: Path | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Whatever can be made of what was run, in the form of docs/tables: LOGER beside the best
    control on all sets, and all methods of each set that is not invented."""
    about = {
        "command": "python benchmarks/generalise.py, then --table",
        "seeds": seeds,
        "commit": COMMIT,
        "machine": "two shared cores",
    }
    rows = []
    for name in SETS:
        runs = runs_of(name, controls, seeds, out, shared)
        if runs is None:
            continue
        rows.append(row(name, runs))
        if name not in WORLDS:
            columns = [name, *METHOD_COLUMNS]
            shown = {"columns": columns, "formats": METHOD_FORMATS, "rows": every_row(runs)}
            yield f"controls-{slug(name)}", {**about, **shown}
    yield "generalise", {**about, "columns": COLUMNS, "formats": FORMATS, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--controls", nargs="+", default=[*PLAIN, *FADING, *NEURAL])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/generalise"))
    parser.add_argument("--untuned", nargs="*", default=[], help="controls with their own settings")
    parser.add_argument("--ours", type=Path, help="where loger_quality.py left its values")
    parser.add_argument("--table", action="store_true", help="write the table of what was run")
    options = parser.parse_args()
    if options.table:
        asked = options.controls, options.seeds, options.out, options.ours
        for name, told in tables(*asked):
            text = json.dumps(told, indent=1)
            (TABLES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(name, text)
        return
    for name in options.sets:
        run(name, options.controls, options.seeds, options.out, options.untuned)


if __name__ == "__main__":
    main()
