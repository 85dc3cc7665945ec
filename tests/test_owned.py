"""What a user is known to have is never recommended, whatever it was held out for."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from loger.cli import app
from loger.config import LOGERConfig
from loger.data import load
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.evaluation.evaluate import evaluate
from loger.explain.lists import ListRequest, recommendations
from loger.graph import Pairs, pair_keys
from loger.logic.mln import Logic
from loger.model import LOGER
from loger.ranking.ranker import Fusion, Ranker
from loger.rules import candidates
from small import Table

SMALL = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=2))
K = 30


def owned_pairs(dataset):
    names, n = dataset.vocabulary.names, dataset.n_users
    events = dataset.interactions
    rows = zip(events.users.tolist(), events.items.tolist(), strict=True)
    return {(names[u], names[n + v]) for u, v in rows}


@pytest.fixture(scope="module")
def parts(few):
    return few


@pytest.fixture(scope="module")
def model(default_model):
    return default_model


def test_no_list_has_anything_that_the_data_say_a_user_has(model, parts):
    owned = owned_pairs(parts.dataset)
    for lists in (model.recommend(k=K), model.recommend(model.users[:40], k=K, explain=True)):
        assert lists.height
        assert not set(lists.select("user", "item").iter_rows()) & owned
    # The held-out part matters: without it, lists would offer what users have.
    blind = model.without_held_out().recommend(k=K)
    assert set(blind.select("user", "item").iter_rows()) & owned


def test_lists_for_machines_leave_it_out_too_and_their_ranks_count_from_one(model, parts):
    owned = owned_pairs(parts.dataset)
    for user in range(0, 120, 15):
        rows, _ = recommendations(model.ranker_, user, ListRequest(10, explain=True, paths=3))
        assert not {(model.users[user], row["item"]) for row in rows} & owned
        assert [row["explanation"]["rank"] for row in rows] == [row["rank"] for row in rows]


def test_owned_names_history_and_held_out(model, parts):
    for user in model.users[:20]:
        assert {(user, item) for item in model.owned(user)} == {
            pair for pair in owned_pairs(parts.dataset) if pair[0] == user
        }
        assert set(model.history(user)["item"]) < set(model.owned(user))


def test_what_keeps_a_held_out_item_out_is_that_the_user_has_it(model, parts):
    users, items = parts.pairs("test")
    user, item = model.users[users[0]], model.items[items[0]]
    assert model.why_not(user, item).owned
    assert not model.without_held_out().why_not(user, item).owned
    changed = model.what_if(user, remove=model.history(user)["item"][0], k=K).as_dict()
    assert item not in changed["after"]


def test_evaluation_does_not_know_what_was_held_out(model, parts):
    blind = model.without_held_out()
    blind.name = "blind"
    report = evaluate([model, blind], parts)
    for metric in ("ndcg", "recall"):
        assert report.mean(model.name, metric) == report.mean("blind", metric) > 0
    users = np.unique(parts.pairs("test")[0])[:20]
    assert [[x.item for x in row] for row in model.explained(users, 10)] == [
        [v for v in row if v >= 0] for row in blind.top(users, 10)[0].tolist()
    ]


def test_a_bundle_keeps_what_was_held_out(model, parts, tmp_path):
    model.save(tmp_path / "bundle")
    again = LOGER.load(tmp_path / "bundle")
    assert again.recommend(k=K).equals(model.recommend(k=K))
    told = CliRunner().invoke(
        app, ["recommend", str(tmp_path / "bundle"), "--user", model.users[3], "--json"]
    )
    (one,) = json.loads(told.stdout)
    owned = owned_pairs(parts.dataset)
    assert one["held_out"]
    assert not {(model.users[3], row["item"]) for row in one["items"]} & owned


@pytest.mark.long
@pytest.mark.parametrize("name", ["amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m"])
def test_no_list_of_a_real_data_set_has_owned_items(name, real_data):
    parts = split(load(real_data / name))
    graph = parts.refit().graph
    crowd = candidates(graph, max_hops=3)
    place = crowd.index(tuple(graph.relation_name(r) for r in (0, graph.inverse(0), 0)))
    logic = Logic(crowd.chosen([place]), np.ones(1), "count", popularity=0.5)
    table = Table(np.zeros((graph.n_users, graph.n_items)))
    ranker = Ranker.of(graph, table, logic, Fusion("logic"))
    ranker = replace(ranker, held_out=Pairs.sorted(*parts.pairs("test")))
    users = np.random.default_rng(0).choice(graph.n_users, 300, replace=False)
    lists, _ = ranker.top(users, 10)
    events = parts.dataset.interactions
    owned = set(pair_keys(events.users, events.items, graph.n_items).tolist())
    offered = pair_keys(np.repeat(users, 10), lists.ravel(), graph.n_items)
    assert not set(offered.tolist()) & owned
    blind = ranker.without_held_out().top(users, 10)[0]
    assert set(pair_keys(np.repeat(users, 10), blind.ravel(), graph.n_items).tolist()) & owned
