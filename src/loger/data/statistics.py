"""What is in a data set or a split: plain values for tables and JSON, small HTML for notebooks."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from loger.data.dataset import PARTS, Dataset
from loger.data.splits import Part, Split
from loger.engine.progress import table
from loger.graph import KnowledgeGraph


def statistics(dataset: Dataset) -> dict[str, Any]:
    """Sizes, entities by type, relations with degrees and hubs, interactions, notes."""
    events, words = dataset.interactions, dataset.vocabulary
    graph = dataset.graph(np.arange(len(events)))
    return {
        "name": dataset.name,
        "users": dataset.n_users,
        "items": dataset.n_items,
        "entities": graph.n_entities,
        "facts": graph.n_triples,
        "interactions": len(events),
        "density": len(events) / max(1, dataset.n_users * dataset.n_items),
        "ratings": events.ratings is not None,
        "strengths": events.strengths is not None,
        "times": events.times is not None,
        "parts": None if events.parts is None else _parts(events.parts),
        "per_user": _spread(np.bincount(events.users, minlength=dataset.n_users)),
        "per_item": _spread(np.bincount(events.items, minlength=dataset.n_items)),
        "types": [
            {"type": t, "entities": len(span), "example": words.labels[span.start] if span else ""}
            for t in words.types
            for span in [words.span(t)]
        ],
        "relations": [_relation(graph, r) for r in range(len(graph.relations))],
        "notes": [asdict(note) for note in dataset.notes],
    }


def _parts(parts: NDArray[np.int8]) -> dict[str, int]:
    return {name: int((parts == k).sum()) for k, name in enumerate(PARTS)}


def _spread(counts: NDArray[np.integer]) -> dict[str, float]:
    """Minimum, median, mean and maximum, and how many have none."""
    if not len(counts):
        return {"min": 0, "median": 0.0, "mean": 0.0, "max": 0, "none": 0}
    return {
        "min": int(counts.min()),
        "median": float(np.median(counts)),
        "mean": float(counts.mean()),
        "max": int(counts.max()),
        "none": int((counts == 0).sum()),
    }


def _relation(graph: KnowledgeGraph, relation: int) -> dict[str, Any]:
    """A relation's size, and the entity with the most neighbours at either end of it."""
    leave, arrive = graph.degrees(relation), graph.degrees(graph.inverse(relation))
    degrees = leave if leave.max(initial=0) >= arrive.max(initial=0) else arrive
    hub = int(degrees.argmax())
    base = graph.relations[relation]
    return {
        "relation": base.name,
        "head_type": base.head_type,
        "tail_type": base.tail_type,
        "facts": int(leave.sum()),
        "per_head": float(leave.sum() / max(1, (leave > 0).sum())),
        "per_tail": float(arrive.sum() / max(1, (arrive > 0).sum())),
        "hub": graph.vocabulary.labels[hub],
        "hub_type": graph.vocabulary.type_of(hub),
        "hub_degree": int(degrees[hub]),
    }


def dataset_html(dataset: Dataset) -> str:
    """What a data set holds, its relations, and the reader's notes."""
    counts = np.bincount(dataset.facts.relations, minlength=len(dataset.relations))
    counts[0] = len(dataset.interactions)  # relation 0, which no fact has
    relations = [
        (r.name, f"{r.head_type} → {r.tail_type}", f"{n:,}")
        for r, n in zip(dataset.relations, counts.tolist(), strict=True)
    ]
    words = dataset.vocabulary
    types = [(t, f"{len(words.span(t)):,}") for t in words.types]
    parts = [
        f"<b>{escape(dataset.name)}</b>",
        table(("entities", "count"), types),
        table(("relation", "from → to", "count"), relations),
    ]
    if dataset.notes:
        items = "".join(f"<li>{escape(str(note))}</li>" for note in dataset.notes)
        parts.append(f"notes<ul>{items}</ul>")
    return f"<div>{''.join(parts)}</div>"


def split_html(split: Split) -> str:
    """How large the parts of a split are."""
    total = max(1, len(split.dataset.interactions))
    rows = []
    for part in get_args(Part):
        n, users = len(getattr(split, part)), len(np.unique(split.pairs(part)[0]))
        rows.append((part, f"{n:,}", f"{n / total:.0%}", f"{users:,}"))
    title = f"<b>Split of {escape(split.dataset.name)}</b>"
    return f"<div>{title}{table(('part', 'interactions', 'share', 'users'), rows)}</div>"
