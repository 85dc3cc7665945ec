"""The logic model against an enumerated tiny MLN, finite differences and loops."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit

from graphs import build, graphs, vocabulary
from loger.engine.kernels import kernel
from loger.errors import UnknownNameError
from loger.grounding import Groundings, Walk, ground, reach, reach_sizes
from loger.grounding.reaching import PACKED
from loger.grounding.steps import log_from_1
from loger.logic.mln import (
    FEATURES,
    Logic,
    additive,
    ascend,
    features,
    listwise,
    log_popularity,
    maximise,
    pseudo_likelihood,
    typical_strengths,
    uses_strength,
)
from loger.rules import RuleSet, candidates


def probability(phi, weights, prior=0.0):
    """p = σ(φ·w + w₀)."""
    return expit(phi @ np.asarray(weights, dtype=np.float64) + prior)


def groundings(counts, strengths=None) -> Groundings:
    """Groundings of pairs given as a dense matrix pairs × rules."""
    n = np.asarray(counts)
    sparse = csr_array(n)
    x = None if strengths is None else np.asarray(strengths)[n > 0].astype(float)
    pairs = np.arange(len(n), dtype=np.int32)
    return Groundings(
        pairs, pairs, n.shape[1], sparse.indptr.astype(np.int64), sparse.indices, sparse.data, x
    )


COUNTS = [[0, 2, 1], [3, 0, 0], [0, 0, 0]]
STRENGTHS = [[0, 0.5, 4.0], [2.0, 0, 0], [0, 0, 0]]
SCALES = [1.0, 0.5, 2.0]


def test_each_feature_is_its_formula():
    found = groundings(COUNTS, STRENGTHS)
    told = {f: features(found, f, SCALES).toarray().tolist() for f in FEATURES}
    assert told["set"] == [[0, 0.5, 0.5], [1, 0, 0], [0, 0, 0]]
    assert told["multiset"] == [[0, 2 / 3, 1 / 3], [1, 0, 0], [0, 0, 0]]
    assert told["count"] == [[0, np.log1p(2), np.log1p(1)], [np.log1p(3), 0, 0], [0, 0, 0]]
    assert told["walk"] == [[0, 1.0, 2.0], [2.0, 0, 0], [0, 0, 0]]
    assert told["logwalk"] == [[0, np.log1p(1), np.log1p(2)], [np.log1p(2), 0, 0], [0, 0, 0]]


def test_an_unknown_feature_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match="walk"):
        features(groundings(COUNTS, STRENGTHS), "wlak")


def test_no_rule_fires_gives_the_prior_or_one_half():
    phi = features(groundings(COUNTS), "set")
    assert probability(phi, [1.0, -2.0, 0.5])[2] == 0.5
    phi = features(groundings(COUNTS), "count")
    assert probability(phi, [1.0, -2.0, 0.5], prior=-3.0)[2] == pytest.approx(1 / (1 + np.exp(3)))


@pytest.mark.parametrize("feature", FEATURES)
def test_probability_is_that_of_a_markov_logic_network_enumerated(feature):
    """A world sets every body atom and the head; a clause body ⇒ head of weight w·φ, one per
    rule that fires, is satisfied unless the body holds and the head does not; the unit clause
    has weight w₀. Given the bodies, the worlds of the head are enumerated."""
    found = groundings(COUNTS, STRENGTHS)
    phi, w = features(found, feature, SCALES), np.array([0.7, -1.1, 0.4])
    prior = -0.3 if additive(feature) else 0.0
    told = probability(phi, w, prior)
    for pair, row in enumerate(phi.toarray()):
        clauses = [(rule, w[rule] * row[rule]) for rule in range(3) if row[rule]]
        worlds = {}
        for *bodies, head in product([False, True], repeat=len(clauses) + 1):
            satisfied = [head or not body for body in bodies]
            energy = sum(weight for (_, weight), s in zip(clauses, satisfied, strict=True) if s)
            worlds[(*bodies, head)] = np.exp(energy + (prior if head else 0.0))
        given_bodies = (True,) * len(clauses)  # the facts of the graph
        yes, no = worlds[(*given_bodies, True)], worlds[(*given_bodies, False)]
        assert told[pair] == pytest.approx(yes / (yes + no))


def differences(function, x, step=1e-6):
    """The gradient by central differences."""
    out = np.empty_like(x)
    for k in range(len(x)):
        up, down = x.copy(), x.copy()
        up[k] += step
        down[k] -= step
        out[k] = (function(up)[0] - function(down)[0]) / (2 * step)
    return out


@pytest.mark.parametrize("prior", [True, False])
def test_the_gradient_of_the_pseudo_likelihood_is_that_of_finite_differences(prior):
    rng = np.random.default_rng(0)
    phi = csr_array(rng.random((12, 4)) * (rng.random((12, 4)) < 0.5))
    targets, w = rng.random(12), rng.normal(size=4 + prior)

    def function(x):
        return pseudo_likelihood(x, phi, targets, l2=0.3, prior=prior)

    assert function(w)[1] == pytest.approx(differences(function, w), rel=1e-5, abs=1e-7)


def test_the_pseudo_likelihood_is_its_formula():
    phi = csr_array(np.array([[1.0, 0.0], [0.5, 2.0]]))
    w, targets = np.array([0.3, -0.7, 0.2]), np.array([1.0, 0.25])
    p = 1 / (1 + np.exp(-np.array([0.3 + 0.2, 0.15 - 1.4 + 0.2])))
    slow = np.log(p[0]) + 0.25 * np.log(p[1]) + 0.75 * np.log(1 - p[1]) - 0.5 * 0.1 * (0.09 + 0.49)
    assert pseudo_likelihood(w, phi, targets, l2=0.1)[0] == pytest.approx(slow)


def test_without_a_prior_or_a_penalty_the_pseudo_likelihood_has_neither():
    phi = csr_array(np.array([[1.0, 0.0], [0.5, 2.0]]))
    w, targets = np.array([0.3, -0.7]), np.array([1.0, 0.25])
    p = 1 / (1 + np.exp(-np.array([0.3, 0.15 - 1.4])))
    slow = np.log(p[0]) + 0.25 * np.log(p[1]) + 0.75 * np.log(1 - p[1])
    value, gradient = pseudo_likelihood(w, phi, targets, prior=False)
    assert value == pytest.approx(slow)
    assert gradient == pytest.approx(phi.T @ (targets - p))


def lists(seed=0):
    """Candidates of four users, and which of them are hits."""
    rng = np.random.default_rng(seed)
    starts = np.array([0, 5, 9, 10, 20])
    return rng.random((20, 3)), starts, np.array([1, 3, 6, 9, 12])


def test_the_listwise_likelihood_is_its_formula():
    phi, starts, hits = lists()
    w = np.array([1.0, -0.5, 2.0])
    slow, total = 0.0, 0.0
    for user in range(4):
        own = range(starts[user], starts[user + 1])
        scores = {i: float(phi[i] @ w) for i in own}
        mine = [h for h in hits if h in own]
        for h in mine:
            log_p = scores[h] - np.log(sum(np.exp(s) for s in scores.values()))
            slow += log_p / np.sqrt(len(mine))
            total += 1 / np.sqrt(len(mine))
    told = listwise(w, phi, starts, hits, l2=0.1)[0]
    assert told == pytest.approx(slow / total - 0.05 * w @ w)


def test_the_gradient_of_the_listwise_likelihood_is_that_of_finite_differences():
    phi, starts, hits = lists()

    def function(x):
        return listwise(x, phi, starts, hits, l2=0.2)

    w = np.array([1.0, -0.5, 2.0])
    assert function(w)[1] == pytest.approx(differences(function, w), rel=1e-5, abs=1e-8)


def test_the_listwise_likelihood_has_no_penalty_by_default_and_users_may_lack_hits():
    phi, starts, _ = lists()
    w, hits = np.array([1.0, -0.5, 2.0]), np.array([1, 6])  # the last two users have none
    value, gradient = listwise(w, phi, starts, hits)
    assert value == pytest.approx(listwise(w, phi[:9], starts[:3], hits)[0])
    assert gradient == pytest.approx(
        differences(lambda x: listwise(x, phi, starts, hits), w), rel=1e-5, abs=1e-8
    )


def test_the_listwise_likelihood_does_not_overflow():
    phi, starts, hits = lists()
    w = np.array([1.0, -0.5, 2.0])
    level = np.repeat([800.0, -800.0, 1e6, 900.0], np.diff(starts))  # alike for all of a user
    high = np.column_stack([phi, level])
    value, gradient = listwise(np.append(w, 1.0), high, starts, hits)
    assert value == pytest.approx(listwise(w, phi, starts, hits)[0], rel=1e-9)
    assert gradient[:3] == pytest.approx(listwise(w, phi, starts, hits)[1], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("n", "gap"), [(10, 5e-7), (60, 1e-5)])
def test_maximise_gets_to_the_bottom_of_a_narrow_valley(n, gap):
    """Curvatures from 1 to 100: SciPy's own tolerances stop several times as far away."""
    curvature = np.logspace(0, 2, n)

    def function(x):
        return float(-0.5 * curvature @ (x - 1) ** 2), -curvature * (x - 1)

    assert np.abs(maximise(function, np.zeros(n)) - 1).max() < gap


def test_maximise_finds_the_optimum_and_keeps_signs():
    phi, starts, hits = lists()

    def function(x):
        return listwise(x, phi, starts, hits, l2=0.01)

    free = maximise(function, np.zeros(3))
    assert np.abs(function(free)[1]).max() < 1e-5
    assert (free < 0).any()
    kept = maximise(function, np.zeros(3), positive=np.array([True, True, True]))
    slope = function(kept)[1]
    assert (kept >= 0).all()
    assert (np.abs(slope[kept > 0]) < 1e-5).all() and (slope[kept == 0] <= 1e-6).all()


def test_gradient_ascent_takes_the_published_step():
    phi, starts, hits = lists()

    def function(x):
        return listwise(x, phi, starts, hits)

    once = ascend(function, np.zeros(3), rate=0.1, steps=1)
    assert once == pytest.approx(0.1 * function(np.zeros(3))[1])
    assert function(ascend(function, np.zeros(3), 0.1, 50))[0] > function(once)[0]


def test_typical_strength_is_the_upper_median_where_a_rule_fires():
    x = [[1.0, 0, 7.0], [5.0, 0, 0], [2.0, 0, 9.0]]
    found = groundings(np.array(x) > 0, x)
    assert typical_strengths(found).tolist() == [2.0, 1.0, 9.0]


@given(graphs(), st.sampled_from(FEATURES))
def test_logits_of_all_items_are_those_of_the_pairs_one_by_one(graph, feature):
    rules = candidates(graph)
    rng = np.random.default_rng(0)
    walk = Walk(0.0, 0.25, 0.5, 0.5, arrive=0.5) if uses_strength(feature) else None
    scales = 0.5 + rng.random(len(rules)) if uses_strength(feature) else None
    weights = rng.normal(size=len(rules))
    logic = Logic(rules, weights, feature, walk, scales, prior=-1.0, popularity=0.3)
    users = np.arange(graph.n_users)
    told = logic.logits(graph, users)
    pairs = np.meshgrid(users, np.arange(graph.n_items), indexing="ij")
    found = logic.ground(graph, pairs[0].ravel(), pairs[1].ravel())
    assert told.ravel() == pytest.approx(logic.pair_logits(graph, found), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("feature", ["walk", "logwalk"])
@pytest.mark.parametrize("arrive", [0.0, 0.5])
def test_rules_that_come_to_most_items_add_the_same_as_pair_by_pair(feature, arrive):
    from graphs import hub_graph

    graph = hub_graph(0, 0.3, False)
    rules = candidates(graph)
    sizes = reach_sizes(graph, rules, np.arange(graph.n_users))
    assert (sizes > 0.9 * graph.n_items).any()  # so there are more edges than items to some
    rng = np.random.default_rng(1)
    walk, scales = Walk(0.0, 0.25, 0.5, 0.5, arrive=arrive), 0.5 + rng.random(len(rules))
    logic = Logic(rules, rng.normal(size=len(rules)), feature, walk, scales)
    pairs = np.meshgrid(np.arange(graph.n_users), np.arange(graph.n_items), indexing="ij")
    found = logic.ground(graph, pairs[0].ravel(), pairs[1].ravel())
    told = logic.logits(graph, np.arange(graph.n_users)).ravel()
    assert told == pytest.approx(logic.pair_logits(graph, found), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("feature", ["walk", "logwalk"])
def test_scores_have_the_same_bytes_however_many_items_are_packed_at_a_time(feature, monkeypatch):
    rng = np.random.default_rng(2)
    names = vocabulary(3, 5000, 3, 1)
    first, brands = names.span("item").start, names.span("brand").start
    bought = [(u, 0, first + v) for u in range(3) for v in rng.integers(5000, size=4)]
    made = [(first + v, 3, brands + v % 3) for v in range(5000) if v % 7 < 4 or v > 4000]
    graph = build(names, bought + made)
    rules = RuleSet(tuple(r for r in candidates(graph) if len(r) == 3))
    walk, scales = Walk(0.0, 0.25, 0.5, 0.5, arrive=0.5), 0.5 + rng.random(len(rules))
    logic = Logic(rules, rng.normal(size=len(rules)), feature, walk, scales)
    users = np.arange(3)
    assert (reach_sizes(graph, rules, users) > PACKED).any()
    pairs = np.meshgrid(users, np.arange(5000), indexing="ij")
    found = logic.ground(graph, pairs[0].ravel(), pairs[1].ravel())
    told = []
    for room in (64, 100, PACKED, 8192):
        monkeypatch.setattr("loger.grounding.api._workspaces", [])
        monkeypatch.setattr("loger.grounding.reaching.PACKED", room)
        told.append(logic.logits(graph, users))
    assert told[0].ravel() == pytest.approx(logic.pair_logits(graph, found), rel=1e-5, abs=1e-5)
    assert {scores.tobytes() for scores in told} == {told[0].tobytes()}


@kernel(error_model="numpy")
def logarithms(numbers, out):
    for k in range(len(numbers)):
        out[k] = log_from_1(numbers[k])


@given(st.lists(st.floats(1.0, 1e300), min_size=1))
def test_the_logarithm_of_kernels_is_that_of_the_library(numbers):
    out = np.empty(len(numbers))
    logarithms(np.array(numbers), out)
    assert out == pytest.approx(np.log(numbers), rel=4e-16, abs=0)


def test_users_may_be_asked_for_twice_and_in_any_order():
    from graphs import hub_graph

    graph = hub_graph(0, 0.3, False)
    rules = candidates(graph)
    logic = Logic(rules, np.ones(len(rules)), "count")
    whole = logic.logits(graph, np.arange(graph.n_users))
    assert (logic.logits(graph, [7, 3, 7]) == whole[[7, 3, 7]]).all()


def test_popularity_is_the_logarithm_of_the_interactions():
    from graphs import hub_graph

    graph = hub_graph(0, 0.3, False)
    _, relations, tails = graph.triples()
    first = graph.n_users
    slow = [np.log1p(int(((relations == 0) & (tails == first + v)).sum())) for v in range(12)]
    assert log_popularity(graph) == pytest.approx(slow)


def test_contributions_add_up_to_the_logit():
    from graphs import hub_graph

    graph = hub_graph(1, 0.3, False)
    rules = candidates(graph)
    found = reach(graph, rules, [0, 1], walk=Walk())
    scales = typical_strengths(ground(graph, rules, found.users, found.items, walk=Walk()))
    logic = Logic(rules, np.ones(len(rules)), "logwalk", Walk(), scales, prior=0.5)
    parts = np.asarray(found.as_matrix(logic.contributions(found)).sum(axis=1)).ravel()
    assert parts + 0.5 == pytest.approx(logic.pair_logits(graph, found), abs=1e-12)
