"""Paths found after the fact, against a list of all simple paths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import brute_paths, graphs
from loger.baselines.matching import PathMatcher
from loger.engine import LocalEngine
from loger.errors import LogerError
from loger.graph import Path


def with_random_logs(graph, seed):
    """A matcher, and the weight of each directed edge by name."""
    logs = -np.random.default_rng(seed).exponential(size=len(graph.tails)).astype(np.float32)
    heads = np.repeat(np.arange(graph.n_entities), np.diff(graph.indptr))
    relations = np.repeat(graph.segment_relations, np.diff(graph.segment_starts))
    edges = zip(heads.tolist(), relations.tolist(), graph.tails.tolist(), strict=True)
    return PathMatcher(graph, logs), dict(zip(edges, logs.tolist(), strict=True))


@given(graphs(), st.integers(1, 6), st.integers(0, 99))
def test_the_paths_found_are_the_best_of_all_simple_paths(graph, n, seed):
    matcher, logs = with_random_logs(graph, seed)
    pairs = [(u, v) for u in range(graph.n_users) for v in range(graph.n_items)]
    found = matcher.best(*zip(*pairs, strict=True), n, engine=LocalEngine(1))
    for (u, v), best in zip(pairs, found, strict=True):
        paths = [Path(nodes, relations) for relations, nodes in brute_paths(graph, u, v)]
        slow = {path: sum(logs[edge] for edge in path.edges) for path in paths}
        expected = sorted(slow.values(), reverse=True)[:n]
        assert np.log([w for _, w in best]) == pytest.approx(expected, abs=1e-4)
        assert [slow[path] for path, _ in best] == pytest.approx(expected, abs=1e-4)
        assert len({path for path, _ in best}) == len(best)


@given(graphs())
def test_equally_good_paths_come_shorter_ones_first(graph):
    matcher = PathMatcher(graph, np.zeros(len(graph.tails), dtype=np.float32))
    users = np.repeat(np.arange(graph.n_users), graph.n_items)
    items = np.tile(np.arange(graph.n_items), graph.n_users)
    for best in matcher.best(users, items, 5, engine=LocalEngine(1)):
        lengths = [len(path) for path, _ in best]
        assert lengths == sorted(lengths)
        assert all(w == 1 for _, w in best)


def test_weights_above_one_or_too_few_are_refused():
    from test_paths import shop

    for logs in (np.zeros(3, np.float32), np.ones(len(shop().tails), np.float32)):
        with pytest.raises(LogerError, match="log weights"):
            PathMatcher(shop(), logs)
