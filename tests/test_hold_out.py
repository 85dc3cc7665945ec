"""A model for use learns from everything; a model with a test part is for measuring, and says so.

What a user has is never recommended. Held-out test items are, because the model must not know that
the user has them.
"""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from loger.cli import app
from loger.config import LOGERConfig
from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.engine.files import read_manifest
from loger.errors import LogerError
from loger.evaluation.evaluate import FitRecord, evaluate
from loger.explain.lists import ListRequest, recommendations
from loger.learning.derived import derive
from loger.logic.config import EMConfig
from loger.metrics import ranking
from loger.model import LOGER
from loger.store.bundle import MODEL

SMALL = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=2), em=EMConfig(teacher=0))
SET = ["--set", "encoder.dimension=16", "--set", "encoder.epochs=2", "--set", "em.teacher=0"]
K = 30


def pairs_of(dataset, rows=slice(None)):
    names, n = dataset.vocabulary.names, dataset.n_users
    events = dataset.interactions
    rows = zip(events.users[rows].tolist(), events.items[rows].tolist(), strict=True)
    return {(names[u], names[n + v]) for u, v in rows}


@pytest.fixture(scope="module")
def parts():
    return split(shop(seed=2, users=100, items=80).dataset)


@pytest.fixture(scope="module")
def testing(parts):
    return LOGER(SMALL).fit(parts)


@pytest.fixture(scope="module")
def model(parts):
    return LOGER(SMALL).fit(parts.dataset)


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


# ── for use ─────────────────────────────────────────────────────────────────────────────


def test_a_data_set_is_learned_as_a_whole(model, parts):
    every = parts.whole()
    assert model.graph_.given.fingerprint == every.graph.fingerprint
    whole = derive(every, model.config_.derived)
    assert model.graph_.fingerprint == whole.fingerprint
    assert not len(model.ranker_.held_out)


def test_what_was_chosen_on_the_held_out_part_is_kept(model, testing):
    assert model.config_ == testing.config_ and model.tried_ == testing.tried_
    assert model.weights_.tobytes() == testing.weights_.tobytes()
    assert [str(r) for r in model.rules_] == [str(r) for r in testing.rules_]
    assert model.ranker_.fusion == testing.ranker_.fusion


def test_the_figure_is_that_of_the_model_before_it_learned_the_test_part(model, testing, parts):
    report = evaluate([testing], parts)
    for fitted in (model, testing):
        assert fitted.measured_.ndcg == pytest.approx(report.mean(testing.name, "ndcg"))
        assert fitted.measured_.recall == pytest.approx(report.mean(testing.name, "recall"))
        assert fitted.measured_.users == len(report.users)
        assert fitted.measured_.interactions == len(parts.test)


def test_a_split_may_be_learned_as_a_whole_and_a_data_set_held_out(model, testing, parts):
    whole = LOGER(SMALL).fit(parts, hold_out=False)
    assert whole.recommend(k=K).equals(model.recommend(k=K))
    held = LOGER(SMALL).fit(parts.dataset, hold_out=True)
    assert held.recommend(k=K).equals(testing.recommend(k=K))


def test_no_list_has_anything_that_the_data_say_a_user_has(model, parts):
    owned = pairs_of(parts.dataset)
    for lists in (model.recommend(k=K), model.recommend(model.users[:40], k=K, explain=True)):
        assert lists.height and "held_out" not in lists.columns
        assert not set(lists.select("user", "item").iter_rows()) & owned
    for user in range(0, 100, 10):
        rows, _ = recommendations(model.ranker_, user, ListRequest(10, explain=True, paths=3))
        assert not {(model.users[user], row["item"]) for row in rows} & owned
        assert [row["explanation"]["rank"] for row in rows] == [row["rank"] for row in rows]
        assert {row["explanation"]["held_out"] for row in rows} == {0}


def test_a_warm_fit_learns_everything_and_keeps_the_figure(testing, parts):
    warm = LOGER(SMALL).fit(parts, hold_out=False, warm_from=testing)
    assert warm.graph_.given.fingerprint == parts.whole().graph.fingerprint
    assert warm.measured_ == testing.measured_ and not len(warm.ranker_.held_out)


def test_a_model_for_use_is_not_tested_on_what_it_has_learned(model, parts):
    with pytest.raises(LogerError, match="learned from the test interactions"):
        evaluate([model], parts)


# ── for testing ─────────────────────────────────────────────────────────────────────────


def test_lists_of_a_model_with_a_test_part_have_held_out_items_and_say_which(testing, parts):
    held = pairs_of(parts.dataset, parts.test)
    for lists in (testing.recommend(k=K), testing.recommend(k=K, explain=True)):
        rows = lists.select("user", "item", "held_out").rows()
        assert {(u, v) for u, v, _ in rows} & held
        assert all(out == ((u, v) in held) for u, v, out in rows)
        known = pairs_of(parts.dataset, np.concatenate([parts.train, parts.validation]))
        assert not {(u, v) for u, v, _ in rows} & known


def test_every_reason_of_such_a_model_says_so(testing, parts):
    told = testing.explain(testing.users[0], testing.recommend(testing.users[0], 1)["item"][0])
    n = len(parts.test)
    assert told.as_dict()["held_out"] == n
    said = f"a model for testing: {n} interactions were held out"
    assert said in str(told) and said in told._repr_html_()


def test_why_not_does_not_know_what_was_held_out(testing, model, parts):
    users, items = parts.pairs("test")
    user, item = testing.users[users[0]], testing.items[items[0]]
    assert not testing.why_not(user, item).owned
    assert model.why_not(user, item).owned


def test_measured_lists_are_those_that_are_shown(testing, parts):
    users = np.unique(parts.pairs("test")[0])[:20]
    assert [[x.item for x in row] for row in testing.explained(users, 10)] == [
        [v for v in row if v >= 0] for row in testing.top(users, 10)[0].tolist()
    ]


# ── bundles and commands ────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def places(parts, tmp_path_factory):
    """A data set, a bundle for use and one for testing, by the commands."""
    folder = tmp_path_factory.mktemp("hold-out")
    parts.dataset.save(folder / "data")
    for name, more in (("use", []), ("testing", ["--hold-out"])):
        told = run("fit", folder / "data", "-o", folder / name, *SET, *more, "--json")
        assert told.exit_code == 0, told.output
        assert json.loads(told.stdout)["fitted_for"] == name
    return folder


def test_a_manifest_says_what_a_bundle_is_for_and_how_good_it_was(places, model):
    for name in ("use", "testing"):
        about = read_manifest(places / name, MODEL).about
        assert about["fitted_for"] == name
        assert about["measured"]["ndcg"] == pytest.approx(model.measured_.ndcg)
        assert LOGER.load(places / name).measured_.interactions == model.measured_.interactions


def test_the_exported_lists_of_a_held_out_model_can_be_measured(places, parts):
    out = places / "lists.parquet"
    told = run("recommend", places / "testing", "--all", "--out", out)
    assert told.exit_code == 0 and "a model for testing" in told.output
    lists, measured = pl.read_parquet(out), LOGER.load(places / "testing").measured_
    held = pairs_of(parts.dataset, parts.test)
    gains = []
    for user in dict.fromkeys(u for u, _ in held):
        items = lists.filter(pl.col("user") == user).sort("rank")["item"].to_list()
        hits = np.array([[(user, item) in held for item in items]])
        gains.append(ranking.ndcg(hits, [sum(u == user for u, _ in held)])[0])
    assert np.mean(gains) == pytest.approx(measured.ndcg) and measured.ndcg > 0.05
    assert sum(lists["held_out"]) == sum(pair in held for pair in lists["user", "item"].rows())


def test_the_commands_say_that_a_model_is_for_testing(places, testing):
    user = testing.users[3]
    for command in (("recommend", user), ("recommend", user, "--explain")):
        name, *rest = command
        assert "a model for testing" in run(name, places / "testing", *rest).output
        assert "a model for testing" not in run(name, places / "use", *rest).output
    item = testing.recommend(user, 1)["item"][0]
    assert "a model for testing" in run("explain", places / "testing", user, item).output
    (one,) = json.loads(run("recommend", places / "testing", user, "--json").stdout)
    assert one["held_out"]


def test_only_a_model_with_a_test_part_is_evaluated(places, parts):
    told = run("evaluate", places / "testing", places / "data", "--methods", "none", "--json")
    assert told.exit_code == 0, told.output
    with pytest.raises(LogerError, match=r"learned from all interactions.*NDCG@10.*--hold-out"):
        use = LOGER.load(places / "use")
        FitRecord.read(places / "use").split_of(parts.dataset, use, "use")
    refused = run("evaluate", places / "use", places / "data", "--methods", "none")
    assert refused.exit_code == 2 and "--hold-out" in refused.output


def test_the_server_says_what_its_model_is_for(places):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from loger.web.app import create_app
    from loger.web.config import ServeConfig

    for name in ("use", "testing"):
        config = ServeConfig(str(places / name), events=False)
        with TestClient(create_app(config), base_url="http://localhost") as client:
            about = client.get("/v1/about").json()
            assert about["fitted_for"] == name and (about["held_out"] > 0) == (name == "testing")
            assert about["measured"]["ndcg"] > 0
            user = client.get("/v1/users").json()["results"][0]["name"]
            told = client.get("/v1/recommendations", params={"user": user}).json()
            assert told["held_out"] == about["held_out"]
            assert {row["explanation"]["held_out"] for row in told["items"]} == {about["held_out"]}
            page = client.get("/").text
            assert 'id="testing"' in page
