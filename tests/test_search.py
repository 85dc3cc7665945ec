"""Path search: every path it returns is a reason, and it finds one wherever one exists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import EXHAUSTIVE, AnyOrder, brute_paths, graphs
from loger.errors import LogerError
from loger.grounding import Walk, ground, paths
from loger.reasoner.search import ALGORITHM_1, PathSearch, SearchConfig, path_strengths
from loger.rules import RuleSet, candidates


class Taste:
    """A scorer that likes some hops better than others, for no reason, but always the same."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def begin(self, user):
        return np.array([float(user)])

    def step_scores(self, state, rows, relations, entities):
        return np.sin((state[rows] + 3 * relations + 7 * entities) * (self.seed + 1.7))

    def advance(self, state, rows, relations, entities):
        return state[rows] / 2 + entities + 0.3 * relations


def slow_score(scorer, user, path) -> float:
    """The mean of a path's hop scores, walked alone."""
    state, total, zero = scorer.begin(user), 0.0, np.zeros(1, dtype=np.int64)
    for _, r, t in path.edges:
        hop = np.array([r]), np.array([t])
        total += float(scorer.step_scores(state, zero, *hop)[0])
        state = scorer.advance(state, zero, *hop)
    return total / len(path)


def drawn_rules(graph, random) -> RuleSet:
    every = candidates(graph)
    n = random.randint(0, min(12, len(every)))
    return every.chosen(random.sample(range(len(every)), n))


def as_set(found, target):
    return {(p.rule, p.path.entities) for p in found.of(target)}


@given(graphs(), st.randoms(use_true_random=False))
def test_a_beam_of_full_width_finds_just_the_groundings(graph, random):
    rules = drawn_rules(graph, random)
    user, items = random.randrange(graph.n_users), np.arange(graph.n_items)
    search = PathSearch(graph, rules, EXHAUSTIVE)
    for found in (search.best(user, items, Taste(3)), search.best(user, items, AnyOrder())):
        for item in items:
            listed = {
                (k, tuple(p))
                for k, rule in enumerate(rules)
                for p in paths(graph, rule, user, int(item)).tolist()
            }
            assert as_set(found, item) == listed
            assert len(found.of(item)) == len(listed)


@given(graphs(), st.randoms(use_true_random=False))
def test_paths_come_best_first_by_the_mean_of_their_hops(graph, random):
    rules, user = drawn_rules(graph, random), random.randrange(graph.n_users)
    scorer = Taste(random.randrange(9))
    found = PathSearch(graph, rules, EXHAUSTIVE).best(user, np.arange(graph.n_items), scorer)
    for item in range(graph.n_items):
        scores = [p.score for p in found.of(item)]
        assert scores == sorted(scores, reverse=True)
        for p in found.of(item, 5):
            assert p.score == pytest.approx(slow_score(scorer, user, p.path))


@pytest.mark.parametrize("restrict", ["reach", "nothing"])
def test_what_comes_back_is_a_simple_path_of_facts_along_a_rule(restrict):
    @given(graphs(), st.randoms(use_true_random=False))
    def check(graph, random):
        rules, user = drawn_rules(graph, random), random.randrange(graph.n_users)
        width, importance = random.choice([None, 1, 3]), [random.gauss(0, 1) for _ in rules]
        config = SearchConfig(branch=random.choice([None, 1, 4]), width=width, restrict=restrict)
        found = PathSearch(graph, rules, config).best(
            user, np.arange(graph.n_items), Taste(1), importance
        )
        for item in range(graph.n_items):
            true = set(brute_paths(graph, user, item)) if found.of(item) else set()
            for p in found.of(item):
                assert (p.path.relations, p.path.entities) in true
                assert rules[p.rule].relations == p.path.relations
                assert p.path.exists(graph)
                assert p.path.is_simple()

    check()


@given(graphs(), st.randoms(use_true_random=False))
def test_if_any_rule_fires_a_path_comes_back_however_narrow_the_beam(graph, random):
    rules, user = drawn_rules(graph, random), random.randrange(graph.n_users)
    items = np.arange(graph.n_items)
    narrow = SearchConfig(branch=1, width=1, best_rules=random.randint(1, 3))
    importance = [random.gauss(0, 1) for _ in rules]
    found = PathSearch(graph, rules, narrow).best(user, items, Taste(2), importance)
    fires = np.diff(ground(graph, rules, np.full(len(items), user), items).indptr) > 0
    assert (np.diff(found.starts) > 0).tolist() == fires.tolist()


@given(graphs(), st.randoms(use_true_random=False))
def test_the_important_rules_are_followed_and_others_only_in_need(graph, random):
    rules, user = drawn_rules(graph, random), random.randrange(graph.n_users)
    importance = np.array([0.1 + random.random() for _ in rules])
    chosen = set(np.argsort(-importance, kind="stable")[:2].tolist())
    config = SearchConfig(branch=None, width=None, best_rules=2)
    items = np.arange(graph.n_items)
    found = PathSearch(graph, rules, config).best(user, items, AnyOrder(), importance)
    every = PathSearch(graph, rules, EXHAUSTIVE).best(user, items, AnyOrder())
    for item in items:
        best = {p for p in as_set(every, item) if p[0] in chosen}
        assert as_set(found, item) == (best or as_set(every, item))


@given(graphs(), st.randoms(use_true_random=False))
def test_algorithm_1_of_full_width_finds_all_and_of_its_own_width_may_miss(graph, random):
    rules, user = drawn_rules(graph, random), random.randrange(graph.n_users)
    items = np.arange(graph.n_items)
    every = PathSearch(graph, rules, EXHAUSTIVE).best(user, items, AnyOrder())
    free = SearchConfig(branch=None, width=None, restrict="nothing")
    wide = PathSearch(graph, rules, free).best(user, items, Taste(5))
    narrow = PathSearch(graph, rules, ALGORITHM_1).best(user, items, Taste(5))
    for item in items:
        assert as_set(wide, item) == as_set(every, item)
        assert as_set(narrow, item) <= as_set(every, item)


WALKS = [Walk(), Walk(0.3, 0.7, 1.5, 0.9, arrive=0.6), Walk(0.0, 0.25, 0.5, 0.5, 0.5, 0.75, 1.0)]


@given(graphs(), st.randoms(use_true_random=False), st.sampled_from(WALKS))
def test_strengths_of_paths_add_up_to_those_of_their_rule(graph, random, walk):
    rules, user = drawn_rules(graph, random), random.randrange(graph.n_users)
    items = np.arange(graph.n_items)
    found = PathSearch(graph, rules, EXHAUSTIVE).best(user, items, AnyOrder())
    alone = path_strengths(graph, found, walk)
    added = np.zeros((len(items), len(rules)))
    np.add.at(added, (found.targets, found.places), alone)
    whole = ground(graph, rules, np.full(len(items), user), items, walk=walk).strength_matrix
    assert added == pytest.approx(whole.toarray(), rel=1e-9, abs=1e-12)


def test_two_searches_give_the_same_and_bad_numbers_are_refused():
    from graphs import hub_graph

    graph = hub_graph(1, 0.3, True)
    rules = candidates(graph)
    search = PathSearch(graph, rules)
    one, two = (search.best(3, [1, 4, 1], Taste(4)) for _ in range(2))
    assert one.entities.tobytes() == two.entities.tobytes()
    assert one.scores.tobytes() == two.scores.tobytes()
    assert [p.path for p in one.of(0)] == [p.path for p in one.of(2)]
    with pytest.raises(LogerError, match=r"item numbers must be from 0 to 11, got 12"):
        search.best(0, [12], AnyOrder())
    with pytest.raises(LogerError, match=r"user numbers must be from 0 to 39, got -1"):
        search.best(-1, [0], AnyOrder())
    with pytest.raises(LogerError, match="one number per rule"):
        search.best(0, [0], AnyOrder(), importance=[1.0])
