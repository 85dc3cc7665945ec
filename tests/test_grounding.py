import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import (
    brute_counts,
    brute_paths,
    brute_strengths,
    dense_groundings,
    edges_of,
    graphs,
    hub_graph,
)
from loger.engine import LocalEngine
from loger.errors import LogerError
from loger.grounding import Walk, ground, pairs, paths, reach, strongest_paths
from loger.grounding import layout as layouts
from loger.rules import candidates

WALKS = [
    Walk(),
    Walk.uniform(0.5),
    Walk(0.3, 0.7, 1.5, 0.9, arrive=0.6),
    Walk(0.0, 0.25, 0.5, 0.5, arrive=0.5, popular=0.75, recency=1.0),
]


def with_times(graph, random):
    """The graph with a time for each interaction, many of them the same."""
    edges, users = graph.interactions
    times = np.array([random.randrange(4) for _ in edges], dtype=np.int64)
    return graph.timed(users, graph.tails[edges] - graph.n_users, times)


def all_pairs(graph):
    users, items = np.meshgrid(np.arange(graph.n_users), np.arange(graph.n_items), indexing="ij")
    return users.ravel(), items.ravel()


def brute_matrix(graph, rules, users, items):
    return np.array([brute_counts(graph, rules, u, v) for u, v in zip(users, items, strict=True)])


@pytest.fixture(params=["slices", "bitmaps"])
def segments_as(request, monkeypatch):
    if request.param == "bitmaps":
        monkeypatch.setattr(layouts, "BITMAP_EDGES", 0)


@pytest.mark.usefixtures("segments_as")
def test_counts_equal_brute_force_on_every_pair():
    @given(graphs())
    def check(graph):
        rules = candidates(graph)
        users, items = all_pairs(graph)
        found = ground(graph, rules, users, items)
        assert (found.count_matrix.toarray() == brute_matrix(graph, rules, users, items)).all()
        assert (found.counts > 0).all()

    check()


@pytest.mark.usefixtures("segments_as")
def test_strengths_equal_brute_force_on_every_pair():
    @given(graphs(), st.sampled_from(WALKS), st.randoms())
    def check(graph, walk, random):
        graph = with_times(graph, random)
        rules = candidates(graph)
        users, items = all_pairs(graph)
        found = ground(graph, rules, users, items, walk=walk)
        dense = found.strength_matrix.toarray()
        for row in random.sample(range(len(users)), min(6, len(users))):
            slow = brute_strengths(graph, rules, users[row], items[row], walk)
            assert dense[row] == pytest.approx(slow, rel=1e-9, abs=1e-12)

    check()


@given(graphs(), st.randoms())
def test_the_twin_by_dense_products_agrees_with_the_twin_by_listing(graph, random):
    rules = candidates(graph)
    user, item = random.randrange(graph.n_users), random.randrange(graph.n_items)
    assert dense_groundings(graph, rules, user, item) == brute_counts(graph, rules, user, item)
    slow = brute_strengths(graph, rules, user, item, WALKS[2])
    assert dense_groundings(graph, rules, user, item, WALKS[2]) == pytest.approx(slow)


def notes_at_an_entity(graph):
    """With how many others, on average, a last hop into any item shares its entity, twice over:
    what the kernel compares with CROWDED to choose between its two ways of counting."""
    into = [b for v in range(graph.n_items) for _, b in edges_of(graph)[v + graph.n_users]]
    depth = np.bincount(into)
    return (depth * (depth + 1)).sum() / depth.sum()


def big_segments(graph):
    """How many items' segments are met by their bitmap rather than noted edge by edge."""
    compiled = layouts.layout(graph)
    starts = compiled.bitmap_of
    words = np.diff(compiled.word_spans, axis=1)[graph.segment_relations, 0]
    big = (starts >= 0) & (np.diff(graph.segment_starts) > pairs.BIG * words)
    of_items = graph.row_segments[[graph.n_users, graph.n_users + graph.n_items]]
    return int(big[slice(*of_items)].sum())


@pytest.mark.usefixtures("segments_as")
@pytest.mark.parametrize("with_origins", [False, True], ids=["plain", "origins"])
@pytest.mark.parametrize("density", [0.03, 0.6], ids=["path by path", "together"])
def test_each_way_of_counting_agrees_with_dense_products(density, with_origins, request):
    """The constants that choose the way are compiled in, so graphs are made to lie well to
    either side of them: a thin graph is counted path by path and a dense one together, each
    with its long segments as slices and, by the fixture, as bitmaps, big ones among them."""
    for seed in range(3):
        graph = hub_graph(seed, density, with_origins)
        together = notes_at_an_entity(graph) / pairs.CROWDED
        assert together > 1.5 if density > 0.5 else together < 0.75
        assert (big_segments(graph) > 0) == ("bitmaps" in request.node.name)
        rules = candidates(graph)
        users, items = all_pairs(graph)
        found = ground(graph, rules, users, items)
        weighed = ground(graph, rules, users, items, walk=WALKS[2])
        assert abs(found.count_matrix - weighed.count_matrix).sum() == 0
        counts, strengths = found.count_matrix.toarray(), weighed.strength_matrix.toarray()
        for row in np.random.default_rng(seed).choice(len(users), size=12, replace=False):
            pair = users[row], items[row]
            assert counts[row].tolist() == dense_groundings(graph, rules, *pair)
            slow = dense_groundings(graph, rules, *pair, WALKS[2])
            assert strengths[row] == pytest.approx(slow, rel=1e-9, abs=1e-12)


@pytest.mark.usefixtures("segments_as")
@pytest.mark.parametrize("with_origins", [False, True], ids=["plain", "origins"])
def test_pairs_asked_together_count_as_pairs_asked_alone(with_origins):
    """Alone, a pair has too few notes to be counted together; with all others it is."""
    graph = hub_graph(7, 0.6, with_origins)
    rules = candidates(graph)
    users, items = all_pairs(graph)
    whole = ground(graph, rules, users, items, walk=WALKS[2])
    for row in range(0, len(users), 7):
        alone = ground(graph, rules, users[row], items[row], walk=WALKS[2])
        assert abs(alone.count_matrix - whole.count_matrix[[row]]).sum() == 0
        found, same = whole.strength_matrix[[row]].toarray(), alone.strength_matrix.toarray()
        assert found == pytest.approx(same, rel=1e-9)


@given(graphs(), st.randoms())
def test_an_observed_pair_counts_as_if_it_had_not_been_observed(graph, random):
    rules = candidates(graph)
    users, items = all_pairs(graph)
    observed = [k for k in range(len(users)) if graph.has(users[k], 0, items[k] + graph.n_users)]
    for k in random.sample(observed, min(3, len(observed))):
        without = graph.without_interactions([users[k]], [items[k]])
        with_edge = ground(graph, rules, users[k], items[k]).count_matrix.toarray()
        assert (with_edge == ground(without, rules, users[k], items[k]).count_matrix).all()


@given(graphs(), st.sampled_from(WALKS), st.randoms())
def test_reach_gives_the_same_numbers_as_pairs(graph, walk, random):
    graph = with_times(graph, random)
    rules = candidates(graph)
    users, items = all_pairs(graph)
    by_pairs = ground(graph, rules, users, items, walk=walk)
    by_reach = reach(graph, rules, np.arange(graph.n_users), walk=walk, observed=True)
    dense = np.zeros((graph.n_users * graph.n_items, len(rules)))
    rows = by_reach.users.astype(int) * graph.n_items + by_reach.items
    assert (np.diff(rows) > 0).all()
    dense[rows] = by_reach.count_matrix.toarray()
    assert (dense == by_pairs.count_matrix.toarray()).all()
    dense[rows] = by_reach.strength_matrix.toarray()
    assert np.allclose(dense, by_pairs.strength_matrix.toarray(), rtol=1e-9, atol=1e-12)


@given(graphs())
def test_reach_leaves_observed_items_out_unless_asked(graph):
    found = reach(graph, candidates(graph), np.arange(graph.n_users))
    for u, v in zip(found.users, found.items, strict=True):
        assert not graph.has(u, 0, v + graph.n_users)


@given(graphs(), st.randoms())
def test_listed_paths_are_just_the_simple_paths_of_the_rule(graph, random):
    rules = candidates(graph)
    users, items = all_pairs(graph)
    k = random.randrange(len(users))
    slow = list(brute_paths(graph, users[k], items[k]))
    for rule in rules:
        found = paths(graph, rule, users[k], items[k])
        assert sorted(map(tuple, found.tolist())) == sorted(
            n for r, n in slow if r == rule.relations
        )


@given(graphs(), st.randoms())
def test_order_repetition_and_workers_do_not_change_a_pair(graph, random):
    rules = candidates(graph)
    users, items = all_pairs(graph)
    order = np.array(random.choices(range(len(users)), k=2 * len(users)))
    plain = ground(graph, rules, users, items, engine=LocalEngine(1)).count_matrix.toarray()
    mixed = ground(graph, rules, users[order], items[order], engine=LocalEngine(3))
    assert (mixed.users == users[order]).all()
    assert (mixed.count_matrix.toarray() == plain[order]).all()


def test_many_blocks_give_what_one_block_gives(monkeypatch):
    from loger.grounding import api as grounding

    @given(graphs())
    def check(graph):
        rules = candidates(graph)
        users, items = all_pairs(graph)
        one = ground(graph, rules, users, items)
        with monkeypatch.context() as patch:
            patch.setattr(grounding, "PAIRS_PER_BLOCK", 3)
            many = ground(graph, rules, users, items)
        assert (one.indptr == many.indptr).all()
        assert (one.counts == many.counts).all()
        assert (one.rules == many.rules).all()

    check()


@given(graphs())
def test_user_counts_add_up_the_pairs_of_each_user(graph):
    rules = candidates(graph)
    users, items = all_pairs(graph)
    found = ground(graph, rules, users, items)
    dense = found.count_matrix.toarray().reshape(graph.n_users, graph.n_items, len(rules))
    assert (found.per_user(graph.n_users).toarray() == dense.sum(axis=1)).all()


def test_a_user_or_item_out_of_range_is_refused():
    from graphs import build, vocabulary

    graph = build(vocabulary(2, 2, 1, 1), [(0, 0, 2), (1, 0, 2)])
    with pytest.raises(LogerError, match=r"item numbers must be from 0 to 1, got 7"):
        ground(graph, candidates(graph), [0], [7])
    with pytest.raises(LogerError, match=r"users and items must have the same length"):
        ground(graph, candidates(graph), [0, 1], [0])


def test_no_pairs_and_no_rules_are_fine():
    from graphs import build, vocabulary
    from loger.rules import RuleSet

    graph = build(vocabulary(2, 2, 1, 1), [(0, 0, 2), (1, 0, 2)])
    assert ground(graph, candidates(graph), [], []).count_matrix.shape == (
        0,
        len(candidates(graph)),
    )
    assert ground(graph, RuleSet(()), [0], [1]).count_matrix.shape == (1, 0)
    assert len(reach(graph, RuleSet(()), [0, 1])) == 0


@given(graphs(), st.sampled_from([None, *WALKS]), st.integers(1, 4), st.randoms())
def test_the_strongest_paths_are_those_of_all_paths_weighed_one_by_one(graph, walk, n, random):
    graph = with_times(graph, random)
    rules = candidates(graph)
    users, items = all_pairs(graph)
    pick = random.randrange(len(users))
    u, v = int(users[pick]), int(items[pick])
    one = np.full(len(rules), u), np.full(len(rules), v)
    nodes, strengths = strongest_paths(graph, rules, np.arange(len(rules)), *one, n, walk)
    found = ground(graph, rules, [u], [v], walk=walk or Walk.uniform(0.0))
    total = found.strength_matrix.toarray()[0]
    for k, rule in enumerate(rules):
        every = paths(graph, rule, u, v)
        chosen = [row[row >= 0].tolist() for row in nodes[k][: min(n, len(every))]]
        between = [row[1:-1].tolist() for row in every]
        assert all(x in between for x in chosen) and len({*map(tuple, chosen)}) == len(chosen)
        assert (strengths[k][len(every) :] == 0).all()
        if n >= len(every):
            assert strengths[k].sum() == pytest.approx(total[k])
        if walk is None:
            assert chosen == between[:n]
        assert (np.diff(strengths[k]) <= 0).all()
