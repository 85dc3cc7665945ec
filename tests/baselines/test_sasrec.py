"""SASRec and its heirs against slow implementations: slices of histories, blocks, losses, facts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from loger.baselines import HSTU, ESASRec, SASRec
from loger.baselines.sasrec import (
    Answers,
    _Network,
    _read,
    full_softmax,
    item_facts,
    padded,
    pieces,
)
from loger.data import split
from loger.data.dataset import Facts, Interactions
from loger.data.demo import shop
from loger.errors import LogerError

N_ITEMS = 12


SMALL = {"dimension": 6, "length": 8, "dropout": 0.0, "facts": False}


def network(model: SASRec, seed: int = 0) -> _Network:
    torch.manual_seed(seed)
    out = _Network(N_ITEMS, model.config, model.block)
    for parameter in out.parameters():  # large enough for every part to matter
        parameter.data += 0.3 * torch.randn_like(parameter)
    return out


def states_of(net: _Network, read: list[int]) -> np.ndarray:
    return net(net.vectors(np.array(read))[None]).detach().numpy()[0]


@pytest.mark.parametrize("length", [2, 3, 5, 100])
def test_pieces_have_every_interaction_but_the_first_as_a_next_one_once(length):
    ends = np.array([0, 7, 7, 8, 10, 21])
    cut = pieces(ends, length)
    nexts = [k for a, b in zip(cut.starts, cut.stops, strict=True) for k in range(a + 1, b)]
    firsts = [0, 7, 8, 10]
    assert sorted(nexts) == [k for k in range(21) if k not in firsts]
    assert (cut.stops - cut.starts <= length).all()
    owner = np.searchsorted(ends, cut.starts, side="right")
    assert (owner == np.searchsorted(ends, cut.stops - 1, side="right")).all()


def test_histories_are_filled_up_behind():
    got = padded(np.array([5, 6, 7, 8]), np.array([0, 2]), np.array([1, 4]), 9)
    assert got.tolist() == [[5, 9], [7, 8]]


def norm(layer, rows):
    scaled = rows - rows.mean(1, keepdims=True)
    scaled /= np.sqrt((scaled**2).mean(1, keepdims=True) + 1e-5)
    return scaled * layer.weight.tolist() + layer.bias.tolist()


def linear(layer, rows):
    return rows @ layer.weight.detach().numpy().T + layer.bias.tolist()


def slow_states(net: _Network, read: list[int]) -> np.ndarray:
    """The state behind the last of a history, place by place and head by head."""
    x = np.array([net.items.weight[i].tolist() for i in read]) * np.sqrt(6)
    x += net.places.weight.detach().numpy()[: len(read)]

    for block in net.blocks:
        q, k, v = np.split(linear(block.mixed, norm(block.norms[0], x)), 3, axis=1)
        seen = np.zeros_like(x)
        for t in range(len(read)):
            for head in (slice(0, 3), slice(3, 6)):
                weights = np.exp(k[: t + 1, head] @ q[t, head] / np.sqrt(3))
                seen[t, head] = weights @ v[: t + 1, head] / weights.sum()
        x = x + linear(block.out, seen)
        inner = np.maximum(linear(block.wide, norm(block.norms[1], x)), 0)
        x = x + linear(block.narrow, inner)
    return norm(net.norm, x)


def test_the_network_equals_its_formula():
    net, read = network(SASRec(**SMALL)), [3, 7, 1, 1, 11]
    np.testing.assert_allclose(states_of(net, read), slow_states(net, read), rtol=1e-4, atol=1e-5)


def test_a_block_of_hstu_equals_its_formula(monkeypatch):
    monkeypatch.setattr("loger.baselines.sasrec.BLOCKS", 1)
    net, read = network(HSTU(**SMALL)), [3, 7, 1, 1, 11]
    (block,) = net.blocks
    x = np.array([net.items.weight[i].tolist() for i in read]) * np.sqrt(6)
    x += net.places.weight.detach().numpy()[: len(read)]
    mixed = linear(block.mixed, norm(block.norm, x))
    gate, v, q, k = np.split(mixed / (1 + np.exp(-mixed)), 4, axis=1)
    seen = np.zeros_like(x)
    for t in range(len(read)):
        for head in (slice(0, 3), slice(3, 6)):
            for s in range(t + 1):
                z = q[t, head] @ k[s, head] + block.distances[t - s].item()
                seen[t, head] += z / (1 + np.exp(-z)) / len(read) * v[s, head]
    seen = seen - seen.mean(1, keepdims=True)
    seen /= np.sqrt((seen**2).mean(1, keepdims=True) + 1e-5)
    want = norm(net.norm, x + linear(block.out, seen * gate))
    np.testing.assert_allclose(states_of(net, read), want, rtol=1e-4, atol=1e-5)


HISTORIES = [[3, 7, 1, 5], [4, 2]]
READ = np.array([[3, 7, 1, 5], [4, 2, N_ITEMS, N_ITEMS]])


def next_ones(net: _Network, targets: int):
    """Each state, with its next items and what they count."""
    for history in HISTORIES:
        states = slow_states(net, history)
        for t in range(len(history) - 1):
            nexts = history[t + 1 : t + 1 + targets]
            weights = np.arange(1, 1 + len(nexts)) ** -0.5
            yield states[t], nexts, weights / weights.sum()


def test_the_loss_of_sasrec_is_a_softmax_over_the_next_item_and_those_drawn():
    model = SASRec(**SMALL)
    net, drawn = network(model, 1), np.array([2, 2, 5, 7])
    losses = []
    for state, (true,), _ in next_ones(net, 1):
        among = [true, *(v for v in drawn if v != true)]
        logits = np.array([state @ net.items.weight[v].tolist() for v in among])
        losses.append(np.log(np.exp(logits).sum()) - logits[0])
    got = model.batch_loss(net, READ, drawn)
    assert got.item() == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.parametrize("targets", [1, 2, 10])
def test_the_loss_of_esasrec_is_a_softmax_over_all_items_with_weighted_targets(targets):
    model = ESASRec(**SMALL, targets=targets)
    plain = SASRec(**SMALL)  # whose states have a slow twin
    net, drawn = network(plain, 1), np.arange(N_ITEMS)
    losses = []
    for state, nexts, weights in next_ones(net, targets):
        logits = net.items.weight.detach().numpy()[:-1] @ state
        losses.append(np.log(np.exp(logits).sum()) - weights @ logits[nexts])
    got = model.batch_loss(net, READ, drawn)
    assert got.item() == pytest.approx(np.mean(losses), rel=1e-4)


def test_items_drawn_for_the_softmax_stand_for_all_others():
    rng = np.random.default_rng(0)
    h, table = (torch.tensor(rng.normal(size=(n, 4)), dtype=torch.float32) for n in (3, 9))
    true, weights = torch.tensor([[0], [4], [0]]), torch.ones(3, 1)
    drawn = torch.tensor([2, 4, 8])
    got = full_softmax(h, table, Answers(true, weights, drawn, 9))
    logits = (h @ table.mT).numpy()
    total = np.exp(logits[:, [0, 4]]).sum(1) + 7 / 2 * np.exp(logits[:, [2, 8]]).sum(1)
    want = np.log(total) - logits[np.arange(3), [0, 4, 0]]
    assert got.item() == pytest.approx(want.mean(), rel=1e-5)


def test_a_gated_block_adds_only_what_its_gates_let_through():
    torch.manual_seed(0)
    model = ESASRec(**SMALL)
    net = _Network(N_ITEMS, model.config, model.block)
    vectors = net.vectors(np.array([3, 7, 1]))[None]
    with torch.no_grad():
        before = net(vectors)
        for block in net.blocks:
            for gate in block.gates:
                gate.weight.zero_()
                gate.bias.fill_(-1e4)  # shut: the output is the input
        shut = net(vectors)
        plain = net.norm(vectors * 6**0.5 + net.places.weight[:3])
    torch.testing.assert_close(shut, plain)
    assert not torch.allclose(before, shut)


def test_an_item_is_its_own_vector_and_the_mean_of_its_facts_by_relation():
    graph = split(shop(users=60, items=60).dataset).graph
    model = ESASRec(**(SMALL | {"facts": True}))
    net = _Network(graph.n_items, model.config, model.block, item_facts(graph))
    asked = np.array([0, 17, 59, graph.n_items])
    got = net.vectors(asked).detach().numpy()
    for row, item in zip(got, asked.tolist(), strict=True):
        want = net.items.weight[item].detach().numpy().copy()
        for r in range(2 * len(graph.relations) if item < graph.n_items else 0):
            near = graph.neighbours(graph.n_users + item, r)
            if r != graph.inverse(0) and len(near):
                want += net.facts.weight[near.tolist()].detach().numpy().mean(axis=0)
        np.testing.assert_allclose(row, want, rtol=1e-4, atol=1e-6)


def test_of_a_long_history_only_the_last_interactions_are_read():
    model = SASRec(**(SMALL | {"length": 3}))
    net, ends = network(model), np.array([0, 5, 5, 7])
    table = net.vectors(np.arange(N_ITEMS + 1))
    got = _read(net, table, np.array([9, 9, 3, 7, 1, 4, 2]), ends, model.config)
    np.testing.assert_allclose(got[0], slow_states(net, [3, 7, 1])[-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[2], slow_states(net, [4, 2])[-1], rtol=1e-4, atol=1e-5)
    assert (got[1] == 0).all()  # nothing to read


@pytest.mark.parametrize("kind", [SASRec, ESASRec, HSTU])
def test_it_learns_a_planted_order(kind):
    made = shop(users=60, items=60).dataset
    items = (np.arange(60)[:, None] + np.arange(8)) % 60  # everyone goes on by one
    planted = Interactions(
        np.repeat(np.arange(60, dtype=np.int32), 8),
        items.ravel().astype(np.int32),
        times=np.tile(np.arange(8), 60),
    )
    known = made.facts.sources < 0  # facts that no purchase told of
    names = ("heads", "relations", "tails", "sources")
    facts = Facts(*(getattr(made.facts, name)[known] for name in names))
    parts = split(replace(made, interactions=planted, facts=facts), "time", test=0.0)
    settings = {"dimension": 16, "epochs": 40, "rate": 1e-2, "batch": 16, "dropout": 0.0}
    model = kind(**settings, targets=1).fit(parts)
    users, following = parts.pairs("validation")
    assert (model.score(users).argmax(axis=1) == following).mean() > 0.9


@pytest.mark.parametrize("setting", [{"epochs": 0}, {"dimension": 3}, {"dropout": 1.0}])
def test_settings_without_sense_are_refused(setting):
    with pytest.raises(LogerError, match="must be"):
        SASRec(**setting)
