"""Exact groundings: how often, and how strongly, each rule leads from a user to an item.

A grounding of a rule for a pair (u, v) is a simple path (METHOD L2), so the pair's users edge
never supports it; nor does a fact that is known from the interaction (u, v) alone (L3).
For an observed pair the counts are thus what they would be had it not been observed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from loger.engine import Engine, LocalEngine
from loger.errors import LogerError
from loger.graph import INTERACTION, Graph, checked_ids, checked_users
from loger.grounding import pairs, reaching
from loger.grounding.groundings import Cells, Groundings, concat, joined, merged, reordered
from loger.grounding.layout import Layout, layout, read_only
from loger.grounding.plans import Plan, Trie, compiled
from loger.grounding.reaching import Formula
from loger.grounding.steps import Weights
from loger.grounding.walk import Walk, weights_of
from loger.rules import RuleSet

PAIRS_PER_BLOCK = 1024
"""Small enough to bound memory (a dense block × rules), large enough to amortise a call."""

USERS_PER_BLOCK = 32
"""For all items of a user; bounds the memory of the results under way."""


def ground(
    graph: Graph,
    rules: RuleSet,
    users: ArrayLike,
    items: ArrayLike,
    *,
    walk: Walk | None = None,
    engine: Engine | None = None,
) -> Groundings:
    """Count (and with ``walk`` weigh) all simple paths of all rules for pairs of user and item.

    One pass serves all rules. Users and items are numbered from 0 within their type; the
    rows of the result are the pairs in the given order.
    """
    u, v = checked_pairs(graph, users, items)
    order = np.argsort(u, kind="stable")
    u, entities = u[order], v[order].astype(np.int64) + graph.n_users
    shared = layout(graph), compiled(graph, rules).plan, weights_of(graph, walk)
    blocks = [(u[lo:hi], entities[lo:hi]) for lo, hi in _user_blocks(u, PAIRS_PER_BLOCK)]
    results = list(
        (engine or LocalEngine()).map("counting groundings", _ground_block, blocks, shared)
    )
    groundings = joined(u, v[order], len(rules), results, walk is not None)
    in_order = np.array_equal(order, np.arange(len(order)))
    return groundings if in_order else reordered(groundings, order)


def _ground_block(
    shared: tuple[Layout, Plan, Weights],
    block: tuple[NDArray[np.int32], NDArray[np.int64]],
) -> Cells:
    """The groundings of a block's pairs, which are sorted by user."""
    of_pair, entities = block
    users, starts = np.unique(of_pair.astype(np.int64), return_index=True)
    cells: Cells = pairs.ground_block(*shared, users, np.append(starts, len(of_pair)), entities)
    return cells


def reach(
    graph: Graph,
    rules: RuleSet,
    users: ArrayLike,
    *,
    walk: Walk | None = None,
    observed: bool = False,
    engine: Engine | None = None,
) -> Groundings:
    """Groundings of every item that some rule reaches, for each of the users.

    The rows are sorted by the given users, then by item. Items the user has interacted
    with are left out unless ``observed``.
    """
    shared = _search(graph, rules, walk)._replace(observed=observed)
    blocks = _blocks(checked_users(graph, users))
    parts = list((engine or LocalEngine()).map("reaching items", _reach_block, blocks, shared))
    return concat(parts, len(rules), walk is not None)


class _Search(NamedTuple):
    """What all blocks of users need to find the items that rules reach."""

    graph: Graph
    rules: RuleSet
    walk: Walk | None
    compiled: tuple[Layout, Trie, Weights]
    observed: bool = True
    formula: Formula | None = None


def _search(graph: Graph, rules: RuleSet, walk: Walk | None) -> _Search:
    trie = compiled(graph, rules).trie
    return _Search(graph, rules, walk, (layout(graph), trie, weights_of(graph, walk)))


def _reach_block(shared: _Search, users: NDArray[np.int64]) -> Groundings:
    """Groundings of every item that is reached from a block of users."""
    graph, rules, walk = shared.graph, shared.rules, shared.walk
    sizes, items, *cells = reaching.reach_block(
        *shared.compiled, users, graph.n_users, graph.n_items
    )
    far = joined(np.repeat(users, sizes), items, len(rules), [tuple(cells)], walk is not None)
    near = near_items(graph, users, shared.observed)
    return merged(far, ground(graph, rules, *near, walk=walk, engine=LocalEngine(1)), users)


def reach_sizes(
    graph: Graph, rules: RuleSet, users: ArrayLike, *, engine: Engine | None = None
) -> NDArray[np.int64]:
    """How many items each rule reaches from each user, observed ones included; [users, rules].

    The same as counting the rows of ``reach``, without holding them.
    """
    asked = checked_users(graph, users)
    if len(np.unique(asked)) < len(asked) or (np.diff(asked) < 0).any():
        raise LogerError("users must be distinct and ascending")
    sizes = (engine or LocalEngine()).map(
        "measuring reach", _size_block, _blocks(asked), _search(graph, rules, None)
    )
    return np.concatenate([np.empty((0, len(rules)), dtype=np.int64), *sizes])


def _size_block(shared: _Search, users: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many items each rule reaches from a block of users; [users, rules]."""
    graph, rules = shared.graph, shared.rules
    far = reaching.reach_sizes(*shared.compiled, users, graph.n_users, graph.n_items)
    owners, items = near_items(graph, users, observed=True)
    near = ground(graph, rules, owners, items, engine=LocalEngine(1)).count_matrix > 0
    place = np.searchsorted(users, owners)
    ones, columns = np.ones(len(place), np.int64), np.arange(len(place))
    member = csr_array((ones, (place, columns)), shape=(len(users), len(place)))
    sizes: NDArray[np.int64] = far + (member @ near.astype(np.int64)).toarray()
    return sizes


def logits(
    graph: Graph,
    rules: RuleSet,
    users: ArrayLike,
    formula: Formula,
    *,
    walk: Walk | None = None,
    engine: Engine | None = None,
) -> NDArray[np.float32]:
    """Σ_l w_l φ_l of all items that the user has no interaction with; [users, items].

    The same as summing over the rows of ``reach``, without holding them. Items that no rule
    reaches have 0, and so have the user's users.
    """
    asked = checked_users(graph, users)
    _check_formula(formula, len(rules))
    search = _search(graph, rules, walk)
    blocks, shared = _blocks(asked), search._replace(formula=read_only(formula))
    parts = (engine or LocalEngine()).map("scoring by rules", _logit_block, blocks, shared)
    out, done = np.empty((len(asked), graph.n_items), dtype=np.float32), 0
    for part in parts:
        out[done : done + len(part)] = part
        done += len(part)
    return out


def _logit_block(shared: _Search, users: NDArray[np.int64]) -> NDArray[np.float32]:
    """Σ_l w_l φ_l of all items for a block of users; [users, items]."""
    graph = shared.graph
    out = np.zeros((len(users), graph.n_items), dtype=np.float32)
    with _workspace(graph.n_entities, graph.n_items) as workspace:
        reaching.logit_block(*shared.compiled, shared.formula, users, graph.n_users, workspace, out)
    return out


def near_items(
    graph: Graph, users: NDArray[np.int64], observed: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The items that each user has an edge to; observed interactions only if asked for."""
    near = np.flatnonzero(
        [graph.signature(r) == ("user", "item") for r in range(2 * len(graph.relations))]
    )
    if not observed and len(near) == 1:  # the interaction is the only way from user to item
        none = np.empty(0, dtype=np.int32)
        return none, none
    of_user, rows = [], graph.rows
    for u in users:
        lo, hi = rows.segment_starts[rows.row_segments[u : u + 2]]
        row = rows.tails[lo:hi]
        items = np.unique(row[(row >= graph.n_users) & (row < graph.n_users + graph.n_items)])
        if not observed:
            items = np.setdiff1d(items, graph.neighbours(int(u), INTERACTION))
        of_user.append(items - graph.n_users)
    owners = np.repeat(users, [len(x) for x in of_user]).astype(np.int32)
    return owners, np.concatenate([np.empty(0, dtype=np.int32), *of_user]).astype(np.int32)


def _blocks(users: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Users a few at a time."""
    return [users[k : k + USERS_PER_BLOCK] for k in range(0, len(users), USERS_PER_BLOCK)]


_workspaces: list[tuple[int, int, reaching.Workspace]] = []
"""Workspaces that are not in use, with the entities and items they have room for. To make one costs
more than one user. They outlive threads: what a thread leaves behind, malloc keeps for long."""


@contextmanager
def _workspace(n_entities: int, n_items: int) -> Iterator[reaching.Workspace]:
    """Room for ``logit_block``; it is not used again after an error."""
    entities, items, workspace = _workspaces.pop() if _workspaces else (0, 0, None)
    if workspace is None or entities < n_entities or items < n_items:
        entities, items = n_entities, n_items
        workspace = reaching.new_workspace(n_entities, n_items)
    yield workspace
    _workspaces.append((entities, items, workspace))


def _check_formula(formula: Formula, n_rules: int) -> None:
    """Refuse weights or scales of another number than the rules."""
    if not len(formula.weights) == len(formula.scales) == n_rules:
        raise LogerError(
            f"a formula needs a weight and a scale for each of {n_rules} rules, got "
            f"{len(formula.weights)} and {len(formula.scales)}"
        )


def checked_pairs(
    graph: Graph, users: ArrayLike, items: ArrayLike
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Pairs by number, or an error if one cannot be asked about."""
    u, v = checked_users(graph, users), checked_ids(items, graph.n_items, "item")
    if len(u) != len(v):
        raise LogerError(f"as many users as items are needed, got {len(u)} and {len(v)}")
    return u.astype(np.int32), v.astype(np.int32)


def _user_blocks(users: NDArray[np.int32], size: int) -> list[tuple[int, int]]:
    """Spans of about ``size`` pairs; a user's pairs stay together unless they exceed it."""
    starts = np.flatnonzero(np.diff(users, prepend=-1))
    cuts, at = [0], 0
    while at < len(users):
        k = np.searchsorted(starts, at + size, side="right") - 1
        at = int(starts[k]) if starts[k] > at else at + size
        if at + size >= len(users):
            cuts += [] if at >= len(users) else [at]
            break
        cuts.append(at)
    cuts.append(len(users))
    return [(a, b) for a, b in pairwise(cuts) if a < b]
