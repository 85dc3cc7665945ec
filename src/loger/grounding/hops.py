"""The compiled loops that walk paths hop by hop; ``search`` and ``reasoner`` call them.

A rule set is a tree of prefixes. From each prefix that a walk stands at, branches lead on, each
over one relation: a branch may end a rule, continue, or both. Rules have three hops at most.
What a simple path forbids, or what only the pair itself is witness of (METHOD L2, L3), is never
walked: the first hop is no fact known from the pair alone, nor is the last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.compiled import kernel
from loger.grounding.kernels import _first_at_least, _inverse, _next_common, _segment
from loger.rules import MAX_HOPS, RuleSet


def relation_table(rules: RuleSet) -> NDArray[np.int64]:
    """The relations of rules, -1 after the end of each; [rules, MAX_HOPS]."""
    table = np.full((len(rules), MAX_HOPS), -1, dtype=np.int64)
    for k, rule in enumerate(rules):
        table[k, : len(rule)] = rule.relations
    return table


class Tree(NamedTuple):
    """A rule set as a tree of prefixes; node 0 is the empty prefix."""

    starts: NDArray[np.int64]  # [nodes + 1]: the branches of each node
    relations: NDArray[np.int64]  # [branches]
    nodes: NDArray[np.int64]  # [branches]: the node that the branch leads on to, or -1
    rules: NDArray[np.int64]  # [branches]: the rule that ends with the branch, or -1


@kernel
def _sets_out(g, u, relation, a, v):  # type: ignore[no-untyped-def]
    """Whether u –relation→ a is a fact of the user u that is not known from (u, v) alone."""
    home = g.home
    lo, hi = _segment(home, u, relation)
    e = _first_at_least(home.tails, lo, hi, a)
    return e < hi and home.tails[e] == a and not (len(home.origins) > 0 and home.origins[e] == v)


@kernel
def _leads(g, b, relation, u, v):  # type: ignore[no-untyped-def]
    """Whether b –relation→ v is a fact that is not known from (u, v) alone."""
    lo, hi = _segment(g, v, _inverse(relation, g.n_relations))
    e = _first_at_least(g.tails, lo, hi, b)
    return e < hi and g.tails[e] == b and not (len(g.origins) > 0 and g.origins[e] == u)


@kernel
def _ends(g, tree, node, b, u, v):  # type: ignore[no-untyped-def]
    """Whether one hop from b to v ends some rule."""
    for k in range(tree.starts[node], tree.starts[node + 1]):
        if tree.rules[k] >= 0 and _leads(g, b, tree.relations[k], u, v):
            return True
    return False


@kernel
def _reaches(g, tree, node, a, u, v):  # type: ignore[no-untyped-def]
    """Whether one hop, or two, from a to v end some rule."""
    if _ends(g, tree, node, a, u, v):
        return True
    for k in range(tree.starts[node], tree.starts[node + 1]):
        child = tree.nodes[k]
        if child < 0:
            continue
        lo, hi = _segment(g, a, tree.relations[k])
        for j in range(tree.starts[child], tree.starts[child + 1]):
            if tree.rules[j] < 0 or lo == hi:
                continue
            back, end = _segment(g, v, _inverse(tree.relations[j], g.n_relations))
            i, at = _next_common(g.tails, back, end, lo, hi)
            while i < end:
                if g.tails[i] != u and not (len(g.origins) > 0 and g.origins[i] == u):
                    return True
                i, at = _next_common(g.tails, i + 1, end, at + 1, hi)
    return False


@kernel
def _put(out, n, row, relation, entity, node, rule):  # type: ignore[no-untyped-def]
    """Write one continuation; the table, twice as large if it was full."""
    if n == len(out):
        larger = np.empty((2 * n, 5), dtype=np.int64)
        larger[:n] = out
        out = larger
    out[n, 0], out[n, 1], out[n, 2], out[n, 3], out[n, 4] = row, relation, entity, node, rule
    return out


@kernel
def _before_last(g, tree, row, k, entity, u, v, out, n):  # type: ignore[no-untyped-def]
    """The continuations by a branch after which one hop is left, by intersection with N(v)."""
    child = tree.nodes[k]
    lo, hi = _segment(g, entity, tree.relations[k])
    first = tree.starts[child]
    for j in range(first, tree.starts[child + 1]):
        if tree.rules[j] < 0 or lo == hi:
            continue
        back, end = _segment(g, v, _inverse(tree.relations[j], g.n_relations))
        i, at = _next_common(g.tails, back, end, lo, hi)
        while i < end:
            b = g.tails[i]
            new = b != u and not (len(g.origins) > 0 and g.origins[i] == u)
            for other in range(first, j):  # found before, by another last relation
                if new and tree.rules[other] >= 0:
                    new = not _leads(g, b, tree.relations[other], u, v)
            if new:
                out = _put(out, n, row, tree.relations[k], b, child, -1)
                n += 1
            i, at = _next_common(g.tails, i + 1, end, at + 1, hi)
    return out, n


@kernel
def continuations(g, tree, u, items, hop, targets, entities, nodes, reach):  # type: ignore[no-untyped-def]
    """All ways on from walks of ``hop`` hops; rows (walk, relation, entity, node, rule).

    Walk i stands at ``entities[i]``, by the prefix ``nodes[i]``, on its way from u to the item
    ``items[targets[i]]``. A way that ends a rule at that item has the rule and node -1, any
    other has rule -1. With ``reach`` only ways from which the item can be reached are given.
    """
    out, n = np.empty((256, 5), dtype=np.int64), 0
    home, has_origins = g.home, len(g.origins) > 0
    for row in range(len(entities)):
        here, v, node = entities[row], items[targets[row]], nodes[row]
        for k in range(tree.starts[node], tree.starts[node + 1]):
            r, child = tree.relations[k], tree.nodes[k]
            ends = tree.rules[k] >= 0
            if ends:
                ends = _sets_out(g, u, r, v, v) if hop == 0 else _leads(g, here, r, u, v)
            if ends:
                out = _put(out, n, row, r, v, -1, tree.rules[k])
                n += 1
            if child < 0:
                continue
            if reach and hop == 1:
                out, n = _before_last(g, tree, row, k, here, u, v, out, n)
                continue
            if hop == 0:
                lo, hi = _segment(home, here, r)
            else:
                lo, hi = _segment(g, here, r)
            for e in range(lo, hi):
                b = home.tails[e] if hop == 0 else g.tails[e]
                inner = b != u and b != v
                if hop == 0 and has_origins and home.origins[e] == v:
                    inner = False
                if inner and (not reach or _reaches(g, tree, child, b, u, v)):
                    out = _put(out, n, row, r, b, child, -1)
                    n += 1
    return out[:n].copy()


@kernel
def nth_paths(g, relations, lengths, users, items, places):  # type: ignore[no-untyped-def]
    """For each pair and rule the path at a place among all of its paths; [paths, 4].

    Row i is a rule of ``lengths[i]`` hops over ``relations[i]``; unused nodes are -1, and so
    are all nodes but the user where there is no path at the place. ``items`` are entity ids.
    """
    nodes = np.full((len(users), 4), -1, dtype=np.int32)
    for i in range(len(users)):
        nodes[i, 0] = users[i]
        if lengths[i] == 3:
            _nth_of_three(g, users[i], items[i], relations[i], places[i], nodes[i])
        elif lengths[i] == 2:
            _nth_of_two(g, users[i], items[i], relations[i], places[i], nodes[i])
        elif _sets_out(g, users[i], relations[i, 0], items[i], items[i]) and places[i] == 0:
            nodes[i, 1] = items[i]
    return nodes


@kernel
def _nth_of_three(g, u, v, relations, place, nodes):  # type: ignore[no-untyped-def]
    home, has_origins, found = g.home, len(g.origins) > 0, 0
    back, end = _segment(g, v, _inverse(relations[2], g.n_relations))
    lo, hi = _segment(home, u, relations[0])
    for e in range(lo, hi):
        a = home.tails[e]
        if a == v or (has_origins and home.origins[e] == v):
            continue
        first, last = _segment(g, a, relations[1])
        i, j = _next_common(g.tails, back, end, first, last)
        while i < end:
            if g.tails[i] != u and not (has_origins and g.origins[i] == u):
                if found == place:
                    nodes[1], nodes[2], nodes[3] = a, g.tails[i], v
                    return
                found += 1
            i, j = _next_common(g.tails, i + 1, end, j + 1, last)


@kernel
def _nth_of_two(g, u, v, relations, place, nodes):  # type: ignore[no-untyped-def]
    home, has_origins, found = g.home, len(g.origins) > 0, 0
    back, end = _segment(g, v, _inverse(relations[1], g.n_relations))
    lo, hi = _segment(home, u, relations[0])
    for e in range(lo, hi):
        a = home.tails[e]
        at = _first_at_least(g.tails, back, end, a)
        if at == end or g.tails[at] != a:
            continue
        if not (has_origins and (home.origins[e] == v or g.origins[at] == u)):
            if found == place:
                nodes[1], nodes[2] = a, v
                return
            found += 1
