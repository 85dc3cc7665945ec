"""Weighted facts and derived relations, against a list of every path."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import (
    brute_paths,
    brute_strengths,
    built,
    derived_rules,
    edges_of,
    graphs,
    hub_graph,
    with_derived,
    with_weights,
)
from loger.errors import LogerError
from loger.graph import INTERACTION, Derived, Relation
from loger.grounding import Walk, ground, logits, nth_paths, paths, reach, strongest_paths
from loger.grounding import layout as layouts
from loger.grounding.actions import by_first_hop
from loger.grounding.reaching import WALK, Formula
from loger.rules import RuleSet, candidates
from test_grounding import WALKS, all_pairs, with_times

TIMED = Walk(0.3, 0.7, 1.5, 0.9, arrive=0.6, recency=0.5)


@st.composite
def weighted_graphs(draw):
    """Small graphs with times, weights on some relations, and derived relations."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graph = with_times(draw(graphs()), draw(st.randoms()))
    if draw(st.booleans()):
        graph = with_weights(graph, rng)
    return with_derived(graph, rng)


def all_rules(graph):
    return RuleSet((*candidates(graph), *derived_rules(graph)))


@pytest.fixture(params=["slices", "bitmaps"])
def segments_as(request, monkeypatch):
    if request.param == "bitmaps":
        monkeypatch.setattr(layouts, "BITMAP_EDGES", 0)


@pytest.mark.usefixtures("segments_as")
def test_strengths_multiply_the_weights_of_facts():
    @given(weighted_graphs(), st.sampled_from([*WALKS, TIMED]), st.randoms())
    def check(graph, walk, random):
        rules = all_rules(graph)
        users, items = all_pairs(graph)
        dense = ground(graph, rules, users, items, walk=walk).strength_matrix.toarray()
        for row in random.sample(range(len(users)), min(6, len(users))):
            slow = brute_strengths(graph, rules, users[row], items[row], walk)
            assert dense[row] == pytest.approx(slow, rel=1e-6, abs=1e-9)

    check()


@given(weighted_graphs())
def test_counts_remain_counts(graph):
    rules = all_rules(graph)
    users, items = all_pairs(graph)
    plain = ground(graph, rules, users, items)
    weighed = ground(graph, rules, users, items, walk=TIMED)
    assert abs(plain.count_matrix - weighed.count_matrix).sum() == 0


@pytest.mark.usefixtures("segments_as")
@pytest.mark.parametrize("density", [0.03, 0.6], ids=["path by path", "together"])
def test_each_way_of_counting_multiplies_weights(density):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        graph = with_derived(with_weights(hub_graph(seed, density, bool(seed)), rng), rng)
        rules = all_rules(graph)
        users, items = all_pairs(graph)
        dense = ground(graph, rules, users, items, walk=TIMED).strength_matrix.toarray()
        for row in rng.choice(len(users), size=3 if density > 0.5 else 8, replace=False):
            slow = brute_strengths(graph, rules, users[row], items[row], TIMED)
            assert dense[row] == pytest.approx(slow, rel=1e-6, abs=1e-9)


@given(weighted_graphs())
def test_reaching_and_scoring_agree_with_grounding(graph):
    rules = all_rules(graph)
    users, items = all_pairs(graph)
    found = ground(graph, rules, users, items, walk=TIMED)
    reached = reach(graph, rules, np.arange(graph.n_users), walk=TIMED, observed=True)
    dense = np.zeros((len(users), len(rules)))
    dense[reached.users * graph.n_items + reached.items] = reached.strength_matrix.toarray()
    assert dense == pytest.approx(found.strength_matrix.toarray(), rel=1e-6, abs=1e-9)
    weights = np.linspace(0.1, 1.0, len(rules))
    formula = Formula(WALK, weights, np.ones(len(rules)))
    scores = logits(graph, rules, np.arange(graph.n_users), formula, walk=TIMED)
    far = ~np.array(
        [len(graph.between(u, v + graph.n_users)) > 0 for u, v in zip(users, items, strict=True)]
    )
    expected = found.strength_matrix @ weights
    assert scores.ravel()[far] == pytest.approx(expected[far], rel=1e-5, abs=1e-6)


@given(weighted_graphs(), st.randoms())
def test_paths_and_first_hops_have_the_strengths_of_their_cell(graph, random):
    rules = all_rules(graph)
    users, items = all_pairs(graph)
    found = ground(graph, rules, users, items, walk=TIMED)
    row = random.randrange(len(users))
    u, v = np.full(len(rules), users[row]), np.full(len(rules), items[row])
    cell = found.strength_matrix.toarray()[row]
    places = np.arange(len(rules))
    _, strongest = strongest_paths(graph, rules, places, u, v, 60, TIMED)
    assert strongest.sum(axis=1) == pytest.approx(cell, rel=1e-6, abs=1e-9)
    hops = by_first_hop(graph, rules, places, u, v, TIMED)
    sums = [hops.strengths[a:b].sum() for a, b in zip(hops.starts, hops.starts[1:], strict=False)]
    assert sums == pytest.approx(cell, rel=1e-6, abs=1e-9)
    begin = graph.indptr[users[row]]
    which = np.repeat(places, np.diff(hops.starts))
    firsts = graph.tails[begin + hops.edges]
    _, through = strongest_paths(graph, rules, which, u[which], v[which], 60, TIMED, firsts)
    assert through.sum(axis=1) == pytest.approx(hops.strengths, rel=1e-6, abs=1e-9)


@given(weighted_graphs())
def test_cells_that_are_asked_together_are_those_asked_one_by_one_to_the_last_bit(graph):
    rules = all_rules(graph)
    users, items = all_pairs(graph)
    found = ground(graph, rules, users, items, walk=TIMED)
    pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
    places, u, v = found.rules, users[pair], items[pair]
    order = np.random.default_rng(len(pair)).permutation(len(pair))
    places, u, v = places[order], u[order], v[order]
    together = by_first_hop(graph, rules, places, u, v, TIMED)
    nodes, strengths = strongest_paths(graph, rules, places, u, v, 3, TIMED)
    firsts = graph.tails[graph.indptr[u[cells_of(together)]] + together.edges]
    which = cells_of(together)
    through = strongest_paths(graph, rules, places[which], u[which], v[which], 2, TIMED, firsts)
    at = 0
    for i in range(len(places)):
        own = places[i : i + 1], u[i : i + 1], v[i : i + 1]
        alone = by_first_hop(graph, rules, *own, TIMED)
        span = slice(together.starts[i], together.starts[i + 1])
        for part in ("edges", "strengths", "counts"):
            assert np.array_equal(getattr(together, part)[span], getattr(alone, part))
        best = strongest_paths(graph, rules, *own, 3, TIMED)
        assert np.array_equal(strengths[i], best[1][0])
        assert np.array_equal(nodes[i], best[0][0])
        for first in firsts[span]:
            one = strongest_paths(graph, rules, *own, 2, TIMED, np.array([first]))
            assert np.array_equal(through[1][at], one[1][0])
            assert np.array_equal(through[0][at], one[0][0])
            at += 1


def cells_of(hops):
    """The cell of each first hop."""
    return np.repeat(np.arange(len(hops.starts) - 1), np.diff(hops.starts))


@given(weighted_graphs(), st.randoms())
def test_a_view_weighs_as_the_graph_without_those_interactions_does(graph, random):
    user = random.randrange(graph.n_users)
    own = (graph.neighbours(user, INTERACTION) - graph.n_users).tolist()
    gone = random.sample(own, len(own) // 2)
    added = sorted(set(range(graph.n_items)) - set(own))[:1]
    view = graph.user_view(user, gone, added)
    copied = built(graph, user, gone, added, None)
    rules = all_rules(graph)
    items = np.arange(graph.n_items)
    users = np.full(graph.n_items, user)
    a = ground(view, rules, users, items, walk=TIMED).strength_matrix.toarray()
    b = ground(copied, rules, users, items, walk=TIMED).strength_matrix.toarray()
    assert a == pytest.approx(b, rel=1e-6, abs=1e-9)


@given(weighted_graphs())
def test_derived_facts_are_no_evidence_for_what_they_are_made_of(graph):
    rules = RuleSet(tuple(derived_rules(graph)))
    edges, users = graph.interactions
    items = graph.tails[edges] - graph.n_users
    assert len(ground(graph, rules, users, items).counts) == 0
    for u, v in list(zip(users.tolist(), items.tolist(), strict=True))[:5]:
        assert all(len(paths(graph, rule, u, v)) == 0 for rule in rules)


@given(weighted_graphs())
def test_every_path_over_derived_facts_is_listed(graph):
    rules = RuleSet(tuple(derived_rules(graph)))
    for u in range(min(2, graph.n_users)):
        for v in range(min(3, graph.n_items)):
            every = list(brute_paths(graph, u, v))
            for rule in rules:
                slow = sorted(nodes for relations, nodes in every if relations == rule.relations)
                assert [tuple(p) for p in paths(graph, rule, u, v).tolist()] == slow
                for k, nodes in enumerate(slow):
                    row = nth_paths(graph, rules, [rules.rules.index(rule)], [u], [v], [k])[0]
                    assert tuple(row[row >= 0]) == nodes


@given(graphs(), st.integers(0, 99))
def test_the_given_graph_is_the_one_before(graph, seed):
    rng = np.random.default_rng(seed)
    grown = with_derived(graph, rng)
    assert grown.given.fingerprint == graph.fingerprint
    assert grown.fingerprint != graph.fingerprint
    assert (grown.given.pair_tails == graph.pair_tails).all()
    assert (grown.given.pair_relations == graph.pair_relations).all()
    for h, edges in edges_of(graph).items():
        names = [(grown.relation_name(r), t) for r, t in edges_of(grown)[h]]
        kept = [(n, t) for n, t in names if not n.startswith(("followed_by", "goes_with"))]
        assert sorted(kept) == sorted((graph.relation_name(r), t) for r, t in edges)
        for r, t in edges_of(grown)[h]:
            assert r in grown.between(h, t)
            assert grown.weight(h, r, t) == grown.weight(t, grown.inverse(r), h) > 0
            assert (grown.people(h, r, t) > 0) == grown.relations[r % len(grown.relations)].derived


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [0.0]}, "weight above 0"),
        ({"tails": [0]}, "different items"),
        ({"tails": [99]}, "must be unique"),
        ({"support": []}, "must have the same length"),
        ({"relation": Relation("similar", "item", "item", True)}, "already"),
        ({"relation": Relation("next", "item", "item")}, "from item to item"),
    ],
)
def test_derived_facts_that_make_no_sense_are_refused(change, message):
    graph = hub_graph(0, 0.1, False)
    relation = Relation("next", "item", "item", True)
    fine = Derived(relation, np.array([0]), np.array([1]), np.array([0.5]), np.array([3]))
    graph.with_derived([fine])
    changed = {k: np.array(x) if isinstance(x, list) else x for k, x in change.items()}
    with pytest.raises(LogerError, match=message):
        graph.with_derived([fine._replace(**changed)])
