"""Gathering the candidates of the M-step, beside how another commit does it.

    git worktree add /tmp/before ac6f476          # before decision 14
    python benchmarks/pools.py --before /tmp/before

The same users, rules, walk and encoder's scores for both, each in a process of its own, in turns,
on one core; the processor seconds of the best turn count. What is chosen is compared, pair by pair,
with the groundings and strengths of each rule: the run ends with an error where they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from where import DATA

ROOT = Path(__file__).resolve().parents[1]


class Fixed:
    """An encoder whose scores are drawn once, the same for every commit."""

    name = "fixed"

    def __init__(self, users: int, items: int) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((users, 16), dtype=np.float32)
        self.y = rng.standard_normal((items, 16), dtype=np.float32)

    def score_items(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items."""
        return self.x[users] @ self.y.T


def worker(data: Path, users: int, rules: Path, out: Path) -> None:
    """Gather with whatever loger is imported, and keep what it cost and what was chosen."""
    from scipy.sparse import csr_array

    from loger.data import load, split
    from loger.engine import LocalEngine
    from loger.grounding import Walk
    from loger.learning.pools import gather
    from loger.logic.mining import mine
    from loger.logic.mln import blank_logic
    from loger.ranking.ranker import Fusion, Ranker
    from loger.rules import RuleSet, make_rule

    parts = split(load(data))
    graph, walk = parts.graph, Walk.uniform(0.5)
    if not rules.exists():
        mined = mine(graph).rules
        rules.write_text(json.dumps([[int(r) for r in rule.relations] for rule in mined]))
    chosen = RuleSet(tuple(make_rule(graph, row) for row in json.loads(rules.read_text())))
    encoder = Fixed(graph.n_users, graph.n_items)
    logic = blank_logic(chosen, "walk", walk)
    ranker = Ranker.of(graph, encoder, logic, Fusion())
    asked = np.unique(np.linspace(0, graph.n_users - 1, users).astype(np.int64))
    held_out = csr_array((graph.n_users, graph.n_items), dtype=np.float32)
    engine = LocalEngine(1)
    gather(ranker, asked[:64], held_out, engine)  # compiled
    begun = time.process_time()
    pool = gather(ranker, asked, held_out, engine)
    spent, found = time.process_time() - begun, pool.found
    np.savez(out, seconds=spent, rules=len(chosen), users=found.users, items=found.items,
             starts=pool.starts, indptr=found.indptr, of=found.rules, counts=found.counts,
             strengths=found.strengths, encoder=pool.encoder)  # fmt: skip


def run(tree: Path, *arguments: object) -> None:
    """The worker with the loger of a checkout."""
    path = os.pathsep.join([str(tree / "src"), str(ROOT / "benchmarks")])
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, __file__, "--worker", *map(str, arguments)]
    subprocess.run(command, check=True, env=os.environ | one | {"PYTHONPATH": path})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="a checkout of another commit")
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        data, users, rules, out = options.worker
        worker(Path(data), int(users), Path(rules), Path(out))
        return
    trees = {"now": ROOT, "before": options.before}
    seconds: dict[str, list[float]] = {name: [] for name in trees}
    with TemporaryDirectory() as folder:
        rules, found = Path(folder, "rules.json"), {}
        for _ in range(options.turns):
            for name, tree in trees.items():
                out = Path(folder, f"{name}.npz")
                run(tree, DATA / "amazon-beauty", options.users, rules, out)
                found[name] = dict(np.load(out))
                seconds[name].append(float(found[name].pop("seconds")))
                print(f"{name}: {seconds[name][-1]:.2f} s", flush=True)
    now, before = found["now"], found["before"]
    for part in ("users", "items", "starts", "indptr", "of", "counts", "encoder"):
        np.testing.assert_array_equal(now[part], before[part], err_msg=part)
    np.testing.assert_allclose(now["strengths"], before["strengths"], rtol=1e-6)
    far = np.abs(now["strengths"] / before["strengths"] - 1).max(initial=0)
    ratio = min(seconds["before"]) / min(seconds["now"])
    print(
        f"{options.users:,} users, {int(now['rules'])} rules: {len(now['items']):,} candidates, "
        f"the same pairs and groundings, strengths within {far:.1g}; {ratio:.1f} times as fast"
    )


if __name__ == "__main__":
    main()
