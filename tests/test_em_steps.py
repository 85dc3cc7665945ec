"""Each step of EM on a small problem with a table as encoder, against slow implementations."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from graphs import brute_counts, brute_strengths
from loger.encoder.calibration import Calibration, fit_calibration
from loger.engine import LocalEngine
from loger.errors import LogerError
from loger.graph import history
from loger.learning import em as em_module
from loger.learning import estep, mstep, pools
from loger.learning.em import EM, ablate_hidden
from loger.learning.estep import propose_hidden, surplus
from loger.learning.fitted import FittedLogic, MStep, Round
from loger.learning.listwise import SPREAD
from loger.learning.mstep import (
    best_weights,
    candidate_pool,
    final_m_step,
    hidden_pairs,
    listwise_of,
    pseudo_users,
    solve,
)
from loger.learning.pools import pair_scores, uniform_items
from loger.learning.tune import encoder_lowered, tuned
from loger.logic.config import EMConfig
from loger.logic.mln import Logic, features, listwise, pseudo_likelihood, typical_strengths
from loger.metrics.report import resampled_means
from loger.ranking.ranker import Fusion
from loger.rules import RuleSet
from small import Table, held_out_pairs, problem, small_graph, some_rules, table

GRAPH = small_graph()
RULES = some_rules(GRAPH)
EVERYONE = np.arange(GRAPH.n_users)
HELD_OUT = set(zip(*(x.tolist() for x in held_out_pairs(GRAPH)), strict=True))


def owned(user: int) -> set[int]:
    return set(history(GRAPH, np.array([user]))[1].tolist())


def free(user: int) -> list[int]:
    return [v for v in range(GRAPH.n_items) if v not in owned(user)]


def fitted(em: EM, weights=None) -> FittedLogic:
    """Weights made up, positive and negative, with all parts of a model in use."""
    weights = np.linspace(-1, 2, len(RULES)) if weights is None else np.array(weights)
    scales = 0.01 + 0.02 * np.arange(len(RULES))
    logic = Logic(RULES, weights, "logwalk", em.config.walk, scales, -0.5, 0.25)
    return FittedLogic(logic, Fusion("logit", 0.8))


# ── users ───────────────────────────────────────────────────────────────────────────────


def test_users_are_shared_out_to_fitting_and_to_development():
    em = problem(fit_users=20, dev_users=6, seed=4)  # 26 have held-out items
    shares = em.fit_users, em.dev_users, em.all_users
    assert all((np.diff(users) > 0).all() for users in shares)
    fit, dev, every = (set(users.tolist()) for users in shares)
    assert (len(fit), len(dev), len(every)) == (16, 6, 20)  # 16 are 60 % of 26, rounded up
    assert not fit & dev
    assert fit < every <= fit | dev <= set(range(26))
    again, other = (problem(fit_users=20, dev_users=6, seed=seed) for seed in (4, 5))
    assert again.fit_users.tolist() == em.fit_users.tolist() != other.fit_users.tolist()
    few = problem(fit_users=5, dev_users=100, seed=4)
    assert few.fit_users.tolist() == few.all_users.tolist()
    assert len(few.fit_users) == 5
    assert sorted([*few.fit_users, *few.dev_users]) == list(range(26))


def test_a_problem_without_rules_is_refused():
    with pytest.raises(LogerError, match="no rules were given, so"):
        EM(GRAPH, table(GRAPH), RuleSet(()), held_out_pairs(GRAPH), EMConfig())


def test_rules_are_grounded_in_the_logic_graph_and_histories_are_of_the_graph():
    less = GRAPH.sampled(1, 0)
    em = EM(GRAPH, table(GRAPH), RULES, held_out_pairs(GRAPH), EMConfig(), logic_graph=less)
    ranker = em.ranker(fitted(em))
    assert (ranker.graph, ranker.logic_graph) == (GRAPH, less)


def test_the_ranker_of_a_problem_has_its_encoder_and_recency():
    walk = replace(EMConfig().walk, recency=0.75)
    em = problem(walk=walk)
    model = fitted(em)
    ranker = em.ranker(model)
    assert ranker.walk.recency == 0.75
    assert ranker.encoder is em.encoder
    assert (ranker.logic, ranker.fusion) == (model.logic, model.fusion)
    assert ranker.logic_graph is ranker.graph is em.graph


# ── pools ───────────────────────────────────────────────────────────────────────────────


def slow_pool(em: EM, user: int) -> set[int]:
    """The best items by each rule and by the encoder, none that the user has."""
    config, out = em.config, set()
    scores = em.encoder.scores[user]
    out |= set(sorted(free(user), key=lambda v: (-scores[v], v))[: pools.MAIN_CANDIDATES])
    walk = config.active_walk
    of = {
        v: brute_counts(GRAPH, RULES, user, v)
        if walk is None
        else brute_strengths(GRAPH, RULES, user, v, walk)
        for v in free(user)
    }
    for k, rule in enumerate(RULES):
        worth = {v: of[v][k] for v in of}
        over_users = len(rule) == 3 and rule.types[2] == "user"
        most = pools.MAIN_CANDIDATES if over_users else pools.RULE_CANDIDATES
        # Strengths that differ by rounding alone are ties.
        reached = sorted((v for v in worth if worth[v]), key=lambda v: (-round(worth[v], 9), v))
        out |= set(reached[:most])
    return out


@pytest.mark.parametrize("feature", ["logwalk", "count"])
def test_a_pool_is_the_best_of_each_rule_and_of_the_encoder(feature, monkeypatch):
    monkeypatch.setattr(pools, "BLOCK", 3)
    monkeypatch.setattr(pools, "RULE_CANDIDATES", 2)
    monkeypatch.setattr(pools, "MAIN_CANDIDATES", 4)
    em = problem(feature=feature)
    users = em.fit_users[:8]
    pool = candidate_pool(em, RULES, users)
    assert pool.starts[0] == 0
    assert pool.starts[-1] == len(pool.found) == len(pool.encoder)
    assert len(pool.starts) == len(users) + 1
    for k, user in enumerate(users.tolist()):
        rows = slice(pool.starts[k], pool.starts[k + 1])
        assert (pool.found.users[rows] == user).all()
        assert pool.found.items[rows].tolist() == sorted(slow_pool(em, user)), user
    pairs = list(zip(pool.found.users.tolist(), pool.found.items.tolist(), strict=True))
    assert pool.hits.tolist() == [row for row, pair in enumerate(pairs) if pair in HELD_OUT]
    assert len(pool.hits) > 3
    assert pool.encoder.tolist() == [em.encoder.scores[pair] for pair in pairs]
    found = pool.found
    assert (found.strengths is None) == (feature == "count")
    slow = np.array([brute_counts(GRAPH, RULES, *pair) for pair in pairs])
    assert (found.count_matrix.toarray() == slow).all()
    assert (slow.sum(axis=1) == 0).any()  # what only the encoder proposes
    if feature != "count":
        walk = em.config.walk
        slow = np.array([brute_strengths(GRAPH, RULES, *pair, walk) for pair in pairs])
        assert found.strength_matrix.toarray() == pytest.approx(slow)


# ── M-step, listwise ────────────────────────────────────────────────────────────────────


def slow_columns(em: EM, pool, scales, popularity=True, encoder=True) -> np.ndarray:
    """Features of rules, log popularity and the encoder's scores, as a dense table."""
    phi = features(pool.found, em.config.feature, scales).toarray()
    count = np.zeros(GRAPH.n_items)
    for user in EVERYONE:
        count[list(owned(user))] += 1
    unit = np.log1p(count)[pool.found.items] * popularity
    return np.column_stack([phi, unit, pool.encoder * encoder])


@pytest.mark.parametrize(
    ("settings", "popularity", "encoder"),
    [
        ({}, True, True),
        ({"popularity": False}, False, True),
        ({"fusion": "logic"}, True, False),
        ({"feature": "count"}, True, True),
    ],
)
def test_the_listwise_m_step_is_at_the_optimum_of_its_objective(settings, popularity, encoder):
    em = problem(l2=0.01, **settings)
    pool = candidate_pool(em, RULES, em.fit_users)
    model, before, after = best_weights(em, candidate_pool(em, RULES, em.fit_users), None)
    scales = None
    if em.config.feature == "logwalk":
        scales = em.config.saturation * typical_strengths(pool.found)
    if scales is None:
        assert model.logic.scales is None
    else:
        assert (model.logic.scales == scales).all()
    columns = slow_columns(em, pool, scales, popularity, encoder)

    def objective(w):
        return listwise(w, columns, pool.starts, pool.hits, 0.01)

    w = np.array([*model.logic.weights, model.logic.popularity, model.fusion.encoder_weight])
    assert before == pytest.approx(objective(np.zeros(len(w)))[0])
    assert after == pytest.approx(objective(w)[0])
    assert after > before + 1e-3
    slope = objective(w)[1]
    bounded = np.ones(len(w), dtype=bool)
    bounded[len(RULES)] = False  # popularity may count against
    assert (w[bounded] >= 0).all()
    assert np.abs(slope[~bounded | (w > 0)]).max() < 1e-4
    assert (slope[bounded & (w == 0)] < 1e-4).all()
    assert (w[: len(RULES)] > 0).any()
    assert (model.logic.popularity != 0) == popularity
    assert (model.fusion.encoder_weight != 0) == encoder
    assert model.fusion.kind == em.config.fusion
    assert (model.logic.rules, model.logic.feature) == (RULES, em.config.feature)
    assert model.logic.walk == em.config.active_walk


def test_a_warm_m_step_begins_with_the_weights_and_keeps_the_scales():
    em = problem(l2=0.01)
    start = fitted(em, np.arange(1.0, 1 + len(RULES)))
    model, before, _ = best_weights(em, candidate_pool(em, RULES, em.fit_users), start)
    assert (model.logic.scales == start.logic.scales).all()
    pool = candidate_pool(em, RULES, em.fit_users)
    columns = slow_columns(em, pool, start.logic.scales)
    w = np.array([*start.logic.weights, start.logic.popularity, start.fusion.encoder_weight])
    assert before == pytest.approx(listwise(w, columns, pool.starts, pool.hits, 0.01)[0])


def test_popularity_may_count_against_an_item():
    graph = GRAPH
    lonely = Table(np.zeros((graph.n_users, graph.n_items)))
    em = problem(lonely)
    count = np.array([sum(v in owned(u) for u in EVERYONE) for v in range(graph.n_items)])
    rare = {u: min(free(u), key=lambda v: count[v]) for u in range(26)}
    pairs = np.array(list(rare.items()), dtype=np.int32).T
    em = EM(graph, lonely, RULES, (pairs[0], pairs[1]), em.config, engine=LocalEngine(1))
    assert (
        best_weights(em, candidate_pool(em, RULES, em.fit_users), None)[0].logic.popularity < -0.1
    )


def test_nothing_held_out_among_the_candidates_is_an_error():
    em = problem()
    pool = replace(candidate_pool(em, RULES, em.fit_users[:2]), hits=np.empty(0, dtype=np.int64))
    with pytest.raises(LogerError, match="no validation item is among the candidates; check"):
        listwise_of(em, pool, None)


def test_rules_of_no_weight_are_left_out_but_for_one():
    em = problem()
    model = fitted(em, [0.0, 1.0, 0.0, -2.0, 0.0, 0.0])
    fewer = model.without_idle_rules()
    assert fewer.logic.rules == RULES.chosen([1, 3])
    assert fewer.logic.weights.tolist() == [1.0, -2.0]
    assert fewer.logic.scales.tolist() == model.logic.scales[[1, 3]].tolist()
    assert fewer.fusion == model.fusion
    none = fitted(em, [0.0] * 6).without_idle_rules()
    assert none.logic.rules == RULES.chosen([0])
    counts = replace(model, logic=replace(model.logic, feature="count", scales=None))
    assert counts.without_idle_rules().logic.scales is None


def test_all_rules_are_tried_on_a_few_users_first_where_there_are_many(monkeypatch):
    monkeypatch.setattr(mstep, "SCREEN_USERS", 5)
    em = problem()
    asked = []

    def noted(em, rules, users):
        asked.append((len(rules), users.tolist()))
        return candidate_pool(em, rules, users)

    monkeypatch.setattr(mstep, "candidate_pool", noted)
    model = em.start()
    assert asked[0] == (len(RULES), em.fit_users[::3].tolist())  # 16 users, every third
    kept, users = asked[1]
    assert 0 < kept <= len(RULES)
    assert users == em.fit_users.tolist()
    assert len(model.logic.rules) <= kept
    asked.clear()
    em.m_step(model)
    assert asked == []  # candidates are gathered once
    monkeypatch.setattr(mstep, "SCREEN_USERS", 16)
    em = problem()
    em.start()
    assert [len(users) for _, users in asked] == [16]


def test_candidates_stay_while_encoder_walk_and_rules_change():
    em = problem()
    first = em.candidates.present()
    em.encoder.scores = em.encoder.scores[::-1].copy()
    walks = [replace(em.config.walk, popular=0.75, arrive=0.0), replace(em.config.walk, item=1.0)]
    for walk in walks:
        fewer = RULES.chosen([0, 2, 5])
        other = em.with_walk(walk)
        pool = other.candidates.present(fewer)
        pairs = list(zip(pool.found.users.tolist(), pool.found.items.tolist(), strict=True))
        assert pool.found.users.tolist() == first.found.users.tolist()
        assert pool.found.items.tolist() == first.found.items.tolist()
        assert (pool.starts == first.starts).all() and (pool.hits == first.hits).all()
        assert pool.encoder.tolist() == [em.encoder.scores[pair] for pair in pairs]
        slow = np.array([brute_strengths(GRAPH, fewer, *pair, walk) for pair in pairs])
        assert pool.found.strength_matrix.toarray() == pytest.approx(slow)
        slow = np.array([brute_counts(GRAPH, fewer, *pair) for pair in pairs])
        assert (pool.found.count_matrix.toarray() == slow).all()


def test_walks_are_tried_on_the_same_candidates(monkeypatch):
    made, gathered = [], []

    def pool(em, *given):
        gathered.append(em.config.walk.popular)
        return candidate_pool(em, *given)

    monkeypatch.setattr(mstep, "candidate_pool", pool)

    def make(config):
        held_out, engine = held_out_pairs(GRAPH), LocalEngine(1)
        made.append(EM(GRAPH, table(GRAPH), RULES, held_out, config, engine=engine))
        return made[-1]

    judged = {0.0: 0.1, 0.5: 0.3, 1.0: 0.2}

    def start(em):
        em.candidates.present()
        ndcg = judged[em.config.walk.popular] + (em.config.l2 == 0.5)
        return FittedLogic(fitted(em).logic, Fusion(), (Round(0, -2.0, -1.0, 0, 0, ndcg, 0.5),))

    monkeypatch.setattr(EM, "start", start)
    many = EMConfig(many_labels=0)
    em, first, tried = tuned(make, many, {"popular": (0.0, 0.5, 1.0)})
    assert [(name, value) for name, value, _ in tried] == [
        ("popular", 0.0), ("popular", 0.5), ("popular", 1.0),
    ]  # fmt: skip
    assert [ndcg for *_, ndcg in tried] == [0.1, 0.3, 0.2]
    assert em.config.walk.popular == 0.5 and first.trace[0].ndcg == 0.3
    assert len(made) == 1 and gathered == [0.0]
    judged[0.0] = 0.9
    em, *_ = tuned(make, many, {"popular": (0.0, 0.5)})
    assert em is made[1] and len(made) == 2  # what was given is best
    em, _, tried = tuned(make, many, {"l2": (1e-3, 0.5)})
    assert em is made[3] and len(made) == 4  # not a walk: a problem of its own
    assert em.config.l2 == 0.5 and [value for _, value, _ in tried] == [1e-3, 0.5]


def test_walks_chosen_after_another_weigh_the_candidates_of_the_first(monkeypatch):
    em = problem()
    one = em.with_walk(replace(em.config.walk, item=1.0))
    two = one.with_walk(replace(one.config.walk, popular=0.75))
    assert two.candidates.walks == (em.config.walk, one.config.walk, two.config.walk)
    straight = em.with_walk(two.config.walk)
    found, direct, first = (x.candidates.present().found for x in (two, straight, em))
    assert found.items.tolist() == first.items.tolist()
    assert found.strengths == pytest.approx(direct.strengths)


def test_users_without_a_hit_do_not_matter_to_the_weights():
    em = problem()
    pool = em.candidates.present()
    owner = np.searchsorted(pool.starts, pool.hits, side="right") - 1
    lost = replace(pool, hits=pool.hits[owner != owner[0]])
    some = lost.of_hits()
    assert len(some.found) < len(pool.found) and len(some.starts) < len(pool.starts)
    pairs = [(p.found.users[p.hits], p.found.items[p.hits]) for p in (lost, some)]
    assert np.array_equal(pairs[0], pairs[1])
    assert some.hit_weights.tolist() == lost.hit_weights.tolist()
    assert np.diff(some.starts).min() > 0 and some.starts[-1] == len(some.found)
    assert np.array_equal(np.diff(some.starts), np.unique(some.found.users, return_counts=True)[1])


def test_many_held_out_interactions_need_fewer_users(monkeypatch):
    em = problem()
    monkeypatch.setattr("loger.learning.problem.FIT_PAIRS", 5)
    few = problem()
    held = np.diff(em.held_out.indptr)
    assert set(few.fit_users) < set(em.fit_users) and (few.dev_users == em.dev_users).all()
    assert held[few.fit_users].sum() >= 5 > held[few.fit_users].sum() - held[few.fit_users].max()
    assert (few.all_users == few.fit_users).all()
    monkeypatch.setattr("loger.learning.problem.FIT_PAIRS", 10**6)
    assert len(problem().fit_users) == len(em.fit_users)


def test_probabilities_of_very_many_pairs_are_of_a_part_of_them(monkeypatch):
    em = problem()
    model, pairs = (
        em.start(),
        len(em.calibration_pairs()[0]),
    )
    monkeypatch.setattr("loger.learning.problem.ENOUGH_PAIRS", pairs // 2)
    users, items = em.calibration_pairs()
    assert len(users) == pairs // 2 and np.asarray(em.held_out[users, items]).all()
    fewer = em.start()
    ratio = fewer.logic.weights / model.logic.weights
    assert ratio == pytest.approx(fewer.fusion.encoder_weight / model.fusion.encoder_weight)


def slow_teaching(em: EM, pool, w, scales) -> float:
    """Σ over users to be taught about of Σ_i t_i log softmax_i, t = softmax(c·s); their mean."""
    held, taught, total = pool.encoder, pool.taught, 0.0
    n = len(np.unique(pool.found.users[pool.hits]))

    def fits(c):  # how well the encoder alone explains the hits, and how far c is from 1
        own = listwise(np.array([c]), held[:, None].astype(float), pool.starts, pool.hits)[0]
        return own - np.log(c) ** 2 / (2 * SPREAD**2 * n)

    c = max(np.linspace(0, 6, 60_001)[1::100], key=fits)
    c = max(np.linspace(max(c - 0.01, 1e-4), c + 0.01, 401), key=fits)
    columns = slow_columns(em, taught, scales, True, True)
    for a, b in zip(taught.starts, taught.starts[1:], strict=False):
        t = np.exp(c * taught.encoder[a:b].astype(float))
        z = columns[a:b] @ w
        total += float(t / t.sum() @ (z - np.log(np.exp(z).sum())))
    return total / (len(taught.starts) - 1)


def test_what_the_encoder_expects_counts_as_much_as_so_many_users_with_one_label(monkeypatch):
    monkeypatch.setattr("loger.learning.problem.TAUGHT_USERS", 7)
    em = problem(l2=0.01, teacher=4.0)
    pool = candidate_pool(em, RULES, em.fit_users)
    assert set(pool.taught.found.users) == set(em.taught_users)
    assert len(em.taught_users) == 7
    model, _, after = best_weights(em, pool)
    columns = slow_columns(em, pool, model.logic.scales, True, True)
    n = sum(np.sqrt(np.unique(pool.found.users[pool.hits], return_counts=True)[1]))

    def objective(w):
        own = listwise(w, columns, pool.starts, pool.hits)[0]
        taught = slow_teaching(em, pool, w, model.logic.scales)
        return n / (n + 4) * own + 4 / (n + 4) * taught - 0.005 * w @ w

    w = np.array([*model.logic.weights, model.logic.popularity, model.fusion.encoder_weight])
    assert after == pytest.approx(objective(w), abs=1e-4)
    rng = np.random.default_rng(0)
    others = [np.abs(w + 0.05 * rng.normal(size=len(w))) for _ in range(20)]
    assert all(objective(other) < after for other in others)


def test_the_more_it_teaches_the_nearer_lists_are_to_the_encoders():
    plain, taught, strictly = (problem(teacher=t).start() for t in (0.0, 10.0, 1e6))
    shares = [
        model.fusion.encoder_weight / (model.logic.weights.sum() + 1e-9)
        for model in (plain, taught, strictly)
    ]
    assert shares[0] < shares[1] < shares[2]


def test_with_many_labels_the_encoder_does_not_teach():
    em = problem(teacher=None)
    assert candidate_pool(em, RULES, em.fit_users).taught is not None
    many = problem(teacher=None, many_labels=16)
    assert len(many.dev_users) and candidate_pool(many, RULES, many.fit_users).taught is None
    assert many.start().logic.weights.tolist() == problem().start().logic.weights.tolist()


def test_what_is_taught_by_keeps_up_with_rules_walk_and_encoder():
    em = problem(teacher=5.0)
    pool = candidate_pool(em, RULES, em.fit_users)
    fewer = RULES.chosen([0, 2])
    walk = replace(em.config.walk, user=1.0)
    other = em.with_walk(walk)
    other.encoder = Table(2 * em.encoder.scores)
    told = pool.with_rules(fewer).scored(other.ranker(other.blank(fewer)), LocalEngine(1)).taught
    users, items = told.found.users, told.found.items
    assert told.encoder == pytest.approx(2 * em.encoder.scores[users, items], rel=1e-6)
    slow = [brute_strengths(GRAPH, fewer, u, v, walk) for u, v in zip(users, items, strict=True)]
    assert told.found.strength_matrix.toarray() == pytest.approx(np.array(slow))


# ── M-step, pseudo ──────────────────────────────────────────────────────────────────────


def test_hidden_pairs_are_proposed_by_the_encoder_and_at_random(monkeypatch):
    monkeypatch.setattr(estep, "HIDDEN", 3)
    em = problem(seed=2)
    model, scores = em.calibrated(fitted(em)), em.encoder.scores
    users, items, q = hidden_pairs(em, em.ranker(model))
    pairs = list(zip(users.tolist(), items.tolist(), strict=True))
    best = [
        (u, v)
        for u in EVERYONE.tolist()
        for v in sorted(free(u), key=lambda v: (-scores[u, v], v))[:3]
    ]
    uniform = pairs[len(best) :]
    assert pairs[: len(best)] == best
    assert not [v for u, v in uniform if v in owned(u)]
    assert max(Counter(u for u, _ in uniform).values()) == 3
    assert len(uniform) > 2 * len(EVERYONE)  # the others are of items that the user has
    assert len({v for _, v in uniform}) > 0.7 * GRAPH.n_items
    slow = [model.fusion.calibration(np.array([em.encoder.scores[pair]]))[0] for pair in pairs]
    assert q == pytest.approx(slow)


@pytest.mark.parametrize("feature", ["set", "count", "logwalk"])
@pytest.mark.parametrize("steps", [0, 3])
def test_the_pseudo_m_step_is_that_of_observed_and_hidden_pairs(feature, steps, monkeypatch):
    monkeypatch.setattr(estep, "HIDDEN", 3)
    monkeypatch.setattr(mstep, "RATE", 1e-3)
    em = problem(likelihood="pseudo", feature=feature, l2=0.1, steps=steps, fusion="sum")
    draft = em.calibrated(em.blank(RULES))
    model, before, after = em.m_step(None)
    observed = [(int(u), v) for u in EVERYONE for v in sorted(owned(u))]
    users, items, q = hidden_pairs(em, em.ranker(draft))
    pairs = np.concatenate([np.array(observed).T, [users, items]], axis=1)
    found = draft.logic.ground(GRAPH, *pairs)
    targets = np.concatenate([np.ones(len(observed)), q])
    scales = typical_strengths(found) if feature == "logwalk" else None
    phi = features(found, feature, scales)
    prior = feature != "set"
    entropy = -sum(x * math.log(x) + (1 - x) * math.log(1 - x) for x in q)
    w = np.append(model.logic.weights, model.logic.prior) if prior else model.logic.weights

    def objective(x):
        return pseudo_likelihood(x, phi, targets, 0.1, prior)

    start = np.zeros(len(w))
    assert before == pytest.approx(objective(start)[0] + entropy)
    assert after == pytest.approx(objective(w)[0] + entropy)
    assert after > before
    if steps:
        for _ in range(3):
            start = start + 1e-3 * objective(start)[1]
        assert w == pytest.approx(start)
    else:
        assert np.abs(objective(w)[1]).max() < 1e-2
    assert model.logic.popularity == 0
    assert prior or model.logic.prior == 0
    assert model.fusion.encoder_weight == model.fusion.calibration.slope
    assert (model.fusion.kind, model.fusion.alpha) == ("sum", 0.3)
    if feature == "logwalk":
        assert (model.logic.scales == scales).all()
        warm, again, _ = em.m_step(replace(model, logic=replace(model.logic, scales=2 * scales)))
        assert (warm.logic.scales == 2 * scales).all()
        assert again != pytest.approx(after)


def test_some_users_may_stand_for_all_in_the_pseudo_likelihood(monkeypatch):
    monkeypatch.setattr(estep, "HIDDEN", 3)
    em = problem(likelihood="pseudo", feature="count", l2=0.1)
    assert pseudo_users(em).tolist() == EVERYONE.tolist()
    monkeypatch.setattr(mstep, "PSEUDO_USERS", 12)
    some = pseudo_users(em)
    assert len(some) == 12 and (np.diff(some) > 0).all()
    draft = em.calibrated(em.blank(RULES))
    users, items, q = hidden_pairs(em, em.ranker(draft))
    assert set(users) == set(some)
    pairs = [(int(u), v) for u in some for v in sorted(owned(u))]
    u, v = np.array([*pairs, *zip(users, items, strict=True)]).T
    phi = features(draft.logic.ground(GRAPH, u, v), "count")
    targets, each = np.concatenate([np.ones(len(pairs)), q]), GRAPH.n_users / 12
    model, _, after = em.m_step(None)
    w = np.append(model.logic.weights, model.logic.prior)
    value, gradient = pseudo_likelihood(w, phi, targets, 0.1 / each)
    entropy = -sum(x * math.log(x) + (1 - x) * math.log(1 - x) for x in q)
    assert after == pytest.approx(each * (value + entropy))
    assert np.abs(gradient).max() < 1e-2


def test_without_any_hit_the_model_is_what_the_encoder_teaches():
    em = problem(teacher=5.0)
    pool = replace(candidate_pool(em, RULES, em.fit_users), hits=np.empty(0, dtype=np.int64))
    model = best_weights(em, pool)[0]
    assert model.fusion.encoder_weight > 0.9
    assert model.logic.weights.max() < 0.05
    with pytest.raises(LogerError, match="no validation item is among the candidates"):
        best_weights(em, replace(pool, taught=None))


# ── probabilities ───────────────────────────────────────────────────────────────────────


def test_p_and_q_are_calibrated_on_held_out_pairs_against_uniform_ones():
    em = problem(seed=1)
    model = fitted(em)
    out = em.calibrated(model)
    users, items, labels, _ = em.labelled_pairs(model)
    pairs = list(zip(users.tolist(), items.tolist(), strict=True))
    assert set(pairs[: labels.sum()]) == {pair for pair in HELD_OUT if pair[0] in em.fit_users}
    others = pairs[labels.sum() :]
    assert not [v for u, v in others if v in owned(u)]
    assert 0 < len(others) < labels.sum()  # one for each, but for those that the user has
    q = fit_calibration(em.encoder.scores[users, items], np.array(labels))
    assert (out.fusion.calibration.slope, out.fusion.calibration.intercept) == pytest.approx(
        (q.slope, q.intercept)
    )
    logit = model.logic.pair_logits(GRAPH, model.logic.ground(GRAPH, users, items))
    p = fit_calibration(logit, np.array(labels))
    scale = p.slope if p.slope > 0 else 1.0
    assert out.logic.weights == pytest.approx(model.logic.weights * scale)
    assert out.logic.popularity == pytest.approx(model.logic.popularity * scale)
    assert out.logic.prior == pytest.approx(p.intercept)
    assert out.fusion.encoder_weight == pytest.approx(model.fusion.encoder_weight * scale)


def test_weights_that_speak_against_what_is_held_out_are_not_turned_around():
    em = problem()
    both = [em.calibrated(fitted(em, sign * np.ones(6))) for sign in (1, -1)]
    slopes = [model.logic.weights[0] / sign for model, sign in zip(both, (1, -1), strict=True)]
    assert all(slope > 0 for slope in slopes)
    assert 1.0 in slopes  # one of the two has a negative slope, and stays as it is


@pytest.mark.parametrize("settings", [{"feature": "set"}, {"likelihood": "pseudo"}])
def test_only_q_is_calibrated_where_p_is_a_probability_already(settings):
    em = problem(**settings)
    feature = settings.get("feature", "logwalk")
    model = fitted(em)
    if feature == "set":
        logic = Logic(RULES, model.logic.weights, "set", None, None)
        model = replace(model, logic=logic)
    out = em.calibrated(model)
    assert out.logic is model.logic
    assert out.fusion.encoder_weight == model.fusion.encoder_weight
    assert out.fusion.calibration != model.fusion.calibration


# ── E-step ──────────────────────────────────────────────────────────────────────────────


def test_what_is_proposed_comes_user_by_user_best_first(monkeypatch):
    monkeypatch.setattr(estep, "BLOCK", 7)
    em = problem()
    users, items, scores = propose_hidden(em.ranker(fitted(em)), 23, LocalEngine(1))
    table_ = em.encoder.scores
    slow = [(u, v) for u in EVERYONE.tolist()
            for v in sorted(free(u), key=lambda v: (-table_[u, v], v))[:23]]  # fmt: skip
    assert list(zip(users.tolist(), items.tolist(), strict=True)) == slow
    assert len(slow) < 23 * GRAPH.n_users  # some have fewer to propose
    assert scores.tolist() == [table_[pair] for pair in slow]


@pytest.mark.parametrize(("tau", "most"), [(0.6, 2), (0.3, 50)])
def test_selected_pairs_fire_are_likely_and_weigh_their_probability(tau, most, monkeypatch):
    monkeypatch.setattr(estep, "HIDDEN", 6)
    em = problem(max_hidden=3, tau=tau)
    model = fitted(em)
    hidden, proposed = em.select_hidden(model, most if most < 3 else None)
    assert proposed == sum(min(6, len(free(u))) for u in EVERYONE)
    scores, slow = em.encoder.scores, {}
    for u in EVERYONE.tolist():
        for v in sorted(free(u), key=lambda v: (-scores[u, v], v))[: min(most, 3)]:
            x = np.array(brute_strengths(GRAPH, RULES, u, v, em.config.walk))
            popular = sum(v in owned(w) for w in EVERYONE)
            logit = model.logic.weights @ np.log1p(x / model.logic.scales)
            logit += model.logic.prior + model.logic.popularity * math.log1p(popular)
            p = 1 / (1 + math.exp(-logit))
            if x.any() and p >= tau:
                says = em.over_hidden(model)[0]  # at the true base rate
                slow[u, v] = 1 / (1 + math.exp(-says.slope * logit - says.intercept))
    pairs = list(zip(hidden.users.tolist(), hidden.items.tolist(), strict=True))
    assert pairs == list(slow)
    assert len(pairs) > 5
    real = sum(len(owned(u)) for u in EVERYONE)
    scale = min(1.0, real / sum(slow.values()))
    assert hidden.weights == pytest.approx(np.array(list(slow.values())) * scale, rel=1e-5)


def test_pairs_of_h_are_as_likely_as_those_of_fitting_users_are_held_out(monkeypatch):
    monkeypatch.setattr(estep, "HIDDEN", 6)
    em = problem()
    model = fitted(em)
    by_logit, by_score = em.over_hidden(model)
    best = [(u, v) for u in em.fit_users.tolist()
            for v in sorted(free(u), key=lambda v: (-em.encoder.scores[u, v], v))[:6]]  # fmt: skip
    labels = np.array([pair in HELD_OUT for pair in best])
    users, items = np.array(best, dtype=np.int32).T
    logits = model.logic.pair_logits(GRAPH, model.logic.ground(GRAPH, users, items))
    for says, x in ((by_logit, logits), (by_score, em.encoder.scores[users, items])):
        slow = fit_calibration(x, labels)
        assert says.slope == pytest.approx(slow.slope, rel=1e-5)
        assert says.intercept == pytest.approx(slow.intercept, rel=1e-5)
    paper = problem(likelihood="pseudo")
    assert paper.over_hidden(fitted(paper))[0] == Calibration()  # its p is of no base rate


@pytest.mark.parametrize(("hits", "own", "made"), [(4, 4, 0), (5, 4, 1)])
def test_a_round_is_made_only_if_hidden_pairs_have_more_hits_than_the_encoders_best(
    hits, own, made, monkeypatch, caplog
):
    monkeypatch.setattr(em_module, "surplus", lambda *_: (hits, own))
    em = problem(rounds=1, tau=0.4)
    with caplog.at_level("INFO"):
        assert len(em.run().trace) == 1 + made
    assert len(em.encoder.fits) == made
    assert ("skipped EM: of" in caplog.text) == (made == 0)


def test_the_surplus_counts_hits_of_hidden_pairs_and_of_as_many_of_the_encoders_best(monkeypatch):
    monkeypatch.setattr(estep, "HIDDEN", 8)
    em = problem(max_hidden=8, tau=0.5)
    model, scores = fitted(em), em.encoder.scores
    selected, _ = em.select_hidden(model, users=em.dev_users)
    pairs = list(zip(selected.users.tolist(), selected.items.tolist(), strict=True))
    best = 0
    for u in em.dev_users.tolist():
        n = sum(owner == u for owner, _ in pairs)
        best += sum(
            (u, v) in HELD_OUT for v in sorted(free(u), key=lambda v: (-scores[u, v], v))[:n]
        )
    assert 0 < len(pairs) < 8 * len(em.dev_users)
    told = surplus(em.ranker(model), selected, em.held_out, LocalEngine(1))
    assert told == (sum(pair in HELD_OUT for pair in pairs), best)


def test_hidden_pairs_never_weigh_more_than_the_real_ones():
    em = problem(max_hidden=20, tau=0.0, likelihood="pseudo")
    model = fitted(em, np.full(6, 3.0))
    hidden, _ = em.select_hidden(model)
    real = sum(len(owned(u)) for u in EVERYONE)
    assert len(hidden.users) > real
    assert hidden.weights.sum() == pytest.approx(real, rel=1e-5)


# ── the loop ────────────────────────────────────────────────────────────────────────────


def test_a_round_is_an_e_step_on_what_was_selected_and_a_warm_m_step():
    em = problem(rounds=2, early_stop=False, tau=0.4)
    shown = []
    em.progress = lambda *told: shown.append(told)
    first = em.start()
    selected, n_hidden = em.select_hidden(first)
    model = em.run(first)
    assert [r.number for r in model.trace] == [0, 1, 2]
    assert (model.trace[0].hidden, model.trace[0].selected) == (0, 0)
    assert (model.trace[1].hidden, model.trace[1].selected) == (n_hidden, len(selected.users))
    assert shown == [("rounds of EM", 1, 2), ("rounds of EM", 2, 2)]
    assert len(em.encoder.fits) == 2
    graph, hidden, warm = em.encoder.fits[0]
    assert graph is em.graph
    assert warm
    assert hidden.users.tolist() == selected.users.tolist()
    other = problem(rounds=2, early_stop=False, tau=0.4)
    again = other.start()
    assert again.trace == first.trace
    other.e_step(other.select_hidden(again)[0])
    by_hand, before, after = other.m_step(again)
    assert (model.trace[1].bound_before, model.trace[1].bound) == (before, after)
    assert by_hand.logic.rules == other.m_step(again)[0].logic.rules
    assert model.trace[1].ndcg == other.dev_metrics(by_hand)[0].mean()


def test_rounds_that_help_are_kept_and_the_first_that_does_not_ends_them():
    em = problem(rounds=5, tau=0.4)
    em.promising = lambda _: True
    scores = iter([0.1, 0.1, 0.2, 0.2, 0.1, 0.9, 0.9])  # at the start, then before and after
    em.dev_metrics = lambda _: (np.full(3, next(scores)), np.full(3, 0.5))
    bounds = iter([-5.0, -4.0, -3.0, -2.0, -1.0])
    inner, models = em.m_step, []

    def m_step(start):
        models.append(inner(start)[0])
        return MStep(models[-1], -9.0, next(bounds))

    em.m_step = m_step
    states = []
    step = em.e_step
    em.e_step = lambda *given: (states.append(em.encoder.state()), step(*given))
    model = em.run()
    assert [r.ndcg for r in model.trace] == pytest.approx([0.1, 0.2, 0.1])
    assert [r.recall for r in model.trace] == [0.5] * 3
    assert model.logic is models[1].logic  # of round 1
    assert (em.encoder.scores == states[1]["scores"]).all()  # as round 2 found it
    assert (states[0]["scores"] != states[1]["scores"]).any()


def test_without_anything_to_select_there_is_no_round():
    em = problem(rounds=3, tau=1.1)
    model = em.run()
    assert [r.number for r in model.trace] == [0]
    assert em.encoder.fits == []


def test_a_round_improves_only_if_bound_and_ndcg_are_both_higher():
    first = Round(0, -6.0, -5.0, 0, 0, 0.5, 0.5)
    for bound, ndcg, better in (
        (-4.0, 0.6, True), (-5.0, 0.6, False), (-4.0, 0.5, False), (-6.0, 0.4, False),
    ):  # fmt: skip
        assert replace(first, bound=bound, ndcg=ndcg).improves_on(first) == better


def test_the_last_weights_are_learned_from_all_held_out_users():
    em = problem()
    model = em.start()
    last = final_m_step(em, model)
    again = best_weights(em, candidate_pool(em, model.logic.rules, em.all_users), model).fitted
    expected = em.calibrated(again.without_idle_rules())
    assert last.logic.weights.tolist() == expected.logic.weights.tolist()
    assert last.fusion == expected.fusion
    assert last.trace == model.trace
    assert last.logic.weights.tolist() != model.logic.weights.tolist()
    few = problem(fit_users=5)
    model = few.start()
    assert final_m_step(few, model) is model  # nobody is left to add
    paper = problem(likelihood="pseudo")
    model = paper.start()
    assert final_m_step(paper, model) is model


def test_rounds_are_compared_by_ndcg_and_recall_of_the_development_users():
    em = problem(dev_users=6)
    model = fitted(em)
    ndcg, recall = em.dev_metrics(model)
    assert len(ndcg) == len(recall) == 6
    ranker = em.ranker(model)
    for row, user in enumerate(em.dev_users.tolist()):
        scores = ranker.score([user])[0]
        best = sorted(free(user), key=lambda v: (-scores[v], v))[:10]
        wanted = {v for u, v in HELD_OUT if u == user}
        gain = sum(1 / math.log2(k + 2) for k, v in enumerate(best) if v in wanted)
        ideal = sum(1 / math.log2(k + 2) for k in range(len(wanted)))
        assert ndcg[row] == pytest.approx(gain / ideal)
        assert recall[row] == pytest.approx(len(wanted & set(best)) / len(wanted))
    assert 0 < recall.mean() < 1
    nobody = problem(dev_users=0)
    first = nobody.start().trace[0]
    assert math.isnan(first.ndcg)
    assert math.isnan(first.recall)


def test_the_ablation_tries_each_size_from_the_same_start():
    em = problem(dev_users=8, tau=0.4)
    state = em.encoder.state()["scores"]
    first = em.m_step(None)[0]
    points = ablate_hidden(em, [0, 2, 5])
    control = None
    assert (em.encoder.scores == state).all()
    assert [p["selected"] for p in points] == [0, 2, 5]
    for point in points:
        size = point["selected"]
        selected, _ = em.select_hidden(first, size)
        em.e_step(selected)
        pairs = len(selected.users)
        after = em.m_step(first)[0]
        ndcg, alone = em.dev_metrics(after)[0], em.encoder_ndcg(after).mean()
        control = ndcg if control is None else control
        em.encoder.load_state(GRAPH, {"scores": state})
        ends = [
            np.quantile(resampled_means(values[:, None], 1000, 0), [0.025, 0.975])
            for values in (ndcg, ndcg - control)
        ]
        assert point == {
            "selected": size, "pairs": pairs, "ndcg": ndcg.mean(), "low": ends[0][0],
            "high": ends[0][1], "more": (ndcg - control).mean(), "more_low": ends[1][0],
            "more_high": ends[1][1], "encoder": alone,
        }  # fmt: skip
    assert points[0]["more"] == points[0]["more_low"] == points[0]["more_high"] == 0.0
    assert points[1]["pairs"] < points[2]["pairs"]
    with pytest.raises(LogerError, match="too few users have held-out interactions to compare"):
        ablate_hidden(problem(dev_users=0), [0])


def test_the_encoder_alone_is_judged_by_its_own_lists():
    em = problem(dev_users=8)
    for user, ndcg in zip(em.dev_users, em.encoder_ndcg(fitted(em)), strict=True):
        best = sorted(free(user), key=lambda v: (-em.encoder.scores[user][v], v))[:10]
        true = em.held_out[[user]].indices
        gain = sum(1 / np.log2(place + 2) for place, v in enumerate(best) if v in true)
        most = sum(1 / np.log2(place + 2) for place in range(min(10, len(true))))
        assert ndcg == pytest.approx(gain / most)


# ── pairs ───────────────────────────────────────────────────────────────────────────────


def test_scores_of_pairs_are_the_encoders_in_any_order(monkeypatch):
    monkeypatch.setattr(pools, "BLOCK", 7)
    em = problem()
    rng = np.random.default_rng(0)
    users = rng.integers(0, GRAPH.n_users, 200)
    items = rng.integers(0, GRAPH.n_items, 200)
    out = pair_scores(em.ranker(fitted(em)), users, items, LocalEngine(1))
    assert out.tolist() == em.encoder.scores[users, items].tolist()
    none = np.empty(0, dtype=np.int64)
    assert pair_scores(em.ranker(fitted(em)), none, none, LocalEngine(1)).shape == (0,)


def test_uniform_items_are_drawn_per_user_and_marked_where_the_user_has_them():
    users, items = uniform_items(GRAPH, EVERYONE, 9, np.random.default_rng(1))
    drawn = np.random.default_rng(1).integers(GRAPH.n_items, size=9 * GRAPH.n_users)
    assert users.tolist() == np.repeat(EVERYONE, 9).tolist()
    slow = [v if v not in owned(u) else -1 for u, v in zip(users, drawn.tolist(), strict=True)]
    assert items.tolist() == slow
    assert 0 < slow.count(-1) < len(slow)
    assert (users.dtype, items.dtype) == (np.int32, np.int32)
    assert uniform_items(GRAPH, EVERYONE, 9, np.random.default_rng(2))[1].tolist() != slow


def test_the_dial_solves_each_share_to_its_optimum_whatever_was_solved_before():
    shares = (0.0, 0.5, 1.0)
    em, fresh = problem(l2=0.01), problem(l2=0.01)
    em.start()  # whose weights the dial begins from
    for one, other in zip(encoder_lowered(em, shares), encoder_lowered(fresh, shares), strict=True):
        assert one.logic.weights == pytest.approx(other.logic.weights, rel=1e-6)
        assert one.fusion.encoder_weight == pytest.approx(other.fusion.encoder_weight, rel=1e-6)
    pool = em.candidates.present()
    free = best_weights(em, pool).fitted
    half = solve(em, listwise_of(em, pool, free), free, free.fusion.encoder_weight / 2).fitted
    at_half = encoder_lowered(em, (0.5,))[0]
    kept = half.without_idle_rules().logic.weights
    ratio = at_half.logic.weights / kept
    assert ratio == pytest.approx(ratio[0], rel=1e-3)
    bounds = [row.trace[0].bound for row in encoder_lowered(em, shares)]
    assert bounds == sorted(bounds) and bounds[0] < bounds[-1]
