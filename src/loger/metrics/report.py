"""The result of an evaluation: values per user, means with intervals, and comparisons."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.engine.files import atomic_file
from loger.engine.progress import table
from loger.errors import LogerError, UnknownNameError
from loger.graph.arrays import Doubles

# ── how sure a mean or a difference over users is: resampling, seeded ─────────────────


_CHUNK = 1 << 21
"""Random draws held in memory at a time."""


def resampled_means(values: Doubles, samples: int, seed: int) -> Doubles:
    """Means of bootstrap samples of users; [users, columns] becomes [samples, columns].

    All columns share the samples, so differences between columns are a paired bootstrap.
    """
    n, columns = values.shape
    rng = np.random.default_rng([seed, 0xB007])
    out = np.empty((samples, columns))
    step = max(1, _CHUNK // n)
    for start in range(0, samples, step):
        rows = min(step, samples - start)
        drawn = rng.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        out[start : start + rows] = counts.astype(np.float64) @ values / n
    return out


def sign_flip(differences: Doubles, flips: int, seed: int) -> Doubles:
    """Two-sided p of the paired permutation test, for each column of [users, columns].

    Under the null hypothesis, the two models are interchangeable for each user, so the sign of each
    difference is random. p = (1 + flips at least as extreme) / (1 + flips).
    """
    n, columns = differences.shape
    rng = np.random.default_rng([seed, 0xF11B])
    seen = np.abs(differences.sum(axis=0))
    # Sums of the same numbers in another order may differ in the last bits; count those as ties.
    bar = seen - 1e-9 * np.abs(differences).sum(axis=0)
    extreme = np.zeros(columns, dtype=np.int64)
    step = max(1, _CHUNK // n)
    for start in range(0, flips, step):
        rows = min(step, flips - start)
        heads = rng.integers(0, 2, size=(rows, n), dtype=np.int8)
        flipped = (2.0 * heads - 1.0) @ differences
        extreme += (np.abs(flipped) >= bar).sum(axis=0)
    return np.asarray((1 + extreme) / (1 + flips), dtype=np.float64)


def wilcoxon(differences: Doubles) -> Doubles:
    """Two-sided p of Wilcoxon's signed-rank test for each column; 1 where all are equal."""
    from scipy import stats  # takes as long to import as all of loger.metrics

    return np.array(
        [
            stats.wilcoxon(column, method="approx").pvalue if column.any() else 1.0
            for column in differences.T
        ]
    )


Format = Literal["text", "markdown", "csv", "latex"]

METRICS = (
    "ndcg", "recall", "hit_rate", "precision", "ndcg_retrieved", "mrr",
    "diversity", "calibration", "novelty", "popularity_lift",
)  # fmt: skip
"""Per user; the first four are the columns of METHOD 10, in its order."""
PLAIN = ("novelty", "popularity_lift")
"""Not shares: bits, and a ratio."""

SHOWN = ("ndcg", "recall", "hit_rate", "precision")
TITLES = {
    "ndcg": "NDCG",
    "recall": "Recall",
    "hit_rate": "HR",
    "precision": "Precision",
    "ndcg_retrieved": "NDCG (retrieved)",
    "mrr": "MRR",
    "diversity": "Diversity",
    "calibration": "Calibration",
    "novelty": "Novelty",
    "popularity_lift": "Popularity lift",
}
_LATEX = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"} | {"^": r"\^{}", "α": r"$\alpha$", "β": r"$\beta$"}
)


@dataclass(frozen=True)
class Comparison:
    """One model against another on the same users."""

    first: str
    second: str
    metric: str
    difference: float
    """Mean of first minus second."""
    low: float
    """Ends of the paired bootstrap interval of the difference."""
    high: float
    p: float
    """Two-sided, by flipping signs of per-user differences; not corrected for many tests."""
    p_wilcoxon: float


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Values of several models for the same users, and what follows from them.

    Intervals and p describe the uncertainty due to the choice of users, not that due to seeds or
    splits.
    """

    dataset: str
    part: str
    protocol: str
    k: int
    users: NDArray[np.int32]
    values: Mapping[str, Mapping[str, Doubles]]
    """By model and metric, one value per user."""
    coverage: Mapping[str, float]
    seed: int = 0
    samples: int = 1000
    """Bootstrap samples, and a tenth of the sign flips."""
    level: float = 0.95

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the order they were given."""
        return tuple(self.values)

    def mean(self, model: str, metric: str) -> float:
        """Mean over all users."""
        return float(self._of(model, metric).mean())

    def interval(self, model: str, metric: str) -> tuple[float, float]:
        """Bootstrap percentile interval of the mean."""
        self._of(model, metric)
        return self._ends(self._resampled[:, self._column(model, metric)])

    def best(self, metric: str = "ndcg") -> str:
        """The model with the highest mean; the first of equals."""
        return max(self.models, key=lambda model: self.mean(model, metric))

    def compare(self, first: str, second: str, metric: str = "ndcg") -> Comparison:
        """The difference of two models with its interval and significance."""
        key = (first, second, metric)
        if key not in self._compared:
            self._compared[key] = self._compare(*key)
        return self._compared[key]

    def __repr__(self) -> str:
        models = ", ".join(self.models)
        what = f"{self.dataset}, {self.part}, {self.protocol}, k = {self.k}"
        return f"Report({what}, {len(self.users):,} users: {models})"

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        head, *rows = self.cells(SHOWN, "text")
        what = f"{self.dataset}, {self.part}, {self.protocol}, {len(self.users):,} users"
        return f"<div><b>{escape(what)}</b>{table(head, rows)}</div>"

    # ── for people and files ────────────────────────────────────────────────────────────

    def table(self, format: Format = "text", metrics: Sequence[str] = SHOWN) -> str:
        """Means in percent with intervals, one model per line, the best of each column marked.

        ``p`` compares each model with the best one in the first metric. CSV has plain shares
        instead of percent, and separate columns for the ends of the intervals.
        """
        if format not in get_args(Format):
            raise UnknownNameError("table format", format, get_args(Format))
        if format == "csv":
            return self._csv(metrics)
        rows = self.cells(metrics, format)
        head = rows[0]
        if format == "markdown":
            rows.insert(1, ["---"] * len(head))
            return "\n".join(f"| {' | '.join(row)} |" for row in rows)
        if format == "latex":
            begin = rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
            lines = [" & ".join(row) + r" \\" for row in rows]
            rules = [begin, r"\hline", lines[0], r"\hline", *lines[1:], r"\hline"]
            return "\n".join([*rules, r"\end{tabular}"])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        pads = [[f"{c:<{w}}" for c, w in zip(row, widths, strict=True)] for row in rows]
        return "\n".join("  ".join(row).rstrip() for row in pads)

    def cells(self, metrics: Sequence[str], format: Format) -> list[list[str]]:
        """The head of ``table``, and a row for each model."""
        head = ["", *(f"{TITLES.get(m, m)}@{self.k}" for m in metrics), "p", "coverage"]
        return [head, *(self._row(model, metrics, format) for model in self.models)]

    def to_json(self) -> str:
        """Means, intervals and comparisons with the best model, as JSON."""
        best = self.best()
        models = {
            model: {m: [self.mean(model, m), *self.interval(model, m)] for m in METRICS}
            | {"coverage": self.coverage[model]}
            for model in self.models
        }
        others = [vars(self.compare(best, m)) for m in self.models if m != best]
        facts = {n: getattr(self, n) for n in ("dataset", "part", "protocol", "k", "seed")}
        facts |= {"users": len(self.users), "samples": self.samples, "level": self.level}
        whole = {**facts, "models": models, "best": best, "best_against": others}
        return json.dumps(whole, indent=2, ensure_ascii=False)

    def to_frame(self, metrics: Sequence[str] = METRICS) -> pl.DataFrame:
        """A row for each model: the mean of each metric with the ends of its interval, p of the
        comparison with the best model in the first metric, and coverage."""
        best = self.best(metrics[0])
        rows = []
        for model in self.models:
            row: dict[str, str | float | None] = {"model": model}
            for m in metrics:
                low, high = self.interval(model, m)
                row |= {m: self.mean(model, m), f"{m}_low": low, f"{m}_high": high}
            row["p"] = None if model == best else self.compare(best, model, metrics[0]).p
            rows.append(row | {"coverage": self.coverage[model]})
        return pl.DataFrame(rows, infer_schema_length=None)

    def write_users(self, path: Path | str) -> None:
        """Every value of every user as Parquet: model, user, and a column per metric."""
        whole = pl.concat(
            pl.DataFrame({"user": self.users, **of}).select(
                pl.lit(model).alias("model"), "user", *METRICS
            )
            for model, of in self.values.items()
        )
        with atomic_file(path) as file:
            whole.write_parquet(file)

    # ── inside ──────────────────────────────────────────────────────────────────────────

    @cached_property
    def _resampled(self) -> Doubles:
        """Resampled means of all models and metrics at once; [samples, models · metrics]."""
        columns = [self.values[model][metric] for model in self.models for metric in METRICS]
        return resampled_means(np.stack(columns, axis=1), self.samples, self.seed)

    @cached_property
    def _compared(self) -> dict[tuple[str, str, str], Comparison]:
        """Comparisons made so far; each is expensive, and tables need them repeatedly."""
        return {}

    def _compare(self, first: str, second: str, metric: str) -> Comparison:
        difference = (self._of(first, metric) - self._of(second, metric))[:, None]
        columns = (self._column(name, metric) for name in (first, second))
        resampled = np.subtract(*(self._resampled[:, c] for c in columns))
        return Comparison(
            first,
            second,
            metric,
            float(difference.mean()),
            *self._ends(resampled),
            p=float(sign_flip(difference, 10 * self.samples, self.seed)[0]),
            p_wilcoxon=float(wilcoxon(difference)[0]),
        )

    def _column(self, model: str, metric: str) -> int:
        return self.models.index(model) * len(METRICS) + METRICS.index(metric)

    def _ends(self, resampled: Doubles) -> tuple[float, float]:
        tail = (1 - self.level) / 2
        low, high = np.quantile(resampled, [tail, 1 - tail])
        return float(low), float(high)

    def _of(self, model: str, metric: str) -> Doubles:
        if model not in self.values:
            raise UnknownNameError("model in this report", model, self.models)
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)
        if not len(self.users):
            raise LogerError(f"no user has {self.part} items in {self.dataset}")
        return self.values[model][metric]

    def _row(self, model: str, metrics: Sequence[str], format: Format) -> list[str]:
        row = [model.translate(_LATEX) if format == "latex" else model]
        for metric in metrics:
            scale = 1 if metric in PLAIN else 100
            low, high = self.interval(model, metric)
            mean = f"{scale * self.mean(model, metric):.2f}"
            if model == self.best(metric):
                mark = {"text": "{}*", "markdown": "**{}**", "latex": r"\textbf{{{}}}"}[format]
                mean = mark.format(mean)
            row.append(f"{mean} [{scale * low:.2f}, {scale * high:.2f}]")
        best = self.best(metrics[0])
        p = "" if model == best else f"{self.compare(best, model, metrics[0]).p:.4f}"
        share = f"{100 * self.coverage[model]:.1f}"
        return [*row, p, share]

    def _csv(self, metrics: Sequence[str]) -> str:
        out = io.BytesIO()
        self.to_frame(metrics).write_csv(out)
        return out.getvalue().decode()
