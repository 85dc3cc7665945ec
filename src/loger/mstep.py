"""Pools: the candidates among which a held-out interaction has to stand out (listwise M-step).

Of each user the best items by every single rule, and more of the encoder's and of the rules over
other users, which find most; nothing the user has. The likelihood over all items would be the
same but for items that nothing speaks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from loger.engine import Engine, LocalEngine
from loger.graph import KnowledgeGraph, history
from loger.grounding import Groundings, Walk, concat, reach, take
from loger.rules import RuleSet
from loger.topk import top_k

BLOCK = 64
"""Users whose candidates are gathered at a time."""

Scores = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""From a block of users to the encoder's scores of all items; picklable."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Candidates of some users, by user."""

    found: Groundings
    starts: NDArray[np.int64]  # [users + 1]
    hits: NDArray[np.int64]  # rows that are held-out interactions
    encoder: NDArray[np.float32]  # [rows]: the encoder's scores


def gather(
    graph: KnowledgeGraph,
    rules: RuleSet,
    users: NDArray[np.int64],
    held_out: csr_array,
    scores: Scores,
    *,
    walk: Walk | None,
    per_rule: int,
    main: int,
    engine: Engine,
) -> Pool:
    """The candidates of users, ascending: ``per_rule`` of each rule, ``main`` of the encoder and
    of each rule over other users. ``held_out`` is users × items."""
    shared = _Gathering(graph, rules, held_out, scores, walk, per_rule, main)
    blocks = [users[k : k + BLOCK] for k in range(0, len(users), BLOCK)]
    parts = list(engine.map("gathering candidates", _gather_block, blocks, shared))
    ends = np.cumsum([0, *(len(p.found) for p in parts)])
    return Pool(
        concat([p.found for p in parts], len(rules), walk is not None),
        np.concatenate([[0], *(p.starts[1:] + at for p, at in zip(parts, ends, strict=False))]),
        np.concatenate([p.hits + at for p, at in zip(parts, ends, strict=False)]),
        np.concatenate([p.encoder for p in parts]),
    )


class _Gathering(NamedTuple):
    """The arguments of ``gather`` that all blocks share."""

    graph: KnowledgeGraph
    rules: RuleSet
    held_out: csr_array
    scores: Scores
    walk: Walk | None
    per_rule: int
    main: int


def _gather_block(shared: _Gathering, own: NDArray[np.int64]) -> Pool:
    """The candidates of a block of users."""
    graph, rules, held_out, scores, walk, per_rule, main = shared
    # Without a walk the best are those of most paths.
    found = reach(graph, rules, own, walk=walk or Walk.uniform(0.0), engine=LocalEngine(1))
    s = scores(own)
    chosen = _chosen(graph, rules, own, found, s, per_rule, main)
    keys = _keys(np.searchsorted(own, found.users), found.items, graph.n_items)
    at = np.minimum(np.searchsorted(keys, chosen), max(len(keys) - 1, 0))
    known = keys[at] == chosen if len(keys) else np.zeros(len(chosen), dtype=bool)
    rows, items = np.divmod(chosen, graph.n_items)
    kept = take(found, at[known]).with_empty_rows(known, own[rows], items)
    hits = np.flatnonzero(np.asarray(held_out[own[rows], items]))
    return Pool(
        kept if walk is not None else replace(kept, strengths=None),
        np.searchsorted(rows, np.arange(len(own) + 1)),
        hits,
        s[rows, items],
    )


def _chosen(
    graph: KnowledgeGraph,
    rules: RuleSet,
    own: NDArray[np.int64],
    found: Groundings,
    scores: NDArray[np.float32],
    per_rule: int,
    main: int,
) -> NDArray[np.int64]:
    """The candidates of a block as ascending keys, place of the user · items + item."""
    best, _ = top_k(scores.copy(), main, history(graph, own))
    owners = np.repeat(np.arange(len(own)), best.shape[1])
    by_encoder = _keys(owners, best.ravel(), graph.n_items)[best.ravel() >= 0]
    rows = _best_rows(found, rules, per_rule, main)
    place = np.searchsorted(own, found.users[rows])
    return np.union1d(_keys(place, found.items[rows], graph.n_items), by_encoder)


def _best_rows(found: Groundings, rules: RuleSet, per_rule: int, main: int) -> NDArray[np.int64]:
    """The pairs that are among the best of their user by some rule."""
    assert found.strengths is not None
    pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
    group = found.users[pair].astype(np.int64) * len(rules) + found.rules
    order = np.lexsort((pair, -found.strengths, group))
    sorted_group = group[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_group, sorted_group)
    over_users = [len(rule) == 3 and rule.types[2] == "user" for rule in rules]
    most = np.where(over_users, main, per_rule)
    return np.unique(pair[order[rank < most[found.rules[order]]]])


def _keys(
    places: NDArray[np.integer], items: NDArray[np.integer], n_items: int
) -> NDArray[np.int64]:
    """One number per pair."""
    return places.astype(np.int64) * n_items + items
