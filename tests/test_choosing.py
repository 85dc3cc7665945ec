"""The best items of each rule, selected during the walk, against sorting all items it reaches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import build, graphs, hub_graph, random_triples, vocabulary, with_random_origins
from loger.errors import LogerError
from loger.graph import history
from loger.grounding import Groundings, Walk, ground, reach, reach_best
from loger.rules import RuleSet, candidates

FLAT = Walk.uniform(0.0)
"""Every path has strength 1, so that ties abound."""
WALKS = [FLAT, Walk(), Walk(0.0, 0.25, 0.5, 0.5, arrive=0.5, popular=0.75)]


def slow(graph, rules, users, walk, most, also) -> list[tuple[int, int]]:
    """Sort all that is reached, rule by rule; the pairs in order."""
    found = reach(graph, rules, users, walk=walk)
    x, out = found.strength_matrix.toarray(), []
    for place, user in enumerate(users):
        own = np.flatnonzero(found.users == user)
        kept = {int(v) for v in also[place] if v >= 0}
        for rule, n in enumerate(most):
            rows = [row for row in own if x[row, rule] > 0]
            rows.sort(key=lambda row: (-x[row, rule], found.items[row]))
            kept |= {int(found.items[row]) for row in rows[:n]}
        out += [(int(user), v) for v in sorted(kept)]
    return out


def check(graph, walk, most, also, users) -> Groundings:
    rules = candidates(graph)
    limits = np.resize(most, len(rules))
    best = reach_best(graph, rules, users, walk, limits, also)
    pairs = list(zip(best.users.tolist(), best.items.tolist(), strict=True))
    assert pairs == slow(graph, rules, users, walk, limits, also)
    again = ground(graph, rules, best.users, best.items, walk=walk)
    assert np.array_equal(best.counts, again.counts)
    assert np.array_equal(best.rules, again.rules)
    assert best.strengths == pytest.approx(again.strengths)
    return best


@given(
    graphs(),
    st.sampled_from(WALKS),
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_the_best_of_each_rule_are_what_sorting_everything_gives(graph, walk, most, n, random):
    users = random.sample(range(graph.n_users), graph.n_users)  # in any order
    known = history(graph, np.array(users))
    also = np.array(
        [[random.randrange(-1, graph.n_items) for _ in range(n)] for _ in users], dtype=np.int32
    ).reshape(len(users), n)
    for row, item in zip(*known, strict=True):  # what users have is not asked for
        also[row][also[row] == item] = -1
    check(graph, walk, most, also, np.array(users))


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("with_origins", [False, True])
def test_hubs_with_many_more_items_than_are_kept_are_cut_down_again_and_again(walk, with_origins):
    names, rng = vocabulary(6, 300, 2, 3), np.random.default_rng(3)
    triples = random_triples(names, rng, 0.1)
    graph = with_random_origins(names, triples, rng) if with_origins else build(names, triples)
    users = np.arange(graph.n_users)
    none = np.empty((len(users), 0), dtype=np.int32)
    best = check(graph, walk, [1, 2, 3], none, users)
    reached = reach(graph, candidates(graph), users, walk=walk)
    assert len(users) < len(best) < len(reached) / 2


def test_a_user_without_anything_has_only_what_is_also_asked_for():
    graph = hub_graph(3, 0.4, False)
    user, (_, owned) = 0, history(graph, np.array([0]))
    bare = graph.without_interactions([user] * len(owned), owned)
    rules = RuleSet(tuple(rule for rule in candidates(bare) if rule.relations[0] == 0))
    also = np.array([[2, -1, 0]], dtype=np.int32)
    best = reach_best(bare, rules, [user], FLAT, np.full(len(rules), 5), also)
    assert best.items.tolist() == [0, 2]
    assert best.indptr.tolist() == [0, 0, 0]


def test_limits_and_items_must_be_of_the_rules_and_users():
    graph = hub_graph(3, 0.4, False)
    rules, none = candidates(graph), np.empty((1, 0), dtype=np.int32)
    with pytest.raises(LogerError, match="items for 1 users"):
        reach_best(graph, rules, [0], FLAT, [1], none)
    with pytest.raises(LogerError, match="items for 2 users"):
        reach_best(graph, rules, [0, 1], FLAT, np.ones(len(rules)), none)
