"""iALS as a linear item model, against a slow implementation of its formula."""

from __future__ import annotations

import numpy as np
import pytest

from loger.baselines import LinearIALS
from loger.baselines._shared import pair_ages
from loger.baselines.ials import IALS
from loger.data import split
from loger.data.demo import shop
from loger.errors import LogerError
from loger.recommender import part_matrix

PARTS = split(shop(users=80, items=60).dataset)
USERS = np.arange(PARTS.dataset.n_users)
SETTINGS = {"unobserved": 0.1, "l2": 0.02, "sweeps": 3}


def slow_weights() -> np.ndarray:
    """B of the docstring, in double precision, by one system for each item."""
    x = part_matrix(PARTS, "train").toarray().astype(np.float64)
    h = IALS(dimensions=8, **SETTINGS).fit(PARTS).items_.astype(np.float64)
    sizes = x.sum(axis=1)
    ridge = 0.02 * (np.median(sizes[sizes > 0]) + 0.1 * len(h))
    inner = 0.1 * h.T @ h + ridge * np.eye(8)
    out = np.array(
        [[h[i] @ np.linalg.solve(inner, h[j]) for j in range(len(h))] for i in range(60)]
    )
    return np.where((x.T @ x > 0) & ~np.eye(60, dtype=bool), np.maximum(out, 0), 0)


@pytest.mark.parametrize(("recency", "popularity"), [(0.0, 0.0), (0.7, 0.3)])
def test_scores_equal_the_formula(recency, popularity):
    model = LinearIALS(dimensions=8, recency=recency, popularity=popularity, **SETTINGS).fit(PARTS)
    x = part_matrix(PARTS, "train").toarray().astype(np.float64)
    ages = pair_ages(PARTS, "slow", recency).toarray()
    history = np.where(x > 0, np.where(ages > 0, ages, 1.0) ** -recency, 0)
    slow = history @ slow_weights() / np.maximum(x.sum(axis=0), 1) ** popularity
    np.testing.assert_allclose(model.score(USERS), slow, rtol=2e-3, atol=1e-5)
    assert slow.max() > 0.1


def test_a_score_is_the_sum_of_what_each_past_action_gives():
    model = LinearIALS(dimensions=8, **SETTINGS).fit(PARTS)
    weights, x = model.weights_.toarray(), part_matrix(PARTS, "train").toarray()
    for u in range(5):
        parts = [weights[i] for i in np.flatnonzero(x[u])]
        np.testing.assert_allclose(model.score([u])[0], np.sum(parts, axis=0), rtol=1e-5)


def test_the_strongest_of_each_item_are_kept():
    whole = LinearIALS(dimensions=8, neighbours=60, **SETTINGS).fit(PARTS).weights_.toarray()
    few = LinearIALS(dimensions=8, neighbours=4, **SETTINGS).fit(PARTS).weights_.toarray()
    assert ((few > 0).sum(axis=1) <= 4).all()
    for all_of_it, kept in zip(whole, few, strict=True):
        assert sorted(kept[kept > 0]) == sorted(np.sort(all_of_it[all_of_it > 0])[-4:])


def test_it_ranks_about_as_well_as_ials():
    """Neither is right; but what a user is made of must not lose what factors know."""
    owned = part_matrix(PARTS, "train").toarray() > 0
    users, items = PARTS.pairs("test")

    def mean_rank(scores: np.ndarray) -> float:
        scores = np.where(owned, -np.inf, scores)
        return float((scores[users] > scores[users, items][:, None]).sum(axis=1).mean())

    linear = mean_rank(LinearIALS(dimensions=8, **SETTINGS).fit(PARTS).score(USERS))
    assert linear <= 1.1 * mean_rank(IALS(dimensions=8, **SETTINGS).fit(PARTS).score(USERS))


def test_bad_settings_are_refused():
    for bad in ({"l2": 0.0}, {"dimensions": 0}, {"recency": -1.0}, {"unobserved": -0.1}):
        with pytest.raises(LogerError):
            LinearIALS(**bad)
