"""Everything that is measured of one fitted model: quality beside controls, faithfulness of its
reasons, the ablation of hidden pairs; and the report that shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from loger.data.demo import Demo
from loger.data.splits import Split
from loger.data.statistics import statistics
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.engine.files import write_text
from loger.evaluation.evaluate import Protocol, evaluate
from loger.evaluation.faithfulness import (
    FaithfulnessConfig,
    FaithfulnessReport,
    RandomPaths,
    RandomReasons,
    faithfulness_report,
    loger_probes,
)
from loger.evaluation.methods import METHODS
from loger.evaluation.report import Contents, page
from loger.evaluation.report.page import origin
from loger.explain.attribution import explain
from loger.learning.em import ablate_hidden
from loger.metrics.report import Report
from loger.model import LOGER

CONTROLS = ("mostpop", "itemknn", "ease")
EXAMPLES = 4
"""Explanations in the report."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """What was measured of a model."""

    model: LOGER
    split: Split
    report: Report
    """The model first, then the controls."""
    faithfulness: Sequence[FaithfulnessReport] = ()
    """Of the model, and of random valid paths for the same items."""
    ablation: Sequence[dict[str, float]] = ()

    @property
    def untuned(self) -> tuple[str, ...]:
        """The controls, which have their default settings."""
        return tuple(self.report.models[1:])

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            **json.loads(self.report.to_json()),
            "untuned": list(self.untuned),
            "faithfulness": [one.as_dict() for one in self.faithfulness],
            "ablation": list(self.ablation),
        }

    def write(self, path: Path, *, tried: Sequence[Sequence[Any]] = (), command: str = "") -> None:
        """Write the report as one HTML file; ``command`` is what makes it again."""
        users = np.asarray(self.report.users[:EXAMPLES])
        best, _ = self.model.top(users, 1)
        has = best[:, 0] >= 0
        contents = Contents(
            self.report,
            statistics=statistics(self.split.dataset),
            split=self.split.why,
            untuned=self.untuned,
            rules=self.model.rule_table().to_dicts(),
            trace=self.model.trace_,
            tried=[(setting, value, ndcg) for setting, value, ndcg in tried],
            ablation=self.ablation,
            faithfulness=self.faithfulness,
            examples=[e.as_dict() for e in explain(self.model.ranker_, users[has], best[has, 0])],
            reasoned=self._reasoned(users),
            config=asdict(self.model.config_),
            origin=origin(),
            command=command,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page(contents))

    def _reasoned(self, users: ArrayLike) -> list[list[dict[str, Any]]]:
        """What the reasoner, if there is one, finds for the lists of some users."""
        by = self.model.reasoner_
        if by is None:
            return []
        rows = by.tops(self.model.ranker_, users, self.report.k, 1)
        return [[one.as_dict() for one in row] for row in rows]


def assess(
    model: LOGER,
    split: Split,
    controls: Sequence[str] = CONTROLS,
    *,
    faithful_users: int | None = None,
    ablation: bool = False,
    k: int = 10,
    protocol: Protocol = "full",
    seed: int = 0,
    samples: int = 1000,
    demo: Demo | None = None,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Assessment:
    """Measure a fitted model and controls with default settings on the test part of its split.

    ``faithful_users`` is on how many users faithfulness is measured; None: it is not.
    """
    engine = engine or LocalEngine(progress=progress)
    report = evaluate(
        [model, *(METHODS[name].make(seed) for name in controls)],
        split,
        k=k,
        protocol=protocol,
        seed=seed,
        samples=samples,
        engine=engine,
        progress=progress,
    )
    measured = []
    if faithful_users is not None:
        measured = _faithful(model, split, engine, k, faithful_users, seed, demo)
    points = ablate_hidden(model.em(split, progress=progress)) if ablation else []
    return Assessment(model, split, report, measured, points)


def _faithful(
    model: LOGER,
    split: Split,
    engine: Engine,
    k: int,
    users: int,
    seed: int,
    demo: Demo | None,
) -> list[FaithfulnessReport]:
    """Measures of the model's reasons, and of random reasons and paths for the same items."""
    config = FaithfulnessConfig(k=k, users=users, probed=users, seed=seed)
    known, probes = split.refit(), loger_probes(model, demo, seed)
    control = RandomPaths(model, model.graph_, model.rules_, seed)
    plain = replace(
        probes,
        weights=None,
        acts=None if probes.acts is None else RandomReasons(probes.acts, seed),
        decompose=None,
        permuted=None,
        explain=control.explain_paths,
    )
    # What carries an item does not depend on the paths shown: once is enough.
    once = replace(config, counterfactuals=0)
    return [
        faithfulness_report(one, known, model.rules_, c, probes=p, engine=engine)
        for one, p, c in ((model, probes, config), (control, plain, once))
    ]
