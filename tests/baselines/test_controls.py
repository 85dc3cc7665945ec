"""Simple baselines against slow implementations, and against METHOD 10 on the real data."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from loger.baselines import EASE, IALS, ItemKNN, MostPop, P3alpha, RP3beta
from loger.baselines.ease import memory_needed
from loger.data import load, split
from loger.data.demo import shop
from loger.errors import LogerError
from loger.evaluation.evaluate import evaluate
from loger.recommender import part_matrix

PARTS = split(shop(users=60, items=90).dataset)
X = part_matrix(PARTS, "train").toarray().astype(np.float64)
USERS = np.arange(len(X))


def scores_of(model):
    return model.fit(PARTS).score(USERS)


def largest_of_each_row(matrix, n):
    out = np.zeros_like(matrix)
    for i, row in enumerate(matrix):
        for j in sorted(range(len(row)), key=lambda j: (-row[j], j))[:n]:
            out[i, j] = row[j]
    return out


def test_mostpop_counts_users():
    assert (scores_of(MostPop()) == X.sum(axis=0)).all()


@pytest.mark.parametrize("neighbours, shrink", [(3, 0.0), (10, 5.0), (1000, 0.0)])
def test_itemknn_equals_its_formula(neighbours, shrink):
    n = X.shape[1]
    similarity = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            together = X[:, i] @ X[:, j]
            if i != j and together:
                norms = np.linalg.norm(X[:, i]) * np.linalg.norm(X[:, j])
                similarity[j, i] = np.float32(together) / np.float32(norms + shrink)
    nearest = largest_of_each_row(similarity.astype(np.float32), neighbours)
    got = ItemKNN(neighbours=neighbours, shrink=shrink).fit(PARTS)
    if neighbours == 1000:  # no cut, so no ties that single precision may break
        np.testing.assert_allclose(got.score(USERS), X @ nearest.T, rtol=1e-4, atol=1e-6)
    kept = got.similarity_.toarray().T
    assert ((kept > 0).sum(axis=1) == np.minimum((similarity > 0).sum(axis=1), neighbours)).all()
    np.testing.assert_allclose(kept.sum(axis=1), nearest.sum(axis=1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("alpha, beta", [(1.0, 0.0), (0.7, 0.0), (1.3, 0.4)])
def test_three_step_walks_equal_walking(alpha, beta):
    out = np.zeros_like(X)
    for u, i in np.argwhere(X):
        for other in np.flatnonzero(X[:, i]):
            for j in np.flatnonzero(X[other]):
                steps = X[u].sum() * X[:, i].sum() * X[other].sum()
                out[u, j] += (i != j) * steps**-alpha * X[:, j].sum() ** -beta
    np.testing.assert_allclose(scores_of(RP3beta(alpha=alpha, beta=beta)), out, rtol=1e-4)
    if not beta:
        np.testing.assert_allclose(scores_of(P3alpha(alpha=alpha)), out, rtol=1e-4)


def test_ease_equals_its_formula():
    inverse = np.linalg.inv(X.T @ X + 20 * np.eye(X.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    np.testing.assert_allclose(scores_of(EASE(l2=20)), X @ weights, rtol=1e-3, atol=1e-5)


def test_ease_beyond_its_memory_is_refused_with_what_it_would_need():
    with pytest.raises(LogerError, match=r"90 items needs 0\.0 GiB.*raise memory"):
        EASE(memory=memory_needed(90) - 1).fit(PARTS)
    EASE(memory=memory_needed(90)).fit(PARTS)


@pytest.mark.parametrize("dimensions", [4, 64])  # histories longer, and shorter, than that
def test_ials_solves_each_user_exactly_and_lowers_its_loss(dimensions):
    model = IALS(dimensions=dimensions, unobserved=0.1, l2=0.05, sweeps=2).fit(PARTS)
    items = model.items_.astype(np.float64)
    for u in USERS:
        own = items[X[u] > 0]
        ridge = 0.05 * (len(own) + 0.1 * len(items))
        left = 0.1 * items.T @ items + own.T @ own + ridge * np.eye(dimensions)
        slow = np.linalg.solve(left, own.sum(axis=0))
        np.testing.assert_allclose(model.users_[u], slow, rtol=1e-3, atol=1e-4)

    def loss(model):
        w, h = model.users_.astype(np.float64), model.items_.astype(np.float64)
        fit = (X * (1 - w @ h.T) ** 2).sum() + 0.1 * ((w @ h.T) ** 2).sum()
        by_user = (X.sum(axis=1) + 0.1 * X.shape[1]) @ (w**2).sum(axis=1)
        by_item = (X.sum(axis=0) + 0.1 * X.shape[0]) @ (h**2).sum(axis=1)
        return fit + 0.05 * (by_user + by_item)

    settings = {"dimensions": dimensions, "unobserved": 0.1, "l2": 0.05}
    traced = [loss(IALS(sweeps=n, **settings).fit(PARTS)) for n in (1, 2, 4)]
    assert all(later <= former + 1e-4 for former, later in pairwise(traced))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ItemKNN(neighbours=0),
        lambda: RP3beta(beta=-1),
        lambda: P3alpha(neighbours=0),
        lambda: EASE(l2=0),
        lambda: IALS(dimensions=0),
    ],
)
def test_settings_without_sense_are_refused(make):
    with pytest.raises(LogerError, match="must be"):
        make()


METRICS = ("ndcg", "recall", "hit_rate", "precision")


@pytest.mark.long
@pytest.mark.parametrize(
    "name, model, expected, tolerance",
    [
        # Precision of MostPop on Beauty is 838 hits / 223,630 = 0.3747; METHOD prints 0.38.
        ("amazon-beauty", MostPop(), (1.19, 2.09, 3.57, 0.38), 0.006),
        ("amazon-cellphones", MostPop(), (1.79, 3.31, 4.75, 0.48), 0.006),
        # Many walks are equally probable, and METHOD does not say how it broke ties.
        ("amazon-beauty", P3alpha(), (6.33, 8.90, 15.09, 2.04), 0.03),
        ("amazon-cellphones", P3alpha(), (6.18, 9.38, 13.07, 1.48), 0.03),
        ("amazon-beauty", EASE(l2=100), (7.69, 10.73, 18.15, 2.52), 0.006),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_measured_lines_of_method_10_come_out_again(
    real_data, name, model, expected, tolerance
):
    parts = split(load(real_data / name)).refit()
    report = evaluate([model.fit(parts)], parts, samples=10)
    got = [100 * report.mean(model.name, metric) for metric in METRICS]
    np.testing.assert_allclose(got, expected, atol=tolerance)


@pytest.mark.long
def test_all_users_of_beauty_are_ranked_within_twenty_seconds(real_data):
    parts = split(load(real_data / "amazon-beauty"))
    model = MostPop().fit(parts)
    start = time.perf_counter()
    evaluate([model], parts, samples=10)
    assert time.perf_counter() - start < 20
