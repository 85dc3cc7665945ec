"""Tables of any shop as frames: CSV, TSV, Parquet, JSON lines, or frames of polars and pandas.

Each has a column ``line`` for messages: the line of a text file, the number of the row elsewhere.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from loger.data import tables
from loger.data.dataframes import is_frame, polars_frame
from loger.errors import DataError

ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".jsonl", ".ndjson", ".json")
ROW = "row"
"""What a first column without a name is called."""
_SEPARATORS = ",;\t|"


def read(source: Path | str | object) -> pl.DataFrame:
    """The table at a path, or of a frame that is in memory already; with ``line``."""
    if isinstance(source, str | Path):
        with tables.told(source):
            return _read_file(Path(source))
    if not isinstance(source, pl.LazyFrame) and not is_frame(source):
        raise DataError(
            "is neither a path nor a frame", value=type(source).__name__, remedy="give a file name"
        )
    return polars_frame(source)


def _read_file(path: Path) -> pl.DataFrame:
    name = path.name.lower()
    for packed in tables.COMPRESSIONS[1:]:
        name = name.removesuffix(packed)
    if not name.endswith(ENDINGS):
        raise DataError(
            "is not a table that can be read", path=path, remedy=f"give one of {', '.join(ENDINGS)}"
        )
    if name.endswith(".parquet"):
        frame = tables.read_parquet(path)
        if "line" in pl.read_parquet_schema(io.BytesIO(tables.read_bytes(path))):
            lines = pl.read_parquet(io.BytesIO(tables.read_bytes(path)), columns=["line"])
            frame = frame.with_columns(lines["line"].alias("line_"))
        return frame
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return _read_json(path)
    return _read_delimited(path)


def _read_json(path: Path) -> pl.DataFrame:
    text = tables.read_text(path)
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
                "should be one JSON object",
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
        tables.check_width(path, tuple(names))
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)


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
    """A table with a header; cells in quotes may hold separators and ends of lines."""
    text = tables.read_text(path)
    head = text[: text.index("\n")] if "\n" in text else text
    separator = max(_SEPARATORS, key=head.count) if any(s in head for s in _SEPARATORS) else ","
    names = [name.strip() for name in head.split(separator)]
    if '"' not in text and "line" not in names and names[0]:  # columnar, and a row is a line
        _check_names(path, names)
        return _blanked(tables.read_table(path, separator=separator))
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        names = [name.strip() for name in next(rows)]
        if names and not names[0] and ROW not in names:  # the index that pandas writes
            names[0] = ROW
        _check_names(path, names)
        names = ["line_" if name == "line" else name for name in names]
        lines, cells = list[int](), list[list[str]]()
        before = rows.line_num
        for row in rows:
            if row:
                if len(row) != len(names):
                    raise DataError(
                        f"should have {len(names)} columns separated by {separator!r}",
                        path=path,
                        line=before + 1,
                        value=separator.join(row)[:80],
                        remedy="give every row the columns of the header",
                    )
                lines.append(before + 1)
                cells.append(row)
            before = rows.line_num
    except csv.Error as error:
        raise DataError(
            f"cannot be read ({error})", path=path, line=rows.line_num, remedy="fix the line"
        ) from None
    if not cells:
        raise DataError("has a header but no rows", path=path, remedy="add rows below the header")
    frame = pl.DataFrame(cells, schema=dict.fromkeys(names, pl.String), orient="row")
    return _blanked(frame.with_columns(pl.Series("line", lines, dtype=pl.Int64)))


def _blanked(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with stripped cells, empty ones null."""
    text = pl.col(pl.String).str.strip_chars()
    return frame.with_columns(pl.when(text != "").then(text).name.keep())


def _check_names(path: Path, names: list[str]) -> None:
    tables.check_width(path, names)
    wrong = [n for n in names if n == "" or names.count(n) > 1]
    if wrong:
        raise DataError(
            "the header has a column name that is empty or repeated",
            path=path,
            line=1,
            value=wrong[0],
            remedy="give every column its own name",
        )
