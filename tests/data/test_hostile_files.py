"""Malicious files are refused with their place, using little time and memory."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import time
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from loger.data import frames, load, parquet, table_files
from loger.data.demo import shop
from loger.errors import DataError, LogerError

GOOD = "user,item,rating,time\nann,i1,5,10\nbob,i2,3,20\n"


def test_a_small_file_that_unpacks_to_very_much_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ALWAYS", 2**20)
    path = tmp_path / "interactions.csv.gz"
    path.write_bytes(gzip.compress(b"user,item\n" + b"a,b\n" * 10_000_000, 9))
    with pytest.raises(
        DataError, match=r"csv.gz: the file unpacks to over .* MB, 100 times its size"
    ):
        load(tmp_path)
    path.write_bytes(gzip.compress(GOOD.encode()))
    assert len(load(tmp_path).interactions) == 2


def test_a_table_of_our_own_is_not_read_on_its_own(tmp_path: Path) -> None:
    shop(users=30, items=60).dataset.save(tmp_path / "d")
    (tmp_path / "lone").mkdir()
    (tmp_path / "d" / "interactions.parquet").rename(tmp_path / "lone" / "interactions.parquet")
    with pytest.raises(DataError, match="is part of a saved data set and can't be read"):
        load(tmp_path / "lone")


@pytest.mark.parametrize("columns", [4_000, 100_000])
def test_far_too_many_columns_are_told_at_once(tmp_path: Path, columns: int) -> None:
    names = ",".join(f"c{k}" for k in range(columns))
    (tmp_path / "interactions.csv").write_text(f"{names}\n{names}\n")
    begun = time.process_time()
    for read in (lambda: load(tmp_path), lambda: frames.read(tmp_path / "interactions.csv")):
        with pytest.raises(
            DataError, match=f"has {columns:,} columns, but loger reads at most 1,000"
        ):
            read()
    assert time.process_time() - begun < 5


def test_a_field_without_end_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "interactions.csv").write_text(GOOD + "a" * 11_000_000 + ",i1,5,10\n")
    with pytest.raises(
        DataError, match=r"interactions.csv:4: the line is longer than 10,000,000 bytes"
    ):
        load(tmp_path)


ODD_JSON = {
    "deep": "[" * 50_000 + "]" * 50_000,
    "deep objects": '{"user":' * 50_000 + "1" + "}" * 50_000,
    "half a pair": '{"user": "a\\ud800", "item": "b"}',
    "mixed": '{"user": 1, "item": "b"}\n{"user": "x", "item": [1]}\n{"user": {"a": 1}}',
    "huge number": '{"user": 1e999, "item": ' + "9" * 400 + "}",
    "numbers": '{"user": 1, "item": 2}\n{"user": 18446744073709551616, "item": 2}',
}


@pytest.mark.parametrize("text", ODD_JSON.values(), ids=ODD_JSON)
def test_odd_json_is_read_or_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text(text + "\n")
    try:
        frame = frames.read(path)
    except LogerError as error:
        assert "orders.jsonl" in str(error)
    else:
        frame.write_json()  # every cell is a value that can be written


ODD_PARQUET = {
    "structs": {"user": [{"a": 1}, {"a": 2}], "item": ["x", "y"]},
    "lists": {"user": [[1], [2]], "item": ["x", "y"]},
    "bytes": {"user": [b"\xff", b"b"], "item": ["x", "y"]},
    "nothing": {"user": [None, None], "item": ["x", "y"]},
    "times": {"user": ["a", "b"], "item": ["x", "y"], "time": [[1], [2]]},
    "infinite": {"user": ["a", "b"], "item": ["x", "y"], "rating": [np.inf, np.nan]},
    "durations": {"user": ["a", "b"], "item": ["x", "y"], "time": [timedelta(1), timedelta(2)]},
}


@pytest.mark.parametrize("columns", ODD_PARQUET.values(), ids=ODD_PARQUET)
def test_odd_parquet_is_read_or_refused_with_its_file(tmp_path: Path, columns) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "interactions.parquet")
    try:
        load(tmp_path)
    except LogerError as error:
        assert str(tmp_path) in str(error)


def test_parquet_with_flipped_bytes_is_read_or_refused(tmp_path: Path) -> None:
    raw = io.BytesIO()
    table = {"user": ["a", "b", "c"] * 50, "item": ["x", "y", "z"] * 50, "rating": [1.0] * 150}
    pl.DataFrame(table).write_parquet(raw)
    rng, path = np.random.default_rng(0), tmp_path / "interactions.parquet"
    refused = 0
    for _ in range(150):
        text = bytearray(raw.getvalue())
        for place in rng.integers(len(text), size=3):
            text[place] = rng.integers(256)
        path.write_bytes(text)
        try:
            load(tmp_path)
        except LogerError:
            refused += 1
    assert refused > 50


def test_numbers_of_a_saved_data_set_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    from loger.data import saved
    from loger.engine.files import atomic_folder, read_manifest

    shop(users=30, items=60).dataset.save(tmp_path / "d")
    about = read_manifest(tmp_path / "d", saved.SAVED).about
    tables_of = {n: pl.read_parquet(tmp_path / "d" / f"{n}.parquet") for n in saved.TABLES}
    tables_of["facts"] = tables_of["facts"].with_columns(pl.lit(float("nan")).alias("head"))
    with atomic_folder(tmp_path / "d", saved.SAVED, json.loads(json.dumps(about))) as part:
        for name, table in tables_of.items():
            table.write_parquet(part / f"{name}.parquet")
    with pytest.raises(DataError, match="head must contain whole numbers"):
        load(tmp_path / "d")


def test_a_parquet_file_of_one_value_a_billion_times_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "interactions.parquet"
    n = 30_000_000
    table = pl.DataFrame({"user": ["a"], "item": ["b"]}).lazy()
    (
        table.join(pl.LazyFrame({"k": pl.int_range(n, eager=True)}), how="cross").drop("k")
    ).sink_parquet(path, row_group_size=10_000_000)
    assert path.stat().st_size < 2**20
    for read in (lambda: load(tmp_path), lambda: frames.read(path)):
        with pytest.raises(DataError, match="unpacks to over 64 MB"):
            read()


def _signed(folder: Path, change_about=lambda about: about, change=lambda tables_of: None) -> None:
    """A saved data set changed by somebody who makes its checksums true again."""
    from loger.data import saved
    from loger.engine.files import atomic_folder, read_manifest

    about = change_about(dict(read_manifest(folder, saved.SAVED).about))
    tables_of = {p.stem: pl.read_parquet(p) for p in folder.glob("*.parquet")}
    change(tables_of)
    with atomic_folder(folder, saved.SAVED, about) as part:
        for name, table in tables_of.items():
            table.write_parquet(part / f"{name}.parquet")


ODD_ABOUT = {"no types": {"types": None}, "notes": {"notes": [[1]]}, "types": {"types": [[]]}}


@pytest.mark.parametrize("odd", ODD_ABOUT.values(), ids=ODD_ABOUT)
def test_a_saved_data_set_with_an_odd_manifest_is_refused_in_one_line(tmp_path: Path, odd) -> None:
    shop(users=30, items=60).dataset.save(tmp_path / "d")
    _signed(tmp_path / "d", lambda about: about | odd)
    with pytest.raises(
        DataError, match=r"d: can't read the data set .*; load the original"
    ) as told:
        load(tmp_path / "d")
    assert "\n" not in str(told.value)


ODD_COLUMNS = {
    "empty names": ("entities", pl.lit(None, pl.String).alias("name"), "name has empty cells"),
    "lists": ("entities", pl.concat_list("label").alias("label"), "label must contain text, not L"),
    "dates": (
        "interactions",
        pl.lit("2020-01-01").alias("time"),
        "time must contain numbers, not S",
    ),
}


@pytest.mark.parametrize(("table", "column", "what"), ODD_COLUMNS.values(), ids=ODD_COLUMNS)
def test_a_saved_data_set_with_odd_columns_is_refused(tmp_path: Path, table, column, what) -> None:
    shop(users=30, items=60).dataset.save(tmp_path / "d")
    _signed(
        tmp_path / "d",
        change=lambda tables_of: tables_of.update({table: tables_of[table].with_columns(column)}),
    )
    with pytest.raises(DataError, match=what):
        load(tmp_path / "d")


def test_half_of_a_surrogate_pair_is_replaced_however_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    for half in ("\\ud800", "\\uD800"):
        path.write_text(f'{{"user": "a{half}", "item": "b"}}\n')
        assert frames.read(path)["user"].to_list() == ["a?"]


HOSTILE = Path(__file__).with_name("hostile")
"""Written by Arrow, each at most 10 kB: a text of 100,000 signs 3,000 to 60,000 times, in a
dictionary, in lists, in structs, or as changes to the text before; one text of 300 MB; millions of
empty cells, alone and in one list; and empty cells of a fixed length, which memory has room for."""


READ = """
import resource, sys
from pathlib import Path
from loger.data.frames import read_item_list
from loger.errors import DataError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
for path in sorted(Path(sys.argv[1]).glob("*.parquet")):
    before = peak()
    try:
        read_item_list(path)
        print(path.stem, "was read")
    except DataError as error:
        grown = peak() - before
        if "unpacks to over 6" not in str(error) or grown > 200:
            print(path.stem, grown, error)
"""


def test_parquet_that_unpacks_to_very_much_is_refused_in_little_memory() -> None:
    files = list(HOSTILE.glob("*.parquet"))
    assert len(files) == 12 and all(file.stat().st_size < 10_000 for file in files)
    command = [sys.executable, "-c", READ, str(HOSTILE)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


@pytest.mark.parametrize("group", [None, 70])
def test_parquet_of_every_type_is_read_as_it_was_written(tmp_path: Path, group) -> None:
    n = 300
    table = pl.DataFrame(
        {
            "line": [str(k) for k in range(n)],
            "item": [f"i{k % 7}" for k in range(n)],
            "tags": [[f"t{j}" for j in range(k % 4)] or None for k in range(n)],
            "vector": pl.Series(
                [[1.0, 2.0, float(k)] for k in range(n)], dtype=pl.Array(pl.Float32, 3)
            ),
            "both": [{"a": k, "b": [None, "x"]} for k in range(n)],
            "when": [datetime(2026, 1, 1) + timedelta(k) for k in range(n)],
            "cost": [Decimal(k) / 4 for k in range(n)],
        }
    )
    path = tmp_path / "t.parquet"
    table.write_parquet(path, row_group_size=group)
    read = table_files.read_parquet(path)
    assert read["line"].to_list() == list(range(1, n + 1))
    assert read.drop("line").equals(table.rename({"line": "line_"}))


def test_texts_written_as_changes_are_read_slice_by_slice(monkeypatch) -> None:
    monkeypatch.setattr(parquet, "ALWAYS", 400_000_000)
    texts = table_files.read_parquet(HOSTILE / "changes.parquet")["item"]
    assert len(texts) == 3_000 and texts.unique().to_list() == ["x" * 100_000]
