"""The command line: its screens, its JSON output and its error messages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from loger import __version__
from loger.cli import app, main, options
from loger.data.demo import shop

INTERACTIONS = """user,item,rating,part
ann,mug,5,train
ann,tray,4,train
bob,mug,5,train
bob,tray,2,validation
cyd,lamp,5,train
"""
TRIPLES = "head,relation,tail,tail_type\nmug,has_brand,Acme,brand\ntray,has_brand,Acme,brand\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def parsed(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "shop"
    place.mkdir()
    (place / "interactions.csv").write_text(INTERACTIONS)
    (place / "triples.csv").write_text(TRIPLES)
    return place


@pytest.fixture(scope="module")
def shown(demo_run: Path) -> tuple[Path, Any]:
    return demo_run / "loger-demo", json.loads((demo_run / "told.json").read_text())


def test_demo_finds_all_planted_rules(shown: tuple[Path, Any]) -> None:
    rules = shown[1]["rules"]
    planted = [rule for rule in rules if rule["remark"] == "planted"]
    assert len(planted) == 5
    assert planted == rules[:5]


def test_the_demos_first_reasons_follow_the_rules_behind_the_purchases(
    shown: tuple[Path, Any],
) -> None:
    """Rules of low lift raise accuracy here but take the credit of the causes (decision 9)."""
    assert shown[1]["faithfulness"]["recovered_rule"] > 0.9


def test_demo_beats_five_controls(shown: tuple[Path, Any]) -> None:
    (mean, low, _), *others = shown[1]["models"].values()
    assert len(others) == 5
    assert mean > low > max(high for _, _, high in others)


def test_demo_shows_three_people_with_paths_between_them_and_the_items(
    shown: tuple[Path, Any],
) -> None:
    assert len(shown[1]["people"]) == 3
    for person in shown[1]["people"]:
        assert person["history"]
        for item in person["items"]:
            assert item["label"] not in person["history"]
            assert item["reasons"]
            totals = [reason["total"] for reason in item["reasons"]]
            assert totals == sorted(totals, reverse=True) and totals[-1] > 0
            evidence = [one for reason in item["reasons"] for one in reason["evidence"]]
            paths = [path["entities"] for one in evidence for path in one["paths"]]
            assert paths
            for path in paths:
                assert path[0]["label"] == person["name"]
                assert path[-1]["label"] == item["label"]


def test_what_the_demo_marks_as_the_true_cause_is_the_planted_path(shown: tuple[Path, Any]) -> None:
    made = shop(0)
    words, events = made.dataset.vocabulary, made.dataset.interactions
    items = [item for person in shown[1]["people"] for item in person["items"]]
    marked = [(i, reason) for i in items for reason in i["reasons"] if reason["true_cause"]]
    assert marked
    for item, reason in marked:
        user, target = words.id("user", item["user"]), words.id("item", item["item"])
        its = (events.users == user) & (events.items == target - made.dataset.n_users)
        row = np.flatnonzero(its)[0]
        first = made.paths[row][1]
        entity = "" if first in words.span("user") else words.names[first]  # nobody else is named
        assert entity in {one["entity"]["name"] for one in reason["members"] or [reason]}
        rules = {one["rule"] for one in reason["evidence"]}
        planted = made.planted[made.causes[row]]
        assert any(all(relation in rule for relation in planted) for rule in rules)


def test_demo_reaches_what_is_bought_later_far_better_than_chance(
    shown: tuple[Path, Any],
) -> None:
    assert shown[1]["bought_later"] > 10 * shown[1]["bought_later_by_chance"]


def test_demo_asks_what_if_and_something_changes(shown: tuple[Path, Any]) -> None:
    told = shown[1]["what_if"]
    assert told["removed"] in shown[1]["people"][0]["history"]
    assert told["before"] != told["after"]


def test_what_the_demo_leaves_behind_answers_further_questions(shown: tuple[Path, Any]) -> None:
    place, told = shown
    files = {name: place / Path(file).name for name, file in told["files"].items()}
    assert (place / "report.html").read_text().startswith("<!doctype html>")
    shown_items = told["people"][0]["items"]
    later = {item["item"] for item in shown_items if item["bought_later"]}
    (again,) = parsed("recommend", files["bundle"], shown_items[0]["user"], "-k", 50)
    offered = [item["item"] for item in again["items"]]
    assert not later & set(offered)  # what was bought later is owned by now
    about = json.loads((place / "bundle" / "manifest.json").read_text())["about"]
    assert about["fitted_for"] == "use"
    assert about["measured"]["ndcg"] == pytest.approx(told["models"]["LOGER"][0])


def test_demo_fits_on_one_screen(
    shown: tuple[Path, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from loger.cli import demo

    content = shown[1] | {"files": {"bundle": "loger-demo/bundle", "report": "report.html"}}
    demo.draw(content)
    screen = capsys.readouterr().out.splitlines()
    assert len(screen) <= 40
    assert max(map(len, screen)) <= 100
    person = content["people"][0]
    assert all(any(item["label"] in line for line in screen) for item in person["items"])
    bought = [line for line in screen if "✓ bought later" in line]
    assert len(bought) == sum(item["bought_later"] for item in person["items"])
    assert any("← the true reason" in line for line in screen)
    assert any("loger serve loger-demo/bundle" in line for line in screen)
    named = [line.split()[0] for line in screen if line.startswith("  ") and line.strip()]
    assert named.index("LOGER") < named.index("ItemKNN") < named.index("MostPop")  # best first
    demo.draw(content, verbose=True)
    every = capsys.readouterr().out.splitlines()
    assert every[-len(screen) :] == screen
    assert all(any(person["name"] in line for line in every) for person in content["people"])


def test_a_reason_is_shortened_between_clauses_only() -> None:
    from loger.cli.demo import _fitting

    text = "same brand (Acme; Ltd); 16 people bought both; similar overall"
    assert _fitting(text, 100) == "same brand (Acme; Ltd); 16 people bought both"
    assert _fitting(text, 30) == "same brand (Acme; Ltd)"


def test_demo_does_not_write_among_other_things(folder: Path) -> None:
    refuses(("demo", "--out", folder), "--out")


@pytest.mark.long
def test_demo_is_the_same_every_time(shown: tuple[Path, Any], tmp_path: Path) -> None:
    again = parsed("demo", "--out", tmp_path / "loger-demo")
    assert again | {"files": None} == shown[1] | {"files": None}


def test_inspect_shows_relations_with_their_types_and_hubs(folder: Path) -> None:
    found = parsed("data", "inspect", folder)
    assert (found["users"], found["items"], found["interactions"]) == (3, 3, 5)
    brand = next(r for r in found["relations"] if r["relation"] == "has_brand")
    assert (brand["head_type"], brand["tail_type"], brand["facts"]) == ("item", "brand", 2)
    assert (brand["hub"], brand["hub_degree"]) == ("Acme", 2)
    assert found["per_user"]["max"] == 2
    shown = run("data", "inspect", folder).stdout
    assert "item → brand" in shown
    assert "Acme (2)" in shown


def test_inspect_takes_a_threshold_and_a_single_file(folder: Path) -> None:
    found = parsed("data", "inspect", folder / "interactions.csv", "--min-rating", 4)
    assert found["interactions"] == 4
    assert [r["relation"] for r in found["relations"]] == ["interacted", "disliked"]


def test_inspect_shows_what_was_mended(folder: Path) -> None:
    with (folder / "interactions.csv").open("a") as file:
        file.write("ann,mug,5,train\n")
    notes = parsed("data", "inspect", folder)["notes"]
    assert len(notes) == 2
    shown = run("data", "inspect", folder).stdout
    assert all(note["what"] in shown for note in notes)


def test_converted_data_is_the_same_data(folder: Path, tmp_path: Path) -> None:
    told = parsed("data", "convert", folder, "-o", tmp_path / "out")
    assert sum(told["files"].values()) > 0
    before, after = (parsed("data", "inspect", p) for p in (folder, tmp_path / "out"))
    assert [note["what"] for note in told["notes"]] == ["items without any fact"]
    assert before == after


def test_convert_replaces_a_saved_data_set_only_if_forced_and_nothing_else(
    folder: Path, tmp_path: Path
) -> None:
    refuses(
        ("data", "convert", folder, "-o", folder, "--force"),
        "is not empty and not a saved data set",
    )
    refuses(("data", "convert", folder, "-o", folder / "triples.csv"), "is a file")
    out = tmp_path / "out"
    assert run("data", "convert", folder, "-o", out).exit_code == 0
    refuses(("data", "convert", folder, "-o", out), "already contains a saved data set")
    assert run("data", "convert", folder, "-o", out, "--force").exit_code == 0


def test_rules_shows_and_gives_the_kept_rules(folder: Path) -> None:
    options = "--set", "min_support=1", "--set", "min_lift=0"
    found = parsed("rules", folder, *options)
    kept = [rule for rule in found["rules"] if rule["kept"]]
    assert kept
    assert kept[0]["sentence"] in run("rules", folder, *options).stdout
    assert (
        sum(r["kept"] for r in parsed("rules", folder, *options, "--set", "max_rules=1")["rules"])
        == 1
    )


def test_rules_tells_why_rules_were_dropped(folder: Path) -> None:
    hard = "--set", "min_support=50"
    assert "support below 50" in run("rules", folder, "--all", *hard).stdout
    assert not any(rule["kept"] for rule in parsed("rules", folder, *hard)["rules"])
    assert any(rule["kept"] for rule in parsed("rules", folder)["rules"])  # few pairs: less needed


def refuses(arguments: tuple[object, ...], why: str) -> None:
    """The command fails with exit code 2 and one line on stderr."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert why in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_mistakes_get_one_line_and_exit_code_2(folder: Path, tmp_path: Path) -> None:
    refuses(("data", "inspect", tmp_path / "nowhere"), "no such file or folder")
    refuses(("rules", tmp_path / "nowhere"), "no such file or folder")
    refuses(("data", "inspect", folder, "--format", "plan"), "'plain'")
    (folder / "interactions.csv").write_text("user,item,rating\nann,mug,five\n")
    refuses(("data", "inspect", folder), "interactions.csv:2")


def test_a_folder_of_no_known_format_is_told_what_was_looked_for(tmp_path: Path) -> None:
    result = run("data", "inspect", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "interactions.csv" in result.stderr


def test_a_folder_that_cannot_be_written_is_a_mistake(folder: Path) -> None:
    refuses(("data", "convert", folder, "-o", folder / "triples.csv" / "out"), "triples.csv")


def test_debug_keeps_the_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loger", "--debug", "data", "inspect", str(tmp_path / "no")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert "Traceback" in result.stderr
    assert "DataError" in result.stderr


def test_ctrl_c_is_one_line_and_exit_code_130(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(options, "read", interrupted)
    result = run("data", "inspect", folder)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("group", [(), ("data",), ("data", "build"), ("study",)])
def test_every_command_is_summed_up_in_one_line_of_80_columns(group: tuple[str, ...]) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*group, "--help"]).stdout
    listed = "Start:" if not group else "Commands:"
    lines = [line for line in shown.split(listed)[1].splitlines() if line.startswith("  ")]
    assert lines
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


def test_every_command_but_the_server_prints_json() -> None:
    def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from commands(command, *path, name)
            else:
                yield (*path, name)

    without = [path for path in commands(app) if "--json" not in run(*path, "--help").stdout]
    assert without == [("serve",), ("compile",)]


def test_version_and_usage() -> None:
    assert run("--version").stdout == f"loger {__version__}\n"
    assert run("data", "inspect").exit_code == 2
    assert "demo" in run("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("recommend", "b", "x", "-k", "0"), ("'-k'", "x>=1")),
        (("recommend", "b", "x", "-k", "ten"), ("'-k'", "integer")),
        (("recommend", "b", "x", "--diversity", "2"), ("'--diversity'", "0<=x<=1")),
        (("recommend", "b", "x", "--diversity", "half"), ("'--diversity'", "float")),
        (("explain", "b", "x", "y", "--by", "me"), ("'--by'", "contributions")),
        (("recommend",), ("'BUNDLE'", "see loger recommend --help")),
    ],
)
def test_wrong_values_are_one_line_that_names_the_option_and_what_it_takes(
    arguments: tuple[str, ...], named: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(app, arguments, prog_name="loger")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert all(text in result.stderr for text in named)


def test_what_is_no_command_is_looked_for_among_all(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["loger", "reccomend"])
    with pytest.raises(SystemExit):
        main()
    assert "recommend" in capsys.readouterr().err.replace("reccomend", "")
