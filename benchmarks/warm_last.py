"""Whether the last encoder may start warm from the first: quality and time beside a cold start.

    python benchmarks/warm_last.py ../shared/data/amazon-beauty --checkpoint /tmp/warm

Test is never looked at. Of train a part is set aside as validation is of train; a fit learns its
weights from that part, and its last encoder, fitted on all of train, is judged on the real
validation interactions: once cold, once from the first encoder's state with fewer epochs and other
rates. Everything else is the same object, so differences are paired by user.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from loger.data import load, split
from loger.data.dataset import TRAIN, VALIDATION
from loger.data.splits import Split, _hold_out
from loger.encoder import TransE, TransEConfig, top_items
from loger.metrics import ranking
from loger.model import LOGER


def one_earlier(parts: Split) -> Split:
    """The split with validation as test, and a part of train as validation."""
    events = parts.dataset.interactions
    marks = np.full(len(events), -1, dtype=np.int8)
    marks[parts.train] = TRAIN
    key = events.times
    if key is None:
        key = np.random.default_rng([0, 0x5EED, 1]).permutation(len(events))
    _hold_out(marks, events.users, events.items, key, 0.1, VALIDATION)
    train, held_out = (np.flatnonzero(marks == part) for part in (TRAIN, VALIDATION))
    return Split(parts.dataset, train, held_out, parts.validation, "one earlier")


def judged(lists: np.ndarray, parts: Split) -> np.ndarray:
    """NDCG@10 of the lists of all users who have something in test."""
    users, items = parts.pairs("test")
    rows = np.unique(users, return_inverse=True)[1]
    hits = ranking.hits(lists, rows, items)
    return ranking.ndcg(hits, np.bincount(rows))


def spread(encoder: TransE, users: np.ndarray) -> float:
    """How far scores of items lie apart: weights were learned for the first encoder's."""
    return float(encoder.score_items(users).std(axis=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--try", nargs="*", dest="tried", metavar="EPOCHS:RATE",
        default=["1:0.003", "2:0.003", "2:0.01", "3:0.005"],
    )  # fmt: skip
    options = parser.parse_args()
    parts = one_earlier(split(load(options.data)))
    start = time.process_time()
    settings = replace(TransEConfig(), seed=options.seed, refit_epochs=0)
    model = LOGER(encoder=lambda: TransE(settings)).fit(parts, checkpoint=options.checkpoint)
    print(f"{parts.dataset.name}, seed {options.seed}: fit {time.process_time() - start:.0f} s")
    first = TransE(settings).fit(parts.graph, checkpoint=options.checkpoint / "first")
    some = np.arange(0, parts.graph.n_users, max(1, parts.graph.n_users // 500))
    print(f"  first encoder: spread {spread(first, some):.3f}")
    cold, graph = model.ranker_.encoder, parts.refit().graph
    both: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def report(name: str, encoder: TransE, seconds: float) -> None:
        ranker = replace(model.ranker_.without_held_out(), encoder=encoder)
        asked = np.unique(parts.pairs("test")[0])
        alone = top_items(encoder, graph, asked, 10)[0]
        both[name] = found = judged(ranker.top(asked, 10)[0], parts), judged(alone, parts)
        told = f"  {name:<18} {seconds:5.1f} s  spread {spread(encoder, some):.3f}"
        for what, own, of_cold in zip(("whole", "alone"), found, both["cold"], strict=True):
            gap = own - of_cold
            half = 1.96 * gap.std() / np.sqrt(len(gap))
            told += f"  {what} {100 * own.mean():.3f} ({100 * gap.mean():+.3f} ± {100 * half:.3f})"
        print(told, flush=True)

    report("cold", cold, float("nan"))
    for text in options.tried:
        epochs, rate = text.split(":")
        config = replace(settings, refit_epochs=int(epochs), refit_rate=float(rate))
        begun = time.process_time()
        warm = TransE(config).load_state(parts.graph, first.state()).refit(graph)
        report(text, warm, time.process_time() - begun)


if __name__ == "__main__":
    main()
