"""Everything measured about one fitted model: quality compared with baselines, faithfulness of its
reasons, the ablation of hidden pairs; and the report that shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.data.demo import BRAND, FEATURE, SOCIAL, Demo
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
from loger.evaluation.report import Contents, origin, page
from loger.explain.attribution import Explanation, explain
from loger.learning.em import ablate_hidden
from loger.metrics.report import Report
from loger.model import LOGER

CONTROLS = ("mostpop", "itemknn", "ease")
EXAMPLES = 4
"""Explanations in the report."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """The measurements of a model."""

    model: LOGER
    split: Split
    report: Report
    """The model first, then the baselines."""
    faithfulness: Sequence[FaithfulnessReport] = ()
    """For the model, and for random valid paths for the same items."""
    ablation: Sequence[dict[str, float]] = ()

    @property
    def untuned(self) -> tuple[str, ...]:
        """The baselines, which have their default settings."""
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
        """Write the report as one HTML file; ``command`` is the command that reproduces it."""
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
            examples=[
                e.as_dict() | {style: e.text(style) for style in ("tile", "debug")}
                for e in explain(self.model.ranker_, users[has], best[has, 0])
            ],
            reasoned=self._reasoned(users),
            config=asdict(self.model.config_),
            origin=origin(),
            command=command,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page(contents))

    def _reasoned(self, users: ArrayLike) -> list[list[dict[str, Any]]]:
        """What the reasoner, if any, finds for the lists of some users."""
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
    """Measure a fitted model, and baselines with default settings, on the test part of its split.

    ``faithful_users`` is the number of users for faithfulness; None leaves it out.
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
    """Faithfulness of the model's reasons, and of random reasons and paths for the same items."""
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
    # Which actions an item depends on has nothing to do with the paths shown: once is enough.
    once = replace(config, counterfactuals=0)
    return [
        faithfulness_report(one, known, model.rules_, c, probes=p, engine=engine)
        for one, p, c in ((model, probes, config), (control, plain, once))
    ]


STORY_CONTROLS = ("mostpop", "itemknn", "ease", "collective", "sequence")
"""The usual ones, one that knows facts, and one that knows times."""
FIRST = 3
"""Number of items shown for each person."""
PROBED = 20
"""Number of users whose reasons are tested."""
TESTED = ("flip", "flip_user_edges", "recovered_rule", "recovered_path", "decomposition_error")


def tell(
    demo: Demo, split: Split, model: LOGER, engine: LocalEngine
) -> tuple[dict[str, Any], Assessment]:
    """What the demo shows about a shop and a model fitted on it, as plain values; and the
    measurements for its report."""
    assessment = assess(
        model,
        split,
        STORY_CONTROLS,
        faithful_users=PROBED,
        demo=demo,
        engine=engine,
        progress=engine.progress,
    )
    report, measured = assessment.report, assessment.faithfulness[0]
    engine.progress("asking about three people", 0, 1)
    lists, _ = model.top(np.arange(split.dataset.n_users), FIRST)
    later = np.zeros((split.dataset.n_users, split.dataset.n_items), dtype=bool)
    later[split.pairs("test")] = True
    hits = np.take_along_axis(later, lists.astype(np.int64), axis=1)
    people = [_person(u, demo, split, model, lists[u], later[u]) for u in _people(demo, hits)]
    content = {
        "statistics": statistics(demo.dataset),
        "split": split.sizes,
        "rules": _rules(demo, model),
        "models": {
            name: [report.mean(name, "ndcg"), *report.interval(name, "ndcg")]
            for name in report.models
        },
        "faithfulness": {
            line: None if (m := measured[line]) is None else m.mean for line in TESTED
        },
        "people": people,
        "bought_later": float(hits.mean()),
        "bought_later_by_chance": float(later.mean()),
        "what_if": _what_if(model, people),
    }
    engine.progress("asking about three people", 1, 1)
    return content, assessment


def _rules(demo: Demo, model: LOGER) -> list[dict[str, Any]]:
    """The rules by weight, with a mark on those that cause purchases."""
    planted = {str(rule) for rule in model.rules_ if rule.names in demo.planted}
    return [
        row | {"remark": "planted" if row["rule"] in planted else ""}
        for row in model.rule_table().to_dicts()
    ]


def _people(demo: Demo, hits: NDArray[np.bool_]) -> list[int]:
    """From each of three groups, the first user who later bought one of their first items."""
    groups = [np.flatnonzero(demo.groups == group) for group in (BRAND, FEATURE, SOCIAL)]
    return [int(users[np.argmax(hits[users].any(axis=1))]) for users in groups]


def _person(
    user: int,
    demo: Demo,
    split: Split,
    model: LOGER,
    items: NDArray[np.int32],
    later: NDArray[np.bool_],
) -> dict[str, Any]:
    """One user's history, and the first items with their reasons."""
    words, first_item = split.dataset.vocabulary, split.dataset.n_users
    known = split.refit()
    owners, bought = known.pairs("train")
    times = split.dataset.interactions.times
    assert times is not None  # the shop dates its purchases
    rows = np.flatnonzero(owners == user)
    rows = rows[np.argsort(times[known.train[rows]])]
    listed = items[items >= 0].astype(np.int64)
    return {
        "name": words.labels[user],
        "history": [words.labels[first_item + v] for v in bought[rows]],
        "items": [
            e.as_dict()
            | {
                "bought_later": bool(later[e.item]),
                "reasons": _reasons(e, *_cause(demo, user, e.item)),
            }
            for e in explain(model.ranker_, np.full(len(listed), user), listed)
        ],
    }


def _cause(demo: Demo, user: int, item: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The planted rule that caused a purchase, and its path; both () if there was no purchase, or
    no cause."""
    events = demo.dataset.interactions
    (rows,) = np.nonzero((events.users == user) & (events.items == item))
    if not len(rows) or demo.causes[rows[0]] < 0:
        return (), ()
    return demo.planted[demo.causes[rows[0]]], demo.paths[rows[0]]


def _reasons(
    explanation: Explanation, rule: tuple[str, ...], path: tuple[int, ...]
) -> list[dict[str, Any]]:
    """The shown reasons; a mark says which is the true cause: one of its actions begins the planted
    path, and part of its evidence follows the planted rule."""
    out = []
    for record, reason in zip(explanation.as_dict()["reasons"], explanation.shown, strict=True):
        begins = any(one.entity in path[1:2] for one in reason.members or (reason,))
        follows = any(evidence.rule.names == rule for evidence in reason.evidence)
        out.append(record | {"true_cause": begins and follows})
    return out


def _what_if(model: LOGER, people: list[dict[str, Any]]) -> dict[str, Any]:
    """How the first person's list changes without the purchase behind its first reason."""
    words = model.graph_.vocabulary
    for person in people:
        for reason in person["items"][0]["reasons"]:
            entity = reason["entity"]
            if entity["type"] == "item":
                user = person["items"][0]["user"]
                answer = model.what_if(user, [entity["name"]], k=10).as_dict()
                names = {*answer["before"], *answer["after"]}
                labels = {name: words.labels[words.id("item", name)] for name in names}
                return answer | {"removed": entity["name"], "labels": labels}
    return {}
