"""Log a fit to MLflow: settings, times, results and the bundle.

Copy ``MLflowRun`` into your project and pass it as ``progress``. It needs the extra ``mlflow``.
Without a tracking server, MLflow writes to a folder or a file (``tracking_uri="sqlite:///runs.db"``).
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from mlflow import MlflowClient

import loger
from loger.data.demo import shop
from loger.engine.settings import flat
from loger.metrics.report import Report


class MLflowRun:
    """An MLflow run to pass to ``fit`` as ``progress``: it logs the seconds of each stage, and
    ``log`` adds settings, rules, results and the bundle."""

    def __init__(
        self, *, experiment: str = "loger", name: str | None = None, tracking_uri: str | None = None
    ) -> None:
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
        """Progress of a fit: add the time since the last call to the stage it reports."""
        now = time.monotonic()
        self._seconds[what] = self._seconds.get(what, 0.0) + now - self._last
        self._last = now
        if done == total:
            self.client.log_metric(self.id, _metric(what), round(self._seconds[what], 3))

    def log(
        self, model: loger.LOGER, evaluation: Report | None = None, *, bundle: bool = True
    ) -> None:
        """Log a fitted model: its settings as parameters, its rules and, unless ``bundle`` is
        False, the bundle as artifacts; and the mean of every metric of an evaluation."""
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
    """The metric for a stage's seconds, with only the characters that MLflow allows."""
    return "seconds " + re.sub(r"[^\w\-. :/]", "", what, flags=re.ASCII)


def main() -> None:
    """Fit the demo shop, and show what MLflow holds afterwards."""
    parts = loger.split(shop(users=60, items=60).dataset)
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/runs.db"
        with MLflowRun(experiment="shop", name="first", tracking_uri=store) as run:
            model = loger.LOGER(seed=3).set_params(encoder__dimension=16, encoder__epochs=3)
            model.fit(parts, progress=run)
            run.log(model, loger.evaluate([model], parts), bundle=False)
        kept = run.client.get_run(run.id)
        print(f"run {kept.info.run_name}: {kept.info.status}, seed {kept.data.params['seed']}")
        for name, value in sorted(kept.data.metrics.items()):
            print(f"{name:40} {value:.3f}")


if __name__ == "__main__":
    main()
