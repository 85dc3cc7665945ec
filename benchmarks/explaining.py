"""What explanations cost and how much they cover, on a real data set.

    python benchmarks/explaining.py --sets amazon-beauty --bundle DIR

Fits LOGER (or loads the bundle if there is one) and measures, warm and on one thread: the time to
recommend and explain the top 10 of one user and of all users; the time of a what-if; coverage@10;
the largest decomposition error; and whether the top 10 of 200 users equals that of scoring all
pairs one by one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from loger.data import load, split
from loger.engine import LocalEngine
from loger.engine.threads import one_thread
from loger.explain.attribution import explain
from loger.graph import history
from loger.model import LOGER
from where import DATA

K = 10


def fitted(name: str, bundle: Path, checkpoint: Path | None) -> LOGER:
    if not (bundle / "manifest.json").exists():
        LOGER().fit(split(load(DATA / name)), checkpoint=checkpoint).save(bundle)
    return LOGER.load(bundle, engine=LocalEngine(1))


def median_ms(function: object, arguments: list[object]) -> tuple[float, float]:
    times = []
    for argument in arguments:
        start = time.perf_counter()
        function(argument)  # type: ignore[operator]
        times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times)), float(np.quantile(times, 0.99))


def brute_force(model: LOGER, users: np.ndarray) -> int:
    """For how many users the top 10 is that of pairs scored one by one, in double precision."""
    right = 0
    every = np.arange(model.graph_.n_items)
    items, scores = model.top(users, K)
    for u, mine, values in zip(users.tolist(), items, scores, strict=True):
        own = history(model.graph_, np.array([u]))[1]
        told = explain(model.ranker_, np.full(len(every), u), every, paths=0)
        exact = np.array([e.score for e in told])
        exact[own] = -np.inf
        best = np.sort(exact)[::-1][:K]
        # The same scores in the same order; float32 may swap items that agree to 1e-4.
        right += bool(np.allclose(best, values, atol=1e-4)) and bool(
            np.allclose(exact[mine], best, atol=1e-4)
        )
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default="amazon-beauty")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, help="of encoders that are trained already")
    parser.add_argument("--all", action="store_true", help="explain the top 10 of all users")
    parser.add_argument("--brute", type=int, default=200)
    options = parser.parse_args()
    model = fitted(options.sets, options.bundle, options.checkpoint)
    n = model.graph_.n_users
    users = np.random.default_rng(0).choice(n, size=min(300, n), replace=False)
    with one_thread():
        model.explained(users[:5], K)
        half, tail = median_ms(lambda u: model.explained([u], K, 3), users.tolist())
        print(f"recommend and explain the top 10 of a user: median {half:.1f} ms, 99 % {tail:.1f}")
        lists = {int(u): model.top([u], K)[0][0].astype(np.int64) for u in users}
        half, tail = median_ms(
            lambda u: explain(model.ranker_, np.full(K, u), lists[u]), list(lists)
        )
        print(f"explain ten items of a user: median {half:.1f} ms, 99 % {tail:.1f}")
        first = {int(u): int(history(model.graph_, np.array([u]))[1][0]) for u in users[:100]}
        half, tail = median_ms(
            lambda u: model.ranker_.user_view(u, [first[u]]).top([u], K), list(first)
        )
        print(f"what if a user had not one item: median {half:.1f} ms, 99 % {tail:.1f}")
    start = time.perf_counter()
    model.engine = LocalEngine()
    items, _ = model.top(np.arange(n), K)
    print(f"top 10 of all {n:,} users: {time.perf_counter() - start:.1f} s")
    asked = np.arange(n) if options.all else users
    start = time.perf_counter()
    covered = pairs = 0
    error = 0.0
    for lo in range(0, len(asked), 256):
        own = asked[lo : lo + 256]
        mine = items[own].astype(np.int64)
        told = explain(model.ranker_, np.repeat(own, K), mine.ravel())
        covered += sum(bool(e.paths) for e in told)
        pairs += len(told)
        error = max(error, max(e.decomposition_error for e in told))
    seconds = time.perf_counter() - start
    print(f"explained the top 10 of {len(asked):,} users in {seconds:.1f} s")
    print(f"coverage@10 {covered / pairs:.4f} of {pairs:,}; decomposition error {error:.1e}")
    if options.brute:
        some = users[: options.brute]
        print(f"top 10 equals brute force for {brute_force(model, some)} of {len(some)} users")


if __name__ == "__main__":
    main()
