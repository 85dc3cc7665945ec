"""Simulated raters, who see how good a method is plus noise; to try a study end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loger.errors import LogerError
from loger.study.store import Study, Task

PREFIX = "simulated "


def simulate(study: Study, raters: int, quality: Mapping[str, float], seed: int = 0) -> None:
    """Let so many simulated raters answer every task of a study that no person has answered."""
    people = {rater for rater, _, _ in study.answers() if not rater.startswith(PREFIX)}
    if people:
        raise LogerError(
            f"{study.path} has answers of {len(people)} people; simulate on a copy without answers"
        )
    study.answer_all(answers(study.tasks, raters, quality, seed))


def answers(
    tasks: Sequence[Task], raters: int, quality: Mapping[str, float], seed: int = 0
) -> list[tuple[str, int, list[int]]]:
    """Rater, task and ranks in the order shown, of raters who see ``quality`` plus unit noise.

    Equal qualities give raters who rank at random; a gap of 3 raters who nearly always agree.
    """
    out = []
    for k in range(raters):
        rng = np.random.default_rng([seed, 0x51A, k])
        for at, task in enumerate(tasks):
            seen = [quality.get(name, 0.0) + rng.normal() for name in task.methods]
            ranks = np.empty(len(seen), dtype=np.int64)
            ranks[np.argsort(-np.array(seen), kind="stable")] = np.arange(1, len(seen) + 1)
            out.append((f"{PREFIX}{k + 1}", at, ranks.tolist()))
    return out
