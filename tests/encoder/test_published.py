"""TransE trained the authors' way, against its formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from loger.baselines.neighbours import MostPop
from loger.config import LOGERConfig
from loger.data import split
from loger.data.demo import shop
from loger.encoder import HiddenPairs, TransE, TransEConfig, published
from loger.encoder.published import NEGATIVES, DenseAdam, Published
from loger.encoder.transe_training import _Batch
from loger.errors import LogerError
from loger.evaluation.evaluate import evaluate
from loger.evaluation.methods import EncoderAlone

LITERAL = LOGERConfig.paper_literal().encoder
SMALL = replace(LITERAL, dimension=6, batch=40, gamma=4.0, epochs=1, rate=1e-2, warm_epochs=2)


@pytest.fixture(autouse=True)
def short_epochs(monkeypatch):
    monkeypatch.setattr(published, "STEPS", 500)


@pytest.fixture(scope="module")
def graph():
    return split(shop(seed=3, users=60, items=60).dataset).graph


@pytest.mark.parametrize("head_sought", [False, True])
@pytest.mark.parametrize("distance", ["l1", "squared"])
def test_a_step_goes_down_the_gradient_of_the_published_loss(graph, head_sought, distance):
    training = Published(replace(SMALL, distance=distance), graph)
    r = graph.relation_id("purchase")
    heads, tails = (x[:40] for x in training._triples[r])
    given, sought = (tails, heads) if head_sought else (heads, tails)
    span = training._spans[r][0 if head_sought else 1]
    drawn = np.random.default_rng(5).integers(span.start, span.stop, size=NEGATIVES)
    tables = [
        t.table.clone().double().requires_grad_() for t in (training.entities, training.relations)
    ]
    entities, relations = tables

    def score(h, t):
        apart = entities[h] + relations[r] - entities[t]
        return 4.0 - (apart.abs() if distance == "l1" else apart.square()).sum(-1)

    h, t, wrong = (torch.from_numpy(x) for x in (heads, tails, drawn))
    true = score(h, t)
    others = score(wrong[None], t[:, None]) if head_sought else score(h[:, None], wrong[None])
    same = torch.from_numpy(sought)[:, None] == wrong[None]
    share = torch.softmax(others.masked_fill(same, -torch.inf), 1).detach()
    loss = 0.5 * (softplus(-true) + (share * softplus(others)).sum(1)).mean()
    loss.backward()
    got = {}

    def record(name):
        def update(rows, gradient, rate, owners=None, weights=None):
            total = got.setdefault(name, torch.zeros_like(tables[name].detach()))
            total.index_add_(0, rows, gradient.double())

        return update

    training.entities.update, training.relations.update = record(0), record(1)
    batch = _Batch(r, given, sought, head_sought)
    found = training._step(batch, 0.01, np.random.default_rng(5))
    assert found.item() == pytest.approx(loss.item(), rel=1e-5)
    for name, table in enumerate(tables):
        torch.testing.assert_close(got[name], table.grad, atol=1e-6, rtol=1e-4)


def test_rows_that_batches_miss_move_on_as_in_adam_over_the_whole_table():
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.normal(size=(5, 3)).astype(np.float32))
    lazy, rate = DenseAdam(start.clone()), 0.01
    lazy.steps += 50_000  # past the correction of Adam's first steps
    lazy.seen += 50_000
    table, first, second = (
        start.clone().double(),
        torch.zeros(5, 3).double(),
        torch.zeros(5).double(),
    )
    for step in range(300):
        rows = rng.choice(5, size=1 + step % 2, replace=False) if step % 7 else np.array([4])
        rows = rows[rows < 4] if step % 50 else rows  # the last row is rarely met
        gradient = torch.from_numpy(rng.normal(size=(len(rows), 3)).astype(np.float32))
        which = torch.from_numpy(rows.astype(np.int64))
        lazy.advance(which, rate)
        torch.testing.assert_close(lazy.table[which].double(), table[which], atol=2e-5, rtol=1e-4)
        lazy.update(which, gradient, rate)
        whole = torch.zeros(5, 3).double()
        whole[which] = gradient.double()
        first = 0.9 * first + 0.1 * whole
        second = 0.999 * second + 0.001 * whole.square().mean(1)
        table -= rate * first / (second.sqrt() + 1e-8)[:, None]
    lazy.advance(torch.arange(5), rate)
    torch.testing.assert_close(lazy.table.double(), table, atol=2e-5, rtol=1e-4)


def test_a_fit_repeats_goes_on_warm_and_learns_hidden_pairs(graph, tmp_path):
    one, two = (TransE(SMALL).fit(graph, checkpoint=tmp_path / name) for name in "ab")
    assert one.entities_.tobytes() == two.entities_.tobytes()
    assert (
        TransE(SMALL).fit(graph, checkpoint=tmp_path / "a").entities_.tobytes()
        == one.entities_.tobytes()
    )
    users = np.arange(20, dtype=np.int32)
    items = (users * 7 % graph.n_items).astype(np.int32)
    pairs = HiddenPairs(users, items, np.full(20, 20.0, dtype=np.float32))
    before = one.score_items(users)[np.arange(20), items]
    plain = one.fit(graph, warm=True).score_items(users)[np.arange(20), items]
    taught = two.fit(graph, hidden=pairs, warm=True).score_items(users)[np.arange(20), items]
    assert not np.array_equal(plain, before)
    assert taught.mean() > plain.mean() + 0.5


def test_users_as_sums_of_items_are_refused(graph):
    with pytest.raises(LogerError, match="needs users='free'"):
        TransE(TransEConfig(loss="adversarial")).fit(graph)


@pytest.mark.long
def test_the_literal_encoder_ranks_better_than_popularity():
    """A shop of 150 customers needs a thirtieth of the steps, at twenty times the rate."""
    parts = split(shop(seed=3, users=150, items=100).dataset)
    scaled = replace(LITERAL, epochs=1, rate=20 * LITERAL.rate, final_rate=20 * LITERAL.final_rate)
    encoder = EncoderAlone(lambda: TransE(scaled), "literal")
    report = evaluate([encoder, MostPop()], parts, "validation")
    assert report.mean("literal", "ndcg") > 1.2 * report.mean("MostPop", "ndcg")
