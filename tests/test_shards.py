"""Export into many files: the rows of ``recommend``, resumed after an interruption."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from loger.cli import app
from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.engine import LocalEngine, ProcessEngine
from loger.errors import DataError
from loger.explain.frames import lists_table
from loger.model import LOGER, LOGERConfig
from loger.ranking.selection import select
from loger.store import export

PARTS = 4


@pytest.fixture(scope="module")
def model():
    parts = split(shop(seed=3, users=120, items=60).dataset)
    config = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=2))
    return LOGER(config, engine=LocalEngine(1)).fit(parts, tune={})


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(export, "USERS", 32)


def _bytes(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_parts_hold_the_rows_of_recommend_in_order(model, tmp_path):
    told = export.export_lists(model, model.users, tmp_path / "lists", 3, explain=True)
    whole = model.recommend(k=3, explain=True)
    assert pl.read_parquet(tmp_path / "lists" / "part-*.parquet").equals(whole)
    assert told == (len(whole), whole.columns, PARTS, 0)
    names = [f"part-{n:05d}.parquet" for n in range(PARTS)]
    assert sorted(_bytes(tmp_path / "lists")) == ["manifest.json", *names, "plan.json"]


def test_no_users_make_one_empty_part(model, tmp_path):
    told = export.export_lists(model, [], tmp_path / "lists")
    assert (told.rows, told.parts) == (0, 1)
    assert pl.read_parquet(tmp_path / "lists" / "part-*.parquet").is_empty()


def test_what_is_there_is_not_made_again(model, tmp_path, monkeypatch):
    folder, made = tmp_path / "lists", []
    export.export_lists(model, model.users, folder, 3)
    before, times = _bytes(folder), {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}

    table_of = export.table_of

    def noted(*asked):
        made.append(asked)
        return table_of(*asked)

    monkeypatch.setattr(export, "table_of", noted)
    assert export.export_lists(model, model.users, folder, 3).kept == PARTS
    assert not made
    for name in ("part-00001.parquet", "manifest.json"):
        (folder / name).unlink()
    assert export.export_lists(model, model.users, folder, 3).kept == PARTS - 1
    assert len(made) == 1
    assert _bytes(folder) == before
    for name in ("part-00000.parquet", "part-00002.parquet"):
        assert (folder / name).stat().st_mtime_ns == times[name]


def test_another_export_into_the_same_folder_is_refused(model, tmp_path):
    folder = tmp_path / "lists"
    export.export_lists(model, model.users, folder, 3)
    with pytest.raises(
        DataError, match=r"recommendations with other values of k; choose a new folder"
    ):
        export.export_lists(model, model.users, folder, 4)
    with pytest.raises(DataError, match="other values of users and explain"):
        export.export_lists(model, model.users[1:], folder, 3, explain=True)
    other = LOGER(model.config, engine=LocalEngine(1))
    vars(other).update(vars(model))
    other.ranker_ = model.ranker_.with_weights(model.weights_ * 2)
    with pytest.raises(DataError, match="with other values of model"):
        export.export_lists(other, model.users, folder, 3)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(DataError, match="not empty and not a folder of lists"):
        export.export_lists(model, model.users, tmp_path / "mine")


def test_filters_hold_and_belong_to_the_plan(model, tmp_path):
    banned = model.items[:30]
    selection = select(model.graph_, exclude=set(banned), diversity=0.2)
    wanted = {"explain": True, "selection": selection}
    export.export_lists(model, model.users, tmp_path / "lists", 3, **wanted)
    whole = model.recommend(k=3, explain=True, exclude=set(banned), diversity=0.2)
    assert pl.read_parquet(tmp_path / "lists" / "part-*.parquet").equals(whole)
    with pytest.raises(DataError, match="with other values of filter and variety"):
        export.export_lists(model, model.users, tmp_path / "lists", 3, explain=True)


def test_a_damaged_part_is_named(model, tmp_path):
    folder = tmp_path / "lists"
    export.export_lists(model, model.users, folder, 3)
    with (folder / "part-00001.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"part-00001.parquet: damaged or changed"):
        export.export_lists(model, model.users, folder, 3)


def test_an_error_says_in_which_block_and_in_whose_list_it_is(model, tmp_path, monkeypatch):
    table = lists_table

    def fails(ranker, users, *asked):
        if 77 in users:
            raise ValueError("not a number")
        return table(ranker, users, *asked)

    monkeypatch.setattr(export, "lists_table", fails)
    with pytest.raises(ValueError, match="not a number") as caught:
        export.export_lists(model, model.users, tmp_path / "lists", 3)
    whose, block = caught.value.__notes__
    assert whose == f"in the list of user {model.users[77]!r}"
    assert block.startswith("while recommending, in block 3 of 4")


SCRIPT = """
import sys, time
from loger.store import export
from loger.cli import app

export.USERS = 10
made = export.table_of
export.table_of = lambda *asked: time.sleep(0.2) or made(*asked)
app(["--engine", "threads=1", "recommend", sys.argv[1], "--all", "--out", sys.argv[2]])
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_same_command_goes_on_where_it_was_killed(model, tmp_path, monkeypatch, how):
    monkeypatch.setattr(export, "USERS", 10)
    bundle, out = tmp_path / "shop.bundle", tmp_path / "lists"
    model.save(bundle)
    driver = subprocess.Popen([sys.executable, "-c", SCRIPT, str(bundle), str(out)])
    deadline = time.monotonic() + 120
    while len(list(out.glob("part-*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(driver.pid, how)
    code = driver.wait(timeout=60)
    assert code == (130 if how == signal.SIGINT else -signal.SIGKILL)
    kept = len(list(out.glob("part-*")))
    assert 3 <= kept < 12
    again = CliRunner().invoke(app, ["recommend", str(bundle), "--all", "--out", str(out)])
    assert f"({kept} of 12 parts were there)" in again.stdout, again.output
    told = export.export_lists(model, model.users, tmp_path / "whole")
    assert told.parts == 12
    assert _bytes(out) == _bytes(tmp_path / "whole")


def test_the_lock_of_a_part_that_was_done_when_its_writer_was_killed_goes(model, tmp_path):
    out = tmp_path / "lists"
    export.export_lists(model, model.users[:30], out)
    whole = _bytes(out)
    (out / "manifest.json").unlink()
    (out / ".part-00000.parquet.lock").write_text("24616 save")
    export.export_lists(model, model.users[:30], out)
    assert _bytes(out) == whole


def test_processes_write_the_same_bytes(model, tmp_path):
    with ProcessEngine(2) as engine:
        for name, on in (("here", LocalEngine(1)), ("there", engine)):
            other = LOGER(model.config)
            vars(other).update(vars(model))
            other.engine = on
            export.export_lists(other, np.array(model.users), tmp_path / name, 3, explain=True)
    assert _bytes(tmp_path / "here") == _bytes(tmp_path / "there")
    assert Path(tmp_path / "here" / "manifest.json").is_file()
