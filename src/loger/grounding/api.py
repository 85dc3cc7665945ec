"""Exact groundings: how often, and how strongly, each rule leads from a user to an item.

A grounding of a rule for a pair (u, v) is a simple path (METHOD L2), so the pair's own edge
never supports it; nor does a fact that is known from the interaction (u, v) alone (L3).
For an observed pair the counts are thus what they would be had it not been observed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from loger.engine import Engine, LocalEngine
from loger.errors import LogerError
from loger.graph import INTERACTION, Graph, Rows, UserView, checked_ids, checked_users, gather
from loger.grounding import kernels
from loger.grounding.layout import Layout, layout, read_only
from loger.rules import MAX_HOPS, Rule, RuleSet

PAIRS_PER_BLOCK = 1024
"""Small enough to bound memory (a dense block × rules), large enough to amortise a call."""

USERS_PER_BLOCK = 32
"""For all items of a user; bounds the memory of the results under way."""


Cells = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]
"""Compressed rows as the kernels give them: row ends, rules, counts, strengths."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How a path's strength falls with degrees and age (METHOD 5, ``walk``).

    Each hop h –r→ t divides it by deg_r(h) to a power that depends on what is left, and the
    last hop also by a power of deg_r⁻¹(v). Where the graph knows times, a first hop over an
    interaction is divided by (1 + the user's later ones)^recency as well.
    """

    first: float = 1.0
    """The user, over any relation."""
    item: float = 1.0
    """An item, to those who interacted with it."""
    user: float = 1.0
    """Another user, to what it interacted with."""
    fact: float = 1.0
    """Any entity, over a fact."""
    arrive: float = 0.0
    """The recommended item, by the facts that lead to it …"""
    popular: float = 0.0
    """… or by the interactions that do, if the last hop is one."""
    recency: float = 0.0

    @classmethod
    def uniform(cls, beta: float) -> Walk:
        """METHOD's walk: 1/deg^β of every hop."""
        return cls(beta, beta, beta, beta)


@dataclass(frozen=True, eq=False)
class Groundings:
    """A sparse matrix pairs × rules of path counts and, if asked for, path strengths."""

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
        shape = (len(self), self.n_rules)
        return csr_array((self.counts, self.rules, self.indptr), shape=shape)

    @property
    def strength_matrix(self) -> csr_array:
        """Strengths as a SciPy matrix, pairs × rules."""
        if self.strengths is None:
            raise LogerError("these groundings were counted without a walk; pass walk=Walk(...)")
        shape = (len(self), self.n_rules)
        return csr_array((self.strengths, self.rules, self.indptr), shape=shape)

    def with_empty_rows(
        self,
        there: NDArray[np.bool_],
        users: NDArray[np.integer],
        items: NDArray[np.integer],
    ) -> Groundings:
        """Pairs of which those marked ``there`` are these, in order; for others no rule fires."""
        sizes = np.zeros(len(there), dtype=np.int64)
        sizes[there] = np.diff(self.indptr)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        pairs = (users.astype(np.int32), items.astype(np.int32))
        return replace(self, users=pairs[0], items=pairs[1], indptr=indptr)

    def per_user(self, n_users: int) -> csr_array:
        """n_l(u): the counts of each user's pairs added up; users × rules."""
        rows = np.arange(len(self))
        ones = np.ones(len(self), dtype=np.int64)
        member = csr_array((ones, (self.users, rows)), shape=(n_users, len(self)))
        return csr_array(member @ self.count_matrix)


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
    u, v = _checked_pairs(graph, users, items)
    order = np.argsort(u, kind="stable")
    u, entities = u[order], v[order].astype(np.int64) + graph.n_users
    shared = layout(graph), _plan(len(graph.relations), rules), _weights(graph, walk)
    blocks = [(u[lo:hi], entities[lo:hi]) for lo, hi in _user_blocks(u, PAIRS_PER_BLOCK)]
    results = list(
        (engine or LocalEngine()).map("counting groundings", _ground_block, blocks, shared)
    )
    found = _joined(u, v[order], len(rules), results, walk is not None)
    return found if np.array_equal(order, np.arange(len(order))) else _reordered(found, order)


def _ground_block(
    shared: tuple[Layout, kernels.Plan, kernels.Weights],
    block: tuple[NDArray[np.int32], NDArray[np.int64]],
) -> Cells:
    """The groundings of a block's pairs, which are sorted by user."""
    users, entities = block
    own, starts = np.unique(users.astype(np.int64), return_index=True)
    cells: Cells = kernels.ground_block(*shared, own, np.append(starts, len(users)), entities)
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
    compiled: tuple[Layout, kernels.Trie, kernels.Weights]
    observed: bool = True
    formula: kernels.Formula | None = None


def _search(graph: Graph, rules: RuleSet, walk: Walk | None) -> _Search:
    trie = _trie(len(graph.relations), rules)
    return _Search(graph, rules, walk, (layout(graph), trie, _weights(graph, walk)))


def _reach_block(shared: _Search, own: NDArray[np.int64]) -> Groundings:
    """Groundings of every item that is reached from a block of users."""
    graph, rules, walk = shared.graph, shared.rules, shared.walk
    sizes, items, *cells = kernels.reach_block(*shared.compiled, own, graph.n_users, graph.n_items)
    far = _joined(np.repeat(own, sizes), items, len(rules), [tuple(cells)], walk is not None)
    pairs = near_items(graph, own, shared.observed)
    return _merged(far, ground(graph, rules, *pairs, walk=walk, engine=LocalEngine(1)), own)


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


def _size_block(shared: _Search, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many items each rule reaches from a block of users; [users, rules]."""
    graph, rules = shared.graph, shared.rules
    far = kernels.reach_sizes(*shared.compiled, own, graph.n_users, graph.n_items)
    pairs = near_items(graph, own, observed=True)
    near = ground(graph, rules, *pairs, engine=LocalEngine(1)).count_matrix > 0
    place = np.searchsorted(own, pairs[0])
    ones, columns = np.ones(len(place), np.int64), np.arange(len(place))
    member = csr_array((ones, (place, columns)), shape=(len(own), len(place)))
    sizes: NDArray[np.int64] = far + (member @ near.astype(np.int64)).toarray()
    return sizes


def logits(
    graph: Graph,
    rules: RuleSet,
    users: ArrayLike,
    formula: kernels.Formula,
    *,
    walk: Walk | None = None,
    engine: Engine | None = None,
) -> NDArray[np.float32]:
    """Σ_l w_l φ_l of all items that the user has no interaction with; [users, items].

    The same as summing over the rows of ``reach``, without holding them. Items that no rule
    reaches have 0, and so have the user's own.
    """
    asked = checked_users(graph, users)
    search = _search(graph, rules, walk)
    blocks, shared = _blocks(asked), search._replace(formula=read_only(formula))
    parts = (engine or LocalEngine()).map("scoring by rules", _logit_block, blocks, shared)
    out, done = np.empty((len(asked), graph.n_items), dtype=np.float32), 0
    for part in parts:
        out[done : done + len(part)] = part
        done += len(part)
    return out


def _logit_block(shared: _Search, own: NDArray[np.int64]) -> NDArray[np.float32]:
    """Σ_l w_l φ_l of all items for a block of users; [users, items]."""
    graph = shared.graph
    out = np.zeros((len(own), graph.n_items), dtype=np.float32)
    with _desk(graph.n_entities, graph.n_items) as desk:
        kernels.logit_block(*shared.compiled, shared.formula, own, graph.n_users, desk, out)
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


def _blocks(users: NDArray[np.integer]) -> list[NDArray[np.int64]]:
    """Users a few at a time."""
    own = users.astype(np.int64)
    return [own[k : k + USERS_PER_BLOCK] for k in range(0, len(own), USERS_PER_BLOCK)]


def count_paths(graph: Graph, rule: Rule, user: int, item: int) -> int:
    """How many simple paths of one rule lead from a user to an item."""
    return _listed(graph, rule, user, item, np.empty(0, dtype=np.int64))[0]


def paths(graph: Graph, rule: Rule, user: int, item: int) -> NDArray[np.int32]:
    """All groundings of one rule for one pair, as entity ids; [paths, hops + 1], sorted."""
    total = count_paths(graph, rule, user, item)
    return _listed(graph, rule, user, item, np.arange(total))[1]


def sample_paths(
    graph: Graph, rule: Rule, user: int, item: int, n: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """At most n groundings of one rule for one pair, uniformly and without repetition."""
    total = count_paths(graph, rule, user, item)
    wanted = np.sort(rng.choice(total, size=min(n, total), replace=False))
    return _listed(graph, rule, user, item, wanted)[1]


def strongest_paths(
    graph: Graph,
    rules: RuleSet,
    places: NDArray[np.integer],
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    n: int,
    walk: Walk | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The n strongest groundings of the rule at ``places[i]`` for the pair (users[i], items[i]).

    Returns the entities between the ends, [pairs, n, 2] with -1 for none, and the strengths,
    [pairs, n], strongest first, 0 where there are fewer. Without a walk all are of strength 1.
    Of equal strengths those come first that ``paths`` lists first.
    """
    relations = np.full((len(rules), MAX_HOPS), -1, dtype=np.int64)
    for row, rule in zip(relations, rules, strict=True):
        row[: len(rule)] = rule.relations
    nodes = np.full((len(users), n, 2), -1, dtype=np.int32)
    strengths = np.zeros((len(users), n))
    if n < 1:
        return nodes, strengths
    u, v = users.astype(np.int64), items.astype(np.int64) + graph.n_users
    weights = _weights(graph, walk or Walk.uniform(0.0))
    kernels.strongest_paths(layout(graph), weights, u, v, relations[places], nodes, strengths)
    return nodes, strengths


# ── rule sets and graphs as the kernels read them ───────────────────────────────────────


_desks: list[tuple[int, int, kernels.Desk]] = []
"""Desks that nobody works at, with the entities and items they have room for. To make one costs
more than one user. They outlive threads: what a thread leaves behind, malloc keeps for long."""


@contextmanager
def _desk(n_entities: int, n_items: int) -> Iterator[kernels.Desk]:
    """Room for ``logit_block``; it is not used again after an error."""
    entities, items, desk = _desks.pop() if _desks else (0, 0, None)
    if desk is None or entities < n_entities or items < n_items:
        entities, items, desk = n_entities, n_items, kernels.new_desk(n_entities, n_items)
    yield desk
    _desks.append((entities, items, desk))


_known_weights: WeakKeyDictionary[Graph, dict[Walk | None, kernels.Weights]] = WeakKeyDictionary()


def _weights(graph: Graph, walk: Walk | None) -> kernels.Weights:
    """The factors of a walk in a graph, made once."""
    known = _known_weights.setdefault(graph, {})
    if walk not in known:
        known[walk] = read_only(_new_weights(graph, walk))
    return known[walk]


def _new_weights(graph: Graph, walk: Walk | None) -> kernels.Weights:
    none, nowhere = np.empty(0), np.empty(0, dtype=np.int64)
    if walk is None:
        return kernels.Weights(np.empty((0, 0)), nowhere, nowhere, nowhere, none)
    edges: NDArray[np.float64] = none
    if walk.recency and graph.later is not None:
        edges = (1.0 + graph.later).astype(np.float64) ** -walk.recency
    if isinstance(graph, UserView):
        known = _weights(graph.base, walk)
        if graph.max_degree < known.powers.shape[1]:
            return known._replace(edges=edges)
    # One degree more than there is, for who has an interaction more.
    degree = np.maximum(np.arange(graph.max_degree + 2), 1).astype(np.float64)
    exponents = np.array(
        [0.0, walk.first, walk.item, walk.user, walk.fact, walk.arrive, walk.popular]
    )
    powers = degree ** -exponents[:, None]  # [exponents, degrees]
    n = len(graph.relations)
    # Exponents of 0 are passed over, not looked up for every item.
    leave, into = np.full(2 * n, 4), np.full(2 * n, 5 if walk.arrive else 0)
    leave[INTERACTION], leave[INTERACTION + n] = 3, 2
    into[INTERACTION] = 6 if walk.popular else 0
    return kernels.Weights(powers, np.full(2 * n, 1), leave, into, edges)


@lru_cache(maxsize=64)
def _plan(n_relations: int, rules: RuleSet) -> kernels.Plan:
    """Number the prefixes and index the rules by them."""
    n = 2 * n_relations
    prefixes = sorted({rule.relations[:-1] for rule in rules}, key=lambda p: (len(p), p))
    first, second = np.full(n, -1), np.full((n, n), -1)
    rule_of = np.full((n, max(1, len(prefixes))), -1, dtype=np.int32)
    for number, prefix in enumerate(prefixes):
        if len(prefix) == 1:
            first[prefix] = number
        elif len(prefix) == 2:
            second[prefix] = number
    for place, rule in enumerate(rules):
        cell = rule.relations[-1], prefixes.index(rule.relations[:-1])
        if rule_of[cell] >= 0:
            raise LogerError(f"the rule {rule} is in the rule set twice")
        rule_of[cell] = place
    slot, slots_of = np.zeros(len(prefixes), dtype=np.int64), Counter[str]()
    end_of = {rule.relations[:-1]: rule.types[-2] for rule in rules}
    for number, prefix in enumerate(prefixes):
        end = end_of[prefix]
        slot[number] = slots_of[end]
        slots_of[end] += 1
    last, prefix_of = np.nonzero(rule_of >= 0)  # by last relation
    return read_only(
        kernels.Plan(
            first=first,
            second=second,
            expands=np.any(second >= 0, axis=1),
            ends=np.any(rule_of >= 0, axis=1),
            rule_of=rule_of,
            slot=slot,
            stride=max(slots_of.values(), default=1),
            end_starts=np.searchsorted(last, np.arange(n + 1)),
            end_slots=slot[prefix_of],
            end_rules=rule_of[last, prefix_of].astype(np.int64),
            n_rules=len(rules),
            direct=any(len(rule) == 1 for rule in rules),
        )
    )


@lru_cache(maxsize=64)
def _trie(n_relations: int, rules: RuleSet) -> kernels.Trie:
    """The prefixes of rules of two and three hops as a tree."""
    prefixes = sorted({r.relations[:k] for r in rules for k in range(1, len(r))})
    node = {prefix: k for k, prefix in enumerate(prefixes)}
    root = np.full(2 * n_relations, -1)
    children: list[list[tuple[int, int]]] = [[] for _ in prefixes]
    ends: list[list[tuple[int, int]]] = [[] for _ in prefixes]
    for prefix, k in node.items():
        if len(prefix) == 1:
            root[prefix] = k
        else:
            children[node[prefix[:-1]]].append((prefix[-1], k))
    for place, rule in enumerate(rules):
        if len(rule) > 1:
            ends[node[rule.relations[:-1]]].append((rule.relations[-1], place))
    return read_only(kernels.Trie(root, *_ragged(children), *_ragged(ends), len(rules)))


def _ragged(
    lists: Sequence[Sequence[tuple[int, int]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    starts = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
    flat = np.array([pair for x in lists for pair in x], dtype=np.int64).reshape(-1, 2)
    return starts, np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1])


# ── pairs and blocks ────────────────────────────────────────────────────────────────────


def _checked_pairs(
    graph: Graph, users: ArrayLike, items: ArrayLike
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
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


def _joined(
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    n_rules: int,
    results: Sequence[Cells],
    weighted: bool,
) -> Groundings:
    """Blocks of compressed rows, one after another."""
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


def _reordered(found: Groundings, order: NDArray[np.integer]) -> Groundings:
    """Row k of ``found`` is put back to place ``order[k]``."""
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return take(found, back)


def take(found: Groundings, rows: NDArray[np.integer]) -> Groundings:
    """The pairs at these places."""
    sizes = np.diff(found.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    _, cells = gather(found.indptr[rows], sizes)
    return Groundings(
        found.users[rows],
        found.items[rows],
        found.n_rules,
        indptr,
        found.rules[cells],
        found.counts[cells],
        None if found.strengths is None else found.strengths[cells],
    )


def concat(parts: Sequence[Groundings], n_rules: int, weighted: bool) -> Groundings:
    """Pairs of the same rules, one set after another."""
    none = np.empty(0, dtype=np.int32)
    users = np.concatenate([none, *(p.users for p in parts)])
    items = np.concatenate([none, *(p.items for p in parts)])
    rows = [
        (p.indptr, p.rules, p.counts, np.empty(0) if p.strengths is None else p.strengths)
        for p in parts
    ]
    return _joined(users, items, n_rules, rows, weighted)


def _merged(far: Groundings, near: Groundings, users: NDArray[np.int64]) -> Groundings:
    """Two sets of pairs as one, by the place of the user and then by item; empty rows dropped."""
    near = take(near, np.flatnonzero(np.diff(near.indptr)))
    both = concat([far, near], far.n_rules, far.strengths is not None)
    place = np.zeros(int(users.max(initial=0)) + 1, dtype=np.int64)
    place[users] = np.arange(len(users))
    return take(both, np.lexsort((both.items, place[both.users])))


def _listed(
    graph: Graph, rule: Rule, user: int, item: int, wanted: NDArray[np.int64]
) -> tuple[int, NDArray[np.int32]]:
    """How many groundings there are, and those whose places are wanted."""
    (u,), (v,) = _checked_pairs(graph, user, item)
    v = v + graph.n_users
    nodes = np.empty((len(wanted), len(rule) + 1), dtype=np.int32)
    nodes[:, 0], nodes[:, -1] = u, v
    if len(rule) == 3:
        middle = np.empty((len(wanted), 2), dtype=np.int32)
        total = kernels.middle_pairs(layout(graph), u, v, *rule.relations, wanted, middle)
        nodes[:, 1:3] = middle
        return int(total), nodes
    ends = _short_paths(graph, rule, int(u), int(v))
    if len(rule) == 2:
        nodes[:, 1] = ends[wanted]
    return len(ends), nodes


def _short_paths(graph: Graph, rule: Rule, u: int, v: int) -> NDArray[np.int32]:
    """The middle nodes of a rule's paths of two hops; of one hop, v if the edge is there."""
    first = _open_neighbours(graph.rows, u, rule.relations[0], v)
    if len(rule) == 1:
        direct: NDArray[np.int32] = first[first == v]
        return direct
    base = graph.base if isinstance(graph, UserView) else graph
    last = _open_neighbours(base.rows, v, graph.inverse(rule.relations[1]), u)
    both: NDArray[np.int32] = np.intersect1d(first, last, assume_unique=True)
    return both


def _open_neighbours(rows: Rows, head: int, relation: int, other: int) -> NDArray[np.int32]:
    """Neighbours over edges that are not known from the interaction with ``other`` alone."""
    near = rows.neighbours(head, relation)
    if not len(rows.origins) or not len(near):
        return near
    at = rows.segment_starts[rows.segment(head, relation)]
    other_origin: NDArray[np.bool_] = rows.origins[at : at + len(near)] != other
    return near[other_origin]
