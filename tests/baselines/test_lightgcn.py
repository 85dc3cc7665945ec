"""LightGCN against slow implementations: propagation, loss and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from loger.baselines import LightGCN, lightgcn
from loger.baselines.lightgcn import flowed, normalized, softmax_loss
from loger.data import split
from loger.data.demo import shop
from loger.errors import LogerError
from loger.evaluation.evaluate import evaluate
from loger.recommender import part_matrix

PARTS = split(shop(users=40, items=60).dataset)
PAIRS = part_matrix(PARTS, "train")
N = PAIRS.shape[0] + PAIRS.shape[1]


def slow_layers(x: np.ndarray, layers: int) -> np.ndarray:
    """The mean of all layers, neighbour by neighbour."""
    near: list[list[int]] = [[] for _ in range(N)]
    for u, v in np.argwhere(PAIRS.toarray()):
        near[u].append(PAIRS.shape[0] + v)
        near[PAIRS.shape[0] + v].append(u)
    outs = [x]
    for _ in range(layers):
        after = np.zeros_like(x)
        for a in range(N):
            for b in near[a]:
                after[a] += outs[-1][b] / np.sqrt(len(near[a]) * len(near[b]))
        outs.append(after)
    return sum(outs) / len(outs)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_the_flow_equals_its_formula(layers):
    x = np.random.default_rng(0).standard_normal((N, 3))
    got = flowed(normalized(PAIRS), x.astype(np.float32), layers)
    np.testing.assert_allclose(got, slow_layers(x, layers), rtol=1e-4, atol=1e-5)


def slow_loss(x: np.ndarray, users, items, drawn) -> float:
    """Of E^(0): −log softmax of each item among itself and those drawn that are others."""
    vectors = slow_layers(x, 2)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    losses = []
    for u, v in zip(users, items, strict=True):
        among = [v, *(w for w in drawn if w != v)]
        logits = np.array([unit[u] @ unit[PAIRS.shape[0] + w] for w in among]) / 0.3
        losses.append(np.log(np.exp(logits).sum()) - logits[0])
    return float(np.mean(losses))


USERS, ITEMS = (x[:7].astype(np.int64) for x in PAIRS.tocoo().coords)
DRAWN = np.array([int(ITEMS[0]), 1, 9, 9, 30])


def test_the_loss_equals_its_formula():
    x = np.random.default_rng(1).standard_normal((N, 4)).astype(np.float32)
    whole = torch.from_numpy(flowed(normalized(PAIRS), x, 2))
    got = softmax_loss(whole, PAIRS.shape[0], USERS, ITEMS, DRAWN, 0.3)
    assert float(got) == pytest.approx(slow_loss(x, USERS, ITEMS, DRAWN), rel=1e-4)


def test_the_slope_is_that_of_the_loss(monkeypatch):
    monkeypatch.setattr(lightgcn, "NEGATIVES", 5)
    x = np.random.default_rng(2).standard_normal((N, 2)).astype(np.float32)
    model = LightGCN(dimension=2, layers=2, temperature=0.3, l2=0.01)
    drawn = np.random.default_rng(3).integers(PAIRS.shape[1], size=5)
    slope = model._slope(
        torch.from_numpy(x),
        normalized(PAIRS),
        PAIRS.shape[0],
        USERS,
        ITEMS,
        np.random.default_rng(3),
    )

    def loss(at):
        size = sum(
            (at[u] ** 2).sum() + (at[PAIRS.shape[0] + v] ** 2).sum()
            for u, v in zip(USERS, ITEMS, strict=True)
        )
        return slow_loss(at, USERS, ITEMS, drawn) + 0.01 * size / len(USERS)

    for row in (int(USERS[0]), PAIRS.shape[0] + int(ITEMS[3]), PAIRS.shape[0] + int(drawn[1])):
        for column in range(2):
            up, down = x.astype(np.float64), x.astype(np.float64)
            up[row, column] += 1e-4
            down[row, column] -= 1e-4
            slow = (loss(up) - loss(down)) / 2e-4
            assert float(slope[row, column]) == pytest.approx(slow, rel=1e-2, abs=1e-5)


def test_it_learns(monkeypatch):
    monkeypatch.setattr(lightgcn, "NEGATIVES", 50)
    settings = {"dimension": 16, "batch": 256}
    parts = split(shop(users=150, items=80).dataset)
    one, more = (LightGCN(epochs=n, **settings).fit(parts) for n in (1, 20))
    before, after = (
        evaluate([m], parts, "validation", samples=10).mean(m.name, "ndcg") for m in (one, more)
    )
    assert after > 1.2 * before


@pytest.mark.parametrize("setting", [{"epochs": 0}, {"temperature": 0.0}, {"layers": -1}])
def test_settings_without_sense_are_refused(setting):
    with pytest.raises(LogerError, match="must be"):
        LightGCN(**setting)
