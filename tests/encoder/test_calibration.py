import numpy as np
import pytest
from scipy.special import expit

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import Calibration, TransE, TransEConfig, calibrate
from loger.encoder.calibration import fit_calibration, validation_scores
from small import calibration_error


def test_a_known_slope_and_intercept_are_found_again():
    rng = np.random.default_rng(0)
    scores = rng.normal(3, 2, 200_000)
    labels = rng.random(len(scores)) < expit(0.7 * scores - 1.5)
    found = fit_calibration(scores, labels)
    assert found.slope == pytest.approx(0.7, abs=0.02)
    assert found.intercept == pytest.approx(-1.5, abs=0.05)


def test_scores_that_separate_the_labels_still_give_finite_probabilities():
    found = fit_calibration(np.array([0.0, 1.0, 5.0, 6.0]), np.array([False, False, True, True]))
    assert np.isfinite([found.slope, found.intercept]).all()
    assert found.slope > 0


def test_scores_against_the_labels_never_turn_around_and_leave_the_base_rate(caplog):
    scores, labels = np.arange(40.0), np.arange(40) < 10
    found = fit_calibration(scores, labels)
    assert found.slope == 0  # free, it would be far below
    assert found(scores) == pytest.approx((10 * 11 / 12 + 30 / 32) / 40)
    assert "score no higher" in caplog.text
    assert fit_calibration(scores, ~labels).slope > 0


def test_calibration_error_is_zero_when_right_and_large_when_sure_and_wrong():
    labels = np.tile([True, False], 5000)
    assert calibration_error(np.full(10_000, 0.5), labels) < 0.01
    assert calibration_error(np.full(10_000, 0.99), labels) == pytest.approx(0.49, abs=0.01)


def test_calibration_lowers_the_error_on_pairs_it_was_not_fitted_on():
    parts = split(shop(seed=1).dataset, validation=0.2)
    encoder = TransE(TransEConfig(dimension=32, epochs=4)).fit(parts.graph)
    scores, labels = validation_scores(encoder, parts, seed=1)
    before, after, chance = [], [], []
    for seed in range(10):  # one half has about 1,000 pairs: its error is chance for the most part
        rng = np.random.default_rng(seed)
        half = rng.random(len(scores)) < 0.5
        q = fit_calibration(scores[half], labels[half])(scores[~half])
        before.append(calibration_error(Calibration()(scores[~half]), labels[~half]))
        after.append(calibration_error(q, labels[~half]))
        chance.append(calibration_error(q, rng.random(len(q)) < q))  # as if q were the truth
    assert np.mean(after) < 0.055
    assert np.mean(after) < np.mean(chance) + 0.01
    assert np.mean(after) < 0.5 * np.mean(before)


def test_weights_count_as_copies_and_shift_the_base_rate():
    rng = np.random.default_rng(0)
    labels = np.arange(4000) < 2000
    scores = rng.normal(0, 1, 4000) + 2.0 * labels
    weighted = fit_calibration(scores, labels, np.where(labels, 1.0, 5.0))
    copies = np.concatenate([scores, np.tile(scores[~labels], 4)])
    slow = fit_calibration(copies, np.concatenate([labels, np.zeros(8000, dtype=bool)]))
    assert weighted.slope == pytest.approx(slow.slope, abs=1e-3)
    assert weighted.intercept == pytest.approx(slow.intercept, abs=1e-3)
    even = fit_calibration(scores, labels)
    assert fit_calibration(scores, labels, np.ones(4000)) == even
    assert weighted.at_odds(5.0)(scores) == pytest.approx(even(scores), abs=0.02)
    assert even.at_odds(1.0) == even


def test_at_the_true_base_rate_q_is_right_over_the_items_that_hidden_pairs_are_of():
    """A few drawn negatives, each standing for its share of the catalogue, give q of the best 50
    items as often as they are held out; calibrated one to one they are believed 20 times over."""
    rng = np.random.default_rng(3)
    users, items, hidden = 3000, 1000, 50
    scores = rng.normal(0, 1.5, (users, items))
    held = rng.random((users, items)) < expit(1.3 * scores - 8.0)
    fit, judge = np.arange(users) < users // 2, np.arange(users) >= users // 2
    rows, found = np.nonzero(held & fit[:, None])
    drawn = rng.integers(items, size=len(rows))
    free = ~held[rows, drawn]
    s = np.concatenate([scores[rows, found], scores[rows, drawn][free]])
    labels = np.arange(len(s)) < len(rows)
    per_positive = items * (users // 2) / len(rows)
    true = fit_calibration(s, labels, np.where(labels, 1.0, per_positive))
    even = fit_calibration(s, labels)
    best = np.argsort(-scores[judge], axis=1)[:, :hidden]
    s_best = np.take_along_axis(scores[judge], best, axis=1).ravel()
    hits = np.take_along_axis(held[judge], best, axis=1).ravel()
    assert calibration_error(true(s_best), hits) <= 0.005
    assert true(s_best).mean() == pytest.approx(hits.mean(), rel=0.15)
    assert even(s_best).mean() > 20 * hits.mean()


def test_calibration_keeps_the_order_of_items():
    parts = split(shop(seed=1, users=200, items=150).dataset)
    encoder = TransE(TransEConfig(dimension=16, epochs=4, batch=256)).fit(parts.graph)
    found = calibrate(encoder, parts)
    assert found.slope > 0
    scores = encoder.score_items([0, 1])
    assert (np.argsort(found.logit(scores)) == np.argsort(scores.astype(float))).all()
