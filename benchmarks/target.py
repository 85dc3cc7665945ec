"""Seconds of training to a given validation NDCG@10: ours, the authors' way, PyKEEN, PyG.

    python benchmarks/encoder.py --only target

All learn the same graph, amazon-beauty without validation and test, at d = 100, one after the other
in one run. Only training is timed; in between, all items are ranked for the same sample of users.
Each stops when it reaches the target or its time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from loger.data import Split, load, split
from loger.encoder import TransE
from loger.encoder.transe_training import Training
from loger.engine.topk import top_k
from loger.graph import history
from where import DATA

Step = Callable[[], int]


class Learner(NamedTuple):
    """A way to train, and what it then says of users."""

    step: Step
    score_items: Callable[[np.ndarray], np.ndarray]


def by_distance(
    step: Step, entities: Callable[[], torch.Tensor], shift: Callable[[], torch.Tensor],
    n_users: int, n_items: int,
) -> Learner:  # fmt: skip
    """A TransE whose score is −‖user + shift − item‖₁ of rows of one table."""

    @torch.no_grad()
    def score(users: np.ndarray) -> np.ndarray:
        table = entities()
        items = table[n_users : n_users + n_items]
        return -torch.cdist(table[torch.from_numpy(users)] + shift(), items, p=1).numpy()

    return Learner(step, score)


def ours(training: Training, step: Step) -> Learner:
    """Our encoder between two steps; its users' sums are written out for each ranking."""

    def score(users: np.ndarray) -> np.ndarray:
        encoder = TransE(training.config).load_state(training.graph, training.learned())
        return encoder.score_items(users)

    return Learner(step, score)


def ndcg(learner: Learner, parts: Split, asked: np.ndarray, k: int = 10) -> float:
    """NDCG@k on validation over some users, all items ranked, in percent."""
    users, items = parts.pairs("validation")
    gain = 1 / np.log2(np.arange(k) + 2)
    total = 0.0
    for lo in range(0, len(asked), 256):
        block = asked[lo : lo + 256]
        lists, _ = top_k(learner.score_items(block), k, history(parts.graph, block))
        for row, u in zip(lists, block, strict=True):
            wanted = items[users == u]
            total += (np.isin(row, wanted) * gain).sum() / gain[: min(k, len(wanted))].sum()
    return 100 * total / len(asked)


def race(
    learner: Learner, parts: Split, asked: np.ndarray, target: float, cap: float
) -> list[tuple[float, float]]:
    """(seconds of training, NDCG) at moments ever further apart, until the target or the cap."""
    learner.step()  # what the first step alone costs (compiling, allocating) is not counted
    spent, course = 0.0, []
    while True:
        until = min(cap, max(0.5, spent * 1.3))
        while spent < until:
            start = time.perf_counter()
            learner.step()
            spent += time.perf_counter() - start
        course.append((spent, ndcg(learner, parts, asked)))
        if course[-1][1] >= target or spent >= cap:
            return course


def beauty() -> Split | None:
    """amazon-beauty, where it is at hand."""
    folder = DATA / "amazon-beauty"
    return split(load(folder)) if folder.is_dir() else None


def compare(
    learners: dict[str, Callable[[], Learner]], parts: Split, target: float, cap: float
) -> None:
    """Race them all and print who came how far."""
    graph = parts.graph
    asked = np.unique(parts.pairs("validation")[0])
    asked = np.sort(np.random.default_rng(0).permutation(asked)[:2000])
    print(
        f"\nTraining to NDCG@10 of {target:g} % on validation, amazon-beauty "
        f"({graph.n_entities:,} entities, {graph.n_triples:,} triples), {len(asked):,} users"
    )
    for name, make in learners.items():
        try:
            learner = make()
        except ImportError as error:
            print(f"  {name}: not installed ({error.name})")
            continue
        course = race(learner, parts, asked, target, cap)
        best = max(x for _, x in course)
        spent = course[-1][0]
        reached = f"{spent:>7.1f} s ({best:.2f} %)"
        short = f"not reached in {spent:.0f} s (best {best:.2f} %)"
        print(f"  {name:<52} {reached if best >= target else short}")
        few = course[:: max(1, len(course) // 8)]
        print("      " + ", ".join(f"{s:.1f} s {x:.2f}" for s, x in few), flush=True)
