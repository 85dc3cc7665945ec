"""Other graphs made from one: facts less or more, users, times, strengths. The first one stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError
from loger.graph.arrays import Ints, changes, checked_ids, pair_keys
from loger.graph.strengths import as_strengths
from loger.graph.vocabulary import INTERACTION, Vocabulary

if TYPE_CHECKING:
    from loger.graph.graph import KnowledgeGraph


def without(
    graph: KnowledgeGraph, heads: Sequence[int], relation_ids: Sequence[int], tails: Sequence[int]
) -> KnowledgeGraph:
    """The graph less some facts, both directions of each."""
    places = [
        find_edge(graph, *edge)
        for h, r, t in zip(heads, relation_ids, tails, strict=True)
        for edge in ((h, r, t), (t, graph.inverse(r), h))
    ]
    if not places:
        return graph
    gone = np.unique(np.array(places), axis=0)
    edge, segment, pair = gone[:, 0], gone[:, 1], np.sort(gone[:, 2])
    lost = np.bincount(segment, minlength=len(graph.segment_relations))
    sizes = np.diff(graph.segment_starts) - lost
    kept = sizes > 0
    kept_before = np.concatenate([[0], np.cumsum(kept)])
    times, strengths = graph.times, graph.strengths
    return replace(
        graph,
        row_segments=kept_before[graph.row_segments],
        segment_relations=graph.segment_relations[kept],
        segment_starts=np.concatenate([[0], np.cumsum(sizes[kept])]),
        tails=np.delete(graph.tails, edge),
        pair_tails=np.delete(graph.pair_tails, pair),
        pair_relations=np.delete(graph.pair_relations, pair),
        origins=None if graph.origins is None else np.delete(graph.origins, edge),
        times=None if times is None else np.delete(times, edge[edge < len(times)]),
        weights=None if graph.weights is None else np.delete(graph.weights, edge),
        support=None if graph.support is None else np.delete(graph.support, edge),
        strengths=None if strengths is None else np.delete(strengths, edge[edge < len(strengths)]),
    )


def without_interactions(
    graph: KnowledgeGraph, users: Sequence[int], items: Sequence[int]
) -> KnowledgeGraph:
    """The graph less some interactions and every fact that is known from one of them alone."""
    u = checked_ids(users, graph.n_users, "user").tolist()
    v = (checked_ids(items, graph.n_items, "item") + graph.n_users).tolist()
    facts: list[tuple[int, int, int]] = []
    for user, item in zip(u, v, strict=True):
        facts.append((user, INTERACTION, item))
        facts += _known_from(graph, user, item)
    return without(graph, *zip(*facts, strict=True)) if facts else graph


def plus(
    graph: KnowledgeGraph,
    users: Sequence[int],
    items: Sequence[int],
    times: Sequence[int] | None = None,
    strengths: Sequence[float] | None = None,
) -> KnowledgeGraph:
    """The graph with some interactions more."""
    u = checked_ids(users, graph.n_users, "user")
    v = checked_ids(items, graph.n_items, "item")
    first = np.unique(pair_keys(u, v, graph.n_items), return_index=True)[1]
    pairs = zip(u[first].tolist(), (v[first] + graph.n_users).tolist(), strict=True)
    present = np.array([graph.has(a, INTERACTION, b) for a, b in pairs], dtype=bool)
    first = first[~present]
    if not len(first):
        return graph
    head = np.concatenate([u[first], v[first] + graph.n_users])
    tail = np.concatenate([v[first] + graph.n_users, u[first]])
    relation = np.repeat([INTERACTION, graph.inverse(INTERACTION)], len(first))
    grown, place = _inserted(graph, head, relation, tail)
    order = np.argsort(place[: len(first)], kind="stable")
    at = place[: len(first)][order]
    if graph.strengths is not None:
        strong = np.full(len(u), graph.default_strength) if strengths is None else strengths
        of_new = as_strengths(strong)[first][order]
        grown = replace(grown, strengths=np.insert(graph.strengths, at, of_new))
    if graph.times is None:
        return grown
    if times is None:  # later than all others
        when = np.full(len(at), graph.times.max(initial=0) + 1, dtype=np.int64)
    else:
        when = np.asarray(times, np.int64)[first][order]
    return replace(grown, times=np.insert(graph.times, at, when))


def with_users(graph: KnowledgeGraph, names: Sequence[str]) -> KnowledgeGraph:
    """The graph with some users more, who have no facts yet; the last users from now on."""
    n, k, words = graph.n_users, len(names), graph.vocabulary
    known = [x for x in names if x in words.ids("user")]
    if known or len(set(names)) < k:
        raise LogerError(f"users must be new and distinct, got {(known or list(names))[:3]}")
    spans = {t: words.span(t) for t in words.types}
    of_type = {t: [words.names[i] for i in span] for t, span in spans.items()}
    labels = {t: [words.labels[i] for i in span] for t, span in spans.items()}
    of_type["user"] += names
    labels["user"] += names

    def moved(ids: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.where(ids >= n, ids + k, ids).astype(np.int32)

    return replace(
        graph,
        vocabulary=Vocabulary(of_type, labels),
        row_segments=np.insert(graph.row_segments, n, np.full(k, graph.row_segments[n])),
        tails=moved(graph.tails),
        pair_tails=moved(graph.pair_tails),
        origins=None if graph.origins is None else moved(graph.origins),
    )


def sampled(graph: KnowledgeGraph, most: int, seed: int) -> KnowledgeGraph:
    """The graph with no more than so many neighbours of an entity under a relation."""
    rng = np.random.default_rng([seed, 0x5A3])
    sizes = np.diff(graph.segment_starts)
    drawn = np.ones(len(graph.tails), dtype=bool)
    for s in np.flatnonzero(sizes > most):
        part = drawn[graph.segment_starts[s] : graph.segment_starts[s + 1]]
        part[rng.permutation(sizes[s])[most:]] = False
    gone = np.flatnonzero(~drawn)
    head, relation = graph.edge_heads()[gone], graph.edge_relations()[gone].astype(np.int64)
    base = relation < len(graph.relations)
    h = np.where(base, head, graph.tails[gone])
    t = np.where(base, graph.tails[gone], head)
    facts = np.unique(np.stack([h, relation % len(graph.relations), t], axis=1), axis=0)
    return without(graph, *facts.T.tolist()) if len(facts) else graph


def timed(graph: KnowledgeGraph, users: Ints, items: Ints, times: Ints) -> KnowledgeGraph:
    """The graph with the times of its interactions; of a pair's several, the latest."""
    of_edge = np.zeros(int(graph.indptr[graph.n_users]), dtype=np.int64)
    order = np.lexsort((times, items, users))
    u, v, t = users[order], items[order], np.asarray(times)[order]
    last = np.append((u[1:] != u[:-1]) | (v[1:] != v[:-1]), True)[: len(u)]
    edges, _ = graph.interactions
    if int(last.sum()) != len(edges):
        raise LogerError(f"{int(last.sum()):,} pairs with times, {len(edges):,} interactions")
    of_edge[edges] = t[last]
    return replace(graph, times=of_edge)


def strengthened(
    graph: KnowledgeGraph,
    users: Ints,
    items: Ints,
    strengths: NDArray[np.floating],
    rated: bool,
    counted: bool = False,
) -> KnowledgeGraph:
    """The graph with the strengths of its interactions, each pair once."""
    of_edge = np.zeros(int(graph.indptr[graph.n_users]))
    edges, _ = graph.interactions
    if len(users) != len(edges):
        raise LogerError(f"{len(users):,} pairs with strengths, {len(edges):,} interactions")
    of_edge[edges] = as_strengths(strengths)[np.lexsort((items, users))]
    return replace(graph, strengths=of_edge, rated=rated, counted=counted)


def find_edge(graph: KnowledgeGraph, head: int, relation: int, tail: int) -> tuple[int, int, int]:
    """Places of one directed edge: in ``tails``, among segments, in ``pair_tails``."""
    s = graph.segment(head, relation)
    edge = -1
    if s >= 0:
        lo, hi = graph.segment_starts[s], graph.segment_starts[s + 1]
        edge = int(lo + np.searchsorted(graph.tails[lo:hi], tail))
        if edge == hi or graph.tails[edge] != tail:
            edge = -1
    if edge < 0:
        words = graph.vocabulary
        raise LogerError(
            f"the graph has no fact ({words.names[head]!r}, "
            f"{graph.relation_name(relation)}, {words.names[tail]!r}) to take away"
        )
    lo, hi = graph.indptr[head], graph.indptr[head + 1]
    first = lo + np.searchsorted(graph.pair_tails[lo:hi], tail)
    pair = first + np.searchsorted(graph.between(head, tail), relation)
    return edge, s, int(pair)


def edges_known_from(graph: KnowledgeGraph, user: int, items: Sequence[int]) -> NDArray[np.int64]:
    """The places in ``tails`` of all edges, both directions of each fact, that are known from one
    of a user's interactions alone; ascending. Items are given as entities."""
    facts = [fact for item in items for fact in _known_from(graph, user, item)]
    edges = [
        find_edge(graph, *edge)[0]
        for h, r, t in facts
        for edge in ((h, r, t), (t, graph.inverse(r), h))
    ]
    return np.unique(np.array(edges, dtype=np.int64))


def _known_from(graph: KnowledgeGraph, user: int, item: int) -> list[tuple[int, int, int]]:
    """The facts that are known from one interaction alone, as edges that leave its two ends."""
    if graph.origins is None:
        return []
    out = []
    for head, other in ((user, item), (item, user)):
        lo, hi = graph.indptr[head], graph.indptr[head + 1]
        edges = lo + np.flatnonzero(graph.origins[lo:hi] == other)
        segments = np.searchsorted(graph.segment_starts, edges, side="right") - 1
        kinds = graph.segment_relations[segments].tolist()
        out += [(head, r, t) for r, t in zip(kinds, graph.tails[edges].tolist(), strict=True)]
    return out


def _inserted(
    graph: KnowledgeGraph, heads: Ints, relations: Ints, tails: Ints
) -> tuple[KnowledgeGraph, NDArray[np.int64]]:
    """The graph with directed edges more, none of them present yet, and where in ``tails`` each
    goes; ``times`` and ``strengths`` are left to the caller."""
    n, kinds = graph.n_entities, 2 * len(graph.relations)
    of_edge = graph.edge_heads().astype(np.int64)
    segment = of_edge * kinds + graph.edge_relations()
    key = segment * n + graph.tails
    new = (heads * kinds + relations) * n + tails
    place = np.searchsorted(key, new)
    order = np.argsort(new, kind="stable")
    segment = np.insert(segment, place[order], new[order] // n)
    starts = np.flatnonzero(changes(segment))
    head, relation = np.divmod(segment[starts], kinds)
    pair_key = (of_edge * n + graph.pair_tails) * kinds + graph.pair_relations
    pairs = np.sort((heads * n + tails) * kinds + relations)
    at = np.searchsorted(pair_key, pairs)
    pair_relations = (pairs % kinds).astype(np.uint16)
    grown = replace(
        graph,
        row_segments=np.searchsorted(head, np.arange(n + 1)).astype(np.int64),
        segment_relations=relation.astype(np.uint16),
        segment_starts=np.append(starts, len(segment)).astype(np.int64),
        tails=np.insert(graph.tails, place[order], tails[order]),
        pair_tails=np.insert(graph.pair_tails, at, pairs // kinds % n),
        pair_relations=np.insert(graph.pair_relations, at, pair_relations),
        origins=None if graph.origins is None else np.insert(graph.origins, place[order], -1),
        times=None,
        strengths=None,
        weights=None if graph.weights is None else np.insert(graph.weights, place[order], 1.0),
        support=None if graph.support is None else np.insert(graph.support, place[order], 0),
    )
    return grown, place
