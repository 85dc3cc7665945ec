"""Ranking quality of the encoder alone on the real Amazon sets: the bars of the encoder.

    python benchmarks/encoder_quality.py                  # test, 3 seeds, as docs/results.md quotes
    python benchmarks/encoder_quality.py --part validation --set distance=squared

Settings were chosen with ``--part validation``. On test the model is fitted on the whole
published train set; the seed is that of the model.
"""

from __future__ import annotations

import argparse
import time
from ast import literal_eval
from pathlib import Path

import numpy as np

from loger.baselines.encoder import EncoderAlone
from loger.data import load, split
from loger.encoder import TransE, TransEConfig
from loger.evaluation.evaluate import evaluate
from loger.evaluation.recommender import fit_for

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
METRICS = ("ndcg", "recall", "hit_rate", "precision")


def value(text: str) -> object:
    """A number, or the text itself."""
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def line(means: object, spreads: object) -> str:
    cells = zip(METRICS, means, spreads, strict=True)
    return "  ".join(f"{m} {100 * v:5.2f} ± {100 * h:.2f}" for m, v, h in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["amazon-beauty", "amazon-cellphones"])
    parser.add_argument("--part", choices=["validation", "test"], default="test")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="of TransEConfig"
    )
    options = parser.parse_args()
    settings = {k: value(v) for k, v in (s.split("=", 1) for s in options.set)}
    print(f"Encoder alone, full ranking @10 on {options.part}, % ± half a 95 % interval over users")
    for name in options.data:
        parts = split(load(DATA / name))
        rows = []
        for seed in range(options.seeds):
            model = EncoderAlone(lambda seed=seed: TransE(TransEConfig(seed=seed, **settings)))
            start = time.perf_counter()
            fit_for(model, parts, options.part)
            seconds = time.perf_counter() - start
            report = evaluate([model], parts, options.part)
            rows.append([report.mean(model.name, m) for m in METRICS])
            half = [np.ptp(report.interval(model.name, m)) / 2 for m in METRICS]
            print(
                f"  {name:<18} seed {seed}  {line(rows[-1], half)}  fit {seconds:.0f} s", flush=True
            )
        spread = np.std(rows, axis=0, ddof=1) if len(rows) > 1 else np.zeros(len(METRICS))
        print(
            f"  {name:<18} mean    {line(np.mean(rows, axis=0), spread)}  (± over seeds)",
            flush=True,
        )


if __name__ == "__main__":
    main()
