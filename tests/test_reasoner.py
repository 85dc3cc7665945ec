"""The reasoner: the paper's cell, paths that are groundings, fits that repeat exactly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphs import graphs, hub_graph
from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransE, TransEConfig
from loger.encoder.folding import vectors
from loger.engine.settings import from_names
from loger.errors import LogerError
from loger.grounding import paths
from loger.logic.mining import mine
from loger.reasoner import walker
from loger.reasoner.search import PAPER, ReasonerConfig
from loger.reasoner.walker import Reasoner, training_paths
from loger.rules import candidates

SMALL = {"epochs": 2}


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    """Several batches an epoch, though paths are few."""
    with mock.patch.object(walker, "BATCH", 64):
        yield


@pytest.fixture(scope="module")
def small_shop():
    graph = split(shop(users=60, items=80).dataset).graph
    rng = np.random.default_rng(5)
    entities = rng.standard_normal((graph.n_entities, 12), dtype=np.float32)
    relations = rng.standard_normal((len(graph.relations), 12), dtype=np.float32)
    rules = candidates(graph)
    return graph, rules, entities, np.concatenate([relations, -relations])


def fitted(small_shop, **settings):
    graph, rules, *tables = small_shop
    config = ReasonerConfig(**{**SMALL, **settings})
    return Reasoner(config).fit(graph, rules, np.linspace(-1, 2, len(rules)), *tables)


# ── the paths it learns from ────────────────────────────────────────────────────────────


@given(graphs(), st.randoms(use_true_random=False))
def test_training_paths_are_groundings_of_positive_rules_for_observed_pairs(graph, random):
    every = candidates(graph)
    if not len(every) or not graph.n_triples:
        return
    rules = every.chosen(random.sample(range(len(every)), min(8, len(every))))
    weights = np.array([random.gauss(0, 1) for _ in rules])
    weights[0] = 1.0
    drawn = training_paths(graph, rules, weights, per_pair=2, per_user=6)
    for row, rule in enumerate(drawn.rules.tolist()):
        nodes = drawn.entities[row, : len(rules[rule]) + 1]
        user, item = int(nodes[0]), int(nodes[-1]) - graph.n_users
        assert weights[rule] > 0
        assert graph.has(user, 0, int(nodes[-1]))
        assert nodes.tolist() in paths(graph, rules[rule], user, item).tolist()
        assert tuple(drawn.relations[row, : drawn.lengths[row]].tolist()) == rules[rule].relations
    assert max(Counter(drawn.entities[:, 0].tolist()).values(), default=0) <= 6


def test_rules_are_drawn_by_weight_and_their_groundings_evenly():
    graph = hub_graph(3, 0.3, with_origins=True)
    rules = candidates(graph).chosen([0, 9, 30])
    user, item = next(
        (u, v)
        for u in range(40)
        for v in range(12)
        if graph.has(u, 0, v + 40)
        and sum(len(paths(graph, rule, u, v)) > 0 for rule in rules) >= 2
        and max(len(paths(graph, rule, u, v)) for rule in rules) < 12
    )
    weights = np.array([1.0, 2.0, 3.0])
    drawn = training_paths(graph, rules, weights, per_pair=4000, per_user=10**6)
    ours = (drawn.entities[:, 0] == user) & (
        drawn.entities[np.arange(len(drawn)), drawn.lengths] == item + 40
    )
    counts = [len(paths(graph, rule, user, item)) for rule in rules]
    fires = weights * (np.array(counts) > 0)
    found = Counter(map(tuple, drawn.entities[ours].tolist()))
    of_rule = Counter(drawn.rules[ours].tolist())
    assert sum(of_rule.values()) == 4000
    for k, rule in enumerate(rules):
        share = fires[k] / fires.sum()
        assert of_rule[k] == pytest.approx(4000 * share, abs=4 * (4000 * share) ** 0.5)
        for nodes in paths(graph, rule, user, item).tolist():
            expected = 4000 * share / counts[k]
            times = found[(*nodes, *[-1] * (4 - len(nodes)))]
            assert times == pytest.approx(expected, abs=4.5 * expected**0.5)


def test_without_a_rule_of_positive_weight_there_is_nothing_to_learn():
    graph = hub_graph(3, 0.3, with_origins=False)
    with pytest.raises(LogerError, match="rule of positive weight"):
        training_paths(graph, candidates(graph).chosen([0, 1]), [0.0, -1.0])


# ── the cell ────────────────────────────────────────────────────────────────────────────


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_walk(reasoner, entities, relations):
    """Scores of each hop of a walk, by the equations of the paper's appendix, in NumPy."""
    config, graph = reasoner.config, reasoner.graph_
    p = {k: v.astype(np.float64) for k, v in reasoner.state().items()}
    table, ways = reasoner._entities.double().numpy(), reasoner._relations.double().numpy()
    seen = [table[entities[0]]] if config.cell == "softmax" else []
    c, scores = np.zeros(table.shape[1]), []

    def layer(name, *parts):
        return p[f"{name}.weight"] @ np.concatenate([*parts, *seen]) + p[f"{name}.bias"]

    for here, r, there in zip(entities, relations, entities[1:], strict=False):
        x = table[here]
        a = layer("attend", x)
        if config.cell == "sigmoid":
            a = sigmoid(a)
        else:
            out = [k for k in range(len(ways)) if len(graph.neighbours(here, k))]
            a = np.array([np.exp(a[k]) if k in out else 0.0 for k in range(len(ways))])
            a /= a.sum()
        r_hat = a @ ways
        z = x + r_hat
        i = sigmoid(layer("take_in", x, c))
        c = (1 - i) * c + i * np.tanh(layer("context", z, x))
        e_hat = sigmoid(layer("give_out", z, x, c)) * np.tanh(c)
        goal, way = table[there], ways[r]
        if config.cell == "softmax":
            e_hat = p["to_entity.weight"] @ e_hat + p["to_entity.bias"]
            r_hat = p["to_relation.weight"] @ r_hat + p["to_relation.bias"]
            e_hat, r_hat, goal, way = (v / np.linalg.norm(v) for v in (e_hat, r_hat, goal, way))
        scores.append(e_hat @ goal + r_hat @ way)
    return scores


@pytest.mark.parametrize("config", [ReasonerConfig(**SMALL), PAPER], ids=["default", "paper"])
def test_scores_of_a_walk_are_those_of_the_papers_equations(small_shop, config):
    graph, rules, *tables = small_shop
    weights = np.ones(len(rules))
    one = replace(config, **SMALL)
    reasoner = Reasoner(one).fit(graph, rules, weights, *tables)
    drawn = training_paths(graph, rules, weights, one.seed)
    for row in range(0, len(drawn), max(1, len(drawn) // 12)):
        n = drawn.lengths[row]
        nodes, hops = drawn.entities[row, : n + 1], drawn.relations[row, :n]
        state, found, zero = reasoner.begin(int(nodes[0])), [], np.zeros(1, dtype=np.int64)
        for r, t in zip(hops[:, None], nodes[1:, None], strict=True):
            found.append(float(reasoner.step_scores(state, zero, r, t)[0]))
            state = reasoner.advance(state, zero, r, t)
        assert found == pytest.approx(slow_walk(reasoner, nodes, hops), abs=1e-4)


def test_the_loss_is_the_mean_shortfall_of_the_true_hop(small_shop, monkeypatch):
    reasoner = fitted(small_shop)
    graph, rules, *_ = small_shop
    drawn = training_paths(graph, rules, np.ones(len(rules)), reasoner.config.seed)
    rows = np.arange(0, len(drawn), 29)
    # Fixed rivals instead of drawn ones, the true entity among them now and then.
    monkeypatch.setattr(Reasoner, "_neighbours", lambda self, e, rng: np.stack([e, e * 0 + 7], 1))
    monkeypatch.setattr(Reasoner, "_strangers", lambda self, e, rng: np.stack([e, e * 0 + 9], 1))
    total, hops = 0.0, 0
    for row in rows:
        n = drawn.lengths[row]
        nodes, way = drawn.entities[row, : n + 1].tolist(), drawn.relations[row, :n].tolist()
        for hop in range(n):

            def score(r, t, nodes=nodes, way=way, hop=hop):
                return slow_walk(reasoner, [*nodes[: hop + 1], t], [*way[:hop], r])[-1]

            true = score(way[hop], nodes[hop + 1])
            rivals = [t for t in (nodes[hop], 7, 9) if t != nodes[hop + 1]]
            short = [max(0, 0.2 - true + score(way[hop], t)) for t in rivals]
            total += sum(short) / max(len(short), 1)
            others = {r for r in range(2 * len(graph.relations)) if r != way[hop]}
            others = [r for r in others if len(graph.neighbours(nodes[hop], r))]
            short = [max(0, 0.2 - true + score(r, nodes[hop + 1])) for r in others]
            total += sum(short) / max(len(short), 1)
            hops += 1
    found = reasoner._loss(drawn, rows, np.random.default_rng(0))
    assert found.item() == pytest.approx(total / hops, rel=1e-4)


# ── fitting ─────────────────────────────────────────────────────────────────────────────


def as_bytes(reasoner):
    return {k: v.tobytes() for k, v in reasoner.state().items()}


def test_one_seed_gives_the_same_bytes_and_another_does_not(small_shop):
    one, two, other = fitted(small_shop), fitted(small_shop), fitted(small_shop, seed=1)
    assert as_bytes(one) == as_bytes(two)
    assert as_bytes(one) != as_bytes(other)


def test_a_fit_that_was_cut_off_goes_on_and_ends_with_the_same_bytes(small_shop, tmp_path):
    graph, rules, *tables = small_shop
    config, weights = ReasonerConfig(**{**SMALL, "epochs": 4}), np.ones(len(rules))
    whole = Reasoner(config).fit(graph, rules, weights, *tables)
    steps = []

    def cut_off(what, done, total):
        steps.append(done)
        if total > 1 and done > 0.6 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Reasoner(config).fit(graph, rules, weights, *tables, checkpoint=tmp_path, progress=cut_off)
    steps.clear()
    again = Reasoner(config).fit(
        graph, rules, weights, *tables, checkpoint=tmp_path, progress=lambda *x: steps.append(x[1])
    )
    assert steps[0] > 0  # it did not start again
    assert as_bytes(again) == as_bytes(whole)
    other = Reasoner(config).fit(graph, rules, 2 * weights + 1, *tables, checkpoint=tmp_path)
    fresh = Reasoner(config).fit(graph, rules, 2 * weights + 1, *tables)
    assert as_bytes(other) == as_bytes(fresh)


def test_a_state_taken_over_scores_the_same_and_one_that_does_not_fit_is_refused(small_shop):
    graph, rules, entities, relations = small_shop
    reasoner = fitted(small_shop)
    other = Reasoner(reasoner.config).load_state(graph, entities, relations, reasoner.state())
    zero, way, to = np.zeros(3, dtype=np.int64), np.arange(3), np.arange(3) + 60
    one, two = (r.step_scores(r.begin(4), zero, way, to) for r in (reasoner, other))
    assert one.tobytes() == two.tobytes()
    with pytest.raises(LogerError, match="the state doesn't match a reasoner"):
        Reasoner(PAPER).load_state(graph, entities, relations, reasoner.state())
    with pytest.raises(LogerError, match="vectors of"):
        Reasoner().fit(graph, rules, np.ones(len(rules)), entities[:-1], relations)


def true_hop_wins(reasoner, drawn, rng) -> float:
    """How often the true hop scores above one other way on from the same node."""
    graph, wins = reasoner.graph_, []
    for row in range(len(drawn)):
        state, zero = reasoner.begin(int(drawn.entities[row, 0])), np.zeros(2, dtype=np.int64)
        for hop in range(drawn.lengths[row]):
            here, there = drawn.entities[row, hop : hop + 2]
            edges = [(r, t) for r in range(2 * len(graph.relations))
                     for t in graph.neighbours(int(here), r).tolist()]  # fmt: skip
            true = int(drawn.relations[row, hop]), int(there)
            rival = edges[rng.integers(len(edges))]
            ways = np.array([true, rival])
            scores = reasoner.step_scores(state, zero, ways[:, 0], ways[:, 1])
            wins += [scores[0] > scores[1]] if rival != true else []
            state = reasoner.advance(state, zero[:1], ways[:1, 0], ways[:1, 1])
    return float(np.mean(wins))


def test_it_learns_to_prefer_the_hops_of_heavy_rules():
    graph = split(shop(users=120, items=120).dataset).graph
    rules = mine(graph).rules
    encoder = TransE(TransEConfig(dimension=24, epochs=4)).fit(graph)
    weights = np.where(np.arange(len(rules)) < 2, 1.0, 0.0)
    config = ReasonerConfig(epochs=5)
    tables = vectors(encoder, graph)
    unseen = training_paths(graph, rules, weights, seed=9, per_user=2)
    before = Reasoner(ReasonerConfig(epochs=0)).fit(graph, rules, weights, *tables)
    after = Reasoner(config).fit(graph, rules, weights, *tables)
    rng = np.random.default_rng
    assert true_hop_wins(before, unseen, rng(0)) < 0.65
    assert true_hop_wins(after, unseen, rng(0)) > 0.75
    assert after.losses_[-1] < 0.7 * after.losses_[0]


# ── vectors of encoders ─────────────────────────────────────────────────────────────────


def test_vectors_of_transe_give_its_scores_again(small_shop):
    graph = small_shop[0]
    encoder = TransE(TransEConfig(dimension=8, epochs=1)).fit(graph)
    entities, relations = vectors(encoder, graph)
    unit = torch.nn.functional.normalize
    x = unit(torch.from_numpy(entities[: graph.n_users] + relations[0]))
    items = slice(graph.n_users, graph.n_users + graph.n_items)
    y, bias = unit(torch.from_numpy(entities[items])), encoder.state()["biases.table"][items, 0]
    scores = encoder.config.gamma * (x @ y.T).numpy() + bias
    assert scores == pytest.approx(encoder.score_items(np.arange(graph.n_users)), abs=1e-4)
    assert (relations[len(graph.relations) :] == -relations[: len(graph.relations)]).all()


def test_vectors_of_other_encoders_fit_the_graph_or_are_refused(small_shop):
    from loger.encoder.kge import KGE
    from loger.encoder.network import GNN

    graph = small_shop[0]
    rotating = KGE("RotatE", dimension=4, epochs=1).fit(graph)
    for encoder in (rotating, GNN(dimension=8, epochs=1, draws=(2, 2)).fit(graph)):
        entities, relations = vectors(encoder, graph)
        assert entities.shape == (graph.n_entities, 8)
        assert relations.shape == (2 * len(graph.relations), 8)
        assert np.isfinite(entities).all()

    with pytest.raises(LogerError, match="the path reasoner can't use"):
        vectors(object(), graph)


def test_a_cell_of_an_older_bundle_is_read_by_its_attention() -> None:
    stored = {"attention": "sigmoid", "sees_user": False, "likeness": "dot", "rate": 3e-3}
    assert from_names(ReasonerConfig, stored) == PAPER
