"""What mining's lower bound of lift costs: validation of the whole model, rules kept, time.

    python benchmarks/min_lift.py demo amazon-beauty amazon-toys --try 2 1

The encoder is trained once and shared. The test part is not looked at.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from loger.config import LOGERConfig
from loger.data import load, split
from loger.data.demo import shop
from loger.encoder.transe import TransE
from loger.engine import silent
from loger.model import LOGER
from where import DATA


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="a data set of where.DATA, or demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--try", nargs="+", type=float, default=[2.0, 1.0], dest="tried")
    options = parser.parse_args()
    for name in options.data:
        parts = split(shop().dataset if name == "demo" else load(DATA / name))
        config = LOGERConfig(seed=options.seed)
        encoder = TransE(replace(config.encoder, seed=options.seed)).fit(parts.graph.given)
        for lift in options.tried:
            mining = replace(config.mining, min_lift=lift)
            fit = LOGER(replace(config, mining=mining))._fit(None, silent)
            begun = time.process_time()
            mined, (derived, _) = fit.mined(parts), fit.derived(parts)
            middle = time.process_time()
            em = fit.problem(parts, mined, derived, encoder)(fit.config.em)
            first = em.start()
            ended = time.process_time()
            ndcg, recall = 100 * first.trace[0].ndcg, 100 * first.trace[0].recall
            print(
                f"{name:18s} min_lift={lift:g}  {len(mined.rules)} rules  mining "
                f"{middle - begun:.1f} s  M-step {ended - middle:.1f} s  "
                f"LOGER {ndcg:.2f} / {recall:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
