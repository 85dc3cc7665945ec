"""The sequence encoder: formula against slow implementations, training, its part in a fit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch

from loger.config import LOGERConfig
from loger.data import Dataset, split
from loger.data.assemble import assemble
from loger.encoder import TransE, TransEConfig, sequence_training
from loger.encoder.cold_start import Moved
from loger.encoder.sequence import Sequence, SequenceConfig
from loger.encoder.sequence_training import Softmax, Training
from loger.encoder.transe import unit
from loger.errors import LogerError
from loger.evaluation.evaluate import fit_summary
from loger.graph import history
from loger.learning.fitted import FittedLogic, logic_of, logic_parts
from loger.logic.config import DerivedConfig
from loger.model import LOGER
from small import small_graph

D, WIDTH = 6, 5
USER = int(np.bincount(small_graph().interactions[1]).argmax())
N_USERS, N_ITEMS = 500, 40


def timed():
    graph = small_graph()
    edges, users = graph.interactions
    times = np.arange(len(users)) * 7 % 5  # with ties
    return graph.timed(users, graph.tails[edges] - graph.n_users, times)


def random_sequence(n_items: int) -> Sequence:
    rng = np.random.default_rng(1)
    floats = {"sources": (n_items, D), "targets": (n_items, D), "biases": (n_items,)}
    state = {k: rng.normal(size=shape).astype(np.float32) for k, shape in floats.items()}
    state["decays"] = np.linspace(0.2, 0.9, D, dtype=np.float32)
    state["maps"] = rng.normal(size=(WIDTH, 2 * D)).astype(np.float32)
    return Sequence(SequenceConfig(dimension=D)).load_state(n_items, state)


def slow_score(model: Sequence, graph, user: int, item: int) -> float:
    """⟨Σ λ^age s / √Σ λ^(2·age), t⟩ + b, term by term."""
    edges, users = graph.interactions
    own = [(int(graph.tails[e]) - graph.n_users, int(graph.times[e])) for e in edges[users == user]]
    total = float(model.biases_[item])
    for d in range(len(model.decays_)):
        decay, above, below = float(model.decays_[d]), 0.0, 0.0
        for one, time in own:
            age = sum(later > time for _, later in own)
            above += decay**age * float(model.sources_[one, d])
            below += decay ** (2 * age)
        total += above / max(below, 1e-24) ** 0.5 * float(model.targets_[item, d])
    return total


def directions(n: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(n, WIDTH)).astype(np.float32)


def beside(n: int) -> TransE:
    """Something that has vectors of items, as TransE has."""
    stand_in: TransE = SimpleNamespace(entities_=directions(n), n_users_=0, n_items_=n)
    return stand_in


# ── the formula ─────────────────────────────────────────────────────────────────────────


def test_scores_are_the_formula_ties_and_users_without_history_included():
    graph, nobody = timed(), 5
    _, owned = history(graph, np.array([nobody]))
    graph = graph.without_interactions([nobody] * len(owned), owned)
    model, users = random_sequence(graph.n_items), np.array([0, 3, nobody, 17])
    scores = model.score(graph, users)
    twins = [[slow_score(model, graph, u, v) for v in range(graph.n_items)] for u in users]
    np.testing.assert_allclose(scores, twins, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(scores[2], model.biases_)


def test_parts_add_up_and_their_means_are_over_what_the_user_does_not_have():
    graph = timed()
    model, every = random_sequence(graph.n_items), np.arange(graph.n_items)
    parts = model.attribute(graph, USER, every)
    total = parts.appeal + parts.actions.sum(axis=0)
    np.testing.assert_allclose(total, model.score(graph, [USER])[0], rtol=1e-4, atol=1e-5)
    free = np.setdiff1d(every, history(graph, np.array([USER]))[1])
    np.testing.assert_allclose(parts.mean_actions, parts.actions[:, free].mean(axis=1), atol=1e-9)
    assert parts.mean_appeal == pytest.approx(parts.appeal[free].mean(), abs=1e-9)


def test_removing_an_action_costs_exactly_its_part():
    graph = timed()
    model, every = random_sequence(graph.n_items), np.arange(graph.n_items)
    parts, (_, owned) = model.attribute(graph, USER, every), history(graph, np.array([USER]))
    assert len(owned) > 2
    for place, item in enumerate(owned.tolist()):
        left = model.attribute(graph.user_view(USER, [item]), USER, every)
        kept = np.delete(parts.actions, place, axis=0)
        np.testing.assert_allclose(left.actions, kept, rtol=1e-6, atol=1e-9)


# ── learning ────────────────────────────────────────────────────────────────────────────


def test_the_gradient_of_the_softmax_is_that_of_autograd():
    torch.manual_seed(0)
    h, t, b = (torch.randn(*shape, dtype=torch.float64) for shape in ((4, 3), (7, 3), (7,)))
    targets = torch.tensor([[0, 1], [2, 2], [6, 0], [3, 5]])
    weights = torch.tensor([[0.7, 0.3], [0.5, 0.5], [1.0, 0.0], [0.6, 0.4]], dtype=torch.float64)
    values = []
    for fused in (True, False):
        of = [x.clone().requires_grad_() for x in (h, t, b)]
        if fused:
            loss = Softmax.apply(*of, targets, weights)
        else:
            every = torch.log_softmax(of[0] @ of[1].T + of[2], dim=1).gather(1, targets)
            loss = -(every * weights).sum() / len(h)
        (3 * loss).backward()
        values.append([loss.detach(), *(x.grad for x in of)])
    for one, other in zip(*values, strict=True):
        torch.testing.assert_close(one, other)


def test_states_of_prefixes_are_the_recurrence():
    graph = timed()
    training = Training(SequenceConfig(dimension=D), graph, directions(graph.n_items))
    sources, _ = training._tables(training=False)
    items, asked = torch.tensor([[4, 2, 7, 1], [3, 0, 9, -1]]), np.array([1, 2])
    states = training._states(sources, items, asked).detach().numpy()
    decays = torch.sigmoid(training.parameters["decays"]).detach().numpy()
    for row, own in enumerate(items.tolist()):
        for column, end in enumerate(asked.tolist()):
            h, squares = np.zeros(D), np.zeros(D)
            for item in own[: end + 1]:
                h = decays * h + sources[item].detach().numpy()
                squares = decays**2 * squares + 1
            np.testing.assert_allclose(states[row, column], h / np.sqrt(squares), rtol=1e-4)


def test_a_sampled_softmax_counts_drawn_items_for_all_others(monkeypatch):
    monkeypatch.setattr("loger.encoder.sequence_training.FULL", 0)
    monkeypatch.setattr("loger.encoder.sequence_training.SAMPLED", 10)
    graph = timed()
    training = Training(SequenceConfig(dimension=D), graph, directions(graph.n_items))
    chosen, log_weights, places = training._candidates(np.array([[3, 8], [8, 3]]), [0])
    assert len(set(chosen.tolist())) == len(chosen)
    assert chosen[places].tolist() == [[3, 8], [8, 3]]
    assert float(log_weights.exp().sum()) == pytest.approx(graph.n_items, rel=1e-5)


def walkers(*, order: bool = True) -> Dataset:
    """Users who take what comes next around a circle of items, each from somewhere and sometimes
    something else; or the same in any order."""
    rng, rows = np.random.default_rng(0), []
    for user in range(N_USERS):
        first = int(rng.integers(N_ITEMS))
        own = [(first + k) % N_ITEMS if rng.random() < 0.8 else rng.integers(N_ITEMS)
               for k in range(14)]  # fmt: skip
        own = list(dict.fromkeys(map(int, own)))
        times = range(len(own)) if order else rng.permutation(len(own)).tolist()
        rows += [(f"u{user}", f"i{v}", t) for v, t in zip(own, times, strict=True)]
    seen = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    items = [f"i{v}" for v in range(N_ITEMS)]
    facts = pl.DataFrame({"head": items, "tail": [f"k{v % 4}" for v in range(N_ITEMS)]})
    facts = facts.with_columns(relation=pl.lit("has_kind"), tail_type=pl.lit("kind"))
    return assemble("walkers", seen, facts, items=items)


CONFIG = SequenceConfig(dimension=16, epochs=6)


def next_found(dataset: Dataset) -> float:
    """How often the first held-out item is among the three best."""
    parts = split(dataset, "time", test=0.1, validation=0.1)
    model = Sequence(CONFIG).fit(parts.graph, beside(N_ITEMS))
    users, items = parts.pairs("validation")
    scores = model.score(parts.graph, users)
    scores[history(parts.graph, users)] = -np.inf
    best = np.argsort(-scores, axis=1)[:, :3]
    return float((best == items[:, None]).any(axis=1).mean())


def test_it_learns_what_comes_next():
    # In any order, what is near on the circle can still be told.
    assert next_found(walkers()) > next_found(walkers(order=False)) + 0.05


def test_sparse_data_get_half_of_the_epochs(monkeypatch):
    graph, epochs = split(walkers(), "time").graph, []
    for sparse in (0, 10_000):  # the fewest prefixes per item that aren't sparse
        monkeypatch.setattr(sequence_training, "SPARSE", sparse)
        epochs.append(Training(CONFIG, graph, directions(N_ITEMS)).epochs)
    assert epochs == [6, 3]


def test_the_same_seed_gives_the_same_bytes_also_if_it_was_interrupted(tmp_path):
    graph = split(walkers(), "time").graph

    def fitted(folder=None, progress=lambda *_: None, seed=0):
        config = replace(CONFIG, seed=seed)
        model = Sequence(config)
        return model.fit(graph, beside(N_ITEMS), checkpoint=folder, progress=progress).state()

    def interrupt(what, done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path, interrupt)
    heard = []
    again = fitted(tmp_path, lambda what, done, total: heard.append(done))
    assert heard[0] > 0  # it took up what there was
    once, other = fitted(), fitted(seed=1)
    assert all(np.array_equal(once[k], again[k]) for k in once)
    assert not np.array_equal(once["sources"], other["sources"])


def test_what_is_new_is_what_its_direction_lets_one_expect():
    before = timed()
    model, n = random_sequence(before.n_items), before.n_items
    moved = Moved.by_name(before, before)
    moved.entities[before.n_users + 2] = -1  # as if it had not been there at the fit
    grown = model.grown(moved, before.n_users, beside(n))
    known = np.arange(n) != 2
    np.testing.assert_array_equal(grown.sources_[known], model.sources_[known])
    sources, targets = np.hsplit(unit(directions(n)) @ model.maps_, 2)
    np.testing.assert_allclose(grown.sources_[2], sources[2], rtol=1e-5)
    np.testing.assert_allclose(grown.targets_[2], targets[2], rtol=1e-5)
    assert grown.biases_[2] == pytest.approx(model.biases_[known].mean(), rel=1e-5)


def test_a_state_that_does_not_fit_is_refused():
    model = random_sequence(10)
    with pytest.raises(LogerError, match="biases is missing or has the wrong shape"):
        Sequence(model.config).load_state(10, {**model.state(), "biases": model.biases_[:5]})


# ── in a model ──────────────────────────────────────────────────────────────────────────

SMALL = LOGERConfig(
    encoder=TransEConfig(dimension=16, epochs=2), sequence=CONFIG, derived=DerivedConfig.none()
)


@pytest.fixture(scope="module")
def model() -> LOGER:
    return LOGER(SMALL).fit(walkers())


def test_a_fit_chooses_it_where_order_tells_what_comes_next(model):
    tried = {value: ndcg for name, value, ndcg in model.tried_ if name == "encoder"}
    chosen = max(tried, key=lambda value: tried[value])
    assert chosen.startswith("sequence") and "histories" in tried
    assert tried[chosen] > tried["histories"] + 0.03
    assert model.ranker_.sequence is not None and model.ranker_.fusion.sequence > 0


def test_without_times_or_without_use_there_is_none():
    dataset = walkers()
    untimed = replace(dataset, interactions=replace(dataset.interactions, times=None))
    off = replace(SMALL, sequence=SequenceConfig(epochs=0))
    one, other = LOGER(SMALL).fit(untimed), LOGER(off).fit(untimed)
    assert one.ranker_.sequence is None and one.ranker_.fusion.sequence == 0
    users = np.arange(20)
    np.testing.assert_array_equal(one.ranker_.score(users), other.ranker_.score(users))
    shuffled = LOGER(SMALL).fit(walkers(order=False))
    assert shuffled.ranker_.sequence is None


def test_parts_of_the_score_add_up_and_say_what_people_went_on_to(model):
    explained = [model.explain("u3", item) for item in model.recommend("u3", 5)["item"]]
    for e in explained:
        assert e.mean + e.appeal + e.attribution.actions.sum() == pytest.approx(e.score, abs=1e-9)
        assert np.abs(e.attribution.sequence).max() > 0
    reason = explained[0].shown[0]
    rest = sum(x.contribution for x in reason.evidence) + reason.encoder - reason.mean
    assert reason.total == pytest.approx(rest + reason.sequence, abs=1e-9)
    alone = replace(reason, evidence=(), encoder=0.0, mean=0.0, total=1.0, sequence=1.0)
    assert alone.text("sentence").endswith(", people went on to things like this")
    assert alone.text("tile").startswith("Often next after")
    assert "people who had it went on to things like this" in alone.text("debug")


def test_a_what_if_answers_as_the_parts_say(model):
    ranker, user = model.ranker_, 3
    (_, owned), every = history(ranker.graph, np.array([user])), np.arange(N_ITEMS)
    parts = ranker.encoder_parts(user, every)[1]
    assert parts is not None
    view = ranker.user_view(user, remove=[int(owned[0])])
    left = view.encoder_parts(user, every)[1]
    assert left is not None
    np.testing.assert_allclose(left.actions, parts.actions[1:], rtol=1e-6, atol=1e-9)


def test_a_bundle_keeps_it_and_what_was_chosen(model, tmp_path):
    model.save(tmp_path / "bundle")
    again, users = LOGER.load(tmp_path / "bundle"), np.arange(30)
    story = fit_summary(again, tmp_path / "bundle")["story"]
    assert "; encoder: sequence" in story and "(NDCG@10 on validation: histories 0." in story
    np.testing.assert_array_equal(again.ranker_.score(users), model.ranker_.score(users))


def test_updates_take_new_interactions_and_new_items(model):
    events = pl.DataFrame({"user": ["u3", "u4"], "item": ["i7", "new"], "time": [10**6, 10**6]})
    facts = pl.DataFrame(
        {"head": ["new"], "relation": ["has_kind"], "tail": ["k1"], "tail_type": ["kind"]}
    )
    after = model.update(interactions=events, facts=facts)
    graph, sequence = after.ranker_.graph, after.ranker_.sequence
    assert sequence is not None and len(sequence.biases_) == N_ITEMS + 1
    user = graph.vocabulary.id("user", "u3")
    (_, owned) = history(graph, np.array([user]))
    new = graph.vocabulary.id("item", "i7") - graph.n_users
    assert new in owned
    known = sequence.sources_[:N_ITEMS]
    np.testing.assert_array_equal(known, model.ranker_.sequence.sources_)
    slow = [slow_score(sequence, graph, user, v) for v in range(graph.n_items)]
    np.testing.assert_allclose(sequence.score(graph, [user])[0], slow, rtol=1e-3, atol=1e-3)


def test_a_warm_fit_goes_on_from_it(model):
    warm = LOGER(SMALL).fit(walkers(), warm_from=model)
    assert warm.ranker_.sequence is not None
    apart = warm.ranker_.sequence.sources_ - model.ranker_.sequence.sources_
    assert 0 < np.abs(apart).mean() < np.abs(model.ranker_.sequence.sources_).mean()


def test_what_was_stored_before_there_was_one_still_loads(model):
    fitted = FittedLogic(model.ranker_.logic, model.ranker_.fusion)
    values, arrays = logic_parts(fitted)
    about = model.graph_, model.encoder_, model.config_.em
    assert logic_of(*about, values, arrays).fusion == fitted.fusion
    del values["sequence"]
    assert logic_of(*about, values, arrays).fusion.sequence == 0
    with pytest.raises(LogerError, match="share"):
        logic_of(*about, {**values, "sequence": 1.5}, arrays)
