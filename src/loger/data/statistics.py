"""What is in a data set, as plain values for tables and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.data.dataset import PARTS, Dataset
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
