"""From files to a model to answers: fit, recommend, explain, why-not, what-if, rules, evaluate."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from click.testing import CliRunner, Result

from loger.cli import app, evaluate
from loger.cli.evaluate import method_settings
from loger.cli.fit import draw
from loger.data.demo import shop
from loger.engine import engine_named
from loger.engine.files import claim
from loger.errors import BUSY_EXIT, LogerError
from loger.evaluation.assess import Assessment
from loger.evaluation.evaluate import FitRecord
from loger.explain.render import carried_text, rows
from loger.model import LOGER
from loger.rules.wording import ENGLISH
from loger.store import export

OPAQUE = ENGLISH.line(ENGLISH.text("opaque"))
SMALL = (
    "--set", "encoder.dimension=16", "--set", "encoder.epochs=3", "--set", "derived.tune=false",
    "--set", "em.teacher=0",
)  # fmt: skip


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def parsed(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refuses(arguments: tuple[object, ...], why: str, code: int = 2) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    *before, error = result.stderr.splitlines()  # notes, and steps of work
    assert error.startswith("error: ")
    assert why in error
    assert not any("error" in line for line in before)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data") / "shop"
    shop(users=200, items=150).dataset.save(place)
    return place


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data for tests that fit a model."""
    place = tmp_path_factory.mktemp("data") / "tiny"
    shop(users=60, items=60).dataset.save(place)
    return place


@pytest.fixture(scope="module")
def bundle(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundle") / "shop.bundle"
    told = parsed("fit", data, "-o", place, *SMALL)
    assert told["bundle"] == str(place)
    return place


@pytest.fixture(scope="module")
def user(bundle: Path) -> str:
    return LOGER.load(bundle).users[0]


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


# ── fit ─────────────────────────────────────────────────────────────────────────────────


def test_fit_leaves_a_bundle_and_nothing_else(bundle: Path) -> None:
    assert (bundle / "manifest.json").is_file()
    assert [path.name for path in bundle.parent.iterdir()] == ["shop.bundle"]


SEED = ("--set", "seed=5")


def test_set_wins_over_the_file(tiny: Path, tmp_path: Path) -> None:
    toml = tmp_path / "s.toml"
    toml.write_text(
        "seed = 1\n[em]\nrounds = 0\nteacher = 0\n[encoder]\ndimension = 8\nepochs = 1\n"
        "[derived]\ntune = false\n"
    )
    out = tmp_path / "b"
    parsed("fit", tiny, "-o", out, "--config", toml, "--set", "encoder.dimension=4", *SEED)
    config = json.loads((out / "manifest.json").read_text())["about"]["config"]
    assert (config["seed"], config["em"]["rounds"]) == (5, 0)
    assert (config["encoder"]["dimension"], config["encoder"]["epochs"]) == (4, 1)


def test_another_encoder_is_named_and_kept_with_the_bundle(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "b"
    parsed("fit", tiny, "-o", out, "--encoder", "gnn", "--set", "seed=4", *SMALL[4:])
    about = json.loads((out / "manifest.json").read_text())["about"]
    assert (about["encoder"], about["encoder_config"]["seed"]) == ("GNN", 4)
    refuses(("fit", tiny, "-o", tmp_path / "c", "--encoder", "gmn"), "did you mean 'gnn'")
    assert not (tmp_path / "c").exists()


def test_the_paper_preset_is_the_papers(data: Path, tmp_path: Path) -> None:
    told = parsed(
        "fit", data, "-o", tmp_path / "b", "--preset", "paper", *SMALL, "--set", "em.rounds=1"
    )
    assert told["rounds"] == 1
    config = json.loads((tmp_path / "b" / "manifest.json").read_text())["about"]["config"]
    assert (config["mining"]["min_hops"], config["sample_nodes"], config["em"]["steps"]) == (
        3,
        100,
        200,
    )


def test_fit_says_what_is_wrong_before_it_works(data: Path, bundle: Path, tmp_path: Path) -> None:
    toml = tmp_path / "s.toml"
    toml.write_text("[em.walk]\nrecensy = 1\n")
    refuses(("fit", data, "-o", tmp_path / "b", "--config", toml), "did you mean 'em.walk.recency'")
    refuses(("fit", data, "-o", bundle), "--force")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").touch()
    refuses(
        ("fit", data, "-o", tmp_path / "other", "--force"), "is not empty and not a model bundle"
    )
    hard = "--set", "mining.min_support=100000"
    refuses(("fit", data, "-o", tmp_path / "b", *hard), "--set mining.min_support=1 keeps more")
    assert not (tmp_path / "b.unfinished").exists()
    assert run("fit", data).exit_code == 2


def test_a_second_fit_to_the_same_place_is_refused_at_once(data: Path, tmp_path: Path) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with claim(tmp_path / "b", "fit"):
            held.set()
            done.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    try:
        held.wait(10)
        fit = ("fit", data, "-o", tmp_path / "b", *SMALL)
        refuses(fit, "another fit is writing here (process", BUSY_EXIT)
    finally:
        done.set()
        other.join()


def test_fit_replaces_a_bundle_that_python_saved_if_forced(
    tiny: Path, bundle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "from-python.bundle"
    LOGER.load(bundle).save(out)
    assert FitRecord.read(out) == FitRecord.read(bundle)
    refuses(("fit", tiny, "-o", out), "--force")
    told = parsed("fit", tiny, "-o", out, "--force", *SMALL)
    assert told["bundle"] == str(out)
    assert FitRecord.read(out).data == str(tiny)


def test_settings_of_compared_methods_are_read_as_those_of_fit() -> None:
    texts = ["loger.em.early_stop=false", "loger.em.walk.recency=0.5", "ease.l2=30"]
    assert method_settings(texts) == {
        "loger": {"em": {"early_stop": False, "walk": {"recency": 0.5}}},
        "ease": {"l2": 30},
    }
    for text in ("l2=30", "ease.l2"):
        with pytest.raises(LogerError, match="=VALUE"):
            method_settings([text])


def test_without_facts_and_with_few_pairs_the_error_asks_for_facts(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    rows = [f"u{u},i{u}{k},{k}" for u in range(4) for k in range(4)]
    (bare / "interactions.csv").write_text("\n".join(["user,item,time", *rows]) + "\n")
    refuses(("fit", bare, "-o", tmp_path / "b"), "users who share items, or facts")
    assert not (tmp_path / "b.unfinished").exists()


def test_interactions_alone_are_enough_to_explain_by_what_others_took(tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    groups = [(u, u % 4 * 12 + (5 * u // 4 + 5 * k) % 12) for u in range(60) for k in range(7)]
    rows = [f"u{u},i{v}" for u, v in groups]
    (alone / "interactions.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    result = run("fit", alone, "-o", tmp_path / "b", *SMALL)
    assert result.exit_code == 0, result.output
    assert "split: at random, because the data have no times" in result.stderr
    assert "1 rule tried, 1 kept" in result.stdout
    told = run("recommend", tmp_path / "b", "u1", "--explain")
    assert "people interacted with both" in told.stdout


def test_fit_passes_on_what_reading_noted_and_logs_its_steps(data: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    rows = [f"u{u},i{(u + k) % 6},{k}" for u in range(8) for k in range(5)]
    (plain / "interactions.csv").write_text("\n".join(["user,item,time", *rows]) + "\n")
    (plain / "triples.csv").write_text(
        "head,relation,tail,tail_type\n"
        + "".join(f"i{k},has_brand,b{k % 2},brand\n" for k in range(5))
    )
    result = run("fit", plain, "-o", tmp_path / "b", *SMALL)
    assert result.exit_code == 0, result.output
    assert " tried, " in result.stdout
    lines = result.stderr.splitlines()
    assert any(line.startswith("split: by time, because the data have times") for line in lines)
    assert "note: items without any fact: 1 (first: i5)" in lines
    assert any(line.startswith("note: with only 24 training pairs") for line in lines)
    assert len(lines) == len(set(lines))
    assert {"counting groundings", "measuring reach"} <= set(lines)


def test_fit_says_when_no_rule_got_any_weight(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"rules": [{"weight": 0.0, "sentence": "s"}], "encoder_weight": 0.0, "bundle": "b",
            "size": 1, "example_user": "u", "kept": 1, "made": 0,
            "mining": "1 rule tried", "story": "for use"}  # fmt: skip
    draw(told)
    out = capsys.readouterr().out
    assert "No rule has any weight" in out
    assert "Strongest rules" not in out


def test_an_interrupted_fit_goes_on_and_gives_the_same_bytes(tiny: Path, tmp_path: Path) -> None:
    settings = *SMALL, "--set", "encoder.epochs=40"
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    command = [sys.executable, "-m", "loger", "fit", tiny, "-o", cut, *settings]

    def interruptible() -> None:  # also where this test itself runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)

    running = subprocess.Popen(
        [str(part) for part in command], stderr=subprocess.PIPE, text=True, preexec_fn=interruptible
    )
    kept = tmp_path / "cut.unfinished" / "first" / "checkpoint" / "manifest.json"
    end = time.monotonic() + 120
    while not kept.is_file() and running.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "run the same command to resume" in said
    assert "Traceback" not in said
    assert kept.is_file()
    assert not (cut / "manifest.json").exists()
    for out in (cut, whole):
        assert run("fit", tiny, "-o", out, *settings).exit_code == 0
    assert files(cut) == files(whole)
    assert not (tmp_path / "cut.unfinished").exists()


# ── questions ───────────────────────────────────────────────────────────────────────────


def test_recommend_gives_reasons_whose_parts_add_up(bundle: Path, user: str) -> None:
    (told,) = parsed("recommend", bundle, user, "--explain", "-k", 4)
    assert [row["rank"] for row in told["items"]] == [1, 2, 3, 4]
    for row in told["items"]:
        assert row["item"] not in [had["item"] for had in told["history"]]
        rules = sum(rule["contribution"] for rule in row["rules"])
        parts = row["encoder"] + row["prior"] + row["popularity"] + rules
        assert parts == pytest.approx(row["score"], abs=1e-5)
        assert sum(one.contribution for one in rows(row)) == pytest.approx(row["lead"])
    first = told["items"][0]
    shown = " ".join(run("recommend", bundle, user, "--explain").stdout.split())
    shown = shown.replace("│ ", "")
    assert f"{first['label']} {first['lead']:+.3f}" in shown
    at = [shown.index(f"{r['total']:+.3f} {r['text']}") for r in first["reasons"]]
    assert at == sorted(at)
    assert f"{first['carried']:.0%} of its lead" in shown
    assert "–purchase→" not in shown


def test_paths_are_one_flag_away(bundle: Path, user: str) -> None:
    asked = ("recommend", bundle, user, "--explain", "--paths", 2, "-k", 1)
    (row,) = parsed(*asked)[0]["items"]
    assert len(row["paths"]) == 2
    assert all(path["entities"][0]["name"] == user for path in row["paths"])
    explain = ("explain", bundle, user, row["item"], "--paths", 2)
    for shown in (run(*asked).stdout, run(*explain).stdout):
        assert sum(shown.count(hop) for hop in ("–purchase→", "–follows→", "–mentions→")) >= 2
    refuses(("recommend", bundle, user, "--paths", 2), "--paths needs --explain")


def test_what_no_action_can_be_named_for_is_said_to_be_opaque(bundle: Path, user: str) -> None:
    (row,) = parsed("recommend", bundle, user, "--explain", "-k", 1)[0]["items"]
    assert OPAQUE not in [one.label for one in rows(row)]
    opaque = row | {"opaque": 0.5, "reasons": [], "because": OPAQUE}
    parts = {one.label: one.contribution for one in rows(opaque)}
    assert parts[OPAQUE] == 0.5
    assert sum(parts.values()) == pytest.approx(row["lead"])
    assert carried_text(opaque) == OPAQUE
    below = {"reasons": [{}], "lead": -0.5, "carried": -1.2, "carried_of_actions": 0.9}
    assert carried_text(below) == "Even so, it's below the average item"


def test_only_where_the_rest_of_a_history_takes_away_is_it_said_to_count_against() -> None:
    for carried, of_actions, against in ((1.03, 1.0, False), (1.2, 1.1, True), (0.9, 1.1, True)):
        record = {
            "reasons": [{}],
            "lead": 1.0,
            "carried": carried,
            "carried_of_actions": of_actions,
        }
        assert ("counts against" in carried_text(record)) == against
        assert ("whole lead" in carried_text(record)) == (carried > 1)


REASON = ["action", "total", "share", "text", "members"]


def test_someone_new_is_recommended_to_by_what_they_have(bundle: Path, tmp_path: Path) -> None:
    model = LOGER.load(bundle)
    labels, first = model.graph_.vocabulary.labels, model.graph_.n_users
    a, b = (next(x for x in range(first + k, first + 60) if labels[x]) for k in (3, 20))
    names = [model.graph_.vocabulary.names[x] for x in (a, b)]
    (told,) = parsed(
        "recommend", bundle, "--history", labels[a], "--history", names[1], "--explain", "-k", 3
    )
    assert told["user"] == "someone new"
    assert [row["item"] for row in told["history"]] == names
    later = model.with_interactions([("x", names[0]), ("x", names[1])], [1, 2])
    expected = later.recommend("x", 3)
    assert [row["item"] for row in told["items"]] == expected["item"].to_list()
    back = model.with_interactions([("x", names[1]), ("x", names[0])], [1, 2]).score([first])
    assert (back != later.score([first])).any()  # so the order that is given counts
    assert all(row["reasons"] for row in told["items"])
    refuses(("recommend", bundle, "--history", "no such item"), "unknown item 'no such item'")
    refuses(("recommend", bundle, "--history", names[0], "ann"), "pass a USER")
    refuses(("recommend", bundle), "pass a USER")


def test_similar_items_and_lists_for_a_group_are_the_models_own(bundle: Path) -> None:
    model = LOGER.load(bundle)
    items, less, users = model.items[3:5], model.items[9], model.users[:2]
    told = parsed("similar", bundle, *items, "--less", less, "-k", 3, "--kind", "substitutes")
    expected = model.similar(items, 3, less=less, kind="substitutes")
    assert [row["item"] for row in told] == expected["item"].to_list()
    told = parsed("recommend", bundle, *users, "--together", "-k", 3, "--popularity", -0.5)
    expected = model.recommend_group(users, 3, popularity=-0.5)
    assert [row["item"] for row in told] == expected["item"].to_list()
    shown = run("recommend", bundle, *users, "--together", "-k", 3)
    assert shown.exit_code == 0 and all(user in shown.output for user in users)
    refuses(("similar", bundle, "no such item"), "unknown item 'no such item'")
    refuses(("recommend", bundle, "--together", "--all", "-o", "x"), "--together needs users")


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_recommend_to_all_writes_a_table(bundle: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"lists.{ending}"
    told = parsed("recommend", bundle, "--all", "--out", out, "-k", 2, "--explain")
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}[ending]
    table = read(out)
    columns = ["user", "rank", "item", "label", "score", "because", "reasons", "carried"]
    assert table.columns == told["columns"] == columns
    assert len(table) == told["rows"] == 2 * 200
    assert [file.name for file in tmp_path.iterdir()] == [out.name]
    for row in table.tail(3).to_dicts():
        reasons = json.loads(row["reasons"]) if ending == "csv" else row["reasons"]
        assert row["because"] == reasons[0]["text"]
        assert all(list(one) == REASON for one in reasons)
        assert sum(one["share"] for one in reasons) == pytest.approx(row["carried"])


def test_lists_of_many_users_are_explained_in_processes_with_the_same_bytes(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = tmp_path / "few.parquet", tmp_path / "many.parquet"
    monkeypatch.setattr(export, "BLOCK", 64)
    parsed("recommend", bundle, "--all", "--out", few, "-k", 2, "--explain")
    asked = list[str]()

    def noted(name: str) -> object:
        asked.append(name)
        return engine_named(name)

    monkeypatch.setattr("loger.cli.recommend.MANY", 100)
    monkeypatch.setattr("loger.engine.engine_named", noted)
    parsed("recommend", bundle, "--all", "--out", many, "-k", 2, "--explain")
    assert asked == ["threads", "processes"]
    assert few.read_bytes() == many.read_bytes()


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_lists_written_block_by_block_are_those_written_at_once(
    bundle: Path, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, files = LOGER.load(bundle), [tmp_path / f"{name}.{ending}" for name in "ab"]
    whole = export.export_lists(model, model.users[:20], files[0], 2, explain=True)
    monkeypatch.setattr(export, "BLOCK", 7)
    assert export.export_lists(model, model.users[:20], files[1], 2, explain=True) == whole
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}[ending]
    one, other = (read(file) for file in files)
    numbers = ["score", "carried", "reasons"]  # a block's products are rounded by its size
    assert one.drop(numbers).equals(other.drop(numbers))
    for name in numbers[:2]:
        assert one[name].to_numpy() == pytest.approx(other[name].to_numpy(), abs=1e-4)
    assert sorted(tmp_path.iterdir()) == files


def test_explain_says_of_an_owned_item_that_it_is_owned(bundle: Path, user: str) -> None:
    new = str(parsed("recommend", bundle, user)[0]["items"][0]["item"])
    own = LOGER.load(bundle).owned(user)[0]
    assert parsed("explain", bundle, user, own)["owned"] is True
    assert parsed("explain", bundle, user, new)["owned"] is False
    assert "so loger won't recommend it" in run("explain", bundle, user, own).stdout
    assert "already" not in run("explain", bundle, user, new).stdout


def test_serving_where_something_listens_is_refused_before_the_model_is_loaded(
    bundle: Path,
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refuses(("serve", bundle, "--port", port), f"can't listen on 127.0.0.1:{port}")


def test_a_name_that_begins_another_is_met_with_it(bundle: Path, user: str) -> None:
    refuses(("recommend", bundle, user[:2]), "did you mean")


def test_explain_why_not_and_what_if_speak_of_the_same_list(bundle: Path, user: str) -> None:
    (told,) = parsed("recommend", bundle, user, "-k", 3)
    first = told["items"][0]
    explained = parsed("explain", bundle, user, first["item"])
    assert explained["score"] == pytest.approx(first["score"], abs=1e-4)
    assert explained["rank"] == 1
    shown = " ".join(run("explain", bundle, user, first["item"]).stdout.split())
    assert f"{explained['lead']:+.3f} compared with the average item" in shown
    assert explained["reasons"][0]["text"] in shown.replace("│ ", "")
    assert "general appeal" in shown
    by_rules = run("explain", bundle, user, first["item"], "--paths", 1).stdout
    assert "the score, by rules" in by_rules
    last = told["items"][2]["item"]
    without = parsed("counterfactual", bundle, user, last, "-k", 3)
    assert without["listed"]
    assert not parsed("counterfactual", bundle, user, last, "-k", 2)["listed"]
    said = run("counterfactual", bundle, user, last, "-k", 3).stdout
    assert said.rstrip().endswith(f"instead of {last}") == bool(without["without"])
    every = parsed("recommend", bundle, user, "-k", 100)[0]["items"]
    low = every[-1]["item"]
    assert parsed("why-not", bundle, user, low, "-k", 3)["explanation"]["rank"] == 100
    assert "below the last of the top 3" in run("why-not", bundle, user, low, "-k", 3).stdout
    mine = told["history"][0]["item"]
    changed = parsed("what-if", bundle, user, "--remove", mine, "-k", 3)
    assert changed["before"] == [row["item"] for row in told["items"]]
    assert mine not in parsed("what-if", bundle, user, "--remove", mine, "-k", 150)["after"]
    assert first["item"] not in parsed("what-if", bundle, user, "--add", first["item"])["after"]
    assert "rank" in run("what-if", bundle, user, "--remove", mine).stdout


def test_rules_of_a_bundle_have_weights_and_matter_to_users(bundle: Path, user: str) -> None:
    rules = parsed("rules", bundle)["rules"]
    weights = [rule["weight"] for rule in rules]
    assert weights == sorted(weights, reverse=True)
    assert all(weights)
    own = parsed("rules", bundle, user)["rules"]
    assert {rule["rule"] for rule in own} == {rule["rule"] for rule in rules}
    assert rules[0]["sentence"] in run("rules", bundle).stdout


def test_rules_that_count_against_items_are_shown(bundle: Path, monkeypatch: Any) -> None:
    columns = {"weight": [1.0, 0.0, -0.5], "rule": list("abc"), "sentence": list("ABC")}
    monkeypatch.setattr(LOGER, "rule_table", lambda self, **_: pl.DataFrame(columns))
    assert [rule["weight"] for rule in parsed("rules", bundle)["rules"]] == [1.0, -0.5]


def test_questions_that_cannot_be_answered_are_refused(
    bundle: Path, data: Path, user: str, tmp_path: Path
) -> None:
    (told,) = parsed("recommend", bundle, user, "-k", 1)
    new, has = told["items"][0]["item"], told["history"][0]["item"]
    refuses(("recommend", bundle), "pass a USER")
    refuses(("recommend", bundle, "--all"), "--all needs --out FILE")
    refuses(("recommend", bundle, "--all", "--out", tmp_path / "x.txt"), ".parquet")
    refuses(("recommend", bundle, user + "x"), f"did you mean {user!r}")
    refuses(("explain", bundle, user, "nothing like it at all"), "unknown item")
    refuses(("what-if", bundle, user), "--remove ITEM")
    refuses(("what-if", bundle, user, "--remove", new), "doesn't have")
    refuses(("what-if", bundle, user, "--add", has), "already")
    refuses(("recommend", data, user), "bundle")
    refuses(("rules", data, user), "isn't one; run loger fit first")


def test_a_language_can_be_a_file_of_ones_own_words(bundle: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.toml"
    words.write_text('[en.verbs]\npurchase = "picked"\n[de.verbs]\npurchase = "ausgesucht"\n')
    for language, verb in ((words, "you picked"), (f"de={words}", "ausgesucht hast")):
        assert verb in run("rules", bundle, "--language", language).stdout
    refuses(("rules", bundle, "--language", "dee"), "unknown language 'dee'")


def test_no_command_prints_a_line_of_more_than_120_columns(
    bundle: Path, tiny: Path, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop").symlink_to(tiny)
    shutil.copytree(bundle, "shop.bundle")
    (told,) = parsed("recommend", "shop.bundle", user)
    best, worst = told["items"][0]["item"], LOGER.load(bundle).items[-1]
    Path("new.csv").write_text(f"user,item,time\n{user},{best},2000000000\n")
    commands: list[list[str]] = [
        ["data", "inspect", "shop"],
        ["data", "convert", "shop", "-o", "copy"],
        ["rules", "shop", "--all"],
        ["rules", "shop.bundle", user],
        ["fit", "shop", "-o", "test.bundle", *SMALL, "--hold-out"],
        ["recommend", "shop.bundle", user],
        ["recommend", "shop.bundle", user, "--explain", "--paths", "2"],
        ["recommend", "shop.bundle", user, "--explain", "--style", "debug"],
        ["explain", "shop.bundle", user, best],
        ["counterfactual", "shop.bundle", user, best],
        ["why-not", "shop.bundle", user, worst],
        ["what-if", "shop.bundle", user, "--add", best],
        ["evaluate", "test.bundle", "shop", "--faithfulness", "5", "--ablation"],
        ["compare", "shop", "--methods", "mostpop,itemknn"],
        ["update", "shop.bundle", "--interactions", "new.csv"],
    ]
    for command in commands:
        done = run(*command)
        assert done.exit_code == 0, done.output
        assert [line for line in done.output.splitlines() if len(line) > 120] == [], command


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    nowhere = tmp_path / "no data"
    for out in (tmp_path / "file" / "x.bundle", Path("/proc/x.bundle")):
        refuses(("fit", nowhere, "-o", out), f"{out}: can't write here")
        refuses(("update", nowhere, "-o", out), f"{out}: can't write here")
        refuses(("evaluate", nowhere, nowhere, "--report", out), f"{out}: can't write here")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ── evaluate ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def research(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("research") / "shop.bundle"
    parsed("fit", data, "-o", place, *SMALL, "--hold-out")
    return place


@pytest.fixture(scope="module")
def assessed(
    research: Path, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Assessment, Path]:
    """What one evaluation found, and the report it wrote."""
    page = tmp_path_factory.mktemp("evaluated") / "out" / "report.html"
    with mock.patch.object(evaluate, "draw") as drawn:
        run("evaluate", research, data, "--report", page, "--ablation", "--faithfulness", 5)
    return drawn.call_args.args[0], page


def test_evaluate_measures_beside_controls_and_writes_a_report(
    research: Path, data: Path, assessed: tuple[Assessment, Path]
) -> None:
    assessment, page = assessed
    told = assessment.as_dict()
    assert list(told["models"]) == ["LOGER", "MostPop", "ItemKNN", "EASE^R"]
    assert told["untuned"] == ["MostPop", "ItemKNN", "EASE^R"]
    assert [one["name"] for one in told["faithfulness"]] == ["LOGER", "random paths for LOGER"]
    assert [point["selected"] for point in told["ablation"]] == [0, 10, 20, 30, 40, 50]
    text = page.read_text()
    for part in (
        "MostPop, ItemKNN, EASE^R: default settings, not tuned on these data",
        "JS_f",
        "|H⁺|: pairs of a user",
        "min_support",
        "facts",
    ):
        assert part in text, part
    shown = run("evaluate", research, data, "--methods", "none")
    assert "NDCG@10" in shown.stdout
    assert "baselines" not in shown.stdout
    alone = parsed("evaluate", research, data, "--methods", "none")
    assert alone["models"]["LOGER"] == told["models"]["LOGER"]
    assert set(alone) == {*told, "report"}


def test_evaluate_prints_a_sorted_summary_and_the_ablation(
    assessed: tuple[Assessment, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate.draw(assessed[0], None, verbose=False)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 28
    head = next(k for k, line in enumerate(shown) if "NDCG@10" in line)
    means = [float(re.findall(r"\d+\.\d\d", line)[0]) for line in shown[head + 1 : head + 5]]
    assert means == sorted(means, reverse=True) and len(set(means)) > 1
    pairs = next(k for k, line in enumerate(shown) if line.startswith("pairs"))
    assert [line.split()[0] for line in shown[pairs + 1 :]] == ["0", "10", "20", "30", "40", "50"]
    evaluate.draw(assessed[0], None, verbose=True)
    assert len(capsys.readouterr().out.splitlines()) > 40


def test_evaluate_refuses_what_the_model_was_not_fitted_on(
    research: Path, data: Path, tmp_path: Path
) -> None:
    shop(seed=1, users=200, items=150).dataset.save(tmp_path / "other")
    refuses(("evaluate", research, tmp_path / "other"), "was not fitted on this split")
    parsed("data", "split", data, "-o", tmp_path / "split", "--split", "random")
    refuses(("evaluate", research, tmp_path / "split"), "was not fitted on this split")
    refuses(("evaluate", research, data, "--methods", "eas"), "did you mean 'ease'")


def test_a_split_data_set_is_split_so_for_all(data: Path, tmp_path: Path) -> None:
    told = parsed("data", "split", data, "-o", tmp_path / "s", "--split", "random", "--seed", 3)
    found = parsed("data", "inspect", tmp_path / "s")
    assert found["parts"] == told["parts"]
    again = parsed("data", "split", tmp_path / "s", "-o", tmp_path / "t")
    assert again["parts"] == told["parts"]
    assert (tmp_path / "s" / "interactions.parquet").read_bytes() == (
        tmp_path / "t" / "interactions.parquet"
    ).read_bytes()
