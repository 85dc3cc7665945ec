"""The paper's ablation: how many hidden pairs of a user an E-step should take.

    python benchmarks/ablate_hidden.py --out results  # encoders are shared with loger_quality.py
    python benchmarks/ablate_hidden.py --out results --write

|H⁺| ∈ {0, 10, …, 50} pairs of each user at most, for the preset ``paper`` (p ≥ 0.5) and for the
default (0.9); one round; NDCG@10 of the held-out (validation) users that judge, by the whole score
and by the encoder alone. The E-step of no pairs has as many steps and is the control of the others.
Test is not used. Figures go to OUT; --write makes the table and the pictures of docs from them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from loger.config import with_setting
from loger.data import load, split
from loger.evaluation import plots
from loger.learning.em import ablate_hidden
from loger.logic.config import EMConfig
from loger.model import LOGER, LOGERConfig
from tables import COMMIT, ROOT, store

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SIZES = (0, 10, 20, 30, 40, 50)
MODELS = {"paper": "`paper`", "default": "default"}


def measured(name: str, model: str, recency: float, out: Path) -> dict[str, Any]:
    """One model on one set."""
    config = LOGERConfig.paper()
    if model == "default":
        config = LOGERConfig(em=with_setting(EMConfig(), "recency", recency))
    kind = "shared" if model == "default" else model
    parts = split(load(DATA / name))
    em = LOGER(config).em(parts, checkpoint=out / "checkpoints" / f"{name}.{kind}.0")
    points = ablate_hidden(em, SIZES)
    return {"commit": COMMIT, "users": len(em.dev_users), "points": points}


def written(out: Path) -> None:
    """What was measured, as a table and as pictures of docs."""
    rows, commits = list[list[Any]](), set[str]()
    for name in SETS:
        series = []
        for model, title in MODELS.items():
            file = out / f"{name}.{model}.ablate_hidden.json"
            if not file.exists():
                continue
            told = json.loads(file.read_text(encoding="utf-8"))
            points = told["points"]
            commits.add(told["commit"])
            cells = [100 * points[0]["ndcg"], *map(_more, points[1:])]
            rows.append([f"{name}, {title}", *cells])
            alone = [f"{100 * point['encoder']:.2f}" for point in points]
            pairs = f"{points[-1]['pairs']:,} pairs in all with 50"
            rows.append([f"… its encoder alone ({pairs})", *alone])
            series.append((model, [100 * point["ndcg"] for point in points]))
        if series:
            sizes = [str(size) for size in SIZES]
            svg = plots.lines(sizes, series, f"{name}: NDCG over |H⁺|", "|H⁺|: pairs of a user")
            picture = ROOT / "docs" / "pictures" / f"hidden-pairs-{name}.svg"
            picture.write_text(svg, encoding="utf-8")
    store(
        "hidden-pairs",
        ["pairs of a user", "0: the control", *(f"{n}, less it" for n in SIZES[1:])],
        ["", ".2f", *["+.2f"] * (len(SIZES) - 1)],
        rows,
        command="python benchmarks/ablate_hidden.py --out results",
        seeds=[0],
        commit=", ".join(sorted(commits)),
    )


def _more(point: dict[str, float]) -> dict[str, Any]:
    ends = [100 * point["more_low"], 100 * point["more_high"]]
    return {"mean": 100 * point["more"], "interval": ends}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--recency", type=float, default=1.0, help="where the data have times")
    parser.add_argument("--write", action="store_true", help="what was measured, to docs")
    options = parser.parse_args()
    if options.write:
        written(options.out)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        for model in options.models:
            told = measured(name, model, options.recency, options.out)
            file = options.out / f"{name}.{model}.ablate_hidden.json"
            file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
            ndcg = "  ".join(f"{100 * point['ndcg']:.2f}" for point in told["points"])
            print(f"{name:18s} {model:8s} {ndcg}", flush=True)


if __name__ == "__main__":
    main()
