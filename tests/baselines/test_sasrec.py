"""SASRec against slow implementations: slices of histories, loss, what attention may see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from loger.baselines import SASRec
from loger.baselines.esasrec import ESASRec
from loger.baselines.sasrec import SASRecConfig, _Network, _read, next_items_loss, padded, pieces
from loger.data import split
from loger.data.dataset import Facts, Interactions
from loger.data.demo import shop
from loger.errors import LogerError

N_ITEMS = 12


def network(seed: int = 0, length: int = 8) -> _Network:
    torch.manual_seed(seed)
    out = _Network(N_ITEMS, SASRecConfig(dimension=6, heads=2, length=length))
    for parameter in out.parameters():  # large enough for every part to matter
        parameter.data += 0.3 * torch.randn_like(parameter)
    with torch.no_grad():
        out.items.weight[N_ITEMS] = 0
    return out


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


def slow_states(net: _Network, read: list[int]) -> np.ndarray:
    """The state behind the last of a history, place by place and head by head."""
    x = np.array([net.items.weight[i].tolist() for i in read]) * np.sqrt(6)
    x += net.places.weight.detach().numpy()[: len(read)]

    def norm(layer, rows):
        scaled = rows - rows.mean(1, keepdims=True)
        scaled /= np.sqrt((scaled**2).mean(1, keepdims=True) + 1e-5)
        return scaled * layer.weight.tolist() + layer.bias.tolist()

    def linear(layer, rows):
        return rows @ layer.weight.detach().numpy().T + layer.bias.tolist()

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
    net, read = network(), [3, 7, 1, 1, 11]
    got = net(torch.tensor([read])).detach().numpy()[0]
    np.testing.assert_allclose(got, slow_states(net, read), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("targets", [1, 2, 10])
def test_the_loss_equals_its_formula(targets):
    net, drawn = network(1), np.array([2, 2, 5, 7])
    histories = [[3, 7, 1, 5], [4, 2]]
    losses, weights = [], []
    for history in histories:
        states = slow_states(net, history)
        for t in range(len(history)):
            for k, true in enumerate(history[t + 1 : t + 1 + targets], start=1):
                among = [true, *(v for v in drawn if v != true)]
                logits = np.array([states[t] @ net.items.weight[v].tolist() for v in among])
                losses.append(np.log(np.exp(logits).sum()) - logits[0])
                weights.append(k**-0.5)
    read = torch.tensor([[3, 7, 1, 5], [4, 2, N_ITEMS, N_ITEMS]])
    got = next_items_loss(net, read, drawn, 0.0, targets)
    assert got.item() == pytest.approx(np.average(losses, weights=weights), rel=1e-4)


def test_a_gated_block_adds_only_what_its_gates_let_through():
    torch.manual_seed(0)
    net = _Network(N_ITEMS, SASRecConfig(dimension=6, heads=2, length=8), gated=True)
    read = torch.tensor([[3, 7, 1]])
    with torch.no_grad():
        before = net(read)
        for block in net.blocks:
            for gate in block.gates:
                gate.weight.zero_()
                gate.bias.fill_(-1e4)  # shut: what goes in comes out
        shut = net(read)
        plain = net.norm(net.items(read) * 6**0.5 + net.places.weight[:3])
    torch.testing.assert_close(shut, plain)
    assert not torch.allclose(before, shut)


def test_of_a_long_history_only_the_last_interactions_are_read():
    net, config = network(length=3), SASRecConfig(dimension=6, heads=2, length=3)
    ends = np.array([0, 5, 5, 7])
    got = _read(net, np.array([9, 9, 3, 7, 1, 4, 2]), ends, config)
    np.testing.assert_allclose(got[0], slow_states(net, [3, 7, 1])[-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[2], slow_states(net, [4, 2])[-1], rtol=1e-4, atol=1e-5)
    assert (got[1] == 0).all()  # nothing to read


@pytest.mark.parametrize("kind", [SASRec, ESASRec])
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
    few = {"targets": 1} if kind is ESASRec else {}
    settings = {"dimension": 16, "epochs": 40, "rate": 1e-2, "batch": 16, "dropout": 0.0}
    model = kind(**settings, **few).fit(parts)
    users, following = parts.pairs("validation")
    assert (model.score(users).argmax(axis=1) == following).mean() > 0.9


@pytest.mark.parametrize("setting", [{"epochs": 0}, {"heads": 3}, {"dropout": 1.0}])
def test_settings_without_sense_are_refused(setting):
    with pytest.raises(LogerError, match="must be"):
        SASRec(**setting)
