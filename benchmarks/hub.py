"""What one user with very many items adds to the cost of a fit, in processor seconds.

    python benchmarks/hub.py                       5,000 users of ten items, one of 20,000
    python benchmarks/hub.py --users 2000 --epochs 2

The shop is invented: items have brands and categories, users stay with a few of them, and there are
times. A third fit distributes the added interactions over many users, to show what as much data
costs without a hub. The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import polars as pl

from full_size import peak_gib
from loger.data import Dataset, from_frames, split
from loger.encoder import TransEConfig
from loger.model import LOGER, LOGERConfig

BRANDS, ITEMS_OF_USER = 400, 10


def shop(users: int, items: int, hub: int, spread: bool, seed: int = 0) -> Dataset:
    """The shop; ``hub`` interactions more, of one user or dealt out."""
    rng = np.random.default_rng(seed)
    brand = rng.integers(BRANDS, size=items)
    of_brand = np.argsort(brand, kind="stable")
    starts = np.minimum(np.searchsorted(brand[of_brand], np.arange(BRANDS)), items - 100)
    rows = []
    for user in range(users):
        liked = rng.integers(BRANDS, size=2)
        places = starts[rng.choice(liked, ITEMS_OF_USER)] + rng.integers(
            max(1, items // BRANDS // 2), size=ITEMS_OF_USER
        )
        rows += [(f"u{user}", f"i{v}", k) for k, v in enumerate(of_brand[places])]
    more = rng.permutation(items)[:hub]
    rows += [
        (f"u{k % users}" if spread else "hub", f"i{v}", 100 + k % 50) for k, v in enumerate(more)
    ]
    plays = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    facts = {"head": [f"i{k}" for k in range(items)] * 2}
    facts["relation"] = ["has_brand"] * items + ["has_category"] * items
    facts["tail"] = [f"b{b}" for b in brand] + [f"c{c}" for c in rng.integers(50, size=items)]
    return from_frames(plays, pl.DataFrame(facts))


def fitted(dataset: Dataset, epochs: int) -> float:
    """Processor seconds of a fit."""
    parts = split(dataset)
    begun = time.process_time()
    LOGER(LOGERConfig(encoder=TransEConfig(epochs=epochs)), seed=0).fit(parts, progress=False)
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=5_000)
    parser.add_argument("--items", type=int, default=25_000)
    parser.add_argument("--hub", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=TransEConfig().epochs)
    asked = parser.parse_args()
    fitted(shop(200, 500, 50, False), 1)  # kernels, and what is loaded once
    found = {}
    for name, hub in (("without", 0), ("hub", asked.hub), ("spread", asked.hub)):
        data = shop(asked.users, asked.items, hub, name == "spread")
        found[name] = round(fitted(data, asked.epochs), 1)
        print(name, found[name], flush=True)
    ratio = round(found["hub"] / found["without"], 2)
    print(json.dumps({**vars(asked), **found, "ratio": ratio, "peak_gib": round(peak_gib(), 2)}))


if __name__ == "__main__":
    main()
