"""Compiled code never reads outside its arrays, whatever it is asked: it answers or raises.

Compiled loops don't check indices, so a wrong number would read foreign memory or crash the
interpreter. The last test runs this file again in a process that runs the same loops uncompiled,
where every index is checked. (Numba's own bounds checks would do the same, but code compiled with
them isn't cached, and compiling everything takes minutes.)
"""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphs import EXHAUSTIVE, RELATIONS, AnyOrder, build, graphs, hub_graph, vocabulary
from loger.baselines.matching import PathMatcher
from loger.baselines.ripplenet import ripples
from loger.encoder.training import RowAdam
from loger.engine.topk import top_k
from loger.errors import LogerError
from loger.graph import KnowledgeGraph, UserView, history
from loger.grounding import (
    Formula,
    Walk,
    ground,
    logits,
    near_items,
    nth_paths,
    reach,
    reach_sizes,
    reaching,
    strongest_paths,
)
from loger.grounding import pairs as kernels
from loger.logic.mln import Logic
from loger.reasoner.search import PathSearch, SearchConfig, path_strengths, random_paths
from loger.reasoner.walker import training_paths
from loger.rules import Rule, RuleSet, candidates

UNCOMPILED = "NUMBA_DISABLE_JIT" in os.environ
if UNCOMPILED:  # some instructions of the processor have no Python of their own
    vars(kernels)["popcount"] = lambda word: int(word).bit_count()
    vars(kernels)["lowest"] = lambda word: (int(word) & -int(word)).bit_length() - 1
    vars(reaching)["log_from_1"] = math.log
    vars(reaching)["fetch"] = lambda array, place: array[place : place + 1]
WALK = Walk(0.5, 0.25, 0.75, 0.5, arrive=0.5, popular=0.75, recency=1.0)
OTHER_RELATIONS = (RELATIONS[0], *RELATIONS[:0:-1], *RELATIONS[1:3])


def other_graph() -> KnowledgeGraph:
    """A graph of other relations, so that its rules mean something else, or nothing, elsewhere."""
    words = vocabulary(3, 3, 2, 2)
    facts = [
        (h, r, t)
        for r, relation in enumerate(OTHER_RELATIONS)
        for h in words.span(relation.head_type)
        for t in words.span(relation.tail_type)
        if h != t
    ]
    return KnowledgeGraph.from_triples(words, OTHER_RELATIONS, *zip(*facts, strict=True))


FOREIGN = candidates(other_graph())
MADE_UP = (
    Rule((0, 99, 0), ("a", "b", "c"), ("user", "item", "user", "item")),
    Rule((-1, 0), ("a", "b"), ("user", "user", "item")),
    Rule((), (), ("user",)),
    Rule((0, 7, 0, 7, 0), ("a",) * 5, ("user", "item", "user", "item", "user", "item")),
)


@st.composite
def cases(draw):
    """A graph or view, rules of its own, and users and items that may not exist."""
    sizes = st.tuples(*(st.integers(0, 2) for _ in range(4)))
    empty = sizes.map(lambda n: build(vocabulary(*n), []))
    hubs = st.builds(hub_graph, st.integers(0, 3), st.just(0.3), st.booleans())
    graph = draw(st.one_of(graphs(), empty, hubs))
    if draw(st.booleans()):
        edges, users = graph.interactions
        items = graph.tails[edges] - graph.n_users
        graph = graph.timed(users, items, np.arange(len(users)) % 3)
    every = candidates(graph)
    chosen = draw(st.lists(st.integers(0, max(len(every) - 1, 0)), max_size=6, unique=True))
    rules = every.chosen(chosen if len(every) else [])
    if graph.n_users and draw(st.booleans()):
        user = draw(st.integers(0, graph.n_users - 1))
        own = history(graph, user)[1].tolist()
        remove = draw(st.lists(st.sampled_from(own), unique=True)) if own else []
        items = st.lists(st.integers(0, graph.n_items - 1), max_size=4)
        graph = graph.user_view(user, remove, draw(items) if graph.n_items else ())
    n = draw(st.integers(0, 4))
    slack = draw(st.sampled_from([0, 0, 2]))  # mostly numbers that exist

    def numbers(size):
        most = size - 1 + slack
        each = st.integers(-slack, most) if most >= -slack else st.just(0)
        return draw(st.lists(each, min_size=n, max_size=n)) if most >= -slack else []

    users = numbers(graph.n_users)
    if isinstance(graph, UserView) and not slack:
        users = [graph.user] * n
    return graph, rules, users, numbers(graph.n_items)


def knows(graph, users) -> bool:
    """Whether every user can be asked about."""
    known = [graph.user] if isinstance(graph, UserView) else range(graph.n_users)
    return all(u in known for u in users)


def is_valid(graph, users, items) -> bool:
    """Whether every pair is of a user that can be asked about and an item that exists."""
    exist = all(v in range(graph.n_items) for v in items)
    return len(users) == len(items) and knows(graph, users) and exist


def answers(call) -> bool:
    """Whether a call gives an answer, rather than an error that a caller can understand."""
    try:
        call()
    except LogerError:
        return False
    return True


def pair_questions(graph, rules, users, items):
    """Every public function that takes pairs, or one user and items, to compiled code."""
    rng, places = np.random.default_rng(0), np.arange(len(users)) % max(len(rules), 1)
    yield lambda: ground(graph, rules, users, items)
    yield lambda: ground(graph, rules, users, items, walk=WALK)
    if len(rules):
        yield lambda: strongest_paths(graph, rules, places, users, items, 2, WALK)
        yield lambda: strongest_paths(graph, rules, places, users, items, 0)
    few = SearchConfig(branch=2, width=2)
    for u, v in zip(users[:2], items[:2], strict=False):
        yield lambda u=u, v=v: random_paths(graph, rules, u, [v], 3, rng)
        yield lambda u=u, v=v: PathSearch(graph, rules, EXHAUSTIVE).best(u, [v], AnyOrder())
        yield lambda u=u, v=v: path_strengths(
            graph, PathSearch(graph, rules, few).best(u, [v], AnyOrder()), WALK
        )


def user_questions(graph, rules, users):
    """Every public function that takes users to compiled code."""
    n = len(rules)
    yield lambda: reach(graph, rules, users, walk=WALK, observed=True)
    yield lambda: reach(graph, rules, users)
    yield lambda: reach_sizes(graph, rules, sorted(set(users)))
    for feature in range(5):
        formula = Formula(feature, np.ones(n), np.ones(n))
        yield lambda formula=formula: logits(graph, rules, users, formula, walk=WALK)
    yield lambda: Logic(rules, np.ones(n), "count").logits(graph, users)


@given(cases())
def test_questions_about_what_exists_are_answered_and_others_refused(case):
    graph, rules, users, items = case
    for question in pair_questions(graph, rules, users, items):
        answered = answers(question)
        assert answered or not is_valid(graph, users, items)
    assert answers(lambda: ground(graph, rules, users, items)) == is_valid(graph, users, items)
    for question in user_questions(graph, rules, users):
        assert answers(question) == knows(graph, users)


@given(cases(), st.integers(0, len(FOREIGN) - 1), st.sampled_from([None, *MADE_UP]))
def test_rules_of_another_graph_are_refused_unless_they_mean_the_same(case, place, made_up):
    graph, _, users, items = case
    rule = made_up or FOREIGN[place]
    same = all(
        0 <= r < 2 * len(RELATIONS) and graph.signature(r) == (a, b)
        for r, a, b in zip(rule.relations, rule.types, rule.types[1:], strict=False)
    )
    rules = RuleSet((rule,))
    fits = same and len(rule) in (1, 2, 3)
    assert answers(lambda: PathSearch(graph, rules)) == fits
    assert answers(lambda: ground(graph, rules, [], [])) == fits
    assert answers(lambda: reach(graph, rules, [])) == fits
    questions = (*pair_questions(graph, rules, users, items), *user_questions(graph, rules, users))
    for question in questions:
        assert fits or not answers(question)


@given(graphs(), st.randoms(use_true_random=False))
def test_other_methods_answer_or_refuse_as_well(graph, random):
    matcher = PathMatcher(graph, np.full(len(graph.tails), -1, dtype=np.float32))
    users = [random.randrange(-2, graph.n_users + 2) for _ in range(3)]
    items = [random.randrange(-2, graph.n_items + 2) for _ in range(3)]
    for n in (0, 1, 3):
        assert answers(lambda n=n: matcher.best(users, items, n)) == is_valid(graph, users, items)
    assert matcher.best([], []) == []
    assert ripples(graph, hops=2, memories=3, seed=0).heads.shape == (graph.n_users, 2, 3)
    rules = candidates(graph)
    if len(rules):
        assert answers(lambda: training_paths(graph, rules, np.ones(len(rules))))


def test_a_path_at_a_place_where_there_is_none_is_refused():
    graph = hub_graph(0, 0.3, with_origins=False)
    rules = candidates(graph)
    counts = [ground(graph, RuleSet((rule,)), 0, 0).counts.sum() for rule in rules]
    total = max(counts)
    one = [counts.index(total)], [0], [0]
    assert total > 0
    assert nth_paths(graph, rules, *one, [total - 1]).shape == (1, 4)
    for nth in ([total], [-1], [0, 0]):
        with pytest.raises(LogerError, match=r"place|index"):
            nth_paths(graph, rules, *one, nth)
    with pytest.raises(LogerError, match="rule numbers must be from 0 to"):
        nth_paths(graph, rules, [len(rules)], [0], [0], [0])
    with pytest.raises(LogerError, match="for each of 1 rules, got 2 and 2"):
        logits(graph, rules.chosen([0]), [0], Formula(2, np.ones(2), np.ones(2)))
    assert len(near_items(graph, np.array([0]), observed=True)[1])


def test_without_rows_or_columns_lists_are_empty():
    assert top_k(np.zeros((0, 4), dtype=np.float32), 2)[0].shape == (0, 2)
    assert top_k(np.zeros((2, 0), dtype=np.float32), 2)[0].tolist() == [[-1, -1]] * 2


def test_an_update_of_rows_that_do_not_exist_is_refused():
    table = RowAdam(torch.zeros(3, 2))
    for rows, owners in (([3], [0]), ([-1], [0]), ([0], [1])):
        with pytest.raises(LogerError, match="rows that are missing"):
            table.update(torch.tensor(rows), torch.ones(1, 2), 0.1, torch.tensor(owners))
    table.update(torch.tensor([], dtype=torch.int64), torch.ones(0, 2), 0.1)


@pytest.mark.long
@pytest.mark.skipif(UNCOMPILED, reason="this is that run")
def test_nothing_of_this_file_reads_outside_an_array():
    """Warnings are of what machine numbers do in silence, such as to overflow."""
    asked = ["-q", "-x", "-n0", "-W", "ignore::RuntimeWarning", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *asked],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
