"""A graph as a user with other interactions sees it, against the graph built again with them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import EXHAUSTIVE, AnyOrder, built, graphs, hub_graph
from loger.baselines.matching import PathMatcher
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph, Path, history
from loger.grounding import (
    COUNT,
    LOGWALK,
    Formula,
    Walk,
    ground,
    logits,
    paths,
    reach,
    strongest_paths,
)
from loger.grounding.layout import edge_spans
from loger.logic.mining import mine
from loger.reasoner.search import (
    ALGORITHM_1,
    PathSearch,
    SearchConfig,
    path_strengths,
    random_paths,
)
from loger.reasoner.walker import Reasoner
from loger.rules import candidates

WALK = Walk(first=0.5, item=0.25, user=0.75, fact=0.5, arrive=0.5, popular=0.75, recency=1.0)


@st.composite
def changes(draw, graph):
    """A user, some of its items, and other items with times."""
    user = draw(st.integers(0, graph.n_users - 1))
    own = history(graph, np.array([user]))[1].tolist()
    remove = draw(st.lists(st.sampled_from(own), unique=True)) if own else []
    add = draw(st.lists(st.integers(0, graph.n_items - 1), max_size=5))
    return user, remove, add, draw(st.permutations(range(len(add))))


def timed(graph) -> KnowledgeGraph:
    edges, users = graph.interactions
    items = graph.tails[edges] - graph.n_users
    return graph.timed(users, items, np.arange(len(users)) * 7 % 5)


@st.composite
def cases(draw):
    graph = draw(
        st.one_of(graphs(), st.builds(hub_graph, st.integers(0, 9), st.just(0.3), st.booleans()))
    )
    graph = timed(graph) if draw(st.booleans()) else graph
    if draw(st.booleans()):
        graph = graph.with_users(["guest"])
    return graph, draw(changes(graph))


@given(cases())
def test_a_view_has_the_history_popularity_and_degrees_of_the_graph_built_anew(case):
    graph, (user, remove, add, times) = case
    view, whole = graph.user_view(user, remove, add, times), built(graph, user, remove, add, times)
    for name in ("popularity", "degree_table"):
        for here, there in zip(getattr(view, name), getattr(whole, name), strict=True):
            assert np.array_equal(here, there), name
    one = np.array([user])
    assert np.array_equal(history(view, one), history(whole, one))
    span = slice(whole.indptr[user], whole.indptr[user + 1])
    assert view.rows.tails.tolist() == whole.tails[span].tolist()
    known_otherwise = [graph.n_entities - 1, *(v + graph.n_users for v in remove[:2])]
    for head in (user, 0, graph.n_users, *known_otherwise):
        for r in range(2 * len(graph.relations)):
            assert view.neighbours(head, r).tolist() == whole.neighbours(head, r).tolist()
    if graph.times is not None:
        assert view.later.tolist() == whole.later[span].tolist()


@given(cases(), st.sampled_from([None, WALK]), st.booleans())
def test_the_viewers_groundings_are_those_of_the_graph_built_anew(case, walk, observed):
    graph, (user, remove, add, times) = case
    view, whole = graph.user_view(user, remove, add, times), built(graph, user, remove, add, times)
    rules = candidates(graph)
    if not len(rules):
        return
    seen, slow = (reach(g, rules, [user], walk=walk, observed=observed) for g in (view, whole))
    everything = np.full(graph.n_items, user), np.arange(graph.n_items)
    seen_all, slow_all = (ground(g, rules, *everything, walk=walk) for g in (view, whole))
    for a, b in ((seen, slow), (seen_all, slow_all)):
        assert a.items.tolist() == b.items.tolist()
        assert a.indptr.tolist() == b.indptr.tolist()
        assert a.rules.tolist() == b.rules.tolist()
        assert a.counts.tolist() == b.counts.tolist()
        if walk is not None:
            assert a.strengths == pytest.approx(b.strengths, rel=1e-12)
    formula = Formula(
        COUNT if walk is None else LOGWALK,
        np.linspace(0.1, 1, len(rules)),
        np.ones(len(rules)),
    )
    told = (logits(g, rules, [user], formula, walk=walk) for g in (view, whole))
    assert next(told) == pytest.approx(next(told), rel=1e-6)


@given(cases())
def test_spans_find_the_edges_of_every_entity(case):
    graph, (user, remove, add, times) = case
    view = graph.user_view(user, remove, add, times)
    for seen, rows in ((graph, graph.rows), (view, view.others)):
        edge_spans(seen, [0])  # what was made for one relation grows by those that come later
        hops = edge_spans(seen, range(2 * len(graph.relations)))
        for relation in range(2 * len(graph.relations)):
            for head in graph.vocabulary.span(graph.signature(relation)[0]):
                begin, end = hops.edges[2 * (hops.starts[relation] + head) :][:2]
                assert rows.tails[begin:end].tolist() == rows.neighbours(head, relation).tolist()


@given(cases())
def test_the_viewers_paths_are_those_of_the_graph_built_anew(case):
    graph, (user, remove, add, times) = case
    view, whole = graph.user_view(user, remove, add, times), built(graph, user, remove, add, times)
    rules = candidates(graph)
    if not len(rules):
        return
    places = np.arange(len(rules))
    for item in range(min(2, graph.n_items)):
        pairs = np.full(len(rules), user), np.full(len(rules), item)
        found = [strongest_paths(g, rules, places, *pairs, 3, WALK) for g in (view, whole)]
        assert found[0][0].tolist() == found[1][0].tolist()
        assert found[0][1] == pytest.approx(found[1][1], rel=1e-12)
        for rule in rules:
            assert paths(view, rule, user, item).tolist() == paths(whole, rule, user, item).tolist()


@given(cases())
def test_what_search_finds_in_a_view_is_what_it_finds_in_the_graph_built_anew(case):
    graph, (user, remove, add, times) = case
    view, whole = graph.user_view(user, remove, add, times), built(graph, user, remove, add, times)
    rules = candidates(graph)
    items = np.arange(graph.n_items)
    rules = rules.chosen(range(0, len(rules), 1 + len(rules) // 20))
    for config in (EXHAUSTIVE, SearchConfig(branch=2, width=3)):
        found = [PathSearch(g, rules, config).best(user, items, AnyOrder()) for g in (view, whole)]
        assert found[0].entities.tolist() == found[1].entities.tolist()
        assert found[0].places.tolist() == found[1].places.tolist()
    strengths = [path_strengths(g, found[0], WALK) for g in (view, whole)]
    assert strengths[0] == pytest.approx(strengths[1], rel=1e-12)
    drawn = [
        random_paths(g, rules, user, items, 3, np.random.default_rng(0)) for g in (view, whole)
    ]
    assert drawn[0] == drawn[1]
    assert all(path.exists(view) for paths_of in drawn[0] for path in paths_of)


@given(cases())
def test_a_view_has_the_facts_of_the_graph_built_anew(case):
    graph, (user, remove, add, times) = case
    view, whole = graph.user_view(user, remove, add, times), built(graph, user, remove, add, times)
    for item in range(graph.n_users, graph.n_users + graph.n_items):
        for other in (user, 0):
            for r in (INTERACTION, 1):
                edge = Path((other, item), (r,))
                assert edge.exists(view) == edge.exists(whole)
                back = Path((item, other), (graph.inverse(r),))
                assert back.exists(view) == back.exists(whole)
                assert edge.text(view) == edge.text(whole)


def test_a_view_answers_no_one_else_and_takes_away_only_what_is_there():
    graph = hub_graph(0, 0.3, with_origins=False)
    view, rules, vectors = (
        graph.user_view(3, (), [1]),
        candidates(graph),
        np.ones((57, 4), np.float32),
    )
    with pytest.raises(LogerError, match="the view of user 3"):
        reach(view, candidates(graph), [4])
    with pytest.raises(LogerError, match="the view of user 3"):
        PathSearch(view, candidates(graph)).best(4, [0], AnyOrder())
    with pytest.raises(LogerError, match="whole graph"):
        PathSearch(view, candidates(graph), ALGORITHM_1).best(3, [0], AnyOrder())
    with pytest.raises(LogerError, match="the view of user 3"):
        history(view, [4])
    for work in (
        lambda g: g.triples(),
        lambda g: g.plus([3], [2]),
        lambda g: g.fingerprint,
        lambda g: g.tails,
        candidates,
        mine,
        lambda g: Reasoner().fit(g, rules, np.ones(len(rules)), vectors, vectors[:14]),
        lambda g: PathMatcher(g, np.zeros(1)),
    ):
        with pytest.raises(LogerError, match="whole graph"):
            work(view)
    absent = next(v for v in range(12) if not graph.has(3, INTERACTION, v + graph.n_users))
    with pytest.raises(LogerError, match="no fact"):
        graph.user_view(3, [absent])


def test_the_arrays_of_a_graph_cannot_be_written_to():
    graph = hub_graph(0, 0.3, with_origins=True)
    with pytest.raises(ValueError, match="read-only"):
        graph.tails[0] = 1


def test_numbers_that_are_not_in_the_graph_are_refused():
    graph = hub_graph(0, 0.3, with_origins=False)
    for make in (
        lambda: graph.user_view(40),
        lambda: graph.user_view(-1),
        lambda: graph.user_view(0, [-1]),
        lambda: graph.user_view(0, [], [12]),
        lambda: graph.plus([0], [12]),
        lambda: graph.plus([40], [0]),
        lambda: graph.without_interactions([-1], [0]),
        lambda: history(graph, [40]),
    ):
        with pytest.raises(LogerError, match=r"(user|item) numbers must be from 0 to "):
            make()
    with pytest.raises(LogerError, match="list of integers"):
        history(graph, [0.5])


def test_a_view_reads_in_one_line_and_survives_a_copy():
    view = hub_graph(0, 0.3, with_origins=False).user_view(3, (), [1])
    assert repr(view).startswith("UserView(user 3 of KnowledgeGraph(40 users")
    again = copy.deepcopy(view)
    assert again.user == 3
    assert again.rows.tails.tolist() == view.rows.tails.tolist()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = view.nonsense  # type: ignore[attr-defined]
