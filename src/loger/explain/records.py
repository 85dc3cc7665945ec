"""A user's list as records: items with their explanations, and what a change does to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError
from loger.explain.attribution import APPEAL, OPAQUE, explain
from loger.graph import Graph, history
from loger.ranker import Ranker

SMALLEST = 0.0005
"""What would be shown as 0.000 is left out."""


def recommendations(
    ranker: Ranker,
    user: int,
    k: int,
    paths: int = 3,
    among: NDArray[np.bool_] | None = None,
    *,
    explained: bool = True,
) -> list[dict[str, Any]]:
    """The k best new items of a user by number: rank, item, label, score and, if asked for,
    explanation with up to so many paths. The user is scored once."""
    graph = ranker.graph
    scores = ranker.scores([user], observed=False)
    lists, values = scores.best(min(k, graph.n_items), among)
    items = lists[0][lists[0] >= 0]
    records: list[dict[str, Any] | None] = [None] * len(items)
    if explained:
        found = explain(ranker, np.full(len(items), user), items, paths, scores)
        records = [explanation.as_dict() for explanation in found]
    words, first = graph.vocabulary, graph.n_users
    return [
        {
            "rank": place + 1,
            "item": words.names[item + first],
            "label": words.labels[item + first],
            "score": float(values[0][place]),
            "explanation": records[place],
        }
        for place, item in enumerate(items.tolist())
    ]


def changes(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> dict[str, list[Any]]:
    """Two lists of ``recommendations`` side by side: the items before, the list after with each
    item's rank before, and what is gone."""
    ranks = {row["item"]: row["rank"] for row in before}
    kept = {row["item"] for row in after}
    return {
        "before": list(ranks),
        "after": [{**row, "before": ranks.get(row["item"])} for row in after],
        "gone": [
            {"item": row["item"], "label": row["label"], "before": row["rank"]}
            for row in before
            if row["item"] not in kept
        ],
    }


def score_parts(record: dict[str, Any]) -> list[tuple[float, str]]:
    """What an item's lead is made of, by an ``ExplanationRecord``: the shown reasons, all other
    actions, the item's own appeal and, where the encoder is opaque, the encoder."""
    parts = [(reason["total"], f"because {reason['text']}") for reason in record["reasons"]]
    ends = [(record["appeal"], APPEAL)]
    if record["opaque"]:
        ends.append((record["opaque"], OPAQUE))
    rest = record["lead"] - sum(value for value, _ in [*parts, *ends])
    if abs(rest) >= SMALLEST:
        parts.append((rest, "all other actions"))
    return parts + ends


def carried_text(record: dict[str, Any]) -> str:
    """What share the shown reasons carry, in words."""
    n = len(record["reasons"])
    if not n:
        return str(record["because"])
    who = "this reason carries" if n == 1 else f"these {n} reasons carry"
    of_actions = f"{record['carried_of_actions']:.0%} of what all actions give"
    return f"{who} {record['carried']:.0%} of the lead, {of_actions}"


def owned(graph: Graph, user: str) -> list[str]:
    """The names of a user's items, in the order of their numbers."""
    words = graph.vocabulary
    _, items = history(graph, np.array([words.id("user", user)]))
    return [words.names[int(item) + graph.n_users] for item in items]


def check_change(graph: Graph, user: str, remove: Sequence[str], add: Sequence[str]) -> None:
    """Refuse to remove what a user does not have, or to add what it has."""
    items = owned(graph, user)
    for item in remove:
        if item not in items:
            raise LogerError(f"{user!r} does not have {item!r}; it has {', '.join(items)}")
    for item in add:
        if item in items:
            raise LogerError(f"{user!r} has {item!r} already; leave it out of what is added")
