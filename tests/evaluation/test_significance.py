"""Resampling against slow implementations, full enumeration and SciPy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from loger.metrics import report as significance
from loger.metrics.report import resampled_means, sign_flip, wilcoxon


def test_resampled_means_equal_means_of_the_drawn_users():
    """The means of the unit vectors say how often each user was drawn."""
    values = np.random.default_rng(1).random((40, 3))
    drawn = 40 * resampled_means(np.eye(40), 400, seed=5)
    np.testing.assert_allclose(drawn, np.rint(drawn), atol=1e-12)
    np.testing.assert_allclose(drawn.sum(axis=1), 40)
    shares = np.bincount(np.rint(drawn).astype(int).ravel(), minlength=3)[:3] / drawn.size
    np.testing.assert_allclose(shares, stats.binom.pmf(range(3), 40, 1 / 40), atol=0.01)
    np.testing.assert_allclose(drawn.mean(axis=0), 1, atol=0.25)
    np.testing.assert_allclose(resampled_means(values, 400, seed=5), drawn @ values / 40)
    assert not np.array_equal(resampled_means(np.eye(40), 400, seed=6), drawn / 40)


@pytest.mark.parametrize("test", [resampled_means, sign_flip])
def test_chunks_do_not_change_the_draws(test, monkeypatch):
    values = np.random.default_rng(1).normal(0.1, 1, (48, 2))
    whole = test(values, 64, 3)
    monkeypatch.setattr(significance, "_CHUNK", 48 * 16)
    np.testing.assert_allclose(test(values, 64, 3), whole)


def test_bootstrap_interval_agrees_with_scipy():
    values = np.random.default_rng(2).random((300, 1))
    ours = np.quantile(resampled_means(values, 5000, seed=0), [0.025, 0.975])
    theirs = stats.bootstrap((values[:, 0],), np.mean, method="percentile", rng=0)
    np.testing.assert_allclose(ours, theirs.confidence_interval, atol=0.002)


def test_sign_flip_agrees_with_all_sign_patterns():
    differences = np.random.default_rng(4).normal([0.0, 0.6, 2.0], 1.0, (10, 3))
    patterns = np.array(list(product([-1, 1], repeat=10)))
    bar = np.abs(differences.sum(axis=0)) - 1e-9
    exact = (np.abs(patterns @ differences) >= bar).mean(axis=0)
    np.testing.assert_allclose(sign_flip(differences, 40_000, seed=0), exact, atol=0.01)


@pytest.mark.parametrize("unit", [0.1, 0.3, 0.7, 1 / 3, 1e-6, 1e6])
@pytest.mark.parametrize("steps", [(1, 2, 3), (3, 1, 2), (7, 11, 13)])
def test_sums_that_differ_by_rounding_only_are_ties(unit, steps):
    """All signs alike is the most extreme of eight patterns, met by two of them."""
    p = sign_flip(np.array(steps)[:, None] * unit, 4000, seed=0)
    assert p == pytest.approx(2 / 8, abs=0.03)


def test_sums_that_differ_by_more_than_rounding_are_no_ties():
    p = sign_flip(np.array([[1.0], [1.0], [1e-6]]), 4000, seed=0)
    assert p == pytest.approx(2 / 8, abs=0.03)
    assert sign_flip(np.array([[0.0], [1.0]]), 50, seed=0) == 1  # every flip is as extreme


def test_p_is_the_share_of_flips_at_least_as_extreme_counted_with_the_one_that_was_seen():
    assert sign_flip(np.ones((60, 2)), 50, seed=6).tolist() == [1 / 51] * 2  # no flip is as extreme
    p = sign_flip(np.random.default_rng(4).normal(0.3, 1.0, (12, 5)), 50, seed=6)
    np.testing.assert_allclose(51 * p, np.rint(51 * p))
    assert (p > 1 / 51).any() and len(set(p)) > 1


def test_wilcoxon_is_scipys_for_each_column():
    differences = np.random.default_rng(4).normal(0.3, 1.0, (12, 2))
    theirs = [stats.wilcoxon(column, method="approx").pvalue for column in differences.T]
    assert wilcoxon(differences).tolist() == theirs
    half = np.stack([differences[:, 0], np.zeros(12)], axis=1)
    assert wilcoxon(half).tolist() == [theirs[0], 1.0]


@pytest.mark.parametrize("test", [resampled_means, sign_flip])
def test_more_users_than_fit_into_a_chunk_are_drawn_row_by_row(test, monkeypatch):
    values = np.random.default_rng(1).normal(0.1, 1, (48, 2))
    whole = test(values, 7, 3)
    monkeypatch.setattr(significance, "_CHUNK", 16)
    out = test(values, 7, 3)
    assert out.shape == whole.shape
    assert np.isfinite(out).all()
    again = test(values, 7, 3)
    assert (again == out).all()


def test_equal_models_do_not_differ():
    same = np.zeros((30, 1))
    assert sign_flip(same, 100, seed=0) == 1
    assert wilcoxon(same) == 1


def test_p_is_uniform_where_the_null_hypothesis_holds():
    rng = np.random.default_rng(0)
    p = sign_flip(rng.normal(size=(60, 400)), 500, seed=1)
    assert 0.02 < (p < 0.05).mean() < 0.09
    assert stats.kstest(p, "uniform").pvalue > 0.01
