"""What caps that larger data may need would cost in accuracy: docs/research/scale.md.

    python benchmarks/caps.py BUNDLE --users 1000 --write      # docs/tables/caps.json; make tables

There are two caps. *Hubs*: rules follow only some of an entity's neighbours under a relation, drawn
at random (``Ranker.sample``). *Retrieval*: only the items that the encoder ranks highest can be
recommended. For each, the benchmark counts how many of the ten exact recommendations remain, and
how often the first one stays first. It doesn't look at labels.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import numpy as np

from loger.engine.topk import top_k
from loger.graph import history
from loger.model import LOGER
from loger.ranking.ranker import Ranker, blocks, sampled
from scale import about, kept

K = 10
HUBS = (1000, 300, 100, 30, 10)
RETRIEVED = (3000, 1000, 300, 100, 30)
COLUMNS = {"cap": "", "of the exact ten, %": ".1f", "first item the same, %": ".1f"}


def agreement(exact: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Of the items of exact lists, how many are in others, and of the first ones, in per cent."""
    both = [np.isin(a[a >= 0], b).mean() for a, b in zip(exact, found, strict=True) if a[0] >= 0]
    return 100 * float(np.mean(both)), 100 * float((exact[:, 0] == found[:, 0]).mean())


def among_retrieved(ranker: Ranker, users: np.ndarray, n: int) -> np.ndarray:
    """Lists of the items that the encoder ranks highest of those that a user does not have."""
    out = []
    for block in blocks(users):
        scores = ranker.scores(block)
        known = history(ranker.graph, block)
        retrieved = top_k(scores.encoder.copy(), n, known)[0]
        total = np.full_like(scores.total, -np.inf)
        rows = np.arange(len(block))[:, None]
        total[rows, retrieved] = scores.total[rows, retrieved]
        out.append(top_k(total, K, known)[0])
    return np.concatenate(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument(
        "--write", action="store_true", help="keep the figures for docs/research/scale.md"
    )
    options = parser.parse_args()
    ranker = LOGER.load(options.bundle).ranker_
    everyone = np.arange(ranker.graph.n_users)
    users = np.sort(np.random.default_rng(0).choice(everyone, options.users, replace=False))
    exact = ranker.top(users, K)[0]
    cells: list[list[Any]] = []

    def noted(cap: str, found: np.ndarray) -> None:
        cells.append([cap, *agreement(exact, found)])
        print(json.dumps(cells[-1]), flush=True)

    for n in HUBS:
        capped = replace(ranker, logic_graph=sampled(ranker.graph, (n, 0)), sample=(n, 0))
        noted(f"{n:,} neighbours", capped.top(users, K)[0])
    for n in RETRIEVED:
        noted(f"{n:,} retrieved", among_retrieved(ranker, users, n))
    if options.write:
        command = f"python benchmarks/caps.py BUNDLE --users {options.users}"
        kept("caps", about(command, COLUMNS, cells))


if __name__ == "__main__":
    main()
