"""What ranks of several raters come to: averages, a Friedman test, agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2, rankdata

from loger.errors import LogerError
from loger.metrics.report import resampled_means
from loger.study.store import Study, Task

SIMULATED = "simulated "
"""How the names of simulated raters begin."""
Ranks = Mapping[str, float]
"""By method the rank that one rater gave in one task, from 1, the best."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a study found."""

    methods: tuple[str, ...]
    average: tuple[float, ...]
    """Average rank of each method; 1 is best."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Bootstrap intervals over raters."""
    first: tuple[float, ...]
    """How often each method is ranked first."""
    friedman: float
    """χ² of the Friedman test that all methods are ranked alike, on raters' average ranks."""
    p: float
    agreement: float
    """Kendall's W of the raters of a task, averaged over tasks with two raters or more; 0 is
    chance, 1 full agreement; NaN if there is no such task."""
    raters: int
    tasks: int
    answers: int

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values; what is not known is None."""
        plain = asdict(self)
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in plain.items()}


def friedman(ranks: ArrayLike) -> tuple[float, float]:
    """χ² and p of the Friedman test; rows are blocks, columns treatments, ties allowed.

    χ² = 12 Σ_j (R̄_j − (k+1)/2)² n / (k(k+1)), divided by 1 − Σ (t³ − t) / (n k (k² − 1)).
    """
    table = _ranked(ranks)
    n, k = table.shape
    if n < 1 or k < 2:
        raise LogerError(f"a Friedman test needs two methods and an answer, got {k} and {n}")
    spread = float(((table.mean(axis=0) - (k + 1) / 2) ** 2).sum())
    untied = 1 - sum(_ties(row) for row in table) / (n * k * (k * k - 1))
    if untied <= 0:  # every block ties all methods
        return 0.0, 1.0
    value = 12 * n * spread / (k * (k + 1)) / untied
    return value, float(chi2.sf(value, k - 1))


def kendall_w(ranks: ArrayLike) -> float:
    """Kendall's W: the agreement of raters (rows) on an order (columns), from 0 to 1.

    W = χ² / (n (k − 1)), with the ties taken into account as in ``friedman``.
    """
    table = np.asarray(ranks, dtype=np.float64)
    value, _ = friedman(table)
    return float(value / (table.shape[0] * (table.shape[1] - 1)))


def results(
    answers: Sequence[tuple[str, int, Ranks]], seed: int = 0, samples: int = 2000
) -> Results:
    """What answers (rater, task, ranks) come to.

    The test is on each rater's average ranks: answers of one person are not independent.
    """
    if not answers:
        raise LogerError("nobody has answered yet; run loger study serve and open its address")
    methods = tuple(sorted(answers[0][2]))
    table = np.array([[ranks[m] for m in methods] for _, _, ranks in answers], dtype=np.float64)
    raters = np.array([rater for rater, _, _ in answers])
    tasks = np.array([task for _, task, _ in answers])
    means = np.stack([table[raters == rater].mean(axis=0) for rater in np.unique(raters)])
    drawn = resampled_means(means, samples, seed)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    value, p = friedman(means)
    shared = [table[tasks == task] for task in np.unique(tasks)]
    agreed = [kendall_w(rows) for rows in shared if len(rows) > 1]
    return Results(
        methods,
        average=tuple(means.mean(axis=0).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        first=tuple((table == 1).mean(axis=0).tolist()),
        friedman=value,
        p=p,
        agreement=float(np.mean(agreed)) if agreed else float("nan"),
        raters=len(means),
        tasks=len(shared),
        answers=len(answers),
    )


def _ranked(ranks: ArrayLike) -> NDArray[np.float64]:
    """Ranks within each row, ties averaged."""
    return np.asarray(rankdata(np.atleast_2d(np.asarray(ranks, dtype=np.float64)), axis=1))


def _ties(row: NDArray[np.float64]) -> float:
    """Σ t³ − t over groups of t equal ranks."""
    _, counts = np.unique(row, return_counts=True)
    return float((counts.astype(np.float64) ** 3 - counts).sum())


# ── simulated raters ────────────────────────────────────────────────────────────────────


def simulate(study: Study, raters: int, quality: Mapping[str, float], seed: int = 0) -> None:
    """Let so many simulated raters answer every task of a study that no person has answered."""
    people = {rater for rater, _, _ in study.answers() if not rater.startswith(SIMULATED)}
    if people:
        raise LogerError(
            f"{study.path} has answers of {len(people)} people; simulate on a copy without answers"
        )
    study.answer_all(simulated_answers(study.tasks, raters, quality, seed))


def simulated_answers(
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
            out.append((f"{SIMULATED}{k + 1}", at, ranks.tolist()))
    return out
