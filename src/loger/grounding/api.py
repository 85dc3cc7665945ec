"""Exact groundings: how often, and how strongly, each rule leads from a user to an item.

A grounding of a rule for a pair (u, v) is a simple path (METHOD L2), so the pair's own edge
never supports it; nor does a fact that is known from the interaction (u, v) alone (L3).
For an observed pair the counts are thus what they would be had it not been observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine, LocalEngine
from loger.errors import LogerError
from loger.graph import INTERACTION, Graph, checked_ids, checked_users, gather
from loger.grounding import choosing, pairs, reaching
from loger.grounding.layout import Layout, Walk, edge_spans, layout, read_only, weights_of
from loger.grounding.plans import Plan, Trie, compiled
from loger.grounding.reaching import Formula
from loger.grounding.steps import Weights
from loger.rules import RuleSet

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Cells = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]
"""Compressed rows as the kernels give them: row ends, rules, counts, strengths."""


@dataclass(frozen=True, eq=False)
class Groundings:
    """A sparse matrix, pairs × rules, of path counts and, with a walk, of path strengths."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    n_rules: int
    indptr: NDArray[np.int64]  # [pairs + 1]
    rules: NDArray[np.int32]  # [cells], ascending within a pair
    counts: NDArray[np.int64]  # [cells], all positive
    strengths: NDArray[np.float64] | None = None  # [cells]

    def __len__(self) -> int:
        return len(self.users)

    @property
    def count_matrix(self) -> csr_array:
        """Counts as a SciPy matrix, pairs × rules."""
        return self.as_matrix(self.counts)

    @property
    def strength_matrix(self) -> csr_array:
        """Strengths as a SciPy matrix, pairs × rules."""
        return self.as_matrix(self.weighed)

    @property
    def weighed(self) -> NDArray[np.float64]:
        """The strengths; an error if these groundings have none; [cells]."""
        if self.strengths is None:
            raise LogerError("these groundings were counted without a walk; pass walk=Walk(...)")
        return self.strengths

    def as_matrix(self, values: NDArray[np.number]) -> csr_array:
        """Values of the cells as a SciPy matrix, pairs × rules."""
        from scipy.sparse import csr_array  # slow to import, and scoring does not need it

        return csr_array((values, self.rules, self.indptr), shape=(len(self), self.n_rules))

    def row_sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of the cells' values for each pair; [pairs]."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        return np.bincount(rows, values, minlength=len(self)).astype(np.float64, copy=False)

    def of_rules(self, places: NDArray[np.integer]) -> Groundings:
        """The same pairs with some of the rules, ascending, which get new numbers."""
        number = np.full(self.n_rules, -1, dtype=np.int32)
        number[places] = np.arange(len(places))
        kept = number[self.rules] >= 0
        before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        return replace(
            self,
            n_rules=len(places),
            indptr=before[self.indptr],
            rules=number[self.rules[kept]],
            counts=self.counts[kept],
            strengths=None if self.strengths is None else self.strengths[kept],
        )

    def per_user(self, n_users: int) -> csr_array:
        """n_l(u): the sum of the counts of each user's pairs; users × rules."""
        from scipy.sparse import csr_array

        rows = np.arange(len(self))
        ones = np.ones(len(self), dtype=np.int64)
        member = csr_array((ones, (self.users, rows)), shape=(n_users, len(self)))
        return csr_array(member @ self.count_matrix)


def joined(
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    n_rules: int,
    results: Sequence[Cells],
    weighted: bool,
) -> Groundings:
    """Concatenate blocks of compressed rows into the groundings of these pairs."""
    sizes = [np.diff(ends) for ends, *_ in results]
    empty = np.empty(0)
    return Groundings(
        users=users.astype(np.int32),
        items=items.astype(np.int32),
        n_rules=n_rules,
        indptr=np.concatenate([[0], np.cumsum(np.concatenate([empty, *sizes]))]).astype(np.int64),
        rules=np.concatenate([empty.astype(np.int32), *(r for _, r, _, _ in results)]),
        counts=np.concatenate([empty.astype(np.int64), *(c for _, _, c, _ in results)]),
        strengths=np.concatenate([empty, *(s for *_, s in results)]) if weighted else None,
    )


def take(groundings: Groundings, rows: NDArray[np.integer]) -> Groundings:
    """The rows at these places, in this order."""
    sizes = np.diff(groundings.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    _, cells = gather(groundings.indptr[rows], sizes)
    return Groundings(
        groundings.users[rows],
        groundings.items[rows],
        groundings.n_rules,
        indptr,
        groundings.rules[cells],
        groundings.counts[cells],
        None if groundings.strengths is None else groundings.strengths[cells],
    )


def concat(parts: Sequence[Groundings], n_rules: int, weighted: bool) -> Groundings:
    """Concatenate groundings of the same rules."""
    none = np.empty(0, dtype=np.int32)
    users = np.concatenate([none, *(p.users for p in parts)])
    items = np.concatenate([none, *(p.items for p in parts)])
    rows = [
        (p.indptr, p.rules, p.counts, np.empty(0) if p.strengths is None else p.strengths)
        for p in parts
    ]
    return joined(users, items, n_rules, rows, weighted)


PAIRS_PER_BLOCK = 1024
"""Small enough to bound memory (a dense block × rules), large enough to amortize a call."""

USERS_PER_BLOCK = 32
"""Users whose items are all reached in one block; it bounds the memory of pending results."""


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
    return groundings if in_order else take(groundings, np.argsort(order))


def reweighed(
    graph: Graph,
    rules: RuleSet,
    found: Groundings,
    walks: tuple[Walk, Walk],
    engine: Engine | None = None,
) -> Groundings:
    """Groundings of the first walk with the strengths of the second.

    The worth of arriving at an item is one factor that all paths of a rule to it share. So where
    the walks differ in nothing else, the strengths are rescaled without walking again.
    """
    before, after = walks
    if replace(before, arrive=after.arrive, popular=after.popular) != after:
        return ground(graph, rules, found.users, found.items, walk=after, engine=engine)
    degrees, starts = graph.degree_table
    n = len(graph.relations)
    last = np.array([rule.relations[-1] for rule in rules])[found.rules]
    home = np.where(last >= n, last - n, last + n)
    item = np.repeat(found.items.astype(np.int64), np.diff(found.indptr)) + graph.n_users
    degree = degrees[starts[home] + item]
    worth = [w.powers[w.into[last], degree] for w in (weights_of(graph, w) for w in walks)]
    assert found.strengths is not None
    return replace(found, strengths=found.strengths * (worth[1] / worth[0]))


def _ground_block(
    shared: tuple[Layout, Plan, Weights],
    block: tuple[NDArray[np.int32], NDArray[np.int64]],
) -> Cells:
    """The groundings of a block of pairs, sorted by user."""
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
    blocks = [(part, None) for part in _blocks(checked_users(graph, users))]
    parts = list((engine or LocalEngine()).map("reaching items", _choose_block, blocks, shared))
    return concat(parts, len(rules), walk is not None)


def reach_best(
    graph: Graph,
    rules: RuleSet,
    users: ArrayLike,
    walk: Walk,
    most: ArrayLike,
    also: NDArray[np.int32],
    *,
    engine: Engine | None = None,
) -> Groundings:
    """Groundings by all rules of the items that are among the ``most[l]`` strongest by some rule l.

    ``also`` [users, any] names more items for each user, reached or not; -1 stands for none. Ties
    go to the lower item. The rows are sorted by the given users, then by item; items the user has
    interacted with are left out unless they are in ``also``.
    """
    asked, limits = checked_users(graph, users), np.asarray(most, dtype=np.int64)
    if limits.shape != (len(rules),) or len(also) != len(asked):
        raise LogerError(
            f"expected limits for {len(rules)} rules and items for {len(asked)} users, got shapes "
            f"{limits.shape} and {also.shape}"
        )
    shared = _search(graph, rules, walk)._replace(most=limits)
    ends = range(0, len(asked), USERS_PER_BLOCK)
    blocks = [(asked[k : k + USERS_PER_BLOCK], also[k : k + USERS_PER_BLOCK]) for k in ends]
    parts = list((engine or LocalEngine()).map("reaching items", _choose_block, blocks, shared))
    return concat(parts, len(rules), True)


class _Search(NamedTuple):
    """What all blocks of users share when items are reached."""

    graph: Graph
    rules: RuleSet
    walk: Walk | None
    compiled: tuple[Layout, Trie, Weights]
    observed: bool = False
    formula: Formula | None = None
    most: NDArray[np.int64] | None = None


def _search(graph: Graph, rules: RuleSet, walk: Walk | None) -> _Search:
    trie = compiled(graph, rules).trie
    return _Search(graph, rules, walk, (layout(graph), trie, weights_of(graph, walk)))


def _choose_block(
    shared: _Search, block: tuple[NDArray[np.int64], NDArray[np.int32] | None]
) -> Groundings:
    """Groundings of the wanted items of a block of users."""
    (users, also), graph, rules, walk = block, shared.graph, shared.rules, shared.walk
    most = np.full(len(rules), graph.n_items) if shared.most is None else shared.most
    extra = np.empty((len(users), 0), dtype=np.int32) if also is None else also
    wanted = read_only(choosing.Wanted(most, np.ascontiguousarray(extra)))
    sizes, items, *cells = choosing.choose_block(
        *shared.compiled, users, graph.n_users, graph.n_items, _near(shared, users), wanted
    )
    owners = np.repeat(users, sizes)
    return joined(owners, items, len(rules), [tuple(cells)], walk is not None)


def _near(shared: _Search, users: NDArray[np.int64]) -> choosing.Near:
    """Groundings of the items that users have an edge to, by user and rule."""
    distinct, rows = np.unique(users, return_inverse=True)
    pairs_near = near_items(shared.graph, distinct, shared.observed)
    found = ground(shared.graph, shared.rules, *pairs_near, walk=shared.walk, engine=LocalEngine(1))
    pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
    key = np.searchsorted(distinct, found.users[pair]) * len(shared.rules) + found.rules
    order = np.argsort(key, kind="stable")
    starts = np.searchsorted(key[order], np.arange(len(distinct) * len(shared.rules) + 1))
    strengths = np.empty(0) if found.strengths is None else found.strengths[order]
    cells = choosing.Reached(found.items[pair][order], found.counts[order], strengths)
    return choosing.Near(rows.astype(np.int64), starts.astype(np.int64), cells)


def reach_sizes(
    graph: Graph, rules: RuleSet, users: ArrayLike, *, engine: Engine | None = None
) -> NDArray[np.int64]:
    """How many items each rule reaches from each user, observed ones included; [users, rules].

    This counts the rows of ``reach`` without holding them.
    """
    asked = checked_users(graph, users)
    if len(np.unique(asked)) < len(asked) or (np.diff(asked) < 0).any():
        raise LogerError("users must be distinct and ascending; pass np.unique(users)")
    sizes = (engine or LocalEngine()).map(
        "measuring reach", _size_block, _blocks(asked), _search(graph, rules, None)
    )
    return np.concatenate([np.empty((0, len(rules)), dtype=np.int64), *sizes])


def _size_block(shared: _Search, users: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many items each rule reaches from a block of users; [users, rules]."""
    graph, rules = shared.graph, shared.rules
    far = choosing.reach_sizes(*shared.compiled, users, graph.n_users)
    owners, items = near_items(graph, users, observed=True)
    near = ground(graph, rules, owners, items, engine=LocalEngine(1))
    place = np.repeat(np.searchsorted(users, owners), np.diff(near.indptr))
    more = np.bincount(place * len(rules) + near.rules, minlength=far.size)
    sizes: NDArray[np.int64] = far + more.reshape(far.shape)
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

    This sums over the rows of ``reach`` without holding them. Items that no rule reaches have 0,
    and so have the items that the user has.
    """
    asked = checked_users(graph, users)
    if not len(formula.weights) == len(formula.scales) == len(rules):
        raise LogerError(
            f"a formula needs a weight and a scale for each of {len(rules)} rules, got "
            f"{len(formula.weights)} and {len(formula.scales)}"
        )
    search = _search(graph, rules, walk)
    shared, where = search._replace(formula=read_only(formula)), engine or LocalEngine()
    if isinstance(where, LocalEngine) and where.workers == 1:  # one array, which need not be copied
        (whole,) = where.map("scoring by rules", _logit_block, [asked], shared)
        return whole
    parts = where.map("scoring by rules", _logit_block, _blocks(asked), shared)
    out, done = np.empty((len(asked), graph.n_items), dtype=np.float32), 0
    for part in parts:
        out[done : done + len(part)] = part
        done += len(part)
    return out


def _logit_block(shared: _Search, users: NDArray[np.int64]) -> NDArray[np.float32]:
    """Σ_l w_l φ_l of all items for a block of users; [users, items]."""
    graph = shared.graph
    out = np.empty((len(users), graph.n_items), dtype=np.float32)
    with _workspace(graph.n_entities, graph.n_items) as workspace:
        spans = edge_spans(graph, {rule.relations[-1] for rule in shared.rules})
        about = shared.formula, users, graph.n_users
        reaching.logit_block(*shared.compiled, spans, *about, workspace, out)
    return out


def near_items(
    graph: Graph, users: NDArray[np.int64], observed: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The items that each user has an edge to; interactions count only if ``observed``."""
    near = np.flatnonzero(
        [graph.signature(r) == ("user", "item") for r in range(2 * len(graph.relations))]
    )
    if not observed and len(near) == 1:  # the interaction is the only way from user to item
        none = np.empty(0, dtype=np.int32)
        return none, none
    of_user, rows = [], graph.rows
    for u in users:
        row = rows.tails[rows.span(u)]
        items = np.unique(row[(row >= graph.n_users) & (row < graph.n_users + graph.n_items)])
        if not observed:
            items = np.setdiff1d(items, graph.neighbours(int(u), INTERACTION))
        of_user.append(items - graph.n_users)
    owners = np.repeat(users, [len(x) for x in of_user]).astype(np.int32)
    return owners, np.concatenate([np.empty(0, dtype=np.int32), *of_user]).astype(np.int32)


def _blocks(users: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Users in blocks of work."""
    return [users[k : k + USERS_PER_BLOCK] for k in range(0, len(users), USERS_PER_BLOCK)]


_workspaces: list[tuple[int, int, reaching.Workspace]] = []
"""Workspaces that are not in use, with the entities and items they have room for. Making one costs
more than scoring one user. They outlive threads, since malloc would keep what a thread frees."""


@contextmanager
def _workspace(n_entities: int, n_items: int) -> Iterator[reaching.Workspace]:
    """A workspace for ``logit_block``. After an error it is dropped, as it may not be all zeros."""
    try:
        entities, items, workspace = _workspaces.pop()
    except IndexError:  # all are in use
        entities, items, workspace = 0, 0, None
    if workspace is None or entities < n_entities or items < n_items:
        entities, items = n_entities, n_items
        workspace = reaching.new_workspace(n_entities, n_items)
    yield workspace
    _workspaces.append((entities, items, workspace))


def checked_pairs(
    graph: Graph, users: ArrayLike, items: ArrayLike
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Pairs by number; an error if one is not in the graph."""
    u, v = checked_users(graph, users), checked_ids(items, graph.n_items, "item")
    if len(u) != len(v):
        raise LogerError(f"users and items must have the same length, got {len(u)} and {len(v)}")
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
