"""A user's list as records: items with their explanations, and what a change does to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loger.errors import LogerError
from loger.explain.attribution import explain
from loger.explain.schema import entity_record
from loger.explain.variety import placements
from loger.graph import INVERSE_MARK, Graph, KnowledgeGraph, history
from loger.graph.catalogue import NOTHING, Catalogue
from loger.ranking.ranker import Ranker
from loger.ranking.selection import Selection
from loger.rules.wording import ENGLISH, Wording

SMALLEST = 0.0005
"""What would be shown as 0.000 is left out."""


def recommendations(
    ranker: Ranker,
    user: int,
    k: int,
    paths: int = 3,
    selection: Selection | None = None,
    *,
    explained: bool = True,
    words: Wording = ENGLISH,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The list of a user by number: rank, item, label, score, what variety did to its place and,
    if asked for, explanation with up to so many paths; and what of the k best by score variety
    left out. The user is scored once."""
    graph = ranker.graph
    scores = ranker.scores([user], observed=False)
    items, values, moved, left_out = placements(
        scores, selection or Selection(), min(k, graph.n_items), words
    )
    records: list[dict[str, Any] | None] = [None] * len(items)
    if explained:
        found = explain(ranker, np.full(len(items), user), np.array(items), paths, scores, words)
        records = [explanation.as_dict() for explanation in found]
    names, labels, first = graph.vocabulary.names, graph.vocabulary.labels, graph.n_users
    rows = [
        {
            "rank": place + 1,
            "item": names[item + first],
            "label": labels[item + first],
            "score": values[place],
            "variety": moved[place],
            "explanation": records[place],
        }
        for place, item in enumerate(items)
    ]
    return rows, left_out


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


def score_parts(record: dict[str, Any], words: Wording = ENGLISH) -> list[tuple[float, str]]:
    """What an item's lead is made of, by an ``ExplanationRecord``: the shown reasons, all other
    actions, the item's own appeal and, where the encoder is opaque, the encoder."""
    told = record["reasons"]
    parts = [(part["total"], words.text("because", reason=part["text"])) for part in told]
    ends = [(record["appeal"], words.text("appeal"))]
    if record["opaque"]:
        ends.append((record["opaque"], words.text("opaque")))
    rest = record["lead"] - sum(value for value, _ in [*parts, *ends])
    if abs(rest) >= SMALLEST:
        parts.append((rest, words.text("others" if told else "all_actions")))
    return parts + ends


def carried_text(record: dict[str, Any], words: Wording = ENGLISH) -> str:
    """What share the shown reasons carry, in words."""
    n = len(record["reasons"])
    if not n:
        return str(record["because"])
    if record["lead"] <= 0:  # a share of nothing says nothing
        return words.text("behind")
    share, part = words.share(record["carried"]), words.share(record["carried_of_actions"])
    key = "carried_one" if n == 1 else "carried_many"
    if record["carried_of_actions"] > 1:  # more than all give, for others take away
        key = "carried_against_one" if n == 1 else "carried_against_many"
    return words.text(key, n=n, share=share, of_actions=part)


def owned(graph: Graph, user: str) -> list[str]:
    """The names of a user's items, in the order of their numbers."""
    words = graph.vocabulary
    _, items = history(graph, np.array([words.id("user", user)]))
    return [words.names[int(item) + graph.n_users] for item in items]


def item_facts(
    graph: KnowledgeGraph, item: int, catalogue: Catalogue = NOTHING, most: int = 20
) -> list[dict[str, Any]]:
    """What is known of an item by number, in the graph and beside it, relation by relation: the
    relation, what it says in words, its first entities, and how many there are; who took the item
    is not told, nor what was made of that."""
    words, entity = graph.vocabulary, item + graph.n_users
    facts = []
    for relation in range(2 * len(graph.relations)):
        head_type, tail_type = graph.signature(relation)
        tails = graph.neighbours(entity, relation) if head_type == "item" else ()
        derived = graph.relations[relation % len(graph.relations)].derived
        if tail_type == "user" or derived or not len(tails):
            continue
        entities = [entity_record(words, int(e)) for e in tails[:most]]
        facts.append(_fact(graph.relation_name(relation), entities, len(tails)))
    for column, values in catalogue.known_of(item):
        entities = [{"type": column.type, "name": v, "label": v} for v in values]
        same = next((f for f in facts if f["relation"] == column.relation), None)
        if same is None:
            facts.append(_fact(column.relation, entities, len(values)))
        else:
            same["entities"] = (same["entities"] + entities)[:most]
            same["count"] += len(values)
    return facts


def _fact(relation: str, entities: list[dict[str, Any]], count: int) -> dict[str, Any]:
    words = relation.removesuffix(INVERSE_MARK).removeprefix("has_").replace("_", " ")
    words = f"← {words}" if relation.endswith(INVERSE_MARK) else words
    return {"relation": relation, "words": words, "entities": entities, "count": count}


def check_change(graph: Graph, user: str, remove: Sequence[str], add: Sequence[str]) -> None:
    """Refuse to remove what a user does not have, or to add what it has."""
    items = owned(graph, user)
    for item in remove:
        if item not in items:
            raise LogerError(f"{user!r} does not have {item!r}; it has {', '.join(items)}")
    for item in add:
        if item in items:
            raise LogerError(f"{user!r} has {item!r} already; leave it out of what is added")
