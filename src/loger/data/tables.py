"""Text and tables from disk, with the file and line of whatever is wrong in them.

Readers say which columns they want; this module opens (compressed) files, checks the text,
and hands back polars frames with a ``line`` column, so that every later complaint can
name its place.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from loger.errors import DataError

_DECOMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}
COMPRESSIONS = ("", *_DECOMPRESS)


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
            f"{name} is missing", path=folder, remedy=f"put {name} (or {name}.gz) into the folder"
        )
    return path


def read_text(path: Path) -> str:
    """The text of a file: decompressed, UTF-8, without byte-order mark, lines ended by LF."""
    try:
        raw = _DECOMPRESS.get(path.suffix, bytes)(path.read_bytes())
    except FileNotFoundError:
        raise DataError("there is no such file", path=path) from None
    except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise DataError(
            f"cannot be decompressed ({error})", path=path, remedy="fetch or compress it again"
        ) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            "is not UTF-8 text",
            path=path,
            line=line,
            value=raw[max(0, error.start - 10) : error.start + 10],
            remedy="save the file as UTF-8",
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            "has a NUL byte: this is not a text file", path=path, line=line, remedy="export as text"
        )
    if not text.strip():
        raise DataError("is empty", path=path, remedy="every file that is given must have rows")
    return text.replace("\r\n", "\n") if "\r" in text else text


def read_lines(path: Path) -> pl.Series:
    """The lines of a text file, empty ones included, as strings."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return pl.Series("text", lines, dtype=pl.String)


def read_table(
    path: Path, columns: Sequence[str] | None = None, *, separator: str = ",", optional: int = 0
) -> pl.DataFrame:
    """A delimited table, all columns as strings, with the ``line`` each row stands on.

    With ``columns`` the file has no header and just these columns, of which the last
    ``optional`` may be absent from the whole file; without, its first line is the header.
    Blank lines are passed over; cells are stripped of surrounding blanks.
    """
    text = read_text(path)
    quoted = '"' in text
    lines = pl.DataFrame({"text": pl.Series(text.split("\n"), dtype=pl.String)}).with_row_index(
        "line", offset=1
    )
    lines = lines.filter(pl.col("text").str.strip_chars() != "")
    counts = lines["text"].str.count_matches(separator, literal=True) + 1
    width = int(counts[0])
    if columns is None:
        names = [c.strip().strip('"') for c in lines["text"][0].split(separator)]
        _check_header(path, names, int(lines["line"][0]))
        lines, counts = lines[1:], counts[1:]
    else:
        names = list(columns)[:width]
        if not len(columns) - optional <= width <= len(columns):
            raise DataError(
                f"should have {_columns(len(columns) - optional, len(columns))} "
                f"({', '.join(columns)}) separated by {separator!r}, has {width}",
                path=path,
                line=int(lines["line"][0]),
                value=lines["text"][0][:80],
            )
    if not quoted:
        _check_width(path, lines, counts, len(names), separator)
    if not len(lines):
        raise DataError("has a header but no rows", path=path)
    body = "\n".join(lines["text"]).encode()
    try:
        frame = pl.read_csv(
            io.BytesIO(body),
            separator=separator,
            has_header=False,
            new_columns=names,
            infer_schema=False,
            quote_char='"' if quoted else None,
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"cannot be read as a table ({str(error).splitlines()[0]})",
            path=path,
            remedy="check its quotes and separators",
        ) from None
    frame = frame.with_columns(pl.all().str.strip_chars())
    # A quoted cell may hold line ends; then the row number is the best that can be said.
    at = lines["line"] if len(frame) == len(lines) else pl.int_range(1, len(frame) + 1, eager=True)
    return frame.with_columns(at.cast(pl.UInt32).alias("line"))


def number(
    frame: pl.DataFrame,
    column: str,
    dtype: type[pl.DataType] | pl.DataType,
    path: Path,
    *,
    what: str | None = None,
    below: int | None = None,
    remedy: str | None = None,
) -> pl.DataFrame:
    """The frame with one string column turned into finite numbers; the first bad one is an error.

    ``below`` also asks for 0 ≤ value < below, as for a number that points into another file.
    """
    value = pl.col(column).cast(dtype, strict=False)
    good = value.is_not_null()
    if pl.Series([], dtype=dtype).dtype.is_float():
        good &= value.is_finite()
    if below is not None:
        good &= (value >= 0) & (value < below)
    bad = frame.filter(~good.fill_null(False))
    if len(bad):
        kind = "a whole number" if pl.Series([], dtype=dtype).dtype.is_integer() else "a number"
        limit = "" if below is None else f" from 0 to {below - 1}"
        raise DataError(
            f"{what or column} should be {kind}{limit}",
            path=path,
            line=int(bad["line"][0]) if "line" in bad.columns else None,
            value=bad[column][0] if bad[column][0] is not None else "",
            remedy=remedy,
        )
    return frame.with_columns(value)


def filled(frame: pl.DataFrame, columns: Sequence[str], path: Path) -> pl.DataFrame:
    """The frame, after checking that none of these columns has an empty cell."""
    for column in columns:
        bad = frame.filter(pl.col(column).is_null() | (pl.col(column) == ""))
        if len(bad):
            raise DataError(
                f"{column} is empty",
                path=path,
                line=int(bad["line"][0]) if "line" in bad.columns else None,
                remedy="fill the cell or take the row out",
            )
    return frame


def _check_header(path: Path, names: Sequence[str], line: int) -> None:
    twice = {n for n in names if names.count(n) > 1 or n == ""}
    if twice:
        raise DataError(
            "the header has an empty or repeated column name",
            path=path,
            line=line,
            value=sorted(twice)[0],
        )


def _check_width(
    path: Path, lines: pl.DataFrame, counts: pl.Series, width: int, separator: str
) -> None:
    wrong = lines.filter(counts != width)
    if len(wrong):
        raise DataError(
            f"should have {width} columns separated by {separator!r}",
            path=path,
            line=int(wrong["line"][0]),
            value=wrong["text"][0][:80],
        )


def _columns(least: int, most: int) -> str:
    return f"{most} columns" if least == most else f"{least} to {most} columns"
