"""A whole fit of LOGER at the size of the paper's Cellphones set: time and memory.

    python benchmarks/full_size.py

It uses the generated graph of ``generated.py``: 61,254 users, 47,604 items, 3.1M triples. Purchases
are drawn at random around tastes, so only the cost of the fit means anything, not its ranking.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from pathlib import Path

import numpy as np

from generated import cellphones
from loger.data.dataset import Dataset, Facts, Interactions
from loger.data.splits import Split, split
from loger.engine import LocalEngine
from loger.engine.threads import one_thread
from loger.graph import INTERACTION
from loger.model import LOGER


def generated_split(scale: float) -> Split:
    graph = cellphones(scale)
    heads, relations, tails = graph.triples()
    own = relations == INTERACTION
    first = graph.vocabulary.span("item").start
    h, r, t = (x[~own].astype(np.int32) for x in (heads, relations, tails))
    facts = Facts(h, r, t, np.full(len(h), -1, dtype=np.int32))
    events = Interactions(heads[own].astype(np.int32), (tails[own] - first).astype(np.int32))
    return split(Dataset("generated", graph.vocabulary, graph.relations, facts, events), "random")


def peak_gib() -> float:
    """VmHWM: what this process itself has held at most."""
    text = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) / 2**20 if found else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    parts = generated_split(options.scale)
    print(parts.graph, flush=True)
    laps: dict[str, float] = {}
    last = ("", time.perf_counter())

    def progress(what: str, done: int, total: int) -> None:
        nonlocal last
        (before, since), now = last, time.perf_counter()
        laps[before] = laps.get(before, 0.0) + now - since
        last = (what, now)

    print("load before", os.getloadavg()[0], flush=True)
    start, used = time.perf_counter(), time.process_time()
    model = LOGER().fit(parts, progress=progress)
    wall, used = time.perf_counter() - start, time.process_time() - used
    gib = peak_gib()
    print(f"fit {wall:.0f} s by the clock, {used:.0f} s of processor time, {gib:.2f} GiB")
    print(f"{len(model.rules_)} rules, load after", os.getloadavg()[0], flush=True)
    for what, seconds in sorted(laps.items(), key=lambda lap: -lap[1])[:12]:
        print(f"  {seconds:7.1f} s  {what}")
    users = np.random.default_rng(0).choice(model.graph_.n_users, 60, replace=False)
    model.engine = LocalEngine(1)
    with one_thread():
        model.explained(users[:3], 10)
        times = []
        for u in users:
            begun = time.perf_counter()
            model.explained([u], 10, 3)
            times.append(1000 * (time.perf_counter() - begun))
    print(f"recommend and explain the top 10 of a user: median {np.median(times):.1f} ms")
    if options.out:
        figures = {"wall": wall, "used": used, "gib": gib, "explaining": float(np.median(times))}
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
