"""Other ways to compute the same counts, for the grounding benchmark to compare with.

All return a SciPy matrix pairs × rules. They are written as their users would write them, and
compute what rules share only once. None supports facts with origins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_array

from loger.graph import KnowledgeGraph
from loger.rules import RuleSet


def _edges(graph: KnowledgeGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    heads = np.repeat(np.arange(graph.n_entities), np.diff(graph.indptr))
    relations = np.repeat(graph.segment_relations, np.diff(graph.segment_starts))
    return heads, relations.astype(np.int64), graph.tails.astype(np.int64)


class Prefixes(NamedTuple):
    """Rules by what they begin with: all relations but the last."""

    first: np.ndarray  # [2R]: number of the prefix (r,), or -1
    second: np.ndarray  # [2R, 2R]: number of the prefix (r, s), or -1
    rule_of: np.ndarray  # [2R, prefixes]: the rule with that last relation and prefix, or -1


def prefixes_of(graph: KnowledgeGraph, rules: RuleSet) -> Prefixes:
    """Number the prefixes of rules."""
    n = 2 * len(graph.relations)
    prefixes = sorted({rule.relations[:-1] for rule in rules}, key=lambda p: (len(p), p))
    first, second = np.full(n, -1), np.full((n, n), -1)
    for number, prefix in enumerate(prefixes):
        if prefix:
            (first if len(prefix) == 1 else second)[prefix] = number
    rule_of = np.full((n, len(prefixes)), -1, dtype=np.int32)
    for place, rule in enumerate(rules):
        rule_of[rule.relations[-1], prefixes.index(rule.relations[:-1])] = place
    return Prefixes(first, second, rule_of)


def by_scipy(
    graph: KnowledgeGraph, rules: RuleSet, users: np.ndarray, items: np.ndarray
) -> csr_array:
    """Row blocks of A₁·A₂ per prefix, met with the columns of A₃ at the pairs alone.

    Never the whole product; walks that return to the user or pass through the item are
    left out by taking those entries away.
    """
    heads, relations, tails = _edges(graph)
    n = graph.n_entities
    used = {r for rule in rules for r in rule.relations}
    a = {}
    for r in used | {graph.inverse(r) for r in used}:
        mine = relations == r
        a[r] = csr_array((np.ones(mine.sum(), dtype=np.int64), (heads[mine], tails[mine])), (n, n))
    own, row = np.unique(users, return_inverse=True)
    item = items + graph.n_users
    out = np.zeros((len(users), len(rules)), dtype=np.int64)
    prefixes: dict[tuple[int, ...], list[int]] = {}
    for place, rule in enumerate(rules):
        prefixes.setdefault(rule.relations[:-1], []).append(place)
    for prefix, places in prefixes.items():
        if not prefix:
            continue
        front = a[prefix[0]][own]
        if len(prefix) == 2:
            front = (front @ a[prefix[1]]).tocsr()
            keep = np.repeat(own, np.diff(front.indptr)) != front.indices  # not back to the user
            front = csr_array((front.data * keep, front.indices, front.indptr), front.shape)
        reached = front[row]
        for place in places:
            last = a[graph.inverse(rules[place].relations[-1])][item]
            out[:, place] = np.asarray(reached.multiply(last).sum(axis=1)).ravel()
            if len(prefix) == 2:  # u → v → b → v passes through its own end
                first = a[prefix[0]][users, item]
                trips = a[prefix[1]][item].multiply(last).tocsr()
                home = np.asarray(trips[np.arange(len(users)), users]).ravel()
                out[:, place] -= np.asarray(first).ravel() * (
                    np.asarray(trips.sum(axis=1)).ravel() - home
                )
    return csr_array(out)


def by_duckdb(
    graph: KnowledgeGraph, rules: RuleSet, users: np.ndarray, items: np.ndarray
) -> csr_array:
    """One join per rule length over an edge table, grouped by pair and relations."""
    import duckdb

    h, r, t = _edges(graph)
    v = items + graph.n_users
    pairs = {"k": np.arange(len(users)), "u": users.astype(np.int64), "v": v}  # noqa: F841
    edges = {"h": h, "r": r, "t": t}  # noqa: F841
    place = {rule.relations: k for k, rule in enumerate(rules)}
    base = duckdb.connect()
    base.execute("create table e as select * from edges")
    base.execute("create table p as select * from pairs")
    out = np.zeros((len(users), len(rules)), dtype=np.int64)
    for query in (
        "select k, a.r, b.r, count(*) from p join e a on a.h = u join e b on b.h = a.t and b.t = v "
        "group by all",
        "select k, a.r, b.r, c.r, count(*) from p join e a on a.h = u join e c on c.t = v "
        "join e b on b.h = a.t and b.t = c.h where a.t <> v and c.h <> u group by all",
    ):
        for k, *relations, count in base.execute(query).fetchall():
            rule = place.get(tuple(relations))
            if rule is not None:
                out[k, rule] += count
    return csr_array(out)


def by_nested_loop(
    graph: KnowledgeGraph, rules: RuleSet, users: np.ndarray, items: np.ndarray
) -> csr_array:
    """For each user all walks of up to three hops that the rules allow, as plain loops."""
    plan = prefixes_of(graph, rules)
    own, starts = np.unique(users, return_index=True)
    out = np.zeros((len(users), len(rules)), dtype=np.int64)
    relations = np.repeat(graph.segment_relations, np.diff(graph.segment_starts)).astype(np.int64)
    v = items.astype(np.int64) + graph.n_users
    spans = np.append(starts, len(users))
    _nested(
        graph.indptr,
        relations,
        graph.tails,
        plan.first,
        plan.second,
        plan.rule_of,
        own,
        spans,
        v,
        out,
    )
    return csr_array(out)


@njit(parallel=True, cache=True)
def _nested(indptr, relations, tails, first, second, rule_of, users, spans, items, out):
    for i in prange(len(users)):
        u = users[i]
        wanted = np.full(len(indptr) - 1, -1, dtype=np.int32)
        for k in range(spans[i], spans[i + 1]):
            wanted[items[k]] = k
        for e1 in range(indptr[u], indptr[u + 1]):
            a, r1 = tails[e1], relations[e1]
            for e2 in range(indptr[a], indptr[a + 1]):
                b, r2 = tails[e2], relations[e2]
                if b == u:
                    continue
                if first[r1] >= 0 and wanted[b] >= 0:
                    rule = rule_of[r2, first[r1]]
                    if rule >= 0:
                        out[wanted[b], rule] += 1
                prefix = second[r1, r2]
                if prefix < 0:
                    continue
                for e3 in range(indptr[b], indptr[b + 1]):
                    v = tails[e3]
                    if wanted[v] >= 0 and v != a:
                        rule = rule_of[relations[e3], prefix]
                        if rule >= 0:
                            out[wanted[v], rule] += 1


def by_sketch(
    graph: KnowledgeGraph, rules: RuleSet, users: np.ndarray, items: np.ndarray
) -> csr_array:
    """The sketch of METHOD 4: mark N(v); for each a in N(u) scan N(a) or search the marks in it."""
    plan = prefixes_of(graph, rules)
    n = 2 * len(graph.relations)
    relations = np.repeat(graph.segment_relations, np.diff(graph.segment_starts)).astype(np.int64)
    v = items.astype(np.int64) + graph.n_users
    block = 16_384
    parts = []
    for lo in range(0, len(users), block):
        us, vs = users[lo : lo + block], v[lo : lo + block]
        out = np.zeros((len(us), len(rules)), dtype=np.int64)
        _sketch(
            graph.indptr, relations, graph.tails, graph.pair_tails, graph.pair_relations,
            plan.first, plan.second, plan.rule_of, n, us, vs, out,
        )  # fmt: skip
        parts.append(csr_array(out))
    from scipy.sparse import vstack

    return csr_array(vstack(parts))


@njit(parallel=True, cache=True)
def _sketch(
    indptr, relations, tails, by_tail, by_tail_relations, first, second, rule_of, n, us, vs, out
):
    chunks = 64
    size = (len(us) + chunks - 1) // chunks
    for c in prange(chunks):
        mark = np.full(len(indptr) - 1, -1, dtype=np.int32)  # first edge of v to the entity
        for k in range(c * size, min((c + 1) * size, len(us))):
            u, v = us[k], vs[k]
            lo, hi = indptr[v], indptr[v + 1]
            for e in range(hi - 1, lo - 1, -1):
                mark[by_tail[e]] = e
            for e1 in range(indptr[u], indptr[u + 1]):
                a, r1 = tails[e1], relations[e1]
                if a == v:
                    continue
                if mark[a] >= 0 and first[r1] >= 0:
                    e = mark[a]
                    while e < hi and by_tail[e] == a:
                        last = (np.int64(by_tail_relations[e]) + n // 2) % n
                        rule = rule_of[last, first[r1]]
                        if rule >= 0:
                            out[k, rule] += 1
                        e += 1
                alo, ahi = indptr[a], indptr[a + 1]
                if (ahi - alo) <= 12 * (hi - lo):
                    for e2 in range(alo, ahi):
                        b = tails[e2]
                        if mark[b] >= 0 and b != u:
                            _finish(
                                by_tail,
                                by_tail_relations,
                                mark[b],
                                hi,
                                b,
                                n,
                                second[r1, relations[e2]],
                                rule_of,
                                out[k],
                            )
                else:
                    e = lo
                    while e < hi:
                        b = by_tail[e]
                        if b != u:
                            x, y = alo, ahi
                            while x < y:
                                mid = (x + y) // 2
                                if by_tail[mid] < b:
                                    x = mid + 1
                                else:
                                    y = mid
                            while x < ahi and by_tail[x] == b:
                                _finish(
                                    by_tail,
                                    by_tail_relations,
                                    e,
                                    hi,
                                    b,
                                    n,
                                    second[r1, np.int64(by_tail_relations[x])],
                                    rule_of,
                                    out[k],
                                )
                                x += 1
                        while e < hi and by_tail[e] == b:
                            e += 1
            for e in range(lo, hi):
                mark[by_tail[e]] = -1


@njit(cache=True)
def _finish(by_tail, by_tail_relations, e, hi, b, n, prefix, rule_of, row):
    if prefix < 0:
        return
    while e < hi and by_tail[e] == b:
        last = (np.int64(by_tail_relations[e]) + n // 2) % n
        rule = rule_of[last, prefix]
        if rule >= 0:
            row[rule] += 1
        e += 1
