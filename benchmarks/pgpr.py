"""PGPR's paths: milliseconds per user, compared with hopwise's 159 (150 s for 943 users).

    python benchmarks/pgpr.py [--set amazon-beauty] [--users 22363] [--epochs 1]

Fits on the published training set, then times the beam search for all users: block by block on one
core, and on all cores with the engine, without and with building ``Path`` objects. The walker
trains for only ``--epochs``: training changes where paths lead, but hardly what they cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from loger.baselines import PGPR
from loger.data import load, split
from loger.engine import LocalEngine
from loger.recommender import fit_for
from where import DATA

HOPWISE = 150 / 943
"""Seconds per user, as issue 7 has it."""
BLOCK = 512


def timed(what: str, work: Callable[[Any], Any], users: Any, engine: LocalEngine) -> None:
    """Run over all users in blocks, and print milliseconds per user."""
    work(users[:8])
    blocks = [users[lo : lo + BLOCK] for lo in range(0, len(users), BLOCK)]
    start = time.perf_counter()
    n = sum(engine.map(what, lambda work, block: work(block), blocks, work))
    each = (time.perf_counter() - start) / len(users)
    print(
        f"  {what:<34} {1000 * each:7.2f} ms per user, {HOPWISE / each:6.0f}× hopwise; "
        f"{n / len(users):.1f} found per user",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", default="amazon-beauty")
    parser.add_argument("--users", type=int)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--beam", type=int, nargs="+", help="default: that of PGPRConfig")
    options = parser.parse_args()
    parts = split(load(DATA / options.set))
    beam = {} if options.beam is None else {"beam": tuple(options.beam)}
    start = time.perf_counter()
    model = fit_for(PGPR(epochs=options.epochs, **beam), parts)
    print(f"{options.set}, beam {model.config.beam}: fit {time.perf_counter() - start:.0f} s")
    users = np.arange(parts.dataset.n_users)[: options.users]
    one, all_cores = LocalEngine(1), LocalEngine()
    timed("paths, one core", lambda block: len(model.walks(block).owners), users, one)
    timed("paths, all cores", lambda block: len(model.walks(block).owners), users, all_cores)
    timed(
        "ten items with a Path each, one core",
        lambda block: sum(map(len, model.explained(block, 10))),
        users,
        one,
    )


if __name__ == "__main__":
    main()
