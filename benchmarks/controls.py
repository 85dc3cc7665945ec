"""The controls of METHOD 10 on the real data: as measured there, and tuned on validation.

    python benchmarks/controls.py [--sets NAME ...] [--methods NAME ...] [--out FOLDER] [--untuned]

Each method is tuned on validation over its own grid, fitted once more on train and validation,
and evaluated on test by full ranking at 10. With --untuned the settings of METHOD 10 instead:
MostPop, P3α with α = 1, EASE^R with λ = 100. One method's result is kept in --out as soon as
it is there. Times are wall-clock and mean little on a busy machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loger.baselines import EASE, IALS, ItemKNN, MostPop, P3alpha, RP3beta
from loger.data import load, split
from loger.data.splits import Split
from loger.evaluation.evaluate import evaluate
from loger.evaluation.metrics.report import Report
from loger.evaluation.recommender import fit_for
from loger.evaluation.tuning import tune

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
METHODS: dict[str, Any] = {m.__name__: m for m in (MostPop, ItemKNN, P3alpha, RP3beta, IALS, EASE)}
MEASURED: tuple[Callable[[], Any], ...] = (MostPop, P3alpha, EASE)


def one(make: Callable[..., Any], parts: Split, tuned: bool) -> tuple[Report, str]:
    """One method's report, and a line on its settings and times."""
    start = time.perf_counter()
    settings = tune(make, make.GRID, parts).settings if tuned else {}
    chosen = time.perf_counter()
    model = fit_for(make(**settings), parts)
    fitted = time.perf_counter()
    report = evaluate([model], parts)
    times = (chosen - start, fitted - chosen, time.perf_counter() - fitted)
    told = ", ".join(f"{k}={v}" for k, v in settings.items()) or "default settings"
    spent = " / ".join(f"{seconds:.0f}" for seconds in times)
    return report, f"{model.name}: {told}; {spent} s to tune / fit / evaluate"


def joined(reports: list[Report]) -> Report:
    """Reports of single methods on the same users as one."""
    first = reports[0]
    return Report(
        first.dataset,
        first.part,
        first.protocol,
        first.k,
        first.users,
        {model: r.values[model] for r in reports for model in r.models},
        {model: r.coverage[model] for r in reports for model in r.models},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, help="folder for per-user values and JSON")
    parser.add_argument("--untuned", action="store_true", help="the settings of METHOD 10")
    chosen = parser.parse_args()
    for name in chosen.sets:
        parts = split(load(chosen.data / name))
        reports: list[Report] = []
        for make in MEASURED if chosen.untuned else [METHODS[m] for m in chosen.methods]:
            report, told = one(make, parts, tuned=not chosen.untuned)
            reports.append(report)
            print(f"{name}: {told}", flush=True)
            if chosen.out:
                chosen.out.mkdir(parents=True, exist_ok=True)
                report.write_users(chosen.out / f"{name}-{report.models[0]}.parquet")
        whole = joined(reports)
        print(f"\n{name}, full ranking, %, 95 % intervals over {len(whole.users):,} users")
        print(whole.table("markdown"), flush=True)
        if chosen.out:
            (chosen.out / f"{name}.json").write_text(whole.to_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
