"""What each published setting of ``paper-literal``'s encoder costs, one change at a time.

    python benchmarks/literal.py amazon-beauty                # 150,000 steps each; 80 minutes
    python benchmarks/literal.py amazon-beauty --epochs 3     # a tenth of them

Each row is the published encoder with one setting as ``paper`` has it, trained on train and ranked
alone on validation; the last is ``paper``'s own, with its own epochs. docs/tables/literal-SET.json
is written after each row.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from dataclasses import replace

from loger.config import LOGERConfig
from loger.data import load, split
from loger.encoder import TransE
from loger.evaluation.evaluate import evaluate
from loger.evaluation.methods import EncoderAlone
from tables import COMMIT, store
from where import DATA

LITERAL, PAPER = LOGERConfig.paper_literal().encoder, LOGERConfig.paper().encoder
ROWS = {
    "as published": LITERAL,
    "rate ×10 (1e-3)": replace(LITERAL, rate=1e-3, final_rate=1e-4),
    "rate ×100 (1e-2), as `paper`": replace(LITERAL, rate=PAPER.rate, final_rate=PAPER.final_rate),
    "γ = 8 instead of 24, as `paper`": replace(LITERAL, gamma=PAPER.gamma),
    "squared distance instead of L1": replace(LITERAL, distance="squared"),
    "batches of 1,024 instead of 512, as `paper`": replace(LITERAL, batch=PAPER.batch),
    "all of it as `paper`": PAPER,
}
FORMATS = ["", ".2f", ".2f", ".2f", ".1f"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a shared set")
    parser.add_argument("--epochs", type=int, default=LITERAL.epochs, help="of 5,000 steps")
    options = parser.parse_args()
    parts, rows = split(load(DATA / options.data)), list[list[object]]()
    for what, config in ROWS.items():
        begun = time.process_time()
        epochs = config.epochs if config == PAPER else options.epochs
        encoder = TransE(replace(config, epochs=epochs)).fit(parts.graph)
        minutes = (time.process_time() - begun) / 60
        alone = EncoderAlone.of(encoder)
        full = evaluate([alone], parts, "validation")
        sampled = evaluate([alone], parts, "validation", protocol="sampled-100")
        figures = [full.mean(alone.name, "ndcg"), full.mean(alone.name, "recall")]
        figures.append(sampled.mean(alone.name, "ndcg"))
        rows.append([what, *(100 * figure for figure in figures), minutes])
        print(rows[-1], flush=True)
        columns = [
            f"{options.data}, validation, {5_000 * options.epochs:,} steps",
            "NDCG, full", "Recall, full", "NDCG, sampled-100", "minutes",
        ]  # fmt: skip
        command = shlex.join(["python", *sys.argv])
        name = f"literal-{options.data}"
        store(name, columns, FORMATS, rows, command=command, seeds=[0], commit=COMMIT)


if __name__ == "__main__":
    main()
