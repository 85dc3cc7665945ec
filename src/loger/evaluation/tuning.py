"""Choosing the settings of a recommender on validation, and on nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from loger.data.splits import Split
from loger.engine import Engine, Progress, silent
from loger.errors import LogerError
from loger.evaluation.metrics import ranking
from loger.evaluation.recommender import Recommender, part_matrix, ranked

log = logging.getLogger(__name__)

Metric = Literal["ndcg", "recall", "hit_rate", "precision"]


@dataclass(frozen=True)
class Tuned:
    """The best settings of a grid, what they reached on validation, and all the others."""

    settings: Mapping[str, Any]
    value: float
    trials: tuple[tuple[Mapping[str, Any], float], ...]


def tune(
    make: Callable[..., Recommender],
    grid: Mapping[str, Sequence[Any]],
    split: Split,
    *,
    k: int = 10,
    metric: Metric = "ndcg",
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Tuned:
    """Fit ``make(**settings)`` for every point of a grid and keep the best on validation.

    Full ranking at k, training items left out; of equally good points the first wins.
    Then fit once more on everything: ``fit_for(make(**tuned.settings), split)``.
    """
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    if not points:
        raise LogerError("the grid is empty; give each setting at least one value")
    if len(points) == 1 and not points[0]:
        return Tuned({}, float("nan"), ())
    if not len(split.validation):
        raise LogerError("tuning needs validation pairs; this split has none")
    trials: list[tuple[Mapping[str, Any], float]] = []
    for done, settings in enumerate(points):
        progress("tuning", done, len(points))
        value = _on_validation(make(**settings).fit(split), split, k, metric, engine)
        log.info("%s: validation %s@%d %.4f", settings, metric, k, value)
        trials.append((settings, value))
    progress("tuning", len(points), len(points))
    best = int(np.argmax([value for _, value in trials]))
    return Tuned(*trials[best], tuple(trials))


def _on_validation(
    fitted: Recommender, split: Split, k: int, metric: Metric, engine: Engine | None
) -> float:
    """Mean of a metric over the users of the validation part."""
    owners, items = split.pairs("validation")
    users, rows, counts = np.unique(owners, return_inverse=True, return_counts=True)
    lists = ranked(fitted, users, part_matrix(split, "train"), k, engine=engine)
    hits = ranking.hits(lists, rows, items)
    if metric in ("ndcg", "recall"):
        values = (ranking.ndcg if metric == "ndcg" else ranking.recall)(hits, counts)
    else:
        values = (ranking.hit_rate if metric == "hit_rate" else ranking.precision)(hits)
    return float(values.mean())
