"""CAFE: its modules learn paths, suitable patterns come first, and paths are made of facts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from loger.baselines import CAFE
from loger.baselines._kernels import best_tails
from loger.baselines.cafe import NEGATIVES
from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.errors import LogerError
from loger.grounding.layout import layout
from loger.logic.mining import MiningConfig

SMALL = {
    "encoder": TransEConfig(dimension=8, epochs=2),
    "rules": MiningConfig(max_rules=5, min_support=5),
}  # fmt: skip


@pytest.fixture(scope="module")
def parts():
    return split(shop(users=80, items=100).dataset)


@pytest.fixture(scope="module")
def model(parts):
    return CAFE(**SMALL, epochs=3, batch=64).fit(parts)


@torch.no_grad()
def test_the_loss_falls_and_is_that_of_its_formula(model):
    assert model.losses_[-1] < 0.95 * model.losses_[0]
    rule = model.patterns_[0]
    span = model.graph_.vocabulary.span
    rng = np.random.default_rng(1)
    paths = np.array([[0, *(span(t).start + k for k, t in enumerate(rule.types[1:]))]] * 2)
    told = model._loss(paths, 0, np.random.default_rng(1)).item()
    u = h = model._tensor[0]
    slow = 0.0
    for t, relation in enumerate(rule.relations, start=1):
        h = model.modules_(model._place[relation], u[None], h[None])[0]
        kind = span(rule.types[t])
        others = rng.integers(kind.start, kind.stop, size=NEGATIVES)
        right = 8 * float(h @ model._tensor[paths[0, t]])
        wrong = [8 * float(h @ model._tensor[o]) for o in others if o != paths[0, t]]
        slow -= right - np.log(np.exp([right, *wrong]).sum())
    drawn = others[rng.integers(NEGATIVES, size=(2, 1))].ravel()
    for o in drawn:
        gap = right - 8 * float(h @ model._tensor[o])
        slow += np.log1p(np.exp(-gap)) / 2
    assert told == pytest.approx(slow, rel=1e-4)


def test_patterns_that_make_ones_own_items_likely_get_the_paths(model):
    prominence = np.array([[0.1, 0.5, -1.0, 0.5, 0.0]], dtype=np.float32)
    few = CAFE(**SMALL, paths=70, pattern_paths=30)
    assert few.quotas(prominence).tolist() == [[10, 30, 0, 30, 0]]
    told = model.prominence([3])[0]
    own = model.graph_.neighbours(3, 0)
    answers, ends = model._answers(np.array([3])), model._ends()
    for pattern, end in enumerate(ends):
        h = answers[0, end].astype(np.float64)
        below = np.exp(model._vectors[model.graph_.n_users + model._sample] @ h).sum()
        mine = np.exp(model._vectors[own] @ h)
        assert told[pattern] == pytest.approx(np.log(mine / (mine + below)).mean(), rel=1e-4)


def test_walks_are_simple_paths_of_facts_along_their_pattern_within_the_quota(model):
    users = np.arange(20)
    walks = model.walks(users)
    quotas = model.quotas(model.prominence(users))
    assert len(walks.owners) > 100
    for w in range(len(walks.owners)):
        relations = model.patterns_[walks.patterns[w]].relations
        entities = walks.entities[w, : len(relations) + 1].tolist()
        assert len(set(entities)) == len(entities)
        assert entities[0] == users[walks.owners[w]]
        assert entities[-1] == walks.ends[w] + model.graph_.n_users
        for a, r, b in zip(entities, relations, entities[1:], strict=False):
            assert b in model.graph_.neighbours(a, r)
    counts = np.zeros_like(quotas)
    np.add.at(counts, (walks.owners, walks.patterns), 1)
    assert (counts <= quotas).all()


def test_a_wide_search_finds_all_paths_and_their_probabilities_add_up_to_one(parts, model):
    wide = CAFE(**SMALL, beam=100_000, paths=10**6, pattern_paths=10**5)
    vars(wide).update({k: v for k, v in vars(model).items() if k != "config"})
    walks = wide.walks([5])
    graph = model.graph_
    for k, rule in enumerate(model.patterns_):
        ways = [[5]]
        for r in rule.relations:
            ways = [
                [*way, int(t)] for way in ways for t in graph.neighbours(way[-1], r) if t not in way
            ]
        mine = np.flatnonzero(walks.patterns == k)
        found = walks.entities[mine, : len(rule) + 1].tolist()
        assert sorted(found) == sorted(ways)
        if len(rule) == 2 and len(ways):
            total = np.exp(walks.logs[mine].astype(float) * 2).sum()
            assert total <= 1 + 1e-4  # less where a walk comes to a dead end


def test_an_item_is_ranked_by_its_best_pattern_and_explained_by_its_likeliest_path(model):
    users = [2, 9]
    scores, walks = model.score(users), model.walks(users)
    reached = np.isfinite(scores)
    assert reached[walks.owners, walks.ends].all()
    assert reached.sum() == len(set(zip(walks.owners, walks.ends, strict=True)))
    for row, items in enumerate(model.explained(users, 5, paths=2)):
        own = set(model.graph_.neighbours(users[row], 0) - model.graph_.n_users)
        order = [v for v in np.argsort(-scores[row], kind="stable") if v not in own]
        assert [x.item for x in items] == order[: len(items)]
        assert len(items) == 5
        for x in items:
            mine = (walks.owners == row) & (walks.ends == x.item)
            assert x.weights[0] == pytest.approx(np.exp(walks.logs[mine].max()), rel=1e-5)
            assert x.paths[0].entities[-1] == x.item + model.graph_.n_users


def test_the_best_tails_are_those_of_highest_product_that_were_not_met(parts):
    graph = parts.graph
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(graph.n_entities, 4)).astype(np.float32)
    for user, item in product(range(5), range(2)):
        own = graph.neighbours(user, 0)
        first = int(own[item])
        visited = np.array([[user, first]], dtype=np.int32)
        back = len(graph.relations)  # who took the item
        query = rng.normal(size=(1, 4)).astype(np.float32)
        tails, logs = best_tails(layout(graph), visited, np.array([back]), query, vectors, 3)
        others = [int(t) for t in graph.neighbours(first, back) if t != user]
        worth = {t: float(query[0] @ vectors[t]) for t in others}
        best = sorted(worth, key=lambda t: -worth[t])[:3]
        assert [t for t in tails[0] if t >= 0] == best
        total = np.log(np.exp(list(worth.values())).sum()) if worth else 0.0
        assert logs[0, : len(best)] == pytest.approx([worth[t] - total for t in best], abs=1e-5)


def test_settings_that_make_no_sense_are_refused_and_so_is_a_graph_without_patterns(parts):
    with pytest.raises(LogerError, match="at least 1"):
        CAFE(beam=0)
    with pytest.raises(LogerError, match="found no patterns"):
        CAFE(**SMALL | {"rules": MiningConfig(min_support=10**9, min_rules=0)}).fit(parts)


def test_one_seed_one_model(parts):
    first, second = (CAFE(**SMALL, epochs=1, seed=4).fit(parts) for _ in range(2))
    assert torch.equal(first.modules_.first, second.modules_.first)
    assert first.score([1]).tobytes() == second.score([1]).tobytes()
