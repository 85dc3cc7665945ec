"""A warm fit compared with a cold one: processor time, and NDCG@10 on test.

    python benchmarks/warm_fit.py amazon-beauty
    python benchmarks/warm_fit.py amazon-toys --users 3000 --epochs 4

Yesterday's model is fitted without a random share of the training interactions. Today's models have
all of them: one is fitted from scratch, one starts from yesterday's model.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import numpy as np

from cold_items import DATA, tables
from loger.data import load, split
from loger.data.assemble import assemble
from loger.encoder import TransEConfig
from loger.evaluation.evaluate import evaluate
from loger.model import LOGER, LOGERConfig
from tables import COMMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--users", type=int, default=0, help="users of the data, drawn; 0: all")
    parser.add_argument("--epochs", type=int, default=0, help="of the encoder; 0: its default")
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    dataset = load(DATA / arguments.data)
    if arguments.users:
        rows, facts = tables(dataset, arguments.users, arguments.seed)
        name = dataset.relations[0].name
        dataset = assemble(arguments.data, rows, facts, interaction=name)
    today = split(dataset)
    rng = np.random.default_rng([arguments.seed, 4])
    kept = np.sort(rng.permutation(today.train)[round(arguments.share * len(today.train)) :])
    config = LOGERConfig(seed=arguments.seed)
    if arguments.epochs:
        config = replace(config, encoder=TransEConfig(epochs=arguments.epochs))
    models, seconds = {}, {}
    for which, parts, warm in (
        ("yesterday", replace(today, train=kept), False),
        ("cold", today, False),
        ("warm", today, True),
    ):
        begun = time.process_time()
        before = models["yesterday"] if warm else None
        models[which] = LOGER(config, name=which).fit(parts, warm_from=before, progress=False)
        seconds[which] = time.process_time() - begun
        print(which, seconds[which], flush=True)
    report = evaluate([models[k] for k in models], today)
    print(repr(dataset), COMMIT, json.dumps(seconds), f"{seconds['warm'] / seconds['cold']:.3f}")
    print(report.table())


if __name__ == "__main__":
    main()
