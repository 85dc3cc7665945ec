"""Reads text and tables from disk, and names the file and line of every mistake in them.

Readers say which columns they want; this module opens (compressed) files, checks the text,
and hands back polars frames with a ``line`` column, so that every later complaint can
name its place.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unicodedata import normalize

import polars as pl

from loger.data import parquet
from loger.data.dataset import Note
from loger.data.parquet import EXPANSION
from loger.errors import DataError

_PACKINGS: Mapping[str, Any] = {".gz": gzip, ".bz2": bz2, ".xz": lzma}
COMPRESSIONS = ("", *_PACKINGS)
MAX_COLUMNS, MAX_LINE = 1_000, 10_000_000
"""Of a table, and bytes of a line."""
ROWS_PER_BLOCK = 100_000
"""Rows of quoted tables that are in memory as Python strings at a time."""
_LIBRARIES = (
    pl.exceptions.PolarsError, pl.exceptions.PanicException, OverflowError, RecursionError,
    UnicodeError,
)  # fmt: skip


@contextmanager
def errors_naming(path: Path | str | None) -> Iterator[None]:
    """Re-raise errors of libraries, even panics, as DataError naming the file."""
    try:
        yield
    except _LIBRARIES as error:
        why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(
            f"can't read the file ({why})", path=path, remedy="check the types of its columns"
        ) from error


MARK = "loger"
"""Key in the metadata of Parquet files that belong to a saved data set."""


def refuse(bad: pl.DataFrame, what: str, path: Path, *columns: str, remedy: str) -> None:
    """Raise an error about the first of some rows, if there are any: ``what`` is wrong, the values
    of ``columns`` in it, and what to do."""
    if not len(bad):
        return
    first = bad.row(0, named=True)
    values = tuple("" if first[c] is None else first[c] for c in columns)
    value = values[0] if len(values) == 1 else values or None
    line = first.get("line")
    raise DataError(
        what,
        path=path,
        line=None if line is None else int(line),
        value=value[:80] if isinstance(value, str) else value,
        remedy=remedy,
    )


def note(
    notes: list[Note], what: str, rows: pl.DataFrame | pl.Series | Sequence[str], *columns: str
) -> None:
    """Add a note on these rows or names, if there are any. The example is the first of them: its
    values in ``columns``, and its line and file where they are known."""
    if not len(rows):
        return
    example = str(rows[0])
    if isinstance(rows, pl.DataFrame):
        first = rows.row(0, named=True)
        example = " ".join(str(first[c]) for c in columns)
        example += f", line {first['line']}" if first.get("line") else ""
        example += f" of {first['file']}" if first.get("file") else ""
    notes.append(Note(what, len(rows), example))


def refuse_header(frame: pl.DataFrame, what: str, path: Path, remedy: str) -> None:
    """Raise an error about the header of a table, which shows it."""
    raise DataError(
        what,
        path=path,
        line=int(frame["line"][0]) - 1,
        value=" ".join(frame.columns[1:]),
        remedy=remedy,
    )


def find(folder: Path, name: str) -> Path | None:
    """The file of this name in a folder, compressed or not."""
    for ending in COMPRESSIONS:
        path = folder / (name + ending)
        if path.is_file():
            return path
    return None


def need(folder: Path, name: str) -> Path:
    """The file of this name in a folder; its absence is an error."""
    path = find(folder, name)
    if path is None:
        raise DataError(
            f"{name} is missing", path=folder, remedy=f"add {name} (or {name}.gz) to the folder"
        )
    return path


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, decompressed if its name says that it is compressed."""
    try:
        return _unpacked(path) if path.suffix in _PACKINGS else path.read_bytes()
    except FileNotFoundError:
        raise DataError(
            "there is no such file", path=path, remedy="check the name and the folder"
        ) from None
    except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        what = "decompress" if path.suffix in _PACKINGS and path.is_file() else "read"
        raise DataError(
            f"can't {what} the file ({error})",
            path=path,
            remedy="download or export it again",
        ) from None


def _unpacked(path: Path) -> bytes:
    """The bytes that a compressed file unpacks to; far too many are refused."""
    most = parquet.budget(path.stat().st_size)
    parts, size = list[bytes](), 0
    with _PACKINGS[path.suffix].open(path, "rb") as file:
        while part := file.read(2**20):
            size += len(part)
            if size > most:
                raise DataError(
                    f"the file unpacks to over {most // 2**20:,} MB, {EXPANSION} times its size",
                    path=path,
                    remedy="if that's right, unpack the file yourself and pass the result",
                )
            parts.append(part)
    return b"".join(parts)


def read_text(path: Path) -> str:
    """The text of a file: decompressed, UTF-8 without byte-order mark, in composed form (NFC), with
    lines ended by LF."""
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            "the file is not UTF-8 text",
            path=path,
            line=line,
            value=raw[max(0, error.start - 10) : error.start + 10],
            remedy='save the file as UTF-8 (in Excel "CSV UTF-8"), or run '
            f"iconv -f windows-1252 -t utf-8 {path.name}",
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            "the file contains a NUL byte, so it isn't a text file",
            path=path,
            line=line,
            remedy="export the table as text",
        )
    if not text.strip():
        raise DataError("the file is empty", path=path, remedy="add rows or leave it out")
    return normalize("NFC", text.replace("\r\n", "\n") if "\r" in text else text)


def composed(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame with its texts in composed form (NFC).

    An é may be one character or two, and names that only differ in this would be two users.
    """
    return frame.with_columns(pl.col(pl.String).str.normalize("NFC"))


def read_lines(path: Path) -> pl.DataFrame:
    """The lines of a text file, blank ones included, as columns ``text`` and ``line``."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    frame = pl.DataFrame({"text": lines}, schema={"text": pl.String}).with_row_index("line", 1)
    long = frame.filter(pl.col("text").str.len_bytes() > MAX_LINE)
    refuse(
        long,
        f"the line is longer than {MAX_LINE:,} bytes",
        path,
        "text",
        remedy="give every row its own line",
    )
    return frame


def read_lists(path: Path, separator: str | None = None) -> pl.DataFrame:
    """The cells of lines of any length: ``line``, ``place`` in it (from 0) and ``value``.

    Without a separator, blanks of any kind and number separate; an empty cell is an error
    otherwise. A blank line has no cells.
    """
    lines = read_lines(path)
    text = pl.col("text").str.strip_chars()
    cells = text.str.extract_all(r"\S+") if separator is None else text.str.split(separator)
    frame = (
        lines.filter(text != "")
        .select("line", cells.alias("value"))
        .explode("value")
        .with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).over("line").alias("place"),
            pl.col("value").str.strip_chars(),
        )
    )
    return filled(frame, ["value"], path)


def read_heads(
    path: Path, head: str, tail: str, separator: str | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The heads of lines of a head and its tails (``line``, ``head``), and the tails (``line``,
    ``tail``), under these names."""
    cells = read_lists(path, separator)
    first = pl.col("place") == 0
    return (
        cells.filter(first).select("line", pl.col("value").alias(head)),
        cells.filter(~first).select("line", pl.col("value").alias(tail)),
    )


def read_table(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    separator: str | Callable[[str], str] = ",",
    quotes: bool | None = None,
    optional: int = 0,
    is_header: Callable[[Sequence[str]], bool] | None = None,
    headless: Callable[[pl.DataFrame], None] | None = None,
    rename: Callable[[Sequence[str]], list[str]] | None = None,
) -> pl.DataFrame:
    """A delimited table, all columns as strings, with the ``line`` each row stands on.

    Without ``columns`` the first line is the header; ``rename`` may give its columns other names.
    With ``columns`` the file has just these columns, of which the last ``optional`` may be absent
    from the whole file, and no header, unless ``is_header`` says so of the cells of its first line;
    ``headless`` then gets the whole table to look at. ``separator`` may be chosen by the first
    line. Double quotes enclose cells, which may then hold separators and ends of lines, if
    ``quotes``; else they are plain signs. Where that is not said, they enclose cells in
    comma-separated files only.

    Blank lines are passed over; cells are stripped of surrounding blanks.
    """
    every = read_lines(path)
    lines = every.filter(pl.col("text").str.strip_chars() != "")
    if callable(separator):
        separator = separator(lines["text"][0])
    if separator == " ":
        text = pl.col("text").str.strip_chars().str.replace_all(r"\s+", " ")
        lines = lines.with_columns(text)
    quotes = separator == "," if quotes is None else quotes
    if quotes and bool(lines["text"].str.contains('"', literal=True).any()):
        rows = _quoted_rows(path, every, separator)
    else:
        rows = lines.with_columns(pl.col("text").str.split(separator).alias("cells"))
    first = [str(cell).strip() for cell in rows["cells"][0]]
    check_width(path, first)
    headed = columns is None or (is_header is not None and is_header(first))
    if columns is None or headed:
        names = first if rename is None else rename(first)
        _check_header(path, names, int(rows["line"][0]))
        rows = rows[1:]
    else:
        names = list(columns)[: len(first)]
        _check_width(path, rows, columns, optional, separator)
    _check_rows(path, rows, names, separator)
    table = rows.select(
        "line",
        *(pl.col("cells").list.get(i).str.strip_chars().alias(n) for i, n in enumerate(names)),
    )
    if headless is not None and not headed:
        headless(table)
    return table


def _check_width(
    path: Path, rows: pl.DataFrame, columns: Sequence[str], optional: int, separator: str
) -> None:
    """Refuse a file without a header whose first row has too few or too many columns."""
    least, most, n = len(columns) - optional, len(columns), len(rows["cells"][0])
    if not least <= n <= most:
        raise DataError(
            f"rows must have {most if least == most else f'{least} to {most}'} columns "
            f"({', '.join(columns)}) separated by {separator!r}, but this one has {n}",
            path=path,
            line=int(rows["line"][0]),
            value=rows["text"][0][:80],
            remedy="put the columns in this order, or add a header with these names",
        )


def _check_rows(path: Path, rows: pl.DataFrame, names: Sequence[str], separator: str) -> None:
    """Refuse a table without rows, or with rows of another width."""
    wrong = rows.filter(pl.col("cells").list.len() != len(names))
    refuse(
        wrong,
        f"the row should have {len(names)} columns separated by {separator!r}",
        path,
        "text",
        remedy="give every row as many columns as the first",
    )
    if not len(rows):
        raise DataError(
            "the file has a header but no rows", path=path, remedy="add rows below the header"
        )


def shown_separator(line: str) -> str:
    """The separator of a table, judged by its first line: a TAB, else a comma, else blanks."""
    return next((s for s in "\t," if s in line), " ")


def _quoted_rows(path: Path, lines: pl.DataFrame, separator: str) -> pl.DataFrame:
    """The cells of a table of which some are in double quotes, with the line on which each row
    begins and its text. Made by blocks of rows: cells as Python's strings take much memory."""
    texts = lines["text"]
    reader = csv.reader(
        (text + "\n" for text in texts), delimiter=separator, skipinitialspace=True, strict=True
    )
    parts, at, cells = list[pl.DataFrame](), list[int](), list[list[str]]()
    before = 0
    try:
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                at.append(before)
                cells.append(row)
            before = reader.line_num
            if len(cells) == ROWS_PER_BLOCK or before == len(lines):
                block = pl.Series("cells", cells, dtype=pl.List(pl.String))
                parts.append(lines[at].with_columns(block))
                at, cells = [], []
    except csv.Error:
        raise DataError(
            "a quoted cell isn't closed, or text follows the closing quote",
            path=path,
            line=int(lines["line"][before]),
            value=texts[before][:80],
            remedy='write a quote within quotes as "" and keep each row on one line',
        ) from None
    return pl.concat(parts)


def read_short_names(path: Path | None) -> dict[str, str]:
    """Labels from lines of a name, a blank and words for people; none without a file."""
    if path is None:
        return {}
    text = pl.col("text").str.strip_chars().str.splitn(" ", 2).struct
    pairs = read_lines(path).select(text.field("field_0"), text.field("field_1")).drop_nulls()
    return dict(pairs.iter_rows())


def check_width(path: Path, names: Sequence[str]) -> None:
    """Refuse a table with far too many columns."""
    if len(names) > MAX_COLUMNS:
        raise DataError(
            f"the file has {len(names):,} columns, but loger reads at most {MAX_COLUMNS:,}",
            path=path,
            line=1,
            remedy="remove columns that you don't need",
        )


def read_parquet_table(path: Path) -> pl.DataFrame:
    """A Parquet table; one that unpacks to far more than its size suggests is refused."""
    raw = read_bytes(path)
    try:
        check_width(path, list(pl.read_parquet_schema(io.BytesIO(raw))))
        return parquet.read(raw, path.stat().st_size)
    except parquet.TooLargeError:
        size = path.stat().st_size
        most = parquet.budget(size) // 2**20
        raise DataError(
            f"the table unpacks to over {most:,} MB, far too much for a file of {size:,} bytes",
            path=path,
            remedy="remove columns that repeat one long value, or save the table as CSV",
        ) from None
    except (*_LIBRARIES, LookupError, OSError, TypeError, ValueError) as error:
        raise DataError(
            f"can't read the file as Parquet ({(str(error).splitlines() or [''])[0][:200]})",
            path=path,
            remedy="export the file again",
        ) from None


def read_parquet(path: Path) -> pl.DataFrame:
    """A Parquet table with the number of each row, from 1, as its ``line``; a column of that name
    is called ``line_``."""
    frame = read_parquet_table(path)
    marks = pl.read_parquet_metadata(io.BytesIO(read_bytes(path)))
    if MARK in marks:
        raise DataError(
            "the file is part of a saved data set and can't be read without its manifest",
            path=path,
            remedy="pass the whole folder, including manifest.json and all tables",
        )
    if not len(frame):
        raise DataError("the table has no rows", path=path, remedy="add rows or leave it out")
    frame = composed(frame).rename({"line": "line_"}, strict=False)
    return frame.with_row_index("line", offset=1)


def number(
    frame: pl.DataFrame,
    column: str,
    dtype: type[pl.DataType],
    path: Path,
    *,
    what: str | None = None,
    below: int | None = None,
    remedy: str = "write it as a number or remove the row",
) -> pl.DataFrame:
    """The frame with one column turned into finite numbers; the first bad one is an error.

    ``below`` also asks for 0 ≤ value < below, as for a number that points into another file.
    """
    value = pl.col(column).cast(dtype, strict=False)
    whole = dtype.is_integer()
    good = value.is_not_null() if whole else value.is_finite()
    if below is not None:
        good &= (value >= 0) & (value < below)
    bad = frame.filter(~good.fill_null(False))
    limit = "" if below is None else f" from 0 to {below - 1}"
    kind = "a whole" if whole else "a finite"
    refuse(bad, f"{what or column} should be {kind} number{limit}", path, column, remedy=remedy)
    return frame.with_columns(value)


def gathered(
    frame: pl.DataFrame, column: str, names: pl.Series, path: Path, remedy: str
) -> pl.DataFrame:
    """The frame with one column of numbers replaced by the names that they point to."""
    frame = number(frame, column, pl.Int64, path, below=len(names), remedy=remedy)
    return frame.with_columns(names.gather(frame[column]).alias(column))


def kind_if(condition: pl.Expr, column: str, kind: str, otherwise: str) -> pl.Expr:
    """The column of types: ``kind`` where the condition holds."""
    return pl.when(condition).then(pl.lit(kind)).otherwise(pl.lit(otherwise)).alias(column)


def filled(frame: pl.DataFrame, columns: Sequence[str], path: Path) -> pl.DataFrame:
    """The frame, after checking that none of these columns has an empty cell."""
    for column in columns:
        empty = pl.col(column).is_null()
        if frame.schema[column] == pl.String:
            empty |= pl.col(column) == ""
        bad = frame.filter(empty)
        refuse(bad, f"{column} is empty", path, remedy="fill the cell or remove the row")
    return frame


def _check_header(path: Path, names: Sequence[str], line: int) -> None:
    twice = {n for n in names if names.count(n) > 1 or n == ""}
    if twice:
        raise DataError(
            "the header has an empty or repeated column name",
            path=path,
            line=line,
            value=sorted(twice)[0],
            remedy="give every column its own name",
        )
