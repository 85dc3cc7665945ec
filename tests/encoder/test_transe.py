import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import polars as pl
import pytest
import torch

from loger.data import from_frames
from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import HiddenPairs, TransE, TransEConfig
from loger.encoder.folding import score_users
from loger.encoder.protocol import WeightedItems
from loger.encoder.training import RowAdam
from loger.encoder.transe import FACT_GAMMA
from loger.encoder.transe_training import Histories, Training, _Batch, _stream, scores_of
from loger.errors import LogerError
from loger.graph import INTERACTION
from loger.grounding import Walk

SMALL = TransEConfig(dimension=16, epochs=2, batch=128)


@pytest.fixture(scope="module")
def parts():
    return split(shop(seed=3, users=120, items=90).dataset)


def replace(config, **changes):
    from dataclasses import replace as change

    return change(config, **changes)


# ── the mathematics ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("distance", ["sphere", "squared", "l1"])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 3)])
def test_scores_are_gamma_less_the_distance(distance, shape):
    torch.manual_seed(0)
    x = torch.randn(*shape[:-1], 5)
    y = torch.randn(*shape[:-2], shape[-1], 5)
    scores, _ = scores_of(x, y, 3.0, distance)
    for place in np.ndindex(*shape):
        a, b = x[place[:-1]], y[(*place[:-2], place[-1])]
        if distance == "sphere":
            a, b = a / a.norm(), b / b.norm()
            slow = 3.0 - 3.0 / 2 * (a - b).square().sum()
        else:
            slow = 3.0 - ((a - b).abs().sum() if distance == "l1" else (a - b).square().sum())
        assert scores[place].item() == pytest.approx(slow.item(), abs=1e-5)


@pytest.mark.parametrize("distance", ["sphere", "squared", "l1"])
def test_gradients_of_scores_agree_with_finite_differences(distance):
    torch.manual_seed(1)
    x, y = torch.randn(3, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    slope = torch.randn(3, 5, dtype=torch.float64)
    gx, gy = scores_of(x, y, 2.0, distance)[1](slope)
    for table, gradient in ((x, gx), (y, gy)):
        for place in np.ndindex(*table.shape):
            kept = table[place].item()
            ends = []
            for step in (1e-6, -1e-6):
                table[place] = kept + step
                ends.append((scores_of(x, y, 2.0, distance)[0] * slope).sum().item())
            table[place] = kept
            assert gradient[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-5)


@pytest.mark.parametrize("shape", [(7, 2, 2), (3, 5, 8), (1, 1, 1), (0, 2, 2)])
def test_small_groups_have_the_gradients_that_autograd_finds(shape):
    torch.manual_seed(2)
    groups, n, m = shape
    x, y = torch.randn(groups, n, 12), torch.randn(groups, m, 12)
    slope = torch.randn(groups, m, n).mT  # not in one piece
    scores, gradients = scores_of(x, y, 3.0, "sphere")
    gx, gy = gradients(slope)
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    plain = 3 * torch.nn.functional.cosine_similarity(a.unsqueeze(2), b.unsqueeze(1), dim=-1)
    torch.testing.assert_close(scores, plain.detach())
    (plain * slope).sum().backward()
    torch.testing.assert_close((gx, gy), (a.grad, b.grad))
    assert gx.untyped_storage().data_ptr() == gy.untyped_storage().data_ptr()


@pytest.mark.parametrize("shape", [(3,), (40, 3)])
def test_a_vector_without_direction_scores_nothing_and_nothing_moves_it(shape):
    torch.manual_seed(3)
    x, y = torch.randn(*shape, 6), torch.randn(*shape, 6)
    x[..., 1, :] = 0
    scores, gradients = scores_of(x, y, 2.0, "sphere")
    gx, gy = gradients(torch.ones_like(scores))
    assert (scores[..., 1, :] == 0).all()
    assert gx[..., 1, :].abs().max() < 1e-12
    keep = [0, 2]
    others, by_others = scores_of(x[..., keep, :], y, 2.0, "sphere")
    torch.testing.assert_close(scores[..., keep, :], others)
    ax, ay = by_others(torch.ones_like(others))
    torch.testing.assert_close((gx[..., keep, :], gy), (ax, ay))


def test_users_who_have_nothing_but_what_is_sought_do_not_outweigh_all_others():
    rows = [(f"u{u}", f"i{(u * 7 + k * k) % 23}") for u in range(40) for k in range(5)]
    rows += [(f"once{u}", f"i{u % 23}") for u in range(30)]
    data = from_frames(pl.DataFrame(rows, schema=["user", "item"], orient="row"))
    graph = data.graph(np.arange(len(data.interactions)))
    state = TransE(TransEConfig(dimension=8, epochs=2)).fit(graph).state()
    assert 0 < state["relations.second"][INTERACTION] < 1  # 1e20 while they had a direction
    assert np.abs(state["relations.table"][INTERACTION]).max() > 0


def whole_loss(encoder, batch, entities, relations, biases):
    """The loss of a batch as autograd would see it: the obvious twin of ``_step``."""
    config = encoder.config
    given = encoder._histories.bags(
        batch.given, batch.sought if batch.relation == INTERACTION else None
    )
    owners = torch.arange(len(batch.given)) if given.owners is None else given.owners
    weights = torch.ones(len(given.rows)) if given.weights is None else given.weights
    x = torch.zeros(len(batch.given), config.dimension, dtype=entities.dtype)
    x = x.index_add(0, owners, entities[given.rows] * weights.unsqueeze(1))
    candidates = torch.unique(torch.from_numpy(batch.sought))
    positive = torch.searchsorted(candidates, torch.from_numpy(batch.sought))
    y = entities[candidates]
    if batch.head_sought:
        y = y + relations[batch.relation]
    else:
        x = x + relations[batch.relation]
    x, y = x / x.norm(dim=1, keepdim=True).clamp(min=1e-12), y / y.norm(dim=1, keepdim=True)
    gamma = config.gamma if batch.relation == INTERACTION else FACT_GAMMA
    scores = gamma * x @ y.T
    if not batch.head_sought:
        scores = scores + biases[candidates, 0]
    rows = torch.arange(len(positive))
    if batch.relation == INTERACTION:
        share = encoder._item_share[candidates - encoder.graph.n_users]
        scores = scores - torch.log(1 - (1 - share) ** len(positive))
    losses = -torch.log_softmax(scores, 1)[rows, positive]
    return losses.mean()


@pytest.mark.parametrize(
    "name, head_sought",
    [("purchase", False), ("has_feature", False), ("has_feature", True), ("mentions", False)],
)
def test_a_step_goes_down_the_gradient_of_the_loss(parts, name, head_sought):
    graph = parts.graph
    relation = graph.relation_id(name)
    encoder = Training(SMALL, graph)
    heads, tails = encoder._triples[relation]
    rows = np.random.default_rng(0).choice(len(heads), 30, replace=False)
    given, sought = (tails, heads) if head_sought else (heads, tails)
    batch = _Batch(relation, given[rows], sought[rows], head_sought)
    tables = [
        t.table.clone().double() for t in (encoder.entities, encoder.relations, encoder.biases)
    ]
    tables[1][relation] += 0.1  # a relation that is not zero, or its gradient says little
    encoder.relations.table[relation] += 0.1
    for table in tables:
        table.requires_grad_()
    whole_loss(encoder, batch, *tables).backward()
    recorded = {}

    def record(name):
        def update(rows, gradient, rate, owners=None, weights=None):
            total = recorded.setdefault(name, torch.zeros_like(tables[name].detach()))
            parts = gradient if owners is None else gradient[owners]
            parts = parts if weights is None else parts * weights.unsqueeze(1)
            total.index_add_(0, rows, parts.double())

        return update

    for name, learned in enumerate((encoder.entities, encoder.relations, encoder.biases)):
        learned.update = record(name)
    encoder._step(batch, 0.01, np.random.default_rng(0))
    for name, table in enumerate(tables):
        found = recorded.get(name, torch.zeros_like(table))
        assert torch.allclose(found, table.grad if table.grad is not None else found, atol=2e-6)


def test_groups_choose_only_within_themselves(parts):
    """A batch in groups has the loss of its groups taken one by one."""
    graph = parts.graph
    losses = []
    for group in (None, 8):
        encoder = Training(replace(SMALL, group=group), graph)
        relation = graph.relation_id("has_feature")
        heads, tails = encoder._triples[relation]
        distinct = np.unique(tails, return_index=True)[1][:16]  # no tail twice, so none is masked
        spans = [distinct] if group else [distinct[:8], distinct[8:]]
        each = []
        for rows in spans:
            encoder._start(graph)
            batch = _Batch(relation, heads[rows], tails[rows], False)
            each.append(float(encoder._step(batch, 0.01, np.random.default_rng(0))))
        losses.append(np.mean(each))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_row_adam_touches_only_its_rows_and_both_ways_agree():
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.standard_normal((9, 4)).astype(np.float32))
    fused, plain = RowAdam(start.clone()), RowAdam(start.clone())
    for step in range(5):
        rows = torch.from_numpy(rng.integers(0, 6, 12))
        gradient = torch.from_numpy(rng.standard_normal((7, 4)).astype(np.float32))
        owners = torch.from_numpy(rng.integers(0, 7, 12))
        weights = torch.from_numpy(rng.random(12).astype(np.float32))
        fused.update(rows, gradient, 0.1, owners, weights)
        # The same by the definition, row by row.
        for row in torch.unique(rows):
            g = sum(weights[k] * gradient[owners[k]] for k in range(12) if rows[k] == row)
            plain.first[row] = 0.9 * plain.first[row] + 0.1 * g
            plain.second[row] = 0.999 * plain.second[row] + 0.001 * (g * g).mean()
            m = plain.first[row] / (1 - 0.9 ** (step + 1))
            v = plain.second[row] / (1 - 0.999 ** (step + 1))
            plain.table[row] -= 0.1 * m / v.sqrt()
    assert torch.allclose(fused.table, plain.table, atol=1e-5)
    assert torch.equal(fused.table[6:], start[6:])


def test_a_user_is_the_sum_of_its_items_over_root_n_without_the_one_left_out():
    users, items = np.array([0, 0, 0, 1]), np.array([2, 3, 4, 3])
    histories = Histories(users, items, 2, torch.device("cpu"))
    table = torch.eye(5)
    plain = histories.bags(np.array([0, 1])).sum(table)
    assert torch.allclose(plain[0], torch.tensor([0, 0, 1, 1, 1]) / 3**0.5)
    assert torch.allclose(plain[1], table[3])
    left = histories.bags(np.array([0, 1, 0]), np.array([3, 3, 9])).sum(table)
    assert torch.allclose(left[0], torch.tensor([0, 0, 1, 0, 1]) / 2**0.5)
    assert torch.equal(left[1], torch.zeros(5))
    assert torch.allclose(left[2], plain[0])


def test_of_a_long_history_so_many_different_items_are_drawn_each_with_the_same_chance():
    users, items = np.repeat([0, 1], [100, 3]), np.concatenate([np.arange(2, 102), [7, 8, 9]])
    histories = Histories(users, items, 2, torch.device("cpu"))
    seen = np.zeros(102)
    for seed in range(2000):
        bags = histories.bags(np.array([0, 1]), None, 64, np.random.default_rng(seed))
        rows = bags.rows.numpy()
        assert len(np.unique(rows[:64])) == 64
        assert sorted(rows[64:]) == [7, 8, 9]  # a short one stays whole
        seen[rows[:64]] += 1
    assert np.abs(seen[2:] / 2000 - 0.64).max() < 5 * (0.64 * 0.36 / 2000) ** 0.5


def test_a_user_of_20000_items_costs_a_fit_no_more_than_its_cap():
    """Its interactions are learned from one by one; what each of them costs is bounded."""
    rng = np.random.default_rng(0)
    items = np.arange(1, 20_001)
    hub = Histories(np.zeros(20_000, dtype=np.int64), items, 1, torch.device("cpu"))
    drawn = hub.bags(np.zeros(1024, dtype=np.int64), items[:1024], 64, rng)
    assert len(drawn.rows) <= 1024 * 64


def test_the_stream_of_a_relation_walks_through_all_its_triples():
    whole = np.concatenate([_stream(0, 1, 10, start, 4) for start in range(0, 40, 4)])
    assert (np.sort(whole.reshape(4, 10), axis=1) == np.arange(10)).all()
    assert (whole != np.concatenate([_stream(1, 1, 10, s, 4) for s in range(0, 40, 4)])).any()


# ── fitting ──────────────────────────────────────────────────────────────────────────────


def equal_states(a, b):
    return all(np.array_equal(a.state()[k], b.state()[k]) for k in a.state())


def test_one_seed_gives_equal_bytes_and_another_does_not(parts):
    first, again = TransE(SMALL).fit(parts.graph), TransE(SMALL).fit(parts.graph)
    assert equal_states(first, again)
    assert not equal_states(first, TransE(replace(SMALL, seed=1)).fit(parts.graph))


def test_folding_in_a_users_own_history_gives_its_own_scores(parts):
    encoder = TransE(SMALL).fit(parts.graph)
    folded = score_users(encoder, parts.graph, range(5))
    assert np.allclose(folded, encoder.score_items(range(5)), atol=1e-5)
    none = np.empty(0, dtype=np.int64)
    assert np.isfinite(encoder.fold_in(WeightedItems(none, none, none.astype(float), 1))).all()


def test_folding_in_counts_items_by_their_weights_and_old_ones_less(parts):
    encoder = TransE(SMALL).fit(parts.graph)
    one, items = np.zeros(2, dtype=np.int64), np.array([3, 8])
    tilted = encoder.fold_in(WeightedItems(one, items, np.array([1.0, 0.0]), 1))
    first = encoder.fold_in(WeightedItems(one[:1], items[:1], np.ones(1), 1))
    assert np.allclose(tilted, first, atol=1e-5)
    plain, recent = (score_users(encoder, parts.graph, [0], Walk(recency=r)) for r in (0.0, 50.0))
    u, v = parts.pairs("train")
    times = parts.dataset.interactions.times[parts.train]
    latest = v[u == 0][times[u == 0] == times[u == 0].max()]
    n = len(latest)
    alone = encoder.fold_in(WeightedItems(np.zeros(n, int), latest, np.ones(n), 1))
    assert np.allclose(recent, alone, atol=1e-4)
    assert not np.allclose(plain, recent, atol=1e-2)


def test_free_users_fit_too_but_cannot_be_folded_in(parts):
    encoder = TransE(replace(SMALL, users="free")).fit(parts.graph)
    with pytest.raises(LogerError, match="users='free' can't score users"):
        encoder.fold_in(WeightedItems(np.array([0]), np.array([1]), np.ones(1), 1))
    assert np.array_equal(score_users(encoder, parts.graph, [1]), encoder.score_items([1]))


@pytest.mark.parametrize("distance", ["squared", "l1"])
def test_other_distances_learn_too(parts, distance):
    config = replace(SMALL, distance=distance, gamma=4, epochs=4)
    encoder = TransE(config).fit(parts.graph)
    users, items = parts.pairs("train")
    scores = encoder.score_items(range(parts.dataset.n_users))
    others = np.random.default_rng(0).integers(0, scores.shape[1], len(users))
    assert (scores[users, items] > scores[users, others]).mean() > 0.6


def test_an_extra_pair_of_full_weight_rises_and_one_of_no_weight_does_not(parts):
    n = parts.dataset.n_users
    users = np.arange(n, dtype=np.int32)
    items = np.full(n, 7, dtype=np.int32)

    def rank(weight):
        weights = np.full(n, weight, dtype=np.float32)
        encoder = TransE(SMALL).fit(parts.graph, hidden=HiddenPairs(users, items, weights))
        scores = encoder.score_items(users)
        return (scores > scores[:, 7:8]).sum(axis=1).mean()

    assert rank(1.0) < 0.5 * rank(0.0)


def test_a_warm_fit_goes_on_from_where_it_was(parts):
    with pytest.raises(LogerError, match="warm fit needs an earlier one"):
        TransE(SMALL).fit(parts.graph, warm=True)
    encoder = TransE(SMALL).fit(parts.graph)
    before = encoder.score_items(range(20))
    encoder.fit(parts.graph, warm=True)
    after = encoder.score_items(range(20))
    assert not np.array_equal(before, after)
    assert np.corrcoef(before.ravel(), after.ravel())[0, 1] > 0.5


def test_a_saved_state_scores_the_same_and_a_foreign_one_is_refused(parts):
    encoder = TransE(SMALL).fit(parts.graph)
    kept = encoder.state()
    before = {name: array.copy() for name, array in kept.items()}
    encoder.fit(parts.graph, warm=True)
    assert any(not np.array_equal(before[k], encoder.state()[k]) for k in before)
    assert all(np.array_equal(before[k], kept[k]) for k in before)  # training leaves it alone
    again = TransE(SMALL).load_state(parts.graph, encoder.state())
    assert np.array_equal(encoder.score_items(range(9)), again.score_items(range(9)))
    with pytest.raises(LogerError, match="is missing or has the wrong shape"):
        TransE(replace(SMALL, dimension=8)).load_state(parts.graph, encoder.state())


# ── checkpoints ──────────────────────────────────────────────────────────────────────────


def test_an_interrupted_fit_goes_on_and_ends_with_the_same_bytes(parts, tmp_path):
    config = replace(SMALL, epochs=4)
    whole = TransE(config).fit(parts.graph)
    steps = iter(range(10**6))

    def interrupt(what, done, total):
        if next(steps) == int(0.6 * total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TransE(config).fit(parts.graph, checkpoint=tmp_path, progress=interrupt)
    seen = []
    again = TransE(config).fit(
        parts.graph, checkpoint=tmp_path, progress=lambda what, done, total: seen.append(done)
    )
    assert seen[0] > 0, "the second fit began anew"
    assert equal_states(whole, again)


def test_a_checkpoint_of_another_fit_or_a_broken_one_is_not_taken_up(parts, tmp_path):
    TransE(SMALL).fit(parts.graph, checkpoint=tmp_path)
    other = replace(SMALL, rate=0.02)
    plain = TransE(other).fit(parts.graph)
    assert equal_states(plain, TransE(other).fit(parts.graph, checkpoint=tmp_path))
    for name in ("state.safetensors", "manifest.json"):  # one bit is enough
        file = tmp_path / "checkpoint" / name
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        file.write_bytes(content)
        assert equal_states(plain, TransE(other).fit(parts.graph, checkpoint=tmp_path))


KILLED = """
    import sys
    import numpy as np
    from loger.data.demo import shop
    from loger.data.splits import split
    from loger.encoder import TransE, TransEConfig

    graph = split(shop(seed=3, users=120, items=90).dataset).graph
    config = TransEConfig(dimension=16, epochs=30, batch=128)
    print("ready", flush=True)
    encoder = TransE(config).fit(graph, checkpoint=sys.argv[1] if len(sys.argv) > 1 else None)
    np.savez(sys.argv[2], **encoder.state()) if len(sys.argv) > 2 else None
    print("done", flush=True)
"""


@pytest.mark.long
def test_killed_at_ten_random_moments_a_fit_ends_with_the_same_bytes(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(textwrap.dedent(KILLED))

    def run(name, seconds=None):
        """Fit in a process of its own; how long it took, or None if it was killed."""
        command = [sys.executable, str(script), str(tmp_path / name), str(tmp_path / f"{name}.npz")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            begun = time.perf_counter()
            try:
                process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                return None
            return time.perf_counter() - begun

    length = run("whole")
    rng = np.random.default_rng(0)
    kills = 0
    while kills < 10:
        if run("killed", float(rng.uniform(0, 0.25 * length))) is None:
            kills += 1
        else:  # it ended before the kill: start again, so that there are ten kills
            shutil.rmtree(tmp_path / "killed")
    run("killed")
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "killed.npz") as killed:
        assert set(whole) == set(killed)
        assert all(np.array_equal(whole[k], killed[k]) for k in whole)
