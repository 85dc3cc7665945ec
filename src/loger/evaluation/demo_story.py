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
from loger.model import LOGER
from loger.rules.arrows import arrows

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
    assessment = assess(model, split, faithful_users=PROBED, demo=demo, engine=engine)
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
    """One user's history, and the first items with the rules and paths that make their score."""
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
                "reasons": [_reason(e, k, _cause(demo, user, e.item)) for k in range(len(e.paths))],
            }
            for e in explain(model.ranker_, np.full(len(listed), user), listed)
        ],
    }


def _cause(demo: Demo, user: int, item: int) -> tuple[str, ...]:
    """The planted rule that caused a purchase; () if it was not made, or for no reason."""
    events = demo.dataset.interactions
    causes = demo.causes[(events.users == user) & (events.items == item)]
    return demo.planted[causes[0]] if len(causes) and causes[0] >= 0 else ()


def _reason(explanation: Explanation, k: int, cause: tuple[str, ...]) -> dict[str, Any]:
    """One path: what it adds, its sentence, the path, and whether its rule is the true cause."""
    part, labels = explanation.paths[k], explanation.graph.vocabulary.labels
    relations = [explanation.graph.relation_name(r) for r in part.path.relations]
    return {
        "contribution": part.contribution,
        "sentence": explanation.sentences()[k],
        "example": arrows([labels[e] for e in part.path.entities], relations),
        "true_cause": part.rule.names == cause,
    }


def _what_if(model: LOGER, people: list[dict[str, Any]]) -> dict[str, Any]:
    """What becomes of the first person's list without the purchase behind its first reason."""
    words = model.graph_.vocabulary
    for person in people:
        for path in person["items"][0]["paths"]:
            second = path["entities"][1]
            if second["type"] == "item":
                user = person["items"][0]["user"]
                answer = model.what_if(user, [second["name"]], k=5).as_dict()
                names = {*answer["before"], *answer["after"]}
                labels = {name: words.labels[words.id("item", name)] for name in names}
                return answer | {"removed": second["name"], "labels": labels}
    return {}
