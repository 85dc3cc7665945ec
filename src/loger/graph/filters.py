"""Filters such as ``category:lamps``: which items may be recommended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.errors import UnknownNameError
from loger.graph.graph import KnowledgeGraph
from loger.graph.search import Finder


def item_mask(
    graph: KnowledgeGraph, include: Sequence[str], exclude: Sequence[str], finder: Finder
) -> NDArray[np.bool_] | None:
    """Which items pass: those that fit one of ``include``, if any are given, and none of
    ``exclude``; None: all items.

    A filter ``type:name`` fits the items that a fact links to that entity, in either direction;
    ``item:name`` fits that item.
    """
    if not include and not exclude:
        return None
    mask = np.full(graph.n_items, not include)
    for text in include:
        mask[_items_of(graph, text, finder)] = True
    for text in exclude:
        mask[_items_of(graph, text, finder)] = False
    return mask


def _items_of(graph: KnowledgeGraph, text: str, finder: Finder) -> NDArray[np.integer[Any]]:
    """The items that one filter fits."""
    entity_type, _, name = text.partition(":")
    types = [t for t in graph.vocabulary.types if t != "user"]
    if entity_type not in types:
        raise UnknownNameError("type", entity_type, types)
    entity = finder.id(entity_type, name)
    if entity_type == "item":
        return np.array([entity - graph.n_users])
    linked = [
        graph.neighbours(entity, r)
        for r in range(2 * len(graph.relations))
        if graph.signature(r) == (entity_type, "item")
    ]
    none = np.empty(0, dtype=np.int32)
    return np.concatenate([none, *linked]) - graph.n_users
