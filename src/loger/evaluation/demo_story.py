"""The story of the demo as plain values: shop, evaluation, rules, three people, a what-if."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.data.demo import BRAND, FEATURE, SOCIAL, Demo
from loger.data.splits import Split
from loger.data.statistics import statistics
from loger.engine import LocalEngine
from loger.evaluation.assess import Assessment, assess
from loger.explain.attribution import Explanation, explain
from loger.explain.reasons import SMALL, Reason
from loger.graph import Path
from loger.model import LOGER
from loger.rules.sentences import arrows

CONTROLS = ("mostpop", "itemknn", "ease", "collective", "sequence")
"""Beside the usual ones, one that knows the facts and one that knows the times."""
FIRST = 3
"""How many items are shown for a person."""
PROBED = 20
"""Users whose reasons are put to the test."""
TESTED = ("flip", "flip_user_edges", "recovered_rule", "recovered_path", "decomposition_error")


@dataclass(frozen=True, eq=False)
class Story:
    """What the demo shows, as plain values, and what its report is made of."""

    content: dict[str, Any]
    assessment: Assessment


def tell(demo: Demo, split: Split, model: LOGER, engine: LocalEngine) -> Story:
    """Find out everything that the demo shows about a shop and a model fitted on it."""
    assessment = assess(
        model,
        split,
        CONTROLS,
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
    return Story(content, assessment)


def _rules(demo: Demo, model: LOGER) -> list[dict[str, Any]]:
    """The rules by weight, those marked that really cause purchases."""
    planted = {str(rule) for rule in model.rules_ if rule.names in demo.planted}
    return [
        row | {"remark": "planted" if row["rule"] in planted else ""}
        for row in model.rule_table().to_dicts()
    ]


def _people(demo: Demo, hits: NDArray[np.bool_]) -> list[int]:
    """Of three groups the first user who bought one of the first items later, if any did."""
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
                "reasons": _reasons(e, _cause(demo, user, e.item)),
            }
            for e in explain(model.ranker_, np.full(len(listed), user), listed)
        ],
    }


def _cause(demo: Demo, user: int, item: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The planted rule that caused a purchase, and its path; both () if it was not made, or for no
    reason."""
    events = demo.dataset.interactions
    (rows,) = np.nonzero((events.users == user) & (events.items == item))
    if not len(rows) or demo.causes[rows[0]] < 0:
        return (), ()
    return demo.planted[demo.causes[rows[0]]], demo.paths[rows[0]]


def _reasons(
    explanation: Explanation, cause: tuple[tuple[str, ...], tuple[int, ...]]
) -> list[dict[str, Any]]:
    """The shown reasons with what is told of each, the true cause marked."""
    records = explanation.as_dict()["reasons"]
    return [
        record | {"told": _told(explanation, reason, *cause)}
        for record, reason in zip(records, explanation.shown, strict=True)
    ]


def _told(
    explanation: Explanation, reason: Reason, rule: tuple[str, ...], path: tuple[int, ...]
) -> list[dict[str, Any]]:
    """The evidence of a reason that counts, the largest first, each with a path of it. The evidence
    is the true cause if it is of the planted rule and the planted path begins with the action."""
    out = []
    for evidence in reason.evidence:
        caused = evidence.rule.names == rule and path[1] == reason.entity
        if caused or evidence.contribution >= SMALL * abs(reason.total):
            shown = evidence.paths[0].path
            drawn = Path(path, shown.relations) if caused else shown
            out.append((evidence.contribution, evidence.text, caused, _drawn(explanation, drawn)))
    if reason.encoder > 0 and reason.encoder >= SMALL * abs(reason.total):
        out.append((reason.encoder, reason.words.text("close"), False, ""))
    out.sort(key=lambda row: -row[0])
    names = ("contribution", "text", "true_cause", "example")
    return [dict(zip(names, row, strict=True)) for row in out]


def _drawn(explanation: Explanation, path: Path) -> str:
    graph = explanation.graph
    labels = [graph.vocabulary.labels[e] for e in path.entities]
    return arrows(labels, [graph.relation_name(r) for r in path.relations])


def _what_if(model: LOGER, people: list[dict[str, Any]]) -> dict[str, Any]:
    """What becomes of the first person's list without the purchase behind its first reason."""
    words = model.graph_.vocabulary
    for person in people:
        for reason in person["items"][0]["reasons"]:
            entity = reason["entity"]
            if entity["type"] == "item":
                user = person["items"][0]["user"]
                answer = model.what_if(user, [entity["name"]], k=5).as_dict()
                names = {*answer["before"], *answer["after"]}
                labels = {name: words.labels[words.id("item", name)] for name in names}
                return answer | {"removed": entity["name"], "labels": labels}
    return {}
