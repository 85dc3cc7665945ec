"""Paths found after the fact: the best of all simple paths from a user to an item.

Methods that score edges rather than paths (HeteroEmbed by σ(s), KGAT by attention) explain an
item by the paths whose edges have the largest product. The search is exact, where those papers
walk greedily: all simple paths of up to three hops, as METHOD L2 and L3 define them, are looked
at, but for those whose beginning is already worse than what has been found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine, LocalEngine
from loger.engine.kernels import kernel
from loger.engine.topk import top_k
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph, Path, checked_ids
from loger.graph.arrays import Floats
from loger.grounding.api import checked_pairs
from loger.grounding.layout import layout
from loger.grounding.steps import inverse
from loger.recommender import ExplainedItem, PairMatrix, Recommender

PAIRS_PER_BLOCK = 512
USERS_PER_BLOCK = 256
HOPS = 3


class PathMatcher:
    """A graph whose edges have logarithms of weights, none of them above 0.

    ``logs`` come in the order of ``graph.tails``: one for each directed edge.
    """

    def __init__(self, graph: KnowledgeGraph, logs: Floats) -> None:
        if logs.shape != graph.tails.shape or not (logs <= 0).all():
            raise LogerError(
                f"expected {len(graph.tails)} log weights of at most 0, got shape "
                f"{logs.shape} with maximum {logs.max(initial=0)!r}"
            )
        self.graph, self.logs = graph, logs.astype(np.float32)
        self._relations = graph.edge_relations()
        n = len(graph.relations)
        inverses = (self._relations.astype(np.int64) + n) % (2 * n)
        # Edges are sorted by head, relation and tail; sorted by those of their inverses, the
        # k-th is the inverse of the k-th.
        back = np.lexsort((graph.edge_heads(), inverses, graph.tails))
        self._back_logs = self.logs[back]
        for array in (self.logs, self._relations, self._back_logs):
            array.flags.writeable = False  # as in shared memory: to numba it is one type

    def best(
        self, users: ArrayLike, items: ArrayLike, n: int = 1, *, engine: Engine | None = None
    ) -> list[list[tuple[Path, float]]]:
        """For each pair up to n paths, best first, with the product of their weights.

        Items are numbered from 0 among items. Equally good paths come by length, then by
        relations and entities.
        """
        pairs = checked_pairs(self.graph, users, items)
        u, v = pairs[0].astype(np.int64), pairs[1].astype(np.int64) + self.graph.n_users
        if n < 1:
            return [[] for _ in u]
        shared = layout(self.graph), self._relations, self.logs, self._back_logs, n
        spans = [slice(k, k + PAIRS_PER_BLOCK) for k in range(0, len(u), PAIRS_PER_BLOCK)]
        blocks = [(u[span], v[span]) for span in spans]
        out: list[list[tuple[Path, float]]] = []
        found = (engine or LocalEngine()).map("matching", _search_block, blocks, shared)
        for nodes, relations, logs in found:
            weights = np.exp(logs.astype(np.float64)).tolist()
            rows = zip(nodes.tolist(), relations.tolist(), weights, strict=True)
            out += [
                [_path(*found) for found in zip(*row, strict=True) if found[1][0] >= 0]
                for row in rows
            ]
        return out

    def explained(
        self,
        recommender: Recommender,
        known: PairMatrix,
        users: ArrayLike,
        k: int,
        paths: int,
    ) -> list[list[ExplainedItem]]:
        """The k best items of each user that ``known`` does not have, with their best paths."""
        asked = checked_ids(users, self.graph.n_users, "user")
        lists, scores = _lists(recommender, known, asked, k)
        rows, places = np.nonzero(lists >= 0)
        found = self.best(asked[rows], lists[rows, places], paths)
        out: list[list[ExplainedItem]] = [[] for _ in asked]
        for row, place, best in zip(rows.tolist(), places.tolist(), found, strict=True):
            item, score = int(lists[row, place]), float(scores[row, place])
            chains, weights = tuple(p for p, _ in best), tuple(w for _, w in best)
            out[row].append(ExplainedItem(item, score, chains, weights))
        return out


def _lists(
    recommender: Recommender, known: PairMatrix, users: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int32], Floats]:
    """The best items of each user with their scores; both [users, k]."""
    parts = []
    for start in range(0, len(users), USERS_PER_BLOCK):
        block = users[start : start + USERS_PER_BLOCK]
        own = known[block].tocoo()
        scores = np.array(recommender.score(block), dtype=np.float32)
        parts.append(top_k(scores, k, (own.coords[0], own.coords[1])))
    items = [np.empty((0, k), np.int32), *(i for i, _ in parts)]
    return np.concatenate(items), np.concatenate(
        [np.empty((0, k), np.float32), *(s for _, s in parts)]
    )


def _search_block(
    shared: tuple[Any, ...], block: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """The best paths of a block of pairs, as the kernel gives them."""
    *weighted, n = shared
    found: tuple[NDArray[np.int32], NDArray[np.int32], Floats] = _search(*weighted, *block, n)
    return found


def _path(nodes: list[int], relations: list[int], weight: float) -> tuple[Path, float]:
    """What the kernel found, without its padding."""
    hops = sum(r >= 0 for r in relations)
    return Path(tuple(nodes[: hops + 1]), tuple(relations[:hops])), weight


@kernel
def _search(g, relations, logs, back_logs, users, items, n):  # type: ignore[no-untyped-def]
    """Nodes [pairs, n, 4], relations [pairs, n, 3] and logs [pairs, n]; -1 and -inf fill up."""
    nodes = np.full((len(users), n, HOPS + 1), -1, dtype=np.int32)
    chains = np.full((len(users), n, HOPS), -1, dtype=np.int32)
    best = np.full((len(users), n), -np.inf, dtype=np.float32)
    last = np.full(len(g.indptr) - 1, -1, dtype=np.int64)  # an edge of v to the entity, or -1
    for p in range(len(users)):
        v = items[p]
        lo, hi = g.indptr[v], g.indptr[v + 1]
        next_edge = np.full(hi - lo, -1, dtype=np.int64)  # another edge of v to the same entity
        for e in range(hi - 1, lo - 1, -1):
            if len(g.origins) == 0 or g.origins[e] != users[p]:
                next_edge[e - lo] = last[g.tails[e]]
                last[g.tails[e]] = e
        _search_pair(
            g, relations, logs, back_logs,
            users[p], v, last, next_edge, nodes[p], chains[p], best[p],
        )  # fmt: skip
        for e in range(lo, hi):
            last[g.tails[e]] = -1
    return nodes, chains, best


@kernel
def _search_pair(  # type: ignore[no-untyped-def]
    g, relations, logs, back_logs,
    u, v, last, next_edge, nodes, chains, best,
):  # fmt: skip
    """Fill in the best paths of one pair, from one hop to three."""
    lo, n = g.indptr[v], len(best)
    for e1 in range(g.indptr[u], g.indptr[u + 1]):
        direct = g.tails[e1] == v and relations[e1] != INTERACTION
        if direct and (len(g.origins) == 0 or g.origins[e1] != v):
            _keep(nodes, chains, best, logs[e1], u, v, -1, -1, relations[e1], -1, -1)
    for hops in (2, 3):
        for e1 in range(g.indptr[u], g.indptr[u + 1]):
            a = g.tails[e1]
            if a == v or (len(g.origins) > 0 and g.origins[e1] == v) or logs[e1] <= best[n - 1]:
                continue
            if hops == 2:
                e = last[a]
                while e >= 0:
                    r2 = inverse(relations[e], g.n_relations)
                    w = logs[e1] + back_logs[e]
                    _keep(nodes, chains, best, w, u, a, v, -1, relations[e1], r2, -1)
                    e = next_edge[e - lo]
                continue
            for e2 in range(g.indptr[a], g.indptr[a + 1]):
                b = g.tails[e2]
                e = last[b]
                if e < 0 or b in (u, v):
                    continue
                w2 = logs[e1] + logs[e2]
                while e >= 0:
                    r3 = inverse(relations[e], g.n_relations)
                    w = w2 + back_logs[e]
                    _keep(nodes, chains, best, w, u, a, b, v, relations[e1], relations[e2], r3)
                    e = next_edge[e - lo]


@kernel
def _keep(nodes, chains, best, w, e0, e1, e2, e3, r1, r2, r3):  # type: ignore[no-untyped-def]
    """Take a path in if it beats the worst of those kept; of equals the first stays ahead."""
    k = len(best) - 1
    if w <= best[k]:
        return
    while k > 0 and w > best[k - 1]:
        best[k], nodes[k], chains[k] = best[k - 1], nodes[k - 1], chains[k - 1]
        k -= 1
    best[k] = w
    nodes[k, 0], nodes[k, 1], nodes[k, 2], nodes[k, 3] = e0, e1, e2, e3
    chains[k, 0], chains[k, 1], chains[k, 2] = r1, r2, r3
