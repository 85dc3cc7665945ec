"""A fit as a run of MLflow: what it was given, how it went, how good it is, and the bundle.

    with MLflowRun(experiment="shop") as run:
        model = LOGER().fit(split, progress=run)
        run.log(model, loger.evaluate([model], split))

Needs the extra ``mlflow``. Without a tracking server it writes to a folder or a SQLite file, as
MLflow's own settings say (``tracking_uri="sqlite:///runs.db"``).
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from loger.engine.settings import flat
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.metrics.report import Report
    from loger.model import LOGER


class MLflowRun:
    """A run of MLflow that takes the place of ``progress`` in a fit: the seconds of each stage
    become metrics, and ``log`` adds settings, rules, measures and the bundle."""

    def __init__(
        self, *, experiment: str = "loger", name: str | None = None, tracking_uri: str | None = None
    ) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise LogerError(
                "to log to MLflow needs the extra mlflow; pip install 'loger-rec[mlflow]'"
            ) from error
        self.client: Any = MlflowClient(tracking_uri=tracking_uri)
        known = self.client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else self.client.create_experiment(experiment)
        self.id: str = self.client.create_run(number, run_name=name).info.run_id
        self._seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.client.set_terminated(self.id, "FINISHED" if kind is None else "FAILED")

    def __call__(self, what: str, done: int, total: int) -> None:
        """Progress of a fit: add the time since the last call to the stage that it tells of."""
        now = time.monotonic()
        self._seconds[what] = self._seconds.get(what, 0.0) + now - self._last
        self._last = now
        if done == total:
            self.client.log_metric(self.id, _metric(what), round(self._seconds[what], 3))

    def log(self, model: LOGER, evaluation: Report | None = None, *, bundle: bool = True) -> None:
        """Log a fitted model: settings as parameters, rules and, unless ``bundle`` is False, the
        bundle as artifacts; of an evaluation the mean of every metric."""
        for name, value in flat(model.config_).items():
            self.client.log_param(self.id, name.replace("__", "."), value)
        self.client.log_metric(self.id, "rules with weight", int((model.weights_ != 0).sum()))
        for row in model.trace_:
            self.client.log_metric(self.id, "dev NDCG", row.ndcg, step=row.number)
        for name, value in _means(model.name, evaluation).items():
            self.client.log_metric(self.id, name, value)
        rules = model.rule_table().write_json()
        self.client.log_text(self.id, json.dumps(json.loads(rules), indent=1), "rules.json")
        if bundle:
            with tempfile.TemporaryDirectory() as folder:
                model.save(Path(folder) / "bundle")
                self.client.log_artifacts(self.id, str(Path(folder) / "bundle"), "bundle")


def _means(name: str, evaluation: Report | None) -> dict[str, float]:
    """The mean of each metric of a model, under names that MLflow takes."""
    if evaluation is None:
        return {}
    return {f"{m} at {evaluation.k}": evaluation.mean(name, m) for m in evaluation.values[name]}


def _metric(what: str) -> str:
    """The name of a stage's seconds, of the signs that MLflow allows in names."""
    return "seconds " + re.sub(r"[^\w\-. :/]", "", what, flags=re.ASCII)
