"""What the hot kernels cost, counted, not timed: a guard against slowness that noise cannot hide.

    python benchmarks/kernel_costs.py                  # count, beside what is stored
    python benchmarks/kernel_costs.py --write          # store as the new baseline
    python benchmarks/kernel_costs.py --instructions   # machine instructions, by callgrind

Steps: the kernels run uncompiled on a small invented shop, and every line of theirs that runs
counts one. That is the same on every machine and sees whatever makes an algorithm do more, but not
what the compiler makes of a line. Instructions see that as well: the kernels run compiled for one
fixed processor under valgrind's callgrind, if there is one. ``tests/test_kernel_costs.py`` holds
the steps to the baseline.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

BASELINE = Path(__file__).resolve().parents[1] / "tests" / "kernel_costs.json"
LIMIT = 1.2
"""A kernel may cost so many times its baseline."""
FIXED = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
"""The processor that instructions are counted for, on whatever machine."""


def scenes() -> dict[str, Callable[[], Any]]:
    """One call of each hot kernel, on data that a seed makes."""
    import numpy as np

    from loger.data.demo import shop
    from loger.data.splits import split
    from loger.encoder.training.adam import adam_rows
    from loger.engine import LocalEngine
    from loger.engine.topk import RunningBest
    from loger.grounding import Formula, ground, logits, reach_sizes, strongest_paths
    from loger.grounding.actions import by_first_hop
    from loger.grounding.api import reach_best
    from loger.learning.config import WALK
    from loger.logic._softmax import softmax_lists
    from loger.rules import candidates

    rng, one = np.random.default_rng(0), LocalEngine(1)
    graph = split(shop(users=60, items=60).dataset).graph
    rules = candidates(graph)
    n, users = len(rules), np.arange(12)
    owners, bought = graph.triples()[0], graph.triples()[2] - graph.n_users
    pairs = (graph.triples()[1] == 0) & (owners < 30)
    formula = Formula(4, np.linspace(0.1, 1, n), np.ones(n))
    also, most = np.full((len(users), 0), -1, np.int32), np.full(n, 10)
    places, u, v = rng.integers(n, size=200), rng.integers(12, size=200), rng.integers(60, size=200)
    scores = rng.standard_normal((20, 1000)).astype(np.float32)
    table, first = (rng.standard_normal((300, 16)).astype(np.float32) for _ in range(2))
    rows, gradient = np.sort(rng.integers(300, size=400)), first[:200].copy()
    lists = 40 * np.arange(51)  # 50 users of 40 candidates, 6 rules each
    indptr, indices = 6 * np.arange(2001), rng.integers(n, size=12_000)
    data, hits = rng.random(12_000), lists[:-1] + 3

    def adam() -> None:
        second, owner = np.zeros(300, np.float32), np.arange(400) % 200
        none = np.empty(0, np.float32)
        adam_rows(table, first, second, rows, owner, none, gradient, np.float32(0.01))

    def likelihood() -> None:
        ones = np.ones(50)
        w, beside = np.ones(n + 2), rng.random((2, 2000))
        room = np.empty(2000), np.zeros(n + 2)
        softmax_lists(w, data, indices, indptr, beside, lists, ones, hits, ones, *room)

    return {
        "count groundings": lambda: ground(
            graph, rules, owners[pairs], bought[pairs], walk=WALK, engine=one
        ),
        "score all items": lambda: logits(graph, rules, users, formula, walk=WALK, engine=one),
        "choose candidates": lambda: reach_best(graph, rules, users, WALK, most, also, engine=one),
        "measure reach": lambda: reach_sizes(graph, rules, users, engine=one),
        "divide by action": lambda: by_first_hop(graph, rules, places, u, v, WALK),
        "strongest paths": lambda: strongest_paths(graph, rules, places, u, v, 3, WALK),
        "best of scores": lambda: RunningBest(20, 10).offer(scores, 0),
        "row-wise Adam": adam,
        "listwise likelihood": likelihood,
    }


def steps_of(call: Callable[[], Any], is_kernel: Callable[[CodeType], bool]) -> int:
    """How many lines of kernels a call executes."""
    count = 0

    def within(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return within

    def entered(frame: FrameType, event: str, arg: Any) -> Any:
        return within if is_kernel(frame.f_code) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def kernel_codes() -> set[CodeType]:
    """The code of all kernels that have been imported; uncompiled, they are plain functions."""
    found = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("loger."):
            things = [x for x in vars(module).values() if hasattr(x, "sources")]
            found |= {x.__code__ for x in things if hasattr(x, "__code__")}
    return found


def count_steps() -> dict[str, int]:
    """Steps by scene; this process must not compile."""
    from loger.grounding import pairs, reaching

    calls, codes = scenes(), kernel_codes()
    # Instructions of the processor, which only compiled code can give.
    vars(pairs)["popcount"] = lambda word: int(word).bit_count()
    vars(pairs)["lowest"] = lambda word: (int(word) & -int(word)).bit_length() - 1
    vars(reaching)["log_from_1"] = math.log  # made of such instructions
    vars(reaching)["fetch"] = lambda array, place: None
    return {name: steps_of(call, codes.__contains__) for name, call in calls.items()}


def run_marked() -> None:
    """Each scene between two calls of getppid, at which callgrind writes what it has counted."""
    for name, call in scenes().items():
        call()  # compiled, or read from disk
        os.getppid()
        call()
        os.getppid()
        print(name, flush=True)


def count_instructions() -> dict[str, int]:
    """Machine instructions by scene."""
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions are counted by callgrind, and there is no valgrind here")
    with TemporaryDirectory() as folder:
        environment = os.environ | FIXED | {"NUMBA_CACHE_DIR": folder, "PYTHONHASHSEED": "0"}
        run = [sys.executable, __file__, "--marked"]
        subprocess.run(run, env=environment, check=True, stdout=subprocess.DEVNULL)  # compiles
        out = f"--callgrind-out-file={folder}/out"
        tool = ["valgrind", "--tool=callgrind", "--dump-before=getppid", out]
        told = subprocess.run(tool + run, env=environment, check=True, capture_output=True)
        names = told.stdout.decode().splitlines()
        dumps = sorted(Path(folder).glob("out.*"), key=lambda file: int(file.suffix[1:]))
        totals = [_total(file.read_text()) for file in dumps]
    return dict(zip(names, totals[1::2], strict=False))


def _total(text: str) -> int:
    found = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store what is counted")
    parser.add_argument("--instructions", action="store_true", help="count by callgrind")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--marked", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.marked:
        run_marked()
        return
    if not options.instructions and os.environ.get("NUMBA_DISABLE_JIT") != "1":
        os.environ["NUMBA_DISABLE_JIT"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    kind = "instructions" if options.instructions else "steps"
    found = count_instructions() if options.instructions else count_steps()
    stored = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else {}
    if options.json:
        print(json.dumps(found))
        return
    dearer = [name for name, n in found.items() if n > LIMIT * stored.get(kind, {}).get(name, n)]
    for name, n in found.items():
        ratio = n / stored.get(kind, {}).get(name, n)
        print(f"{name:<22} {n:>14,} {kind}  {ratio:.2f} × stored")
    if options.write:
        text = json.dumps(stored | {kind: found}, indent=1) + "\n"
        BASELINE.write_text(text, encoding="utf-8")
    elif dearer:
        raise SystemExit(f"more than {LIMIT} times what is stored: {', '.join(dearer)}")


if __name__ == "__main__":
    main()
