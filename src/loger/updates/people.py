"""The people behind derived facts, counted again after an update or a removal.

Only the users whose interactions changed are looked at: what their histories counted before is
subtracted, and what they count now is added. Weights, and so scores, stay those of the fit. Facts
of items that came after it are made of nobody (``loger.updates.newcomers``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.baselines.sequence import people_behind
from loger.graph import KnowledgeGraph
from loger.graph.arrays import Bools, Ids, gather
from loger.graph.growth import Renumbered


def recounted(before: KnowledgeGraph, moved: Renumbered) -> KnowledgeGraph:
    """The graph after a change of ``before``, with the people that its derived facts have now."""
    graph = moved.graph
    if graph.support is None:
        return graph
    old, new = _changed(before, moved)
    was = _histories(before, old, moved.entities[before.n_users :], graph)
    now = _histories(graph, new, np.arange(graph.n_users, graph.n_entities), graph)
    items = np.union1d(was.items, now.items).astype(np.int64)
    items = items[items < moved.learned.types.get("item", 0)]
    support = graph.support.copy()
    for place, relation in enumerate(graph.relations):
        if relation.derived:
            heads, tails, places = _facts(graph, place, items, moved)
            more = _people(graph, heads, tails, now, relation.window)
            more -= _people(graph, heads, tails, was, relation.window)
            of = np.flatnonzero(more)
            back = np.full_like(of, graph.inverse(place))
            support[places[of]] += more[of]
            support[graph.rows.edges(tails[of], back, heads[of])] += more[of]
    return replace(graph, support=support)


class _Histories(NamedTuple):
    """Interactions, each user's in order. Items are numbered from 0 as they are after the change;
    those that are gone have the number after the last."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    times: Ids


def _changed(before: KnowledgeGraph, moved: Renumbered) -> tuple[Bools, Bools]:
    """Which users' interactions, or their times, aren't the same before and after; those who came
    or went without any may be among them."""
    after, number = moved.graph, moved.entities[: before.n_users]
    (edges, users), (new_edges, new_users) = before.interactions, after.interactions
    sizes = np.bincount(users, minlength=before.n_users)
    new_sizes = np.bincount(new_users, minlength=after.n_users)
    same = number >= 0
    same[same] = sizes[same] == new_sizes[number[same]]
    kept = np.zeros(after.n_users, dtype=bool)
    kept[number[same]] = True
    # Renumbering keeps the order, so equal histories are the same rows in the same places.
    rows, new_rows = edges[same[users]], new_edges[kept[new_users]]
    differ = moved.entities[before.tails[rows]] != after.tails[new_rows]
    if before.times is not None and after.times is not None:
        differ |= before.times[rows] != after.times[new_rows]
    other = before.edge_heads()[rows[differ]]
    same[other], kept[number[other]] = False, False
    return ~same, ~kept


def _histories(
    graph: KnowledgeGraph, chosen: Bools, number: Ids, after: KnowledgeGraph
) -> _Histories:
    """The histories of some users of a graph; ``number`` is what each of its entities that isn't a
    user is after the change, -1 if it is gone."""
    edges, users = graph.interactions
    mine = chosen[users]
    edges, users = edges[mine], users[mine]
    items = number[graph.tails[edges] - graph.n_users]
    items = np.where(items < 0, after.n_items, items - after.n_users)
    times = np.zeros(len(edges), np.int64) if graph.times is None else graph.times[edges]
    order = np.lexsort((times, users))
    return _Histories(users[order], items[order].astype(np.int32), times[order])


def _facts(
    graph: KnowledgeGraph, relation: int, items: Ids, moved: Renumbered
) -> tuple[Ids, Ids, Ids]:
    """The facts of a derived relation that lead from some items to items that the fit knew, as
    (heads, tails, places in ``tails``), by entity and ascending."""
    heads = items + graph.n_users
    segments, there = graph.rows.segments(heads, np.full_like(heads, relation))
    heads, segments = heads[there], segments[there]
    starts = graph.segment_starts[segments]
    owners, places = gather(starts, graph.segment_starts[segments + 1] - starts)
    tails = graph.tails[places].astype(np.int64)
    old = tails < graph.n_users + moved.learned.types.get("item", 0)
    return heads[owners[old]], tails[old], places[old]


def _people(
    graph: KnowledgeGraph, heads: Ids, tails: Ids, histories: _Histories, window: int | None
) -> Ids:
    """How many of some users are behind each fact: have both items or, if there is a window, the
    second with the first or soon after it; counted as ``loger.learning.derived`` does."""
    sizes = np.bincount(heads - graph.n_users, minlength=graph.n_items + 1)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    followers = (tails - graph.n_users).astype(np.int32)
    users, items, times = histories
    if window is None:  # without an order, all is of one moment
        times = np.zeros_like(times)
    found: Ids = people_behind(starts, followers, users, items, times, window or 0)
    return found
