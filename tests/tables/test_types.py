"""Values keep their types: integer IDs and times. Also items that no table lists."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from loger.cli import app
from loger.config import LOGERConfig
from loger.data import from_frames, load
from loger.encoder import TransEConfig
from loger.errors import DataError
from loger.model import LOGER
from loger.store.export import export_lists
from loger.tables.mapping import TableMapping
from loger.tables.table import from_tables
from loger.updates.events import Event

START = 1_600_000_000
SMALL = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))


def views(unit: int = 1) -> pl.DataFrame:
    """Who cooked what: integers, and times since 1970 in some unit."""
    rng = random.Random(1)
    rows = [
        (4000 + u, 70 + (u % 5 + 5 * k + rng.randrange(2)) % 30, (START + 997 * u + 61 * k) * unit)
        for u in range(60)
        for k in range(8)
    ]
    return pl.DataFrame(rows, schema=["member_id", "recipe_id", "cooked_time"], orient="row")


RECIPES = pl.DataFrame(
    {
        "recipe_id": range(70, 95),  # five of thirty are not listed
        "title": [f"Soup {k}" for k in range(25)],
        "kitchen": [f"kitchen {k % 5}" for k in range(25)],
    }
)


@pytest.fixture(scope="module")
def model() -> LOGER:
    return LOGER(SMALL).fit(from_tables(views(1000), RECIPES))


BOTH_FORMS = ("Jos\u00e9", "Jose\u0301")
"""One name with its accent inside a letter and after it."""


@pytest.mark.parametrize("way", ["csv", "parquet", "frame", "tables", "json"])
def test_a_name_in_either_form_of_unicode_is_one_user(way: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": BOTH_FORMS, "item": ["a", "b"]})
    path = tmp_path / f"interactions.{'csv' if way in ('csv', 'tables') else way}"
    if way in ("csv", "tables"):
        frame.write_csv(path)
    elif way == "parquet":
        frame.write_parquet(path)
    elif way == "json":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in frame.to_dicts()))
    if way == "frame":
        data = from_frames(frame)
    else:
        data = from_tables(path) if way in ("tables", "json") else load(tmp_path)
    assert data.vocabulary.names[: data.n_users] == [BOTH_FORMS[0]]


def test_a_model_knows_a_name_in_either_form_of_unicode(model: LOGER) -> None:
    known = BOTH_FORMS[0]
    for name in BOTH_FORMS:
        later = model.update([{"user": name, "item": "71", "time": START}])
        again = later.update([{"user": other, "item": "72"} for other in BOTH_FORMS])
        assert set(again.users) - set(model.users) == {known}
        for other in BOTH_FORMS:
            assert len(again.recommend(other, 3)) == 3
            assert known not in again.remove(users=other).users


def test_integer_ids_come_back_as_integers(model: LOGER, tmp_path: Path) -> None:
    for explain in (False, True):
        table = model.recommend([4001, 4002], k=3, explain=explain)
        assert table.schema["user"] == table.schema["item"] == pl.Int64
        assert set(table["user"]) == {4001, 4002}
    table.join(RECIPES, left_on="item", right_on="recipe_id")  # other types would be refused
    assert model.history(4001).schema["item"] == pl.Int64
    assert model.similar(71, k=3).schema["item"] == pl.Int64
    assert model.graph_.vocabulary.names[0] == "4000"  # inside, names are text
    model.save(tmp_path / "m.bundle")
    kept = LOGER.load(tmp_path / "m.bundle")
    assert kept.recommend(4001, k=3).equals(model.recommend(4001, k=3))
    export_lists(kept, ["4001", "4002"], tmp_path / "lists.parquet", k=3)
    assert pl.read_parquet(tmp_path / "lists.parquet").schema["item"] == pl.Int64


def test_one_name_that_is_none_makes_all_of_them_text(model: LOGER, tmp_path: Path) -> None:
    model.save(tmp_path / "m.bundle")
    other = LOGER.load(tmp_path / "m.bundle")
    other = other.update([{"user": "ann", "item": 71}, {"user": 4001, "item": 92}])
    table = other.recommend([4001, "ann"], k=2)
    assert (table.schema["user"], table.schema["item"]) == (pl.String, pl.Int64)


def test_text_that_looks_like_integers_stays_text(tmp_path: Path) -> None:
    text = views().with_columns(pl.col("member_id", "recipe_id").cast(pl.String))
    padded = views().with_columns(pl.col("recipe_id").cast(pl.String).str.zfill(5))
    plain = views().rename({"member_id": "user", "recipe_id": "item", "cooked_time": "time"})
    plain.write_csv(tmp_path / "interactions.csv")
    text.write_parquet(tmp_path / "views.parquet")
    integers = {
        "frame": (from_tables(views()), {"user", "item"}),
        "text": (from_tables(text), set()),
        "padded": (from_tables(padded), {"user"}),
        "parquet": (from_tables(tmp_path / "views.parquet"), set()),
        "csv": (load(tmp_path / "interactions.csv"), {"user", "item"}),
        "plain frame": (from_frames(plain), {"user", "item"}),
        "plain text": (from_frames(plain.with_columns(pl.col("user").cast(pl.String))), {"item"}),
    }
    for name, (dataset, expected) in integers.items():
        assert dataset.vocabulary.integers == expected, name
    integers["frame"][0].save(tmp_path / "saved")
    assert load(tmp_path / "saved").vocabulary.integers == {"user", "item"}


@pytest.mark.parametrize("unit", [1, 1000, 10**6])
def test_times_since_1970_are_read_in_any_unit_and_noted(unit: int) -> None:
    dataset = from_tables(views(unit))
    assert dataset.interactions.times is not None
    assert dataset.interactions.times.min() == START
    noted = [n for n in dataset.notes if "since 1970" in n.what]
    assert [n.count for n in noted] == [480]
    assert noted[0].example.endswith("is 2020-09-13 12:26:40")


def test_times_are_shown_as_dates(model: LOGER) -> None:
    times = model.history(4001)["time"]
    assert times.dtype == pl.Datetime("us", "UTC")
    assert times.max() == datetime.fromtimestamp(START + 997 + 7 * 61, UTC)
    assert Event("interaction", {"time": START * 1000}).when == START


def test_new_rows_count_time_as_the_model_does(model: LOGER, tmp_path: Path) -> None:
    model.save(tmp_path / "m.bundle")
    other = LOGER.load(tmp_path / "m.bundle")
    row = {"user": 4001, "item": 94, "time": (START + 10**6) * 1000}
    other = other.update([row])
    assert other.history(4001)["time"][0] == datetime.fromtimestamp(START + 10**6, UTC)


def test_items_that_no_table_lists_are_kept_or_dropped_and_noted(tmp_path: Path) -> None:
    kept = from_tables(views(), RECIPES)
    dropped = from_tables(views(), RECIPES, unknown_items="drop")
    assert (kept.n_items, dropped.n_items) == (30, 25)
    rows = int((views()["recipe_id"] >= 95).sum())
    for dataset, what in ((kept, "kept as items without facts"), (dropped, f"their {rows} rows")):
        (note,) = [n for n in dataset.notes if "items of the interactions are not in" in n.what]
        assert note.count == 5 and what in note.what and len(note.example.split(", ")) == 5
    assert isinstance(dropped.mapping, TableMapping)
    dropped.mapping.save(tmp_path / "map.toml")
    assert from_tables(views(), RECIPES, mapping=tmp_path / "map.toml").n_items == 25
    (tmp_path / "bad.toml").write_text(
        (tmp_path / "map.toml").read_text().replace('= "drop"', '= "hide"')
    )
    with pytest.raises(DataError, match="unknown_items 'hide'; choose from 'drop', 'keep'"):
        TableMapping.load(tmp_path / "bad.toml")


def test_the_command_drops_unknown_items(tmp_path: Path) -> None:
    views().write_csv(tmp_path / "cooked.csv")
    RECIPES.write_csv(tmp_path / "recipes.csv")
    build = ["data", "build", "table", "--interactions", str(tmp_path / "cooked.csv")]
    build += ["--items", str(tmp_path / "recipes.csv"), "--out", str(tmp_path / "shop")]
    done = CliRunner().invoke(app, [*build, "--set", "unknown_items=drop"])
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "shop").n_items == 25
    assert 'unknown_items = "drop"' in (tmp_path / "shop.toml").read_text()


def test_one_file_in_two_places_is_refused(tmp_path: Path) -> None:
    views().write_csv(tmp_path / "cooked.csv")
    with pytest.raises(DataError, match="the table of both interactions and items"):
        from_tables(tmp_path / "cooked.csv", tmp_path / "cooked.csv")


def test_times_of_which_some_cannot_be_read_are_times_all_the_same() -> None:
    dates = [
        "soon" if k % 16 == 0 else f"2024-05-{k % 28 + 1:02d} 10:{k % 60:02d}" for k in range(480)
    ]
    dataset = from_tables(views().with_columns(cooked_time=pl.Series(dates)))
    assert isinstance(dataset.mapping, TableMapping)
    assert dataset.mapping.interactions.time == "cooked_time"
    (note,) = [n for n in dataset.notes if "unreadable time" in n.what]
    assert note.count == 30
