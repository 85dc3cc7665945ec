"""Ranking quality of the encoder alone on the real Amazon data.

    python benchmarks/encoder_quality.py  # test, 3 seeds, as docs/research/results.md quotes
    python benchmarks/encoder_quality.py --part validation --set distance=squared

Settings were chosen with ``--part validation``. For test, the model is fitted on the whole
published training set. The seed is the model's.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial

import numpy as np

from loger.data import load, split
from loger.encoder import TransE, TransEConfig
from loger.engine.settings import overridden, parsed
from loger.evaluation.evaluate import evaluate
from loger.evaluation.methods import EncoderAlone
from loger.recommender import fit_for
from tables import METRICS, in_percent
from where import DATA


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["amazon-beauty", "amazon-cellphones"])
    parser.add_argument("--part", choices=["validation", "test"], default="test")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="of TransEConfig"
    )
    options = parser.parse_args()
    config = overridden(TransEConfig(), parsed(options.set))
    print(f"Encoder alone, full ranking @10 on {options.part}, % ± half a 95 % interval over users")
    for name in options.sets:
        parts = split(load(DATA / name))
        rows = []
        for seed in range(options.seeds):
            model = EncoderAlone(partial(TransE, replace(config, seed=seed)))
            start = time.perf_counter()
            fit_for(model, parts, options.part)
            seconds = time.perf_counter() - start
            report = evaluate([model], parts, options.part)
            rows.append([report.mean(model.name, m) for m in METRICS])
            half = [np.ptp(report.interval(model.name, m)) / 2 for m in METRICS]
            told = in_percent(rows[-1], half)
            print(f"  {name:<18} seed {seed}  {told}  fit {seconds:.0f} s", flush=True)
        spread = np.std(rows, axis=0, ddof=1) if len(rows) > 1 else np.zeros(len(METRICS))
        print(
            f"  {name:<18} mean    {in_percent(np.mean(rows, axis=0), spread)}  (± over seeds)",
            flush=True,
        )


if __name__ == "__main__":
    main()
