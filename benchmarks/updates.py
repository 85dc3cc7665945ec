"""What an update of a bundle costs: 1,000 interactions, 100 new users, 50 new items.

    python benchmarks/updates.py BUNDLE

Interactions are drawn among the bundle's and the new users and items. Each new item has the facts
of a known one. Prints wall-clock and processor seconds, in memory and with saving.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from loger.model import LOGER


def rows_of(model: LOGER, seed: int = 0) -> dict[str, list[tuple[str | int, ...]]]:
    rng = np.random.default_rng(seed)
    graph = model.graph_.given
    names, last = graph.vocabulary.names, graph.times
    users = [f"new user {k}" for k in range(100)]
    items = [f"new item {k}" for k in range(50)]
    facts: list[tuple[str | int, ...]] = []
    heads, relations, tails = graph.triples()
    for item in items:
        like = graph.n_users + int(rng.integers(graph.n_items))
        own = np.flatnonzero((heads == like) & (relations > 0))
        facts += [(item, graph.relations[relations[e]].name, names[tails[e]]) for e in own]
    people = [*users, *rng.choice(model.users, 400).tolist()]
    things = [*items, *rng.choice(model.items, 400).tolist()]
    when = 0 if last is None else int(last.max()) + 1
    pairs = zip(
        rng.integers(len(people), size=1000), rng.integers(len(things), size=1000), strict=True
    )
    interactions: list[tuple[str | int, ...]] = [(people[u], things[v], 5, when) for u, v in pairs]
    return {"interactions": interactions, "facts": facts, "users": [(u,) for u in users]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    model = LOGER.load(parser.parse_args().bundle)
    rows = rows_of(model)
    runs = []
    for _ in range(3):
        wall, processor = time.perf_counter(), time.process_time()
        later = model.update(**rows)
        middle = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            later.save(Path(folder) / "bundle")
        end = time.perf_counter(), time.process_time()
        runs.append(
            {
                "in memory": (middle[0] - wall, middle[1] - processor),
                "with saving": (end[0] - wall, end[1] - processor),
            }
        )
    assert later.updates_ is not None
    print(repr(model), str(later.updates_.log[-1]), json.dumps(runs, indent=1), sep="\n")


if __name__ == "__main__":
    main()
