"""Counting all groundings of all observed pairs: ours, METHOD's sketch, and other tools.

    python benchmarks/grounding.py            # make bench-grounding

1. Full size (METHOD 10, Cellphones): ours compared with our implementation of METHOD 4's sketch,
   interleaved in one run, with equal counts.
2. Some users on the same full graph: ours compared with SciPy sparse products, DuckDB joins and a
   compiled nested-loop walk, with equal counts, on the same cores.
3. Growth at 1×, 2×, 4× the size, each in its own process to measure peak memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from generated import cellphones
from loger.engine import LocalEngine
from loger.graph import INTERACTION, KnowledgeGraph
from loger.grounding import Walk, ground
from loger.rules import RuleSet, candidates
from rivals import by_duckdb, by_nested_loop, by_scipy, by_sketch
from tables import aligned


def observed(graph: KnowledgeGraph) -> tuple[np.ndarray, np.ndarray]:
    heads, relations, tails = graph.triples()
    mine = relations == INTERACTION
    return heads[mine], tails[mine] - graph.n_users


def cut_of(users: np.ndarray, n: int, seed: int) -> np.ndarray:
    """The pairs of n users drawn at random."""
    chosen = np.random.default_rng(seed).choice(users.max() + 1, size=n, replace=False)
    return np.flatnonzero(np.isin(users, chosen))


def timed(call: Callable[[], csr_array]) -> tuple[float, csr_array]:
    start = time.perf_counter()
    out = call()
    return time.perf_counter() - start, out


def ours(graph: KnowledgeGraph, rules: RuleSet, users: np.ndarray, items: np.ndarray) -> csr_array:
    return ground(graph, rules, users, items).count_matrix


def full_size(graph: KnowledgeGraph, rules: RuleSet, repeats: int) -> None:
    users, items = observed(graph)
    warm = slice(0, 2000)
    for call in (ours, by_sketch):
        call(graph, rules, users[warm], items[warm])
    times: dict[str, list[float]] = {"sketch of METHOD 4": [], "ours": []}
    for _ in range(repeats):
        for name, call in (("ours", ours), ("sketch of METHOD 4", by_sketch)):
            seconds, counts = timed(partial(call, graph, rules, users, items))
            times[name].append(seconds)
            if name == "ours":
                mine = counts
        assert abs(mine - counts).sum() == 0, "the sketch counts differently"
    seconds, _ = timed(lambda: ground(graph, rules, users, items, walk=Walk()).strength_matrix)
    print(
        f"\nAll observed pairs, {len(users):,} pairs × {len(rules)} rules, "
        f"{mine.sum():,} groundings"
    )
    spent = {name: min(found) for name, found in times.items()}
    show(spent | {"ours, with path strengths": seconds}, spent["sketch of METHOD 4"])


def cut(graph: KnowledgeGraph, rules: RuleSet, n_users: int) -> dict[str, float]:
    """Seconds of each way to count the groundings of some users' pairs."""
    users, items = observed(graph)
    rows = cut_of(users, n_users, seed=1)
    users, items = users[rows], items[rows]
    by_nested_loop(graph, rules, users[:5], items[:5])  # compile
    mine = min(timed(lambda: ours(graph, rules, users, items))[0] for _ in range(3))
    counts = ours(graph, rules, users, items)
    others = {}
    for name, call in (
        ("SciPy sparse products", by_scipy),
        ("DuckDB joins", by_duckdb),
        ("nested loop, compiled", by_nested_loop),
    ):
        others[name], found = timed(partial(call, graph, rules, users, items))
        assert abs(found - counts).sum() == 0, f"{name} counts differently"
    print(
        f"\nThe {len(users):,} pairs of {n_users} users on the same graph, "
        f"{counts.sum():,} groundings"
    )
    show(others | {"ours": mine}, min(others.values()))
    return others | {"ours": mine}


def growth(scales: list[float], larger_hubs: bool) -> None:
    print(f"\nGrowth with {'larger' if larger_hubs else 'more'} hubs")
    base, rows = None, []
    for scale in scales:
        command = [sys.executable, __file__, "--one", str(scale)] + ["--larger-hubs"] * larger_hubs
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        one = json.loads(line)
        base = base or one["seconds"] / scale
        linear = f"{one['seconds'] / scale / base:.2f}"
        counts = [f"{one[what]:,}" for what in ("triples", "groundings")]
        seconds, peak = f"{one['seconds']:.2f}", f"{one['peak']:,.0f}"
        rows.append([f"{scale:g}×", *counts, seconds, linear, peak])
    columns = ("size", "triples", "groundings", "seconds", "× linear", "peak MiB")
    print(aligned(columns, rows), flush=True)


def one(scale: float, larger_hubs: bool) -> None:
    graph = cellphones(scale, larger_hubs=larger_hubs)
    rules = candidates(graph)
    users, items = observed(graph)
    ground(graph, rules, users[:2000], items[:2000])
    seconds, counts = min(
        (timed(lambda: ours(graph, rules, users, items)) for _ in range(2)), key=lambda x: x[0]
    )
    found = {"triples": graph.n_triples, "groundings": int(counts.sum()), "seconds": seconds}
    print(json.dumps(found | {"peak": peak_memory()}))


def peak_memory() -> float:
    """MiB at most held by this program so far; ru_maxrss would count its parent in."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def show(spent: dict[str, float], base: float) -> None:
    """Seconds of each way, and how many times as fast as the base it is."""
    rows = [[name, f"{seconds:.3f}", f"{base / seconds:.2f}×"] for name, seconds in spent.items()]
    print(aligned(("", "seconds", ""), rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=300, help="users of the cut")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--larger-hubs", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.larger_hubs)
        return
    graph = cellphones()
    rules = candidates(graph)
    print(f"{graph}\n{len(rules)} rules of up to 3 hops; {LocalEngine().workers} cores")
    full_size(graph, rules, options.repeats)
    cut(graph, rules, options.users)
    growth([1, 2, 4], larger_hubs=False)
    growth([1, 2, 4], larger_hubs=True)


if __name__ == "__main__":
    main()
