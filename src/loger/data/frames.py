"""Tables of any shop as frames: CSV, TSV, Parquet, JSON lines, or frames of polars and pandas.

Each has a column ``line`` for messages: the line of a text file, the number of the row elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from loger.data import table_files
from loger.data.dataset import is_frame
from loger.errors import DataError

ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".jsonl", ".ndjson", ".json")
ROW = "row"
"""What a first column without a name is called."""
_SEPARATORS = ",;\t|"


def read(source: Path | str | object) -> pl.DataFrame:
    """The table at a path, or of a frame that is in memory already; with ``line``."""
    if isinstance(source, str | Path):
        with table_files.errors_naming(source):
            return _read_file(Path(source))
    if not isinstance(source, pl.LazyFrame) and not is_frame(source):
        raise DataError(
            "a table must be a file or a data frame",
            value=type(source).__name__,
            remedy="pass a path, or a DataFrame of polars or pandas",
        )
    return polars_frame(source)


def _read_file(path: Path) -> pl.DataFrame:
    name = path.name.lower()
    for packed in table_files.COMPRESSIONS[1:]:
        name = name.removesuffix(packed)
    if not name.endswith(ENDINGS):
        raise DataError(
            "can't read this file as a table",
            path=path,
            remedy=f"use one of these formats: {', '.join(ENDINGS)}",
        )
    if name.endswith(".parquet"):
        return table_files.read_parquet(path)
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return _read_json(path)
    return _read_delimited(path)


def _read_json(path: Path) -> pl.DataFrame:
    text = table_files.read_text(path)
    rows, names = [], set[str]()
    for line, cell in enumerate(text.split("\n"), 1):
        if not cell.strip():
            continue
        try:
            row = json.loads(cell)
        except (ValueError, RecursionError) as error:
            row = str(error)
        if not isinstance(row, dict):
            raise DataError(
                "the line isn't a JSON object",
                path=path,
                line=line,
                value=cell[:80],
                remedy="write one object per line",
            )
        if "\\ud" in cell.lower():  # halves of surrogate pairs are no characters
            row = json.loads(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace"))
        flat = {"line_" if k == "line" else k: v for k, v in _flat(row)}
        rows.append(flat | {"line": line})
        names |= flat.keys()
        table_files.check_width(path, tuple(names))
    return table_files.composed(pl.DataFrame(rows, infer_schema_length=None, strict=False))


def _flat(row: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a JSON object, those of objects within it under name.name; what a list
    holds of objects and lists becomes their JSON."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        elif isinstance(value, list):
            nested = (json.dumps(v) if isinstance(v, dict | list) else v for v in value)
            yield f"{before}{key}", [None if v is None else str(v) for v in nested]
        else:
            yield f"{before}{key}", value


def _read_delimited(path: Path) -> pl.DataFrame:
    """A table with a header; cells in quotes may hold separators and ends of lines. Cells are
    stripped, and empty ones null."""
    table = table_files.read_table(path, separator=_separator_of, quotes=True, rename=_usable_names)
    text = pl.col(pl.String).str.strip_chars()
    return table.with_columns(pl.when(text != "").then(text).name.keep())


def _separator_of(header: str) -> str:
    """The sign that divides most of a header."""
    return max(_SEPARATORS, key=header.count) if any(s in header for s in _SEPARATORS) else ","


def _usable_names(names: Sequence[str]) -> list[str]:
    """The names of columns, with one for the index that pandas writes; "line" is ours."""
    first = ROW if names[:1] == [""] and ROW not in names else names[0]
    return ["line_" if name == "line" else name for name in (first, *names[1:])]


def polars_frame(source: object, name: str | None = None) -> pl.DataFrame:
    """The table of a frame with the number of each row, from 1, as its ``line``; a column that
    is called so already gets another name. ``name`` is for messages."""
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    if not is_frame(source):
        raise DataError(
            "expected a polars or pandas DataFrame",
            path=name,
            value=type(source).__name__,
            remedy="pass a DataFrame, or read files with loger.data.load",
        )
    frame = source if isinstance(source, pl.DataFrame) else _from_pandas(source, name)
    free = "line_"
    while free in frame.columns:
        free += "_"
    frame = table_files.composed(frame).rename({"line": free}, strict=False)
    return frame.with_row_index("line", offset=1)


def _from_pandas(source: Any, name: str | None) -> pl.DataFrame:
    """Column by column through Python's own values: so it needs no pyarrow, and missing values
    become null."""
    index = [label for label in getattr(source.index, "names", ()) if label is not None]
    if index and not set(index) & set(source.columns):
        source = source.reset_index()  # set_index("user_id") makes an id no less of a column
    names = [str(c) for c in source.columns]
    twice = [c for c in names if names.count(c) > 1]
    if twice:
        raise DataError(
            "two columns have the same name",
            path=name,
            value=twice[0],
            remedy="give every column its own name",
        )
    data = {}
    for column in source.columns:
        values = [_plain(v) for v in source[column].tolist()]
        try:
            data[str(column)] = pl.Series(values, strict=False)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"column {column} mixes values of different types ({str(error).splitlines()[0]})",
                path=name,
                remedy="make them all text, all numbers or all dates",
            ) from None
    return pl.DataFrame(data)


def _plain(value: Any) -> Any:
    """A value of a pandas column; NaN, NaT and NA, which differ from themselves, are None."""
    try:
        missing = value is None or bool(value != value)
    except (TypeError, ValueError):  # NA has no truth, arrays have many
        missing = type(value).__name__ == "NAType"
    if missing:
        return None
    return value.tolist() if hasattr(value, "tolist") else value


def read_item_list(path: Path | str) -> list[str]:
    """The names of items in a file, such as those in stock: one in a line, or the column ``item``
    of a CSV or Parquet table."""
    path = Path(path)
    if not {".csv", ".tsv", ".parquet"} & set(path.suffixes):
        lines = table_files.read_lines(path)["text"].str.strip_chars()
        return lines.filter(lines != "").to_list()
    table = read(path)
    if "item" not in table.columns:
        what, found = "an item table needs a column 'item'", ", ".join(table.columns[1:])
        raise DataError(what, path=path, value=found, remedy="call the column of item IDs 'item'")
    return table["item"].cast(pl.String).drop_nulls().to_list()
