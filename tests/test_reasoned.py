"""The path reasoner in the product: fitted with the preset `paper`, saved, queried, honest."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from graphs import EXHAUSTIVE
from loger.cli import app
from loger.encoder import TransEConfig
from loger.errors import LogerError, UnknownNameError
from loger.evaluation.assess import assess
from loger.explain.record import ReasonedRecord, json_schema
from loger.grounding import ground
from loger.metrics.faithfulness import is_valid
from loger.model import LOGER, LOGERConfig
from loger.reasoner.search import SearchConfig
from loger.rules.wording import ENGLISH
from loger.web.app import create_app
from loger.web.config import ServeConfig


@pytest.fixture(scope="module")
def parts(few):
    return few


@pytest.fixture(scope="module")
def bundle(paper_bundle):
    return paper_bundle


@pytest.fixture(scope="module")
def model(paper_model):
    return paper_model


@pytest.fixture(scope="module")
def tops(model):
    return model.reasoner_.tops(model.ranker_, np.arange(40), 10, 3)


# ── what is found ───────────────────────────────────────────────────────────────────────


def test_every_path_is_a_fact_along_a_rule_that_matters_to_the_user(model, tops):
    graph, seen = model.ranker_.logic_graph, 0
    for one in (one for row in tops for one in row):
        allowed = {followed.rule.relations for followed in one.followed}
        for walked in one.paths:
            seen += 1
            entities, relations = walked.part.path.entities, walked.part.path.relations
            assert is_valid(walked.part.path, graph, one.user, one.item)
            assert relations in allowed
            assert len(relations) == 3
            assert all(
                graph.has(h, r, t)
                for h, r, t in zip(entities, relations, entities[1:], strict=False)
            )
    assert seen > 20


def test_the_rules_followed_are_the_best_by_personal_importance(model, tops):
    for row in tops:
        y = model.importance(model.users[row[0].user])
        positive = y.filter(y["importance"] > 0)["rule"].to_list()[:10]
        rules = [str(one.rule) for one in row[0].followed]
        assert rules == (positive or [str(rule) for rule in model.rules_])


def test_y_steers_what_is_found(model):
    fewer = replace(model.reasoner_, search=replace(model.reasoner_.search, best_rules=1))
    users = np.arange(40)
    found = [one for row in fewer.tops(model.ranker_, users, 10, 9) for one in row]
    for one in found:
        assert all(walked.part.rule == one.followed[0].rule for walked in one.paths)
    every = [one for row in model.reasoner_.tops(model.ranker_, users, 10, 9) for one in row]
    assert sum(len(one.paths) for one in every) > sum(len(one.paths) for one in found)


def test_a_miss_is_reported_and_nothing_put_in_its_place(model, tops):
    every = [one for row in tops for one in row]
    rules = model.rules_
    for one in every:
        found = ground(model.ranker_.logic_graph, rules, [one.user], [one.item])
        assert one.n == int(found.counts.sum())
        assert one.missed == (one.n > 0 and not one.paths)
        if one.missed:
            key = "reasoner_missed_one" if one.n == 1 else "reasoner_missed_many"
            assert one.because() == ENGLISH.text(key, n=ENGLISH.number(one.n))
        elif not one.n:
            assert one.because() == ENGLISH.text("reasoner_no_rule")
    assert any(one.missed for one in every)  # Algorithm 1 does miss
    lists = model.explained(np.arange(40), 10, 3)
    assert [[e.paths for e in row] for row in lists] == [
        [tuple(w.part.path for w in one.paths) for one in row] for row in tops
    ]


def test_contributions_of_all_paths_of_an_item_add_up_to_its_logit(model):
    whole = replace(model.reasoner_, search=EXHAUSTIVE)
    user = 3
    items, _ = model.top([user], 10)
    for one in whole.reasoned(model.ranker_, user, items[0], 10_000):
        told = model.explain(model.users[user], model.items[one.item])
        given = sum(walked.part.contribution for walked in one.paths)
        assert given == pytest.approx(told.logit - told.prior - told.popularity, abs=1e-9)
        assert len(one.paths) == one.n
        assert (one.score, one.rank) == (pytest.approx(told.score, abs=1e-6), told.rank)


def test_strengths_are_shared_as_explanations_share_them(parts):
    config = LOGERConfig(
        encoder=TransEConfig(dimension=12, epochs=2), explain_by="reasoner",
        search=SearchConfig(branch=None, width=None, best_rules=None),
    )  # fmt: skip
    model = LOGER(config).fit(parts)
    user = 5
    items, _ = model.top([user], 5)
    for one in model.reasoner_.reasoned(model.ranker_, user, items[0], 10_000):
        told = model.explain(model.users[user], model.items[one.item], 3)
        worth = {w.part.path: w.part.contribution for w in one.paths}
        assert all(worth[p.path] == pytest.approx(p.contribution, abs=1e-9) for p in told.paths)
        assert not one.missed


# ── asking ──────────────────────────────────────────────────────────────────────────────


def test_a_saved_model_explains_the_same(model, bundle):
    again = LOGER.load(bundle)
    user = model.users[1]
    for item in model.recommend(user, 5)["item"]:
        one, two = (m.explain(user, item, by="reasoner") for m in (model, again))
        assert one.as_dict() == two.as_dict()
        assert set(json_schema(ReasonedRecord)["required"]) == set(one.as_dict())
        assert one.because().split()[0] in str(one)
        assert "reasoner" in one._repr_html_()
        assert repr(one).startswith("<Reasoned of ")


def test_a_model_without_a_reasoner_says_how_to_get_one(default_model):
    plain = default_model
    user, item = plain.users[0], plain.items[0]
    with pytest.raises(LogerError, match="no path reasoner; explain by contributions, or fit with"):
        plain.explain(user, item, by="reasoner")
    with pytest.raises(UnknownNameError, match="explanation method"):
        plain.explain(user, item, by="reasons")


def test_where_no_rule_has_a_positive_weight_there_is_no_reasoner_and_no_path(model):
    fit = model._fit(None, lambda *_: None)
    against = model.ranker_.with_weights(-np.ones(len(model.rules_)))
    assert fit._reasoner(against) is None
    silent = model.with_ranker(against)
    silent.reasoner_ = None
    assert not any(one.paths for row in silent.explained([0, 1], 5) for one in row)


def test_users_that_it_was_not_trained_with_are_refused(model):
    more = model.with_users(["newcomer"])
    with pytest.raises(LogerError, match=r"trained with 120 users, but this model has 121"):
        more.explain("newcomer", model.items[0], by="reasoner")


def test_the_command_and_the_server_say_what_the_model_says(model, bundle):
    user = model.users[1]
    item = model.recommend(user, 1)["item"][0]
    told = model.explain(user, item, by="reasoner").as_dict()
    run = CliRunner()
    asked = run.invoke(app, ["explain", str(bundle), user, item, "--json"])
    assert json.loads(asked.stdout) == told | {"owned": False}  # the bundle's own way
    by = run.invoke(app, ["explain", str(bundle), user, item, "--by", "contributions", "--json"])
    assert "reasons" in json.loads(by.stdout)
    drawn = run.invoke(app, ["explain", str(bundle), user, item])
    assert "by the reasoner" in drawn.stdout
    with TestClient(create_app(ServeConfig(str(bundle))), base_url="http://localhost") as client:
        query = {"user": user, "item": item}
        assert client.get("/v1/explain/reasoner", params=query).json() == told
        assert client.get("/v1/about").json()["explain_by"] == "reasoner"


def test_a_server_without_a_reasoner_says_so(default_model, default_bundle):
    plain, config = default_model, ServeConfig(str(default_bundle))
    with TestClient(create_app(config), base_url="http://localhost") as client:
        query = {"user": plain.users[0], "item": plain.items[0]}
        answer = client.get("/v1/explain/reasoner", params=query)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_reasoner")


def test_the_report_counts_what_was_missed(model, parts, tmp_path):
    assessment = assess(model, parts, ())
    assessment.write(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    users = np.asarray(assessment.report.users[:4])
    every = [one for row in model.reasoner_.tops(model.ranker_, users, 10, 1) for one in row]
    assert f"of those the reasoner missed {sum(one.missed for one in every)}." in text


# ── fitting ─────────────────────────────────────────────────────────────────────────────

CHILD = """
import sys
from small_paper import small_paper, small_split
from loger.model import LOGER

def told(what, done, total):
    print(what, done, total, flush=True)

model = LOGER(small_paper(epochs=16)).fit(small_split(), checkpoint=sys.argv[1], progress=told)
model.save(sys.argv[2])
"""


def run_until(folder: Path, out: Path, steps: int | None) -> int:
    """Run a fit, killed after so many steps of the reasoner; the steps that it made, or -1 when
    it came to its end."""
    command = [sys.executable, "-c", CHILD, str(folder), str(out)]
    made = 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            made += line.startswith("training the reasoner")
            if made == steps:
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.read()
    assert process.returncode in (0, -signal.SIGKILL)
    return made if process.returncode else -1


@pytest.mark.long
def test_a_fit_killed_at_five_random_moments_ends_with_the_same_bytes(tmp_path):
    assert run_until(tmp_path / "whole", tmp_path / "one.bundle", None) == -1
    rng, kills = random.Random(0), 0
    while kills < 5:
        if run_until(tmp_path / "cut", tmp_path / "two.bundle", rng.randrange(1, 40)) > 0:
            kills += 1
        else:  # it ended before the kill: start again, so that there are five kills
            shutil.rmtree(tmp_path / "cut")
    assert run_until(tmp_path / "cut", tmp_path / "two.bundle", None) == -1
    one, two = (tmp_path / name / "reasoner.safetensors" for name in ("one.bundle", "two.bundle"))
    assert one.read_bytes() == two.read_bytes()
