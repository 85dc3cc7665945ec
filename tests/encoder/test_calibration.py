import numpy as np
import pytest
from scipy.special import expit

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import Calibration, TransE, TransEConfig, calibrate
from loger.encoder.calibration import calibration_error, fit_calibration, validation_scores


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


def test_calibration_error_is_zero_when_right_and_large_when_sure_and_wrong():
    labels = np.tile([True, False], 5000)
    assert calibration_error(np.full(10_000, 0.5), labels) < 0.01
    assert calibration_error(np.full(10_000, 0.99), labels) == pytest.approx(0.49, abs=0.01)


def test_calibration_lowers_the_error_on_pairs_it_was_not_fitted_on():
    parts = split(shop(seed=1).dataset, validation=0.2)
    encoder = TransE(TransEConfig(dimension=32, epochs=4)).fit(parts.graph)
    scores, labels = validation_scores(encoder, parts, seed=1)
    half = np.random.default_rng(0).random(len(scores)) < 0.5
    found = fit_calibration(scores[half], labels[half])
    before = calibration_error(Calibration()(scores[~half]), labels[~half])
    after = calibration_error(found(scores[~half]), labels[~half])
    assert after < 0.06
    assert after < 0.5 * before


def test_calibration_keeps_the_order_of_items():
    parts = split(shop(seed=1, users=200, items=150).dataset)
    encoder = TransE(TransEConfig(dimension=16, epochs=4, batch=256)).fit(parts.graph)
    found = calibrate(encoder, parts)
    assert found.slope > 0
    scores = encoder.score_items([0, 1])
    assert (np.argsort(found.logit(scores)) == np.argsort(scores.astype(float))).all()
