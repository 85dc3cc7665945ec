"""What shorter training of TransE costs: validation of the whole model and of the encoder alone.

    python benchmarks/encoder_schedule.py amazon-beauty --seeds 0 1 2

Settings of ``--try`` change ``TransEConfig.thorough()``, as in ``epochs=4,group=256``; ``facts``
stands for ``facts_per_interaction``. Everything is measured on validation.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from loger.config import LOGERConfig
from loger.data import load, split
from loger.encoder.transe import TransE, TransEConfig
from loger.engine import silent
from loger.model import LOGER
from where import DATA

TRIED = (
    "epochs=8",
    "epochs=8,facts=1.0",
    "epochs=4",
    "epochs=4,facts=1.0",
    "epochs=4,group=256",
    "epochs=4,group=128",
    "epochs=4,facts=1.0,group=256",
    "epochs=6,facts=1.0,group=256",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--try", nargs="+", default=list(TRIED), dest="tried")
    parser.add_argument("--checkpoint", type=Path, help="take mined rules from here")
    options = parser.parse_args()
    parts = split(load(DATA / options.data))
    for seed in options.seeds:
        folder = options.checkpoint and options.checkpoint / f"{options.data}.{seed}"
        fit = LOGER(LOGERConfig(seed=seed))._fit(folder, silent)
        mined, (derived, _) = fit.mined(parts), fit.derived(parts)
        for text in options.tried:
            named = dict(part.split("=") for part in text.split(","))
            settings: dict[str, Any] = {
                k: float(v) if "." in v else int(v) for k, v in named.items()
            }
            if "facts" in settings:
                settings["facts_per_interaction"] = settings.pop("facts")
            begun = time.process_time()
            encoder = TransE(TransEConfig.thorough(seed=seed, **settings)).fit(parts.graph.given)
            seconds = time.process_time() - begun
            em = fit.problem(parts, mined, derived, encoder)(fit.config.em)
            first = em.start()
            ndcg, recall = 100 * first.trace[0].ndcg, 100 * first.trace[0].recall
            alone, share = 100 * em.encoder_ndcg(first).mean(), em.encoder_share(first)
            print(
                f"seed {seed}  {text:30s} {seconds:6.1f} s  LOGER {ndcg:.2f} / {recall:.2f}"
                f"  encoder {alone:.2f}, carries {share:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
