"""``compare``: which methods run, what is stored, and what a failure costs."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from loger.baselines import EASE, ItemKNN, MostPop
from loger.cli import app
from loger.cli.evaluate import KNOWN
from loger.config import LOGERConfig
from loger.data import split
from loger.data.demo import shop
from loger.encoder.network import GNN
from loger.engine import ProcessEngine
from loger.errors import LogerError, UnknownNameError
from loger.evaluation.compare import compare, fingerprint
from loger.evaluation.evaluate import evaluate
from loger.evaluation.methods import METHODS, Method
from loger.metrics.grid_search import tune

RAN: list[str] = []


class Counting(MostPop):
    """MostPop that tells when it is fitted, and by what name."""

    name = "counting"

    def __init__(self, seed: int = 0, label: str = "counting") -> None:
        self.name = label

    def fit(self, split, *, progress=lambda *_: None):
        RAN.append(self.name)
        return super().fit(split, progress=progress)


class Broken(MostPop):
    name = "broken"

    def fit(self, split, *, progress=lambda *_: None):
        raise ZeroDivisionError("the moon is in the wrong phase")


class Here(Method):
    """A method that is made in this file."""

    def load(self):
        return globals()[self.factory]


REGISTRY = {
    "mostpop": METHODS["mostpop"],
    "itemknn": METHODS["itemknn"],
    "ease": METHODS["ease"],
    "counting": Here("Counting"),
    "broken": Here("Broken", seeded=False),
    "absent": Method("loger.baselines.no_such_file:Nothing"),
}


@cache
def parts():
    return split(shop(users=60, items=160).dataset)


def run(out, *methods, **options):
    return compare(parts(), methods, out, registry=REGISTRY, samples=20, **options)


def test_values_are_those_of_tuning_fitting_and_evaluating_by_hand(tmp_path):
    table = run(tmp_path, "mostpop", "itemknn").reports["full"]
    whole = parts().refit()
    chosen = tune(ItemKNN, ItemKNN.GRID, parts()).settings
    by_hand = evaluate(
        [MostPop().fit(whole), ItemKNN(**chosen).fit(whole)], whole, "test", samples=20
    )
    assert table.models == by_hand.models
    for model in table.models:
        for metric, values in by_hand.values[model].items():
            assert table.values[model][metric].tobytes() == values.tobytes()
    assert table.table() == by_hand.table()


def test_a_method_that_is_there_is_not_run_again_and_reads_the_same(tmp_path):
    RAN.clear()
    first = run(tmp_path, "counting", "mostpop")
    again = run(tmp_path, "mostpop", "counting")
    assert RAN == ["counting"]
    assert {r.method for r in again.results} == {"counting", "mostpop"}
    for metric in ("ndcg", "recall"):
        for model in ("counting", "MostPop"):
            one, two = (c.reports["full"].values[model][metric] for c in (first, again))
            assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"k": 5}, {"part": "validation"}, {"settings": {"counting": {"label": "other"}}}],
)
def test_another_seed_length_part_or_setting_is_another_result(tmp_path, change):
    RAN.clear()
    run(tmp_path, "counting")
    run(tmp_path, "counting", **change)
    assert len(RAN) == 2


def test_other_data_are_another_result(tmp_path):
    RAN.clear()
    run(tmp_path, "counting")
    other = split(shop(users=60, items=160, seed=3).dataset)
    assert fingerprint(other) != fingerprint(parts())
    compare(other, ["counting"], tmp_path, registry=REGISTRY, samples=20)
    assert len(RAN) == 2


@pytest.mark.parametrize("damage", ["no arrays", "other arrays", "half a file"])
def test_a_damaged_result_is_found_out_anew(tmp_path, damage):
    RAN.clear()
    run(tmp_path, "counting")
    arrays = tmp_path / "counting.safetensors"
    if damage == "no arrays":
        arrays.unlink()
    elif damage == "other arrays":
        save_file(load_file(arrays), arrays, {"run_key": "another"})
    else:
        text = (tmp_path / "counting.json").read_text()
        (tmp_path / "counting.json").write_text(text[: len(text) // 2])
    run(tmp_path, "counting")
    assert len(RAN) == 2


def test_one_failure_is_named_and_the_others_come_through(tmp_path):
    compared = run(tmp_path, "broken", "mostpop", "absent", "counting")
    assert [r.method for r in compared.results] == ["mostpop", "counting"]
    assert compared.failures["broken"] == "the moon is in the wrong phase"
    assert "no_such_file" in compared.failures["absent"]
    assert "ZeroDivisionError" in (tmp_path / "broken.error.txt").read_text()
    assert "broken failed: the moon" in (tmp_path / "test-full.md").read_text()
    with pytest.raises(LogerError, match=r"all methods failed.*the moon"):
        run(tmp_path, "broken")


def test_an_interrupt_is_no_failure_and_keeps_what_was_done(tmp_path, monkeypatch):
    def interrupted(self, split, *, progress=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(Broken, "fit", interrupted)
    RAN.clear()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "counting", "broken")
    run(tmp_path, "counting")
    assert RAN == ["counting"]


def test_tables_say_the_same_in_every_format(tmp_path):
    report = run(tmp_path, "mostpop", "ease").reports["full"]
    shown = f"{100 * report.mean('EASE^R', 'ndcg'):.2f}"
    assert shown in (tmp_path / "test-full.md").read_text()
    assert shown in (tmp_path / "test-full.tex").read_text()
    rows = list(csv.DictReader((tmp_path / "test-full.csv").read_text().splitlines()))
    assert [row["model"] for row in rows] == ["MostPop", "EASE^R"]
    assert float(rows[1]["ndcg"]) == report.mean("EASE^R", "ndcg")
    kept = json.loads((tmp_path / "ease.json").read_text())
    assert kept["means"]["full"]["ndcg"] == report.mean("EASE^R", "ndcg")
    assert kept["settings"]["l2"] in EASE.GRID["l2"]
    assert len(kept["trials"]) == len(EASE.GRID["l2"])


def test_both_protocols_come_from_one_fit_and_share_candidates(tmp_path):
    RAN.clear()
    both = run(tmp_path, "counting", "mostpop", protocols=("full", "sampled-100"))
    assert RAN == ["counting"]
    # MostPop under two names: the same candidates give the same values.
    sampled = both.reports["sampled-100"].values
    assert (sampled["counting"]["ndcg"] == sampled["MostPop"]["ndcg"]).all()
    assert sampled["MostPop"]["ndcg"].mean() > both.reports["full"].mean("MostPop", "ndcg")


def test_who_learns_from_validation_gets_it_apart_and_is_not_judged_on_it(tmp_path):
    seen = []

    class Joined(Counting):
        def fit(self, split, *, progress=lambda *_: None):
            seen.append(len(split.validation))
            return super().fit(split, progress=progress)

    class Apart(Joined):
        learns_from_validation = True

    class Made(Method):
        def load(self):
            return {"Joined": Joined, "Apart": Apart}[self.factory]

    registry = {"apart": Made("Apart"), "joined": Made("Joined")}
    compare(parts(), ["apart", "joined"], tmp_path, registry=registry, samples=20)
    assert seen == [len(parts().validation), 0]
    with pytest.raises(LogerError, match="counting learns from the validation part; evaluate it"):
        compare(parts(), ["apart"], tmp_path, registry=registry, samples=20, part="validation")


def test_settings_of_loger_go_where_they_belong():
    made: Any = METHODS["loger"].make(seed=3, em={"rounds": 1}, sample_nodes=7)
    assert (made.config.em.rounds, made.config.sample_nodes, made.config.em.seed) == (1, 7, 3)
    forced = {"em": {"rounds": 4, "early_stop": False}}
    made = METHODS["loger-paper"].make(**forced)
    em = replace(LOGERConfig.paper().em, rounds=4, early_stop=False)
    assert made.config == replace(LOGERConfig.paper(), em=em)
    literal: Any = METHODS["paper-literal"].make(encoder={"epochs": 2})
    assert (literal.config.encoder.epochs, literal.config.encoder.gamma) == (2, 24.0)
    with pytest.raises(UnknownNameError, match=r"'em.round'; did you mean 'em.rounds'"):
        METHODS["loger"].make(em={"round": 1})


def test_an_encoder_is_named_inside_loger_and_alone():
    for name in ("loger", "loger-paper"):
        made: Any = METHODS[name].make(seed=3, encoder="gnn")
        assert isinstance(made.make_encoder(), GNN)
        assert (made.make_encoder().config.seed, made.name.endswith(", gnn")) == (3, True)
        plain: Any = METHODS[name].make(encoder="transe")
        assert plain.make_encoder().config == plain.config.encoder
    alone: Any = METHODS["encoder"].make(encoder="gnn", dimension=5)
    assert alone.make().config.dimension == 5
    with pytest.raises(UnknownNameError, match="unknown encoder 'gmn'; did you mean 'gnn'"):
        METHODS["encoder"].make(encoder="gmn")


def test_two_of_one_title_are_told_apart(tmp_path):
    registry = REGISTRY | {"again": Here("Counting")}
    report = compare(parts(), ["counting", "again"], tmp_path, registry=registry, samples=20)
    assert report.reports["full"].models == ("counting (counting)", "counting (again)")


def test_only_quick_methods_are_tuned_unless_asked(tmp_path):
    slow = {"ease": Method("loger.baselines.ease:EASE", seeded=False)}
    trials = {
        tune: compare(
            parts(), ["ease"], tmp_path / str(tune), registry=slow, tune=tune, samples=20
        ).results[0].trials
        for tune in (None, True, False)
    }  # fmt: skip
    assert (len(trials[None]), len(trials[True]), len(trials[False])) == (
        0,
        len(EASE.GRID["l2"]),
        0,
    )


def test_what_cannot_be_compared_is_refused_before_work_starts(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown method 'mostpp'; did you mean 'mostpop'"):
        run(tmp_path, "mostpp")
    with pytest.raises(LogerError, match="each only once"):
        run(tmp_path, "mostpop", "mostpop")
    with pytest.raises(LogerError, match=r"settings for \['ease'\]"):
        run(tmp_path, "mostpop", settings={"ease": {"l2": 1.0}})
    assert not list(tmp_path.iterdir())


def test_every_method_of_the_registry_can_be_made():
    for name, method in METHODS.items():
        made = method.make(seed=3)
        assert not made.is_fitted, name
        assert made.learns_from_validation == name.startswith(("loger", "paper")), name
        seeds = [getattr(of, "seed", None) for of in (made, getattr(made, "config", None))]
        assert (3 in seeds) == (method.seeded and name != "encoder"), name
    free: Any = METHODS["pgpr-free"].make(seed=3, epochs=2)
    assert (free.config.encoder.users, free.config.epochs, free.config.seed) == ("free", 2, 3)
    assert free.name != METHODS["pgpr"].make().name
    alone: Any = METHODS["encoder"].make(seed=3)
    assert alone.make().config.seed == 3


def test_the_command_compares_and_fails_for_what_failed(tmp_path, monkeypatch):
    shop(users=60, items=160).dataset.save(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    asked = ["compare", "data", "--out", "out", "--set", "ease.l2=30.0"]
    result = CliRunner().invoke(app, [*asked, "--methods", "mostpop,ease"])
    assert result.exit_code == 0, result.output
    assert "EASE^R" in result.stdout
    assert json.loads((tmp_path / "out" / "ease.json").read_text())["settings"] == {"l2": 30.0}
    asked[-1] = "ease.l2=-1"
    result = CliRunner().invoke(app, [*asked, "--methods", "mostpop,ease", "--json"])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert list(told["failures"]) == ["ease"]
    assert list(told["reports"]["full"]["models"]) == ["MostPop"]
    assert "ease failed: l2 must be above 0" in result.stderr


@pytest.mark.parametrize("text", ["epochs=3", "pgpr.epochs", ".a=3"])
def test_a_setting_that_is_written_wrongly_is_told(tmp_path, text):
    shop(users=60, items=160).dataset.save(tmp_path / "data")
    asked = ["compare", str(tmp_path / "data"), "--methods", "mostpop", "--set", text]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 2
    assert "METHOD.NAME=VALUE" in result.stderr


def test_help_names_every_method():
    assert KNOWN.replace("\n", "").split(", ") == list(METHODS)


def test_values_that_are_kept_are_those_of_the_users(tmp_path):
    result = run(tmp_path, "mostpop").results[0]
    kept = load_file(tmp_path / "mostpop.safetensors")
    assert (kept["users"] == result.users).all()
    assert np.array_equal(kept["full/ndcg"], result.values["full"]["ndcg"])


def test_methods_and_settings_side_by_side_in_processes_give_the_same(tmp_path):
    names = "mostpop", "itemknn", "absent", "ease"
    options = {"protocols": ("full", "sampled-100"), "tune": True}
    with ProcessEngine(2) as engine:
        apart = run(tmp_path / "apart", *names, engine=engine, **options)
        points = tune(ItemKNN, ItemKNN.GRID, parts(), engine=engine)
    alone = run(tmp_path / "alone", *names, **options)
    assert [r.method for r in apart.results] == ["mostpop", "itemknn", "ease"]
    assert "no_such_file" in apart.failures["absent"]
    assert "Traceback" in (tmp_path / "apart" / "absent.error.txt").read_text()
    for one, other in zip(apart.results, alone.results, strict=True):
        assert (one.settings, one.trials, one.run_key) == (
            other.settings,
            other.trials,
            other.run_key,
        )
        assert one.means == other.means
    assert points == tune(ItemKNN, ItemKNN.GRID, parts())
    again = run(tmp_path / "apart", *names[:2], **options)
    assert again.results[0].seconds == apart.results[0].seconds  # read, not run
