"""PGPR against slow implementations: its steps, beam search, reward and paths."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from loger.baselines import PGPR
from loger.baselines._kernels import best_steps, find_steps, step_products, step_sums
from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransE, TransEConfig
from loger.errors import LogerError
from loger.grounding.layout import layout
from loger.logic.mining import MiningConfig, mine
from loger.recommender import part_matrix
from loger.rules import RuleSet

PARTS = split(shop(users=80, items=100).dataset, "random", seed=1)
GRAPH = PARTS.graph
SMALL = {
    "encoder": TransEConfig(dimension=16, epochs=3),
    "rules": MiningConfig(min_support=5),
    "entropy": 1e-3,
    "batch": 16,
}
USERS = np.arange(GRAPH.n_users)
LOOP = 2 * len(GRAPH.relations)


@cache
def fitted(**settings):
    return PGPR(**SMALL, epochs=3, **settings).fit(PARTS)


def neighbours(graph, entity):
    """(relation, tail) of all facts that leave an entity, in order."""
    out = []
    for r in range(2 * len(graph.relations)):
        out += [(r, int(t)) for t in graph.neighbours(entity, r)]
    return out


@pytest.mark.parametrize("room", [3, 10, 1000])
def test_steps_are_the_best_of_all_facts_that_lead_to_new_entities(room):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((GRAPH.n_entities, 8), dtype=np.float32)
    towards = rng.standard_normal((4, 8), dtype=np.float32)
    scores = rng.standard_normal((4, GRAPH.n_items), dtype=np.float32)
    for u, (_, item) in enumerate(neighbours(GRAPH, u)[0] for u in range(4)):
        visited = np.array([[u, item]], dtype=np.int32)
        steps, ends = (np.zeros((1, room), dtype=np.int32) for _ in range(2))
        (n,) = find_steps(
            layout(GRAPH), visited, np.array([u]), scores, vectors, towards, GRAPH.n_users, LOOP,
            steps, ends,
        )  # fmt: skip
        new = [(r, t) for r, t in neighbours(GRAPH, item) if t not in (u, item)]

        def worth(step, u=u):
            place = step[1] - GRAPH.n_users
            if 0 <= place < GRAPH.n_items:
                return scores[u, place]
            return towards[u] @ vectors[step[1]]

        best = sorted(sorted(new, key=worth, reverse=True)[: room - 1])
        assert list(zip(steps[0, :n].tolist(), ends[0, :n].tolist(), strict=True)) == [
            (LOOP, item),
            *best,
        ]


def test_products_and_their_gradient_are_those_of_plain_multiplication():
    rng = np.random.default_rng(1)
    query, vectors = (rng.standard_normal((n, 5), dtype=np.float32) for n in (4, 9))
    ends = rng.integers(0, 9, (4, 6)).astype(np.int32)
    counts = np.array([6, 1, 3, 4])
    inside = np.arange(6) < counts[:, None]
    out = step_products(query, vectors, ends, counts)
    slow = (vectors[ends] * query[:, None]).sum(2) * inside
    np.testing.assert_allclose(out, slow, rtol=1e-5, atol=1e-6)
    slopes = rng.standard_normal((4, 6), dtype=np.float32)
    back = ((slopes * inside)[:, :, None] * vectors[ends]).sum(1)
    np.testing.assert_allclose(step_sums(slopes, vectors, ends, counts), back, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [1, 3, 8])
def test_best_steps_are_the_most_probable_and_their_probabilities_are_softmax(width):
    rng = np.random.default_rng(2)
    query, vectors = (rng.standard_normal((n, 5), dtype=np.float32) for n in (6, 9))
    relations = rng.standard_normal((6, 4), dtype=np.float32)
    ends, steps = rng.integers(0, 9, (6, 7)), rng.integers(0, 4, (6, 7))
    counts = np.array([7, 1, 2, 3, 7, 5])
    places, logs = best_steps(
        query, relations, vectors, steps.astype(np.int32), ends.astype(np.int32), counts, width
    )
    for i, n in enumerate(counts):
        logits = relations[i, steps[i, :n]] + vectors[ends[i, :n]] @ query[i]
        share = np.exp(logits - logits.max())
        share /= share.sum()
        order = np.argsort(-share, kind="stable")[:width]
        assert places[i].tolist() == order.tolist() + [-1] * (width - len(order))
        np.testing.assert_allclose(np.exp(logs[i, : len(order)]), share[order], rtol=1e-4)


def test_a_beam_of_full_width_has_all_walks_and_their_probabilities_add_up_to_one():
    model = fitted()
    graph = model.graph_
    wide = PGPR(**SMALL, epochs=0, actions=1000, beam=(1000, 1000))
    wide.walk_on(graph, model.encoder_, RuleSet(()))
    for user in range(3):
        found = wide.walks([user], only_items=False)
        np.testing.assert_allclose(np.exp(found.logs).sum(), 1, rtol=1e-4)
        slow = set()
        for r1, e1 in [(LOOP, user), *neighbours(graph, user)]:
            first = [(r, t) for r, t in neighbours(graph, e1) if t not in (user, e1)]
            slow |= {(r1, e1, r2, e2) for r2, e2 in [(LOOP, e1), *first]}
        columns = (found.relations[:, 0], found.entities[:, 1], found.relations[:, 1])
        assert (
            set(zip(*(c.tolist() for c in (*columns, found.entities[:, 2])), strict=True)) == slow
        )


def test_the_probability_of_a_walk_in_the_beam_is_that_of_training():
    model = fitted()
    walks = model.walks(USERS[:10], only_items=False)
    scores = model.encoder_.score_items(USERS[:10])
    total = np.zeros(len(walks.owners))
    with torch.no_grad():
        for hop in range(3):
            visited, taken = walks.entities[:, : hop + 1], walks.relations[:, :hop]
            steps, ends, counts = model._steps(USERS[:10], visited, walks.owners, scores)
            logs, _ = model._log_policy(hop, visited, taken, steps, ends, counts)
            went = (ends == walks.entities[:, hop + 1, None]) & (
                steps == walks.relations[:, hop, None]
            )
            went &= np.arange(ends.shape[1]) < counts[:, None]
            assert (went.sum(1) == 1).all()
            total += logs.numpy()[went]
    np.testing.assert_allclose(walks.logs, total, rtol=1e-3, atol=1e-4)


def test_items_are_ranked_by_the_encoder_among_those_that_a_path_reaches():
    model = fitted()
    out, scores = model.score(USERS), model.encoder_.score_items(USERS)
    reached = np.zeros(out.shape, dtype=bool)
    walks = model.walks(USERS)
    for owner, end in zip(walks.owners, walks.entities[:, -1], strict=True):
        reached[owner, end - GRAPH.n_users] = True
    assert (out[reached] == scores[reached]).all()
    assert (out[~reached] == -np.inf).all()
    assert reached.any(axis=1).mean() > 0.9


def test_reasons_are_real_simple_paths_from_user_to_new_item_with_probabilities():
    model = fitted()
    known = part_matrix(PARTS, "train").toarray()
    n = 0
    for user, items in zip(USERS, model.explained(USERS, 10, 3), strict=True):
        assert [x.score for x in items] == sorted((x.score for x in items), reverse=True)
        for x in items:
            assert not known[user, x.item]
            assert 1 <= len(x.paths) == len(x.weights) <= 3
            assert list(x.weights) == sorted(x.weights, reverse=True)
            assert sum(x.weights) <= 1 + 1e-5
            for path in x.paths:
                assert path.entities[0] == user
                assert path.entities[-1] == GRAPH.n_users + x.item
                assert path.exists(GRAPH)
                assert path.is_simple()
                n += 1
    assert n > 100


def test_reasons_list_the_same_items_as_scores():
    model = fitted()
    out = model.score(USERS)
    out[part_matrix(PARTS, "train").toarray() > 0] = -np.inf
    for row, items in zip(out, model.explained(USERS, 5), strict=True):
        order = sorted(np.flatnonzero(row > -np.inf), key=lambda v: (-row[v], v))[:5]
        assert [x.item for x in items] == order


def test_reward_is_for_known_patterns_that_end_at_items():
    model = fitted()
    scores = model.encoder_.score_items(USERS)
    pattern = mined_three_hops(model)
    known = part_matrix(PARTS, "train").toarray() > 0
    cases = list(product(range(3), range(GRAPH.n_items)))
    owners = np.array([u for u, _ in cases])
    visited = np.zeros((len(cases), 4), dtype=np.int32)
    visited[:, -1] = [GRAPH.n_users + v for _, v in cases]
    good = np.tile(np.array(pattern, dtype=np.int32), (len(cases), 1))
    reward = model._reward(USERS[:3], owners, scores[:3].copy(), visited, good)
    for (u, v), got in zip(cases, reward, strict=True):
        slow = 1.0 if known[u, v] else max(scores[u, v], 0) / scores[u].max()
        assert got == pytest.approx(slow, rel=1e-5)
    stay = np.full_like(good, LOOP)
    assert not model._reward(USERS[:3], owners, scores[:3].copy(), visited, stay).any()


def mined_three_hops(model):
    """The relations of some pattern of three hops."""
    base = model.loop_ + 1
    key = int(max(model._patterns))
    out = []
    while key:
        key, r = divmod(key, base)
        out.append(r - 1)
    assert len(out) == 3
    return out[::-1]


def test_walkers_earn_more_and_more():
    encoder = TransE(TransEConfig(dimension=16, epochs=5)).fit(GRAPH)
    rules = mine(GRAPH, MiningConfig(min_support=5)).rules
    rewards = PGPR(**SMALL, epochs=30).walk_on(GRAPH, encoder, rules).rewards_
    assert np.mean(rewards[-5:]) > 1.5 * np.mean(rewards[:3])


@pytest.mark.parametrize("settings", [{"actions": 0}, {"beam": ()}, {"beam": (5, 0)}, {"batch": 0}])
def test_settings_without_sense_are_refused(settings):
    with pytest.raises(LogerError, match=r"must (be|list)"):
        PGPR(**settings)


def test_a_misspelt_setting_is_told_with_the_nearest():
    with pytest.raises(LogerError, match=r"unknown setting 'epoch'; did you mean 'epochs'"):
        PGPR(epoch=3)
