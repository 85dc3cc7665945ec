"""The paper's ablation: how many hidden pairs of a user an E-step should take.

    python benchmarks/ablate_hidden.py --out results  # encoders are shared with loger_quality.py

|H⁺| ∈ {0, 10, …, 50} pairs of each user at most, with p ≥ τ, for τ = 0.5 as published and 0.9 as
by default; one round; NDCG@10 of the held-out (validation) users that judge. Test is not used.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from loger.ablation import ablate_hidden
from loger.config import with_setting
from loger.data import load, split
from loger.em_config import EMConfig
from loger.evaluation.report import plots
from loger.model import LOGER, LOGERConfig
from tables import markdown

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SIZES = (0, 10, 20, 30, 40, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--recency", type=float, default=1.0, help="where the data have times")
    options = parser.parse_args()
    for name in options.sets:
        parts = split(load(DATA / name))
        lines = []
        for tau in (0.5, 0.9):
            settings = with_setting(replace(EMConfig(), tau=tau), "recency", options.recency)
            folder = options.out / "checkpoints" / f"{name}.shared.0"
            em = LOGER(LOGERConfig(em=settings)).em(parts, checkpoint=folder)
            points = ablate_hidden(em, SIZES)
            (options.out / f"{name}.ablate_hidden.{tau}.json").write_text(json.dumps(points))
            lines.append((f"τ = {tau}", [100 * p["ndcg"] for p in points]))
        sizes = [str(size) for size in SIZES]
        rows = [[f"{name}, {label}", *(f"{x:.2f}" for x in values)] for label, values in lines]
        print(markdown(["pairs of a user", *sizes], rows), flush=True)
        svg = plots.lines(sizes, lines, f"{name}: NDCG over |H⁺|", "|H⁺|: pairs of a user")
        (options.out / f"{name}.ablate_hidden.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
