"""How much the encoder may teach: as much as held-out users with labels support."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

from loger.engine import LocalEngine
from loger.graph import history
from loger.grounding import ground
from loger.learning import listwise
from loger.learning.em import EM
from loger.learning.listwise import (
    DEFAULT_TEACHER_WEIGHT,
    SPREAD,
    Lists,
    best_teacher_weight,
    cross_validated,
    temperature,
)
from loger.learning.mstep import candidate_pool, listwise_of
from loger.learning.tune import cross_validated_ndcg, drop_derived_rules_if_harmful, tuned
from loger.logic.mln import hit_weights
from small import Table, held_out_pairs, problem, small_graph, some_rules

GRAPH = small_graph()
RULES = some_rules(GRAPH)


def asked(em: EM) -> tuple:
    """The question of the fitting users, and what the encoder expects of some."""
    objective = listwise_of(em, candidate_pool(em, em.rules, em.fit_users), None)
    return objective, objective.taught


def parts(lists: Lists, chosen) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of some users with hits: columns, which rows are hits, and the encoder's scores."""
    dense = np.hstack([lists.columns.toarray(), lists.dense.T])
    taken = np.zeros(len(dense), dtype=bool)
    taken[lists.hits] = True
    spans = [slice(a, b) for a, b in zip(lists.starts, lists.starts[1:], strict=False)]
    return [(dense[s], taken[s], lists.beliefs[s]) for k, s in enumerate(spans) if chosen[k]]


def log_softmax(z):
    return z - np.log(np.exp(z - z.max()).sum()) - z.max()


def mean_of_users(users, score) -> float:
    """The mean log-likelihood of the hits; those of a user with m of them count 1/√m each."""
    values = [log_softmax(score(x, s))[taken].sum() / np.sqrt(taken.sum()) for x, taken, s in users]
    return sum(values) / sum(np.sqrt(taken.sum()) for _, taken, _ in users)


def slow_temperature(known) -> float:
    """The c of softmax(c·s) at the maximum of likelihood and prior, by trying many."""
    logs = np.linspace(-3, 3, 6001)
    prior = logs**2 / (2 * SPREAD**2 * len(known))
    likely = [mean_of_users(known, lambda _, s, c=c: np.exp(c) * s) for c in logs]
    return float(np.exp(logs[np.argmax(np.array(likely) - prior)]))


def slow_weights(known, lessons, strength, l2):
    """The best weights for some users, and lessons that count as much as ``strength`` of them."""
    c = slow_temperature(known)
    share = len(known) / (len(known) + strength)

    def cost(w):
        own = mean_of_users(known, lambda x, _: x @ w)
        told = [np.exp(log_softmax(c * s)) @ log_softmax(x @ w) for x, _, s in lessons]
        return -share * own - (1 - share) * np.mean(told) + 0.5 * l2 * w @ w

    width = known[0][0].shape[1]
    bounds = [(None, None) if k == width - 2 else (0, None) for k in range(width)]
    return minimize(cost, np.zeros(width), bounds=bounds, options={"maxfun": 100_000}).x


def test_users_are_left_out_of_what_they_are_to_tell(monkeypatch):
    monkeypatch.setattr(listwise, "FOLDS", 3)
    monkeypatch.setattr("loger.learning.problem.TAUGHT_USERS", 5)
    question, taught = asked(problem(teacher=None, l2=0.05))
    labels, n = question.labels, len(question.labels)
    lessons, told = (
        parts(taught, np.ones(len(taught))),
        cross_validated(question, (300.0, 3.0), Lists.per_user_log_likelihood),
    )
    for k in range(3):
        new = np.arange(n) % 3 == k
        for values, strength in zip(told, (300.0, 3.0), strict=True):
            w = slow_weights(parts(labels, ~new), lessons, strength, 0.05)
            slow = mean_of_users(parts(labels, new), lambda x, _, w=w: x @ w)
            assert values[new].sum() == pytest.approx(slow, abs=2e-3)


@pytest.mark.parametrize(
    ("told", "chosen"),
    [
        ([[-9, -9, -9], [-1, -1, -1], [-9, -9, -9], [-9, -9, -9]], 100.0),  # labels are sure
        ([[-1, -1, -1], [-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], 54.77),  # they cannot tell
        ([[-9, -9, -9], [-1, 0, 0], [-1, 0, 0], [-9, -9, -9]], 54.77),  # the middle of 100 and 30
        ([[-9, -9, -9], [-1, 0, 0], [-9, -9, -9], [-1, 0, -np.log(3)]], 56.23),  # 3 to 1
    ],
)
def test_strengths_count_as_much_as_they_make_labels_left_out_likely(monkeypatch, told, chosen):
    question, _ = asked(problem(teacher=None))
    three = question.labels.of_users(np.arange(len(question.labels)) < 3)
    monkeypatch.setattr(listwise, "cross_validated", lambda *_: np.array(told, dtype=float))
    found = best_teacher_weight(replace(question, labels=three))
    assert found == pytest.approx(chosen, abs=0.01)


def taken_by_a_rule() -> tuple[np.ndarray, np.ndarray]:
    """For each user the new item that most paths of the first rule lead to."""
    everyone = np.arange(GRAPH.n_users)
    users, items = (x.ravel() for x in np.indices((GRAPH.n_users, GRAPH.n_items)))
    paths = ground(GRAPH, RULES, users, items).count_matrix.toarray()[:, 0]
    paths = paths.reshape(GRAPH.n_users, GRAPH.n_items).astype(float)
    paths[history(GRAPH, everyone)] = -1
    return everyone[:26], paths.argmax(1)[:26]


def test_where_a_rule_says_it_all_the_encoder_says_little_and_where_labels_cannot_tell_more():
    noise = np.random.default_rng(0).normal(size=(GRAPH.n_users, GRAPH.n_items))
    by_rule, at_random = taken_by_a_rule(), held_out_pairs(GRAPH)
    knows = noise.copy()
    knows[at_random] += 4
    strengths = []
    for scores, pairs in ((noise, by_rule), (knows, at_random)):
        config = problem(teacher=None).config
        em = EM(GRAPH, Table(scores), RULES, pairs, config, engine=LocalEngine(1))
        strengths.append(candidate_pool(em, RULES, em.fit_users).teacher)
    assert strengths[0] < 11 and strengths[1] > 40


def test_without_two_users_with_labels_nothing_says_how_much_it_may_teach():
    question, _ = asked(problem(teacher=None))
    one = question.labels.of_users(np.arange(len(question.labels)) == 1)
    assert best_teacher_weight(replace(question, labels=one)) == DEFAULT_TEACHER_WEIGHT
    none = replace(question.labels, hits=np.empty(0, dtype=np.int64), weights=np.empty(0))
    assert best_teacher_weight(replace(question, labels=none)) == DEFAULT_TEACHER_WEIGHT


def test_a_strength_that_is_given_is_taken():
    em = problem(teacher=7.0)
    assert candidate_pool(em, em.rules, em.fit_users).teacher == 7.0


def test_enough_users_with_labels_are_asked_and_they_come_from_everywhere(monkeypatch):
    question, _ = asked(problem(teacher=None))
    lists, sizes = question.labels, []
    monkeypatch.setattr(listwise, "ENOUGH_USERS", 4)
    monkeypatch.setattr(listwise, "ENOUGH_TAUGHT", 3)

    def seen(question, strengths, judged):
        sizes.append((len(question.labels), len(question.taught), question.labels.columns.shape[0]))
        return np.zeros((4, 4))

    monkeypatch.setattr(listwise, "cross_validated", seen)
    best_teacher_weight(question)
    places = np.arange(4) * len(lists) // 4
    assert sizes == [(4, 3, np.diff(lists.starts)[places].sum())]


def test_the_temperature_is_that_of_training_unless_labels_say_otherwise():
    lists = asked(problem(teacher=None))[0].labels
    known = parts(lists, np.ones(len(lists)))
    assert temperature(lists) == pytest.approx(slow_temperature(known), abs=2e-3)
    flat = replace(lists, beliefs=np.zeros_like(lists.beliefs))
    assert temperature(flat) == 1.0
    one = lists.of_users(np.arange(len(lists)) == 0)
    assert abs(np.log(temperature(one))) < 2 * SPREAD


def test_what_items_have_of_their_own_counts_in_lessons_as_in_labels():
    em = problem(teacher=50.0)
    pool, dense = candidate_pool(em, em.rules, em.fit_users), np.arange(em.graph.n_items) / 7
    more = pool.with_own(dense)
    for before, after in ((pool, more), (pool.taught, more.taught)):
        assert after.encoder - before.encoder == pytest.approx(dense[before.found.items], abs=1e-5)


def test_where_labels_are_few_all_users_teach_and_those_left_out_choose():
    config = problem(teacher=None, fit_users=30).config

    def few(settings):
        return EM(GRAPH, problem().encoder, RULES, taken_by_a_rule(), settings)

    em = few(config)
    assert em.few and len(em.fit_users) == 26 and not len(em.dev_users)
    chosen, first, tried = tuned(few, config, {"popular": (0.0, 0.5)})
    plain, discounted = (
        cross_validated_ndcg(em.with_walk(replace(config.walk, popular=x))) for x in (0.0, 0.5)
    )
    rng = np.random.default_rng(7)
    draws = rng.integers(len(plain), size=(4000, len(plain)))
    more = (discounted - plain)[draws].mean(1)
    share = np.mean(more > 1e-12) + np.mean(np.abs(more) <= 1e-12) / 2
    assert 0.05 < share < 0.95
    assert [row[:2] for row in tried] == [("popular", 0.0), ("popular", 0.5)]
    assert [row[2] for row in tried] == pytest.approx([1 - share, share], abs=0.05)
    share = tried[1][2]
    assert chosen.config.walk.popular == pytest.approx(0.5 * share, abs=0.005)
    assert drop_derived_rules_if_harmful(chosen, first) == (first, [])  # no relation is derived
    other, _, tried = tuned(few, config, {"feature": ("walk", "logwalk")})
    best = max(tried, key=lambda row: row[2])[1]
    assert other.config.feature == best and sum(row[2] for row in tried) == pytest.approx(1)


def test_labels_are_many_from_three_hundred_users_on_or_where_rounds_need_development_users():
    assert not problem(teacher=None, rounds=1).few
    assert not problem(likelihood="pseudo", feature="set").few


def test_ndcg_of_lists_is_that_of_their_hits_among_the_candidates():
    lists = asked(problem(teacher=None))[0].labels
    w = np.random.default_rng(2).random(lists.columns.shape[1] + len(lists.dense))
    slow = []
    for x, taken, _ in parts(lists, np.ones(len(lists))):
        order = np.argsort(-(x @ w), kind="stable")[:3]
        gains = 1 / np.log2(np.arange(3) + 2)
        slow.append(taken[order] @ gains[: len(order)] / gains[: taken.sum()].sum())
    assert lists.ndcg(w, depth=3) == pytest.approx(np.array(slow))
    assert len(set(slow)) > 2


def test_a_user_with_four_labels_counts_as_two_with_one_and_a_teacher_likewise():
    rows = np.zeros((9, 1))
    lists = Lists(
        csr_array(rows), np.zeros((2, 9)), np.array([0, 6, 9]), np.array([0, 1, 2, 3, 8]),
        hit_weights(np.array([0, 6, 9]), np.array([0, 1, 2, 3, 8])),
    )  # fmt: skip
    assert lists.labels == 3
    both = lists.concatenate(replace(lists, weights=np.full(5, 0.2)), 6.0)
    assert both.weights[:5].sum() == pytest.approx(1 / 3)
    assert both.weights[:5] == pytest.approx(np.array([1, 1, 1, 1, 2]) / 18)


def test_lists_of_some_users_are_their_rows_and_hits():
    lists = asked(problem(teacher=None))[0].labels
    chosen = np.arange(len(lists)) % 3 == 1
    some, w = lists.of_users(chosen), np.linspace(0.1, 1, lists.columns.shape[1] + 2)
    assert some.weights.sum() == pytest.approx(1)
    whole = lists.per_user_log_likelihood(w)
    assert whole.sum() == pytest.approx(lists.likelihood(w)[0])
    share = lists.weights[
        np.isin(lists.hits, np.flatnonzero(np.repeat(chosen, np.diff(lists.starts))))
    ]
    assert some.per_user_log_likelihood(w) * share.sum() == pytest.approx(whole[chosen])
    assert not len(lists.of_users(np.zeros(len(lists), dtype=bool)).hits)
