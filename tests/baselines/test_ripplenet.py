"""RippleNet against slow implementations: its memories, formula and paths."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from loger.baselines import RippleNet
from loger.baselines.ripplenet import NEGATIVES, ripples
from loger.data import split
from loger.data.demo import shop
from loger.errors import LogerError
from loger.graph import INTERACTION
from loger.recommender import part_matrix

PARTS = split(shop(users=80, items=100).dataset, "random", seed=1)
GRAPH = PARTS.graph
USERS = np.arange(GRAPH.n_users)
N = GRAPH.n_users


@cache
def fitted(hops=2):
    return RippleNet(dimension=8, epochs=3, memories=6, batch=64, hops=hops).fit(PARTS)


def way(model, user, hop, i):
    """Entities and relations from the user to the tail of a memory, by following parents."""
    r = model.ripples_
    entities, relations = [r.tails[user, hop, i]], []
    while hop >= 0:
        entities.insert(0, r.heads[user, hop, i])
        relations.insert(0, r.relations[user, hop, i])
        hop, i = hop - 1, r.parents[user, hop, i]
    return [user, *map(int, entities)], [INTERACTION, *map(int, relations)]


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_every_memory_is_a_simple_path_of_facts_from_the_history(hops):
    model = fitted(hops)
    assert (model.ripples_.heads >= 0).mean() > 0.9
    for user, hop, i in np.argwhere(model.ripples_.heads >= 0):
        entities, relations = way(model, int(user), int(hop), int(i))
        assert len(entities) == hop + 3
        assert len(set(entities)) == len(entities)
        assert entities[1] == model.ripples_.roots[user, hop, i]
        for head, relation, tail in zip(entities, relations, entities[1:], strict=False):
            assert GRAPH.has(head, relation, tail)


def test_memories_follow_relations_equally_often():
    """From one item, each of its relations is drawn as often as another, large or small."""
    drawn = ripples(GRAPH, 1, 3000, seed=0)
    user = 0
    item = int(GRAPH.neighbours(user, INTERACTION)[0])
    of_item = drawn.relations[user, 0][drawn.heads[user, 0] == item]
    can = [
        r for r in range(2 * len(GRAPH.relations)) if set(GRAPH.neighbours(item, r)) - {user, item}
    ]
    shares = np.array([(of_item == r).mean() for r in can])
    assert shares.sum() == 1
    assert shares.min() > 0.5 / len(can)


@pytest.mark.parametrize("hops", [1, 2])
def test_scores_equal_the_formula(hops):
    model = fitted(hops)
    table, matrices = model.entities_.table.numpy(), model.relations_.numpy()
    r = model.ripples_
    out = model.score(USERS[:4])
    for u in range(4):
        for item in range(0, GRAPH.n_items, 7):
            v, total = table[N + item], float(model.biases_.table[item, 0])
            for hop in range(hops):
                logits, answers = [], []
                for i in range(6):
                    h, t = r.heads[u, hop, i], r.tails[u, hop, i]
                    if h >= 0 and N + item not in (h, r.roots[u, hop, i]):
                        logits.append(v @ matrices[r.relations[u, hop, i]] @ table[h])
                        answers.append(v @ table[t])
                if logits:
                    share = np.exp(logits - np.max(logits))
                    total += float(share / share.sum() @ answers)
            assert out[u, item] == pytest.approx(total, rel=1e-3, abs=1e-4)


def test_training_scores_a_pair_as_ranking_does():
    model = fitted()
    users = USERS[:10]
    items = np.arange(10)[:, None] * 3 + np.arange(4)
    r = model.ripples_
    heads, tails = (x[users].reshape(10, -1) for x in (r.heads, r.tails))
    table = model.entities_.table
    keys = model._keys(
        table[torch.from_numpy(np.maximum(heads, 0))], r.relations[users].reshape(10, -1)
    )
    answers = model._answers(
        table[torch.from_numpy(items + N)],
        keys,
        table[torch.from_numpy(np.maximum(tails, 0))],
        torch.from_numpy(model._counting(users, items)),
    )
    got = answers + model.biases_.table[torch.from_numpy(items), 0]
    np.testing.assert_allclose(
        got, np.take_along_axis(model.score(users), items, 1), rtol=1e-4, atol=1e-5
    )


def test_an_own_item_is_scored_as_if_it_did_not_explain_itself():
    """Changing the facts that come from v changes the user's other scores, but not that of v."""
    model = RippleNet(dimension=8, epochs=2, memories=6).fit(PARTS)
    before = model.score(USERS)
    user = 3
    v = int(model.ripples_.roots[user, 0, 0])
    gone = model.ripples_.roots == v
    for of in (model.ripples_.tails, model.ripples_.relations):
        of[gone & (of >= 0)] = 0
    after = model.score(USERS)
    assert after[user, v - N] == pytest.approx(before[user, v - N], abs=1e-6)
    assert (np.abs(after[user] - before[user]) > 1e-4).sum() > 10


def test_negatives_weigh_as_often_as_they_are_drawn_and_the_true_item_is_none():
    model = fitted()
    items = PARTS.pairs("train")[1]
    asked = np.array([[items[0], items[1], items[0]], [items[2], items[1], items[0]]])
    got = model._shift(asked).numpy()
    assert got[0, 2] == np.inf
    for row, column in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]:
        share = np.mean(items == asked[row, column])
        assert got[row, column] == pytest.approx(np.log(NEGATIVES * share), rel=1e-4)


def test_the_loss_falls():
    model = RippleNet(dimension=8, epochs=0, memories=6).fit(PARTS)
    rng = np.random.default_rng(0)
    users, items = (x.astype(np.int64) for x in PARTS.pairs("train"))
    asked = np.hstack([items[:, None], rng.integers(0, GRAPH.n_items, (len(items), 4))])
    matrices = torch.optim.Adam([model.relations_.requires_grad_()], lr=0.01)
    losses = [model._learn(users, asked, 0.01, matrices) for _ in range(60)]
    assert losses[-1] < 0.7 * losses[0]


def test_reasons_are_real_simple_paths_to_new_items_weighed_by_attention():
    model = fitted()
    known, out = part_matrix(PARTS, "train").toarray(), model.score(USERS)
    out[known > 0] = -np.inf
    n = 0
    for user, items in zip(USERS, model.explained(USERS, 10, 3), strict=True):
        order = sorted(range(GRAPH.n_items), key=lambda v: (-out[user, v], v))[:10]
        assert [x.item for x in items] == order
        for x in items:
            assert len(x.paths) == len(x.weights) <= 3
            assert list(x.weights) == sorted(x.weights, reverse=True)
            for path, weight in zip(x.paths, x.weights, strict=True):
                assert path.entities[0] == user
                assert path.entities[-1] == N + x.item
                assert path.exists(GRAPH)
                assert path.is_simple()
                assert 0 < weight <= 1 + 1e-5
                n += 1
    assert n > 100


@pytest.mark.parametrize("settings", [{"hops": 0}, {"memories": 0}, {"l2": -1}, {"epochs": -1}])
def test_settings_without_sense_are_refused(settings):
    with pytest.raises(LogerError, match="must be"):
        RippleNet(**settings)
