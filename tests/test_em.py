"""EM on a small shop: the M-step climbs, H⁺ is what rules believe, harmful rounds are undone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import Calibration, TransE, TransEConfig
from loger.encoder.protocol import HiddenPairs
from loger.encoder.transe_training import Training
from loger.evaluation.faithfulness import LogerActions
from loger.learning.em import EM, ablate_hidden
from loger.learning.estep import HIDDEN, propose_hidden
from loger.learning.fitted import Round, kept_rounds
from loger.learning.mstep import final_m_step
from loger.learning.tune import EncoderShare, encoder_share_curve, smallest_encoder_share
from loger.logic.config import EMConfig
from loger.logic.mining import mine
from loger.logic.mln import FEATURES
from loger.metrics.faithfulness import lead
from loger.ranking.ranker import Fusion
from small import calibration_error


@pytest.fixture(scope="module")
def parts():
    return split(shop(seed=1, users=200, items=150).dataset)


@pytest.fixture(scope="module")
def encoder(parts):
    return TransE(TransEConfig(dimension=16, epochs=3)).fit(parts.graph)


@pytest.fixture(scope="module")
def rules(parts):
    return mine(parts.graph).rules


def problem(parts, encoder, rules, **settings):
    """A problem whose labels count as many, though they are few."""
    config = EMConfig(**{"many_labels": 0, **settings})
    return EM(parts.graph, encoder, rules, parts.pairs("validation"), config)


@pytest.mark.parametrize("likelihood", ["listwise", "pseudo"])
def test_the_m_step_never_lowers_its_objective(parts, encoder, rules, likelihood):
    em = problem(parts, encoder, rules, likelihood=likelihood, rounds=0)
    learned = em.start()
    first = learned.trace[0]
    assert first.bound >= first.bound_before
    _, before, after = em.m_step(learned)
    assert after >= before - 1e-9 * abs(before)


def test_gradient_ascent_climbs_too_but_less_than_the_optimum(parts, encoder, rules):
    settings = {"likelihood": "pseudo", "feature": "set", "l2": 0.0, "rounds": 0}
    best = problem(parts, encoder, rules, **settings).start().trace[0]
    slow = problem(parts, encoder, rules, steps=20, **settings).start().trace[0]
    assert slow.bound_before < slow.bound < best.bound


def test_believed_pairs_fire_have_p_of_tau_and_weigh_no_more_than_the_real_ones(
    parts, encoder, rules
):
    em = problem(parts, encoder, rules, rounds=0, tau=0.6, max_hidden=5)
    learned = em.start()
    hidden, proposed = em.select_hidden(learned)
    graph = parts.graph
    assert 0 < len(hidden.users) < proposed
    assert np.bincount(hidden.users).max() <= 5
    assert hidden.weights.sum() <= len(graph.interactions[0]) + 1e-3
    found = learned.logic.ground(graph, hidden.users, hidden.items)
    assert (np.diff(found.indptr) > 0).all()
    p = 1 / (1 + np.exp(-learned.logic.pair_logits(graph, found)))
    assert (p >= 0.6).all()
    for u, v in zip(hidden.users, hidden.items, strict=True):
        assert not graph.has(int(u), 0, int(v) + graph.n_users)


def test_a_round_that_does_not_help_is_taken_back(parts, rules):
    encoder = TransE(TransEConfig(dimension=16, epochs=3)).fit(parts.graph)
    before = encoder.state()
    em = problem(parts, encoder, rules, rounds=1)
    values = iter([0.5, 0.5, 0.4])  # the second round is worse
    em.dev_metrics = lambda _: (np.full(3, next(values)),) * 2
    em.promising = lambda _: True
    learned = em.run()
    assert len(learned.trace) == 2
    assert kept_rounds(learned.trace, True) == 0
    assert all(np.array_equal(before[k], encoder.state()[k]) for k in before)


def test_an_e_step_of_no_pairs_is_its_control_to_the_bit(parts, rules):
    config = TransEConfig(dimension=16, epochs=3)
    encoder, control = (TransE(config).fit(parts.graph) for _ in range(2))
    em = problem(parts, encoder, rules)
    none = HiddenPairs(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    em.e_step(none)
    control.fit(parts.graph, warm=True)
    after = encoder.state()
    assert all(np.array_equal(array, after[k]) for k, array in control.state().items())


def test_rounds_of_no_pairs_are_made_when_none_are_asked_for_and_only_then(parts, rules):
    config = TransEConfig(dimension=16, epochs=3)
    encoder, control = (TransE(config).fit(parts.graph) for _ in range(2))
    settings = {"rounds": 2, "early_stop": False, "likelihood": "pseudo", "fusion": "sum"}
    em = problem(parts, encoder, rules, max_hidden=0, **settings)
    assert [r.selected for r in em.run().trace] == [0, 0, 0]
    for _ in range(2):
        control.fit(parts.graph, warm=True)
    assert encoder.entities_.tobytes() == control.entities_.tobytes()
    nothing = problem(parts, encoder, rules, max_hidden=5, tau=1.0, **settings)
    assert len(nothing.run().trace) == 1  # H⁺ is empty though pairs were asked for


def test_over_hidden_pairs_p_and_q_are_right_at_the_true_base_rate(parts, able, rules):
    em = problem(parts, able, rules)
    fitted = em.start()
    ranker = em.ranker(fitted)
    users, items, s = propose_hidden(ranker, HIDDEN, em.engine, em.dev_users)
    hits = np.asarray(em.held_out[users, items]).astype(bool)
    logit = ranker.logic.pair_logits(parts.graph, ranker.logic.ground(parts.graph, users, items))
    by_logit, by_score = em.over_hidden(fitted)  # pairs of H⁺ are weighted by the former
    for probability in (by_logit(logit), by_score(s)):
        assert calibration_error(probability, hits) <= 0.02
    even = fitted.fusion.calibration.at_odds(1 / em.config.negatives)(s)
    assert calibration_error(even, hits) > 0.2  # against one item each: believed far too much


def test_hidden_pairs_add_no_steps_and_are_drawn_as_often_as_they_weigh(parts):
    graph, (users, items) = parts.graph, parts.pairs("train")
    n, user, item = len(users), 3, 5
    many = np.full(200 * n, user, np.int32), np.full(200 * n, item, np.int32)
    hidden = HiddenPairs(*many, np.full(200 * n, 0.001, np.float32))  # 0.2 n in all
    steps = [list(Training(TransEConfig(), graph, h)._batches(0)) for h in (None, hidden)]
    assert len(steps[0]) == len(steps[1])
    training = Training(TransEConfig(), graph, hidden)
    mine = int((items == item).sum()) + 0.2 * n
    assert float(training._item_share[item]) == pytest.approx(mine / (1.2 * n), rel=1e-5)
    drawn = [training._interactions(epoch) for epoch in range(3)]
    for owners, tails in drawn:  # hardly believed pairs leave the real ones their place
        assert np.array_equal(owners[:n], np.sort(users))
        assert (tails[n:] == graph.n_users + item).all()
        assert len(owners) == pytest.approx(1.2 * n, rel=0.05)
    assert len(drawn[0][0]) != len(drawn[1][0]) or len(drawn[1][0]) != len(drawn[2][0])


def test_a_hidden_pair_is_drawn_as_often_as_it_weighs():
    weights = np.array([0.0, 0.3, 1.0, 1.5], np.float32)
    hidden = HiddenPairs(np.arange(4, dtype=np.int32), np.array([9, 8, 7, 6], np.int32), weights)
    known = np.array([2, 5]), np.array([11, 12])
    drawn = [hidden.drawn_with(known, 100, 0, epoch, False) for epoch in range(400)]
    for users, items in drawn:
        assert (users[:2].tolist(), items[:2].tolist()) == ([2, 5], [11, 12])
        assert (users[2:] + items[2:] == 109).all()  # each with its own item
    often = np.bincount(np.concatenate([users[2:] for users, _ in drawn]), minlength=4) / 400
    assert often.tolist() == pytest.approx(weights.tolist(), abs=0.08)
    assert (often[0], often[2]) == (0, 1)


def test_the_ablation_leaves_the_encoder_as_it_was(parts, rules):
    encoder = TransE(TransEConfig(dimension=16, epochs=3)).fit(parts.graph)
    before = encoder.state()
    em = problem(parts, encoder, rules, tau=0.6, fusion="sum")
    none, few, more = ablate_hidden(em, [0, 2, 5])
    assert none["pairs"] == 0 < few["pairs"] < more["pairs"]
    assert few["ndcg"] != more["ndcg"]
    assert all(point["low"] < point["ndcg"] < point["high"] for point in (none, few, more))
    assert all(np.array_equal(before[k], encoder.state()[k]) for k in before)


def test_a_round_is_kept_if_bound_and_judges_both_say_so():
    first = Round(0, 0, -5.0, 0, 0, 0.5, 0.5)
    both, one, other = (
        replace(first, number=1, bound=bound, ndcg=ndcg)
        for bound, ndcg in ((-4.9, 0.6), (-5.1, 0.6), (-4.9, 0.4))
    )
    assert kept_rounds((first, both), early_stop=True) == 1
    assert kept_rounds((first, one), early_stop=True) == 0
    assert kept_rounds((first, other), early_stop=True) == 0


def test_a_round_that_helps_by_more_than_its_interval_is_kept_whatever_the_bound():
    first = Round(0, 0, -5.0, 0, 0, 0.5, 0.5)
    sure, unsure = (
        replace(first, number=1, bound=-9.0, ndcg=0.6, least_gain=g) for g in (0.02, -0.01)
    )
    assert kept_rounds((first, sure), early_stop=True) == 1
    assert kept_rounds((first, unsure), early_stop=True) == 0


def test_the_gain_of_a_round_is_paired_over_development_users(parts, rules):
    encoder = TransE(TransEConfig(dimension=16, epochs=3)).fit(parts.graph)
    em = problem(parts, encoder, rules, rounds=1, tau=0.0, early_stop=False)
    n = len(em.dev_users)
    users = np.linspace(0, 1, n)  # far apart, so that only paired differences can tell
    values = iter([users, users, users + 0.01])  # at the start, before and after the round
    em.dev_metrics = lambda _: (next(values),) * 2
    first, second = em.run().trace
    assert first.least_gain is None
    assert second.least_gain == pytest.approx(0.01)


def test_rounds_are_kept_all_without_early_stop():
    worse = (Round(0, 0, 0, 0, 0, 0.5, 0.5), Round(1, 0, 0, 0, 0, 0.4, 0.4))
    assert kept_rounds(worse, early_stop=False) == 1
    assert kept_rounds(worse[:1], early_stop=True) == 0


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_learns_and_judges_better_than_chance(parts, encoder, rules, feature):
    em = problem(parts, encoder, rules, feature=feature, rounds=0, fusion="logic")
    learned = em.start()
    assert learned.trace[0].recall > 3 * 10 / parts.graph.n_items
    assert (learned.logic.weights >= 0).all()


def test_fusions_are_their_formulas():
    logit, s = np.array([[0.5, -1.0]], np.float32), np.array([[2.0, 0.0]], np.float32)
    q = Calibration(2.0, -1.0)
    scores = Fusion("logit", 3.0, q).total(logit.copy(), lambda: s)
    assert scores.dtype == np.float32
    assert scores == pytest.approx(np.array([[6.5, -1.0]]))
    scores = Fusion("sum", 3.0, q, alpha=0.3).total(logit.copy(), lambda: s)
    sigma = [1 / (1 + np.exp(-x)) for x in (3.0, 0.5, -1.0, -1.0)]
    slow = [[sigma[0] + 0.3 * sigma[1], sigma[2] + 0.3 * sigma[3]]]
    assert scores == pytest.approx(np.array(slow), abs=1e-6)
    assert (Fusion("logic", 3.0, q).total(logit.copy(), lambda: s) == logit).all()


@pytest.fixture(scope="module")
def weak(rules):
    """Rules that say little, so that the encoder has a say."""
    return rules.chosen(range(len(rules) - 3, len(rules)))


@pytest.fixture(scope="module")
def able(parts):
    """An encoder that is worth some weight."""
    return TransE(TransEConfig(dimension=32, epochs=30)).fit(parts.graph)


def test_a_limit_on_the_encoders_share_is_kept_and_is_used_up(parts, able, weak):
    rules, encoder = weak, able
    free = problem(parts, encoder, rules, rounds=0)
    share = free.encoder_share(free.start())
    assert share > 0.15
    limited = problem(parts, encoder, rules, rounds=0, max_encoder_share=share / 2)
    reached = limited.encoder_share(limited.start())
    assert share / 4 < reached <= share / 2 + 1e-9
    sums = problem(parts, encoder, rules, rounds=0)
    free_sums = sums.encoder_share(sums.start())
    less = problem(parts, encoder, rules, rounds=0, max_encoder_share=free_sums / 2)
    assert free_sums / 4 < less.encoder_share(less.start()) <= free_sums / 2 + 1e-9
    logical = problem(parts, encoder, rules, rounds=0, max_encoder_share=0.0).start()
    assert logical.fusion.encoder_weight == 0
    assert (
        problem(parts, encoder, rules, rounds=0, max_encoder_share=0.0).encoder_share(logical) == 0
    )


def test_of_an_additive_model_an_action_gives_what_its_removal_costs(parts, able, weak):
    config = {"rounds": 0, "popularity": False}
    plain = problem(parts, able, weak, **config, saturation=1e6)
    usual = problem(parts, able, weak, **config, additive=False, saturation=1.0)
    errors = []
    for em in (plain, usual):
        ranker = em.ranker(em.start())
        assert (ranker.fusion.own is not None) == em.config.additive
        assert ranker.fusion.encoder_weight > 0
        acts, error, whole = LogerActions(ranker), 0.0, 0.0
        for user in em.dev_users[:12].tolist():
            items = ranker.top([user], 5)[0][0].tolist()
            owned = acts.history(user)
            told = acts.contributions(user, items)
            before = acts.rescore(user, [])
            for place, gone in enumerate(owned.tolist()):
                after = acts.rescore(user, [gone])
                lost = [lead(before, v, owned) - lead(after, v, owned) for v in items]
                error += float(np.sum((told.actions[place] - lost) ** 2))
                whole += float(np.sum(np.square(lost)))
        errors.append(error / whole)
    assert errors[0] < 0.05 < 0.2 < errors[1]


def test_the_curve_of_encoder_shares_compares_each_weight_with_the_best(parts, able, weak):
    em = problem(parts, able, weak, rounds=0)
    none, whole = encoder_share_curve(em, [0.0, 1.0])
    assert (whole.difference, whole.low, whole.high) == (0, 0, 0)
    assert whole.ndcg == pytest.approx(em.start().trace[0].ndcg, abs=0.02)
    assert none.share == 0 < whole.share
    assert none.low <= none.difference <= none.high
    assert none.ndcg - whole.ndcg == pytest.approx(none.difference)
    assert whole.free


def test_the_smallest_encoder_share_is_chosen_that_costs_nothing(parts, able, weak):
    em = problem(parts, able, weak, rounds=0)
    limited, fitted, tried = smallest_encoder_share(em, em.start())
    rows = encoder_share_curve(em)[:-1]
    assert [name for name, _, _ in tried] == ["max_encoder_share"] * len(rows)
    free = [row for row in rows if row.free]
    assert limited.config.max_encoder_share == (free[0].share if free else 1.0)
    assert limited.encoder_share(fitted) <= limited.config.max_encoder_share + 1e-9
    assert limited.encoder_share(final_m_step(limited, fitted)) <= (
        limited.config.max_encoder_share + 0.02
    )
    given = problem(parts, able, weak, rounds=0, max_encoder_share=0.4)
    assert smallest_encoder_share(given, fitted) == (given, fitted, [])


def test_a_few_users_do_not_take_the_encoder_away(parts, able, weak):
    users, items = parts.pairs("validation")
    few = np.isin(users, np.unique(users)[:10])
    em = EM(parts.graph, able, weak, (users[few], items[few]), EMConfig(rounds=0))
    assert em.few and not len(em.dev_users)
    first = em.start()
    assert first.fusion.encoder_weight > 0
    assert smallest_encoder_share(em, first) == (em, first, [])


@pytest.mark.parametrize(
    ("difference", "free"),
    [(-0.0001, False), (0.0, True), (0.001, True)],
)
def test_a_share_is_free_if_no_loss_is_seen(difference, free):
    assert EncoderShare(0.5, 0.3, 0.1 + difference, difference, -0.004, 0.004).free == free


@pytest.mark.parametrize(
    ("low", "high", "free"),
    [(-0.0051, 0.002, False), (-0.0049, 0.002, True), (0.02, 0.029, True), (0.02, 0.031, False)],
)
def test_what_may_cost_much_is_not_free_where_users_are_too_few_to_tell(low, high, free):
    assert EncoderShare(0.5, 0.3, 0.101, 0.001, low, high).free == free
