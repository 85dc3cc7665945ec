"""Raters made of chance: they see the truth through noise, and try a study end to end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loger.errors import LogerError
from loger.study.store import Study

PREFIX = "simulated "


def simulate(study: Study, raters: int, quality: Mapping[str, float], seed: int = 0) -> None:
    """Answer every task as so many raters would, who each see ``quality`` plus unit noise.

    Equal qualities give raters who rank at random; a gap of 3 raters who nearly always agree.
    """
    people = {rater for rater, _, _ in study.answers() if not rater.startswith(PREFIX)}
    if people:
        raise LogerError(
            f"{study.path} has answers of {len(people)} people; simulate on a copy without any"
        )
    for k in range(raters):
        rng = np.random.default_rng([seed, 0x51A, k])
        for at, task in enumerate(study.tasks):
            seen = [quality.get(name, 0.0) + rng.normal() for name in task.methods]
            order = np.argsort(-np.array(seen), kind="stable")
            ranks = np.empty(len(order), dtype=np.int64)
            ranks[order] = np.arange(1, len(order) + 1)
            study.answer(f"{PREFIX}{k + 1}", at, ranks.tolist())
