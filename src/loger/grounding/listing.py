"""The paths themselves: all of a rule, those at some places, or the strongest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import LocalEngine
from loger.errors import LogerError
from loger.graph import Graph, checked_ids
from loger.grounding.api import checked_pairs, ground
from loger.grounding.layout import Walk, layout, weights_of
from loger.grounding.paths import nth_paths as _nth_paths
from loger.grounding.paths import strongest_paths as _strongest_paths
from loger.grounding.plans import compiled
from loger.rules import Rule, RuleSet


def paths(graph: Graph, rule: Rule, user: int, item: int) -> NDArray[np.int32]:
    """All groundings of one rule for one pair, as entity ids; [paths, hops + 1], sorted."""
    rules = RuleSet((rule,))
    n = int(ground(graph, rules, user, item, engine=LocalEngine(1)).counts.sum())
    pairs = np.full(n, user), np.full(n, item)
    every = nth_paths(graph, rules, np.zeros(n, dtype=np.int64), *pairs, np.arange(n))
    return every[:, : len(rule) + 1]


def nth_paths(
    graph: Graph,
    rules: RuleSet,
    places: ArrayLike,
    users: ArrayLike,
    items: ArrayLike,
    nth: ArrayLike,
) -> NDArray[np.int32]:
    """Of all groundings of the rule at ``places[i]`` for the pair (users[i], items[i]), in the
    order of ``paths``, the one at ``nth[i]``; [paths, 4] entity ids, -1 after the end."""
    u, v, relations = queries(graph, rules, places, users, items)
    which = np.atleast_1d(np.asarray(nth, dtype=np.int64))
    if which.shape != u.shape or (which < 0).any():
        raise LogerError(
            f"nth must hold one index, counted from 0, for each of {len(u)} pairs, got {nth!r}"
        )
    nodes: NDArray[np.int32] = _nth_paths(
        layout(graph), weights_of(graph, None), u, v, relations, which
    )
    if len(missing := np.flatnonzero(nodes[:, 1] < 0)):
        raise LogerError(f"that pair has no grounding with index {which[missing[0]]}")
    return nodes


def strongest_paths(
    graph: Graph,
    rules: RuleSet,
    places: ArrayLike,
    users: ArrayLike,
    items: ArrayLike,
    n: int,
    walk: Walk | None = None,
    firsts: ArrayLike | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The n strongest groundings of the rule at ``places[i]`` for the pair (users[i], items[i]).

    With ``firsts`` only those whose first hop leads to the entity ``firsts[i]``. Returns the
    entities between the ends, [pairs, n, 2] with -1 for none, and the strengths, [pairs, n],
    strongest first, 0 where there are fewer. Without a walk all are of strength 1. Among equal
    strengths, those come first that ``paths`` lists first.
    """
    u, v, relations = queries(graph, rules, places, users, items)
    through = np.empty(0, dtype=np.int64)
    if firsts is not None:
        through = checked_ids(firsts, graph.n_entities, "entity").astype(np.int64)
        if len(through) != len(u):
            got = len(through)
            raise LogerError(f"expected a first entity for each of {len(u)} pairs, got {got}")
    nodes = np.full((len(u), max(n, 0), 2), -1, dtype=np.int32)
    strengths = np.zeros((len(u), max(n, 0)))
    if n > 0:
        weights = weights_of(graph, walk or Walk.uniform(0.0))
        order, cells = in_runs(u, relations), (u, v, relations, through)
        with masks_of(graph) as masks:
            _strongest_paths(layout(graph), weights, *cells, order, masks, nodes, strengths)
    return nodes, strengths


_masks: list[NDArray[np.int64]] = []
"""Masks that are not in use: to make them costs more than a user's reasons in a large graph."""


@contextmanager
def masks_of(graph: Graph) -> Iterator[NDArray[np.int64]]:
    """A number for each entity, all 0 before and after; it is not used again after an error."""
    try:
        masks = _masks.pop()
    except IndexError:
        masks = np.empty(0, dtype=np.int64)
    if len(masks) < graph.n_entities:
        masks = np.zeros(graph.n_entities, dtype=np.int64)
    yield masks
    _masks.append(masks)


def in_runs(users: NDArray[np.int64], relations: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order of cells in which those of one user and rule stand together."""
    return np.lexsort((*relations.T[::-1], users))


def queries(
    graph: Graph, rules: RuleSet, places: ArrayLike, users: ArrayLike, items: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Users and items as entity ids, and the relations of a rule for each pair."""
    u, v = checked_pairs(graph, users, items)
    which = checked_ids(places, len(rules), "rule")
    if len(which) != len(u):
        raise LogerError(f"expected a rule for each of {len(u)} pairs, got {len(which)}")
    entities = v.astype(np.int64) + graph.n_users
    return u.astype(np.int64), entities, compiled(graph, rules).table[which]
