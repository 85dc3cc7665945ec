"""Resampling against slow twins, enumeration and SciPy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from loger.evaluation.metrics import significance
from loger.evaluation.metrics.significance import resampled_means, sign_flip, wilcoxon


def test_resampled_means_equal_means_of_the_drawn_users():
    values = np.random.default_rng(1).random((40, 3))
    draws = np.random.default_rng([5, 0xB007]).integers(0, 40, size=(25, 40))
    slow = np.array([values[drawn].mean(axis=0) for drawn in draws])
    np.testing.assert_allclose(resampled_means(values, 25, seed=5), slow)


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


def test_equal_models_do_not_differ():
    same = np.zeros((30, 1))
    assert sign_flip(same, 100, seed=0) == 1
    assert wilcoxon(same) == 1


def test_p_is_uniform_where_the_null_hypothesis_holds():
    rng = np.random.default_rng(0)
    p = sign_flip(rng.normal(size=(60, 400)), 500, seed=1)
    assert 0.02 < (p < 0.05).mean() < 0.09
    assert stats.kstest(p, "uniform").pvalue > 0.01
