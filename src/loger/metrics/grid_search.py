"""Choosing a recommender's settings on validation data only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.data.splits import Split
from loger.engine import Engine, Progress, silent
from loger.errors import LogerError
from loger.metrics import ranking
from loger.recommender import Recommender, part_matrix, ranked

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tuned:
    """The best settings of a grid, their value on validation, and all trials."""

    settings: Mapping[str, Any]
    value: float
    trials: tuple[tuple[Mapping[str, Any], float], ...]


def tune(
    make: Callable[..., Recommender],
    grid: Mapping[str, Sequence[Any]],
    split: Split,
    *,
    k: int = 10,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Tuned:
    """Fit ``make(**settings)`` for every point of a grid and keep the best on validation.

    All items but training items are ranked, the measure is NDCG at ``k``, and the first of equally
    good points wins. Then fit again on everything: ``fit_for(make(**tuned.settings),
    split)``. If the workers of ``engine`` are processes, they fit points in parallel; then ``make``
    must be a class, a module's function, or a partial of one.
    """
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    if not points:
        raise LogerError("the grid is empty; give each setting at least one value")
    if len(points) == 1 and not points[0]:
        return Tuned({}, float("nan"), ())
    if not len(split.validation):
        raise LogerError("tuning needs validation pairs, but this split has none")
    trials: list[tuple[Mapping[str, Any], float]] = []
    values = _values(_Points(make, split, k, engine), points, progress)
    for settings, value in zip(points, values, strict=True):
        log.info("%s: validation NDCG@%d %.4f", settings, k, value)
        trials.append((settings, value))
    best = int(np.argmax([value for _, value in trials]))
    return Tuned(*trials[best], tuple(trials))


class _Points(NamedTuple):
    """What all points of a grid share."""

    make: Callable[..., Recommender]
    split: Split
    k: int
    engine: Engine | None


def _values(
    points: _Points, grid: Sequence[Mapping[str, Any]], progress: Progress
) -> Iterator[float]:
    """The value of each point on validation, one after the other; or, if workers are processes,
    each in one worker on one core."""
    if points.engine is not None and getattr(points.engine, "separate", False):
        yield from points.engine.with_progress(progress).map("tuning", _value, grid, points)
        return
    for done, settings in enumerate(grid):
        progress("tuning", done, len(grid))
        yield _value(points, settings)
    progress("tuning", len(grid), len(grid))


def _value(points: _Points, settings: Mapping[str, Any]) -> float:
    fitted = points.make(**settings).fit(points.split)
    return _on_validation(fitted, points.split, points.k, points.engine)


def search(
    make: Callable[..., Recommender],
    grid: Mapping[str, Sequence[Any]],
    split: Split,
    *,
    k: int = 10,
    users: int | None = 2000,
    sweeps: int = 2,
    seed: int = 0,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Tuned:
    """Choose settings on validation one at a time, coarse to fine.

    The search starts from the first value of each setting. Each setting in turn takes its best
    value while the others stay, up to ``sweeps`` times; then numbers halfway to the neighbours of
    the best value are tried once. ``users`` is the number of users, drawn by ``seed``, to evaluate
    at each point; None takes all. Settings in a method's ``SCORING`` change without a new fit. Not
    every combination is tried; for a small grid, use ``tune``.
    """
    if not len(split.validation):
        raise LogerError("tuning needs validation pairs, but this split has none")
    if not all(grid.values()):
        raise LogerError("a setting in the grid has no values; give each at least one value")
    owners = np.unique(split.pairs("validation")[0])
    if users is not None and users < len(owners):
        rng = np.random.default_rng([seed, 0x5EA4])
        owners = np.sort(rng.choice(owners, size=users, replace=False))

    def measure(fitted: Recommender) -> float:
        return _on_validation(fitted, split, k, engine, owners)

    trials = _Trials(make, split, measure, progress)
    best = {name: values[0] for name, values in grid.items()}
    for _ in range(sweeps):
        before = dict(best)
        for name, values in grid.items():
            best = trials.best([best | {name: value} for value in (best[name], *values)])
        if best == before:
            break
    for name, values in grid.items():
        best = trials.best([best, *(best | {name: v} for v in _halfway(best[name], values))])
    done = tuple((dict(point), value) for point, value in trials.values.items())
    return Tuned(best, trials.values[tuple(best.items())], done)


class _Trials:
    """The points of a grid tried so far, and their values."""

    def __init__(
        self,
        make: Callable[..., Recommender],
        split: Split,
        measure: Callable[[Recommender], float],
        progress: Progress,
    ) -> None:
        self.make, self.split, self.measure, self.progress = make, split, measure, progress
        self.values: dict[tuple[tuple[str, Any], ...], float] = {}
        self.last: tuple[dict[str, Any], Recommender] | None = None

    def best(self, points: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The best of some points; the first of equally good ones."""
        reached = [self.value(point) for point in points]
        return points[int(np.argmax(reached))]

    def value(self, point: dict[str, Any]) -> float:
        """The value of a point on validation."""
        key = tuple(point.items())
        if key not in self.values:
            self.progress("tuning", len(self.values), len(self.values) + 1)
            self.values[key] = self.measure(self._fitted(point))
            log.info("%s: validation %.4f", point, self.values[key])
        return self.values[key]

    def _fitted(self, point: dict[str, Any]) -> Recommender:
        """The last fit if the point differs only in how it scores, else a new one."""
        if self.last is not None:
            old, fitted = self.last
            free: frozenset[str] = getattr(fitted, "SCORING", frozenset())
            if all(old[name] == point[name] for name in point if name not in free):
                again = copy(fitted)
                for name in free & point.keys():
                    setattr(again, name, point[name])
                return again
        fitted = self.make(**point).fit(self.split)
        self.last = (point, fitted)
        return fitted


def _halfway(best: Any, values: Sequence[Any]) -> list[Any]:
    """The numbers halfway between the best value and its neighbours, if it is a number."""
    if isinstance(best, bool) or not isinstance(best, int | float):
        return []
    numbers = sorted(v for v in values if isinstance(v, int | float))
    below, above = [v for v in numbers if v < best][-1:], [v for v in numbers if v > best][:1]
    out = []
    for other in below + above:
        # Numbers far apart are steps of a logarithmic scale: halfway from 100 to 1,000 is 316.
        far = min(best, other) > 0 and max(best, other) >= 2 * min(best, other)
        middle = float(np.sqrt(best * other)) if far else (best + other) / 2
        out.append(round(middle) if isinstance(best, int) else float(f"{middle:.3g}"))
    return [value for value in out if value not in numbers]


def _on_validation(
    fitted: Recommender,
    split: Split,
    k: int,
    engine: Engine | None,
    some: NDArray[np.integer] | None = None,
) -> float:
    """The mean NDCG over the users of the validation part, or over some of them."""
    owners, items = split.pairs("validation")
    if some is not None:
        chosen = np.isin(owners, some)
        owners, items = owners[chosen], items[chosen]
    users, rows, counts = np.unique(owners, return_inverse=True, return_counts=True)
    lists = ranked(fitted, users, part_matrix(split, "train"), k, engine=engine)
    hits = ranking.hits(lists, rows, items)
    return float(ranking.ndcg(hits, counts).mean())
