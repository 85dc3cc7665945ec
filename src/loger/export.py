"""The lists of many users as one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import polars as pl

from loger.engine import Progress, silent
from loger.errors import LogerError
from loger.files import atomic_file
from loger.model import LOGER

BLOCK = 1024
"""Users whose lists are in memory at a time."""


class Exported(NamedTuple):
    """What was written."""

    rows: int
    columns: list[str]


def check_format(path: Path) -> None:
    """Refuse a file name whose ending is not that of a known format."""
    if path.suffix not in _WRITERS:
        raise LogerError(f"{path} must end in .parquet, .csv or .jsonl")


def export_lists(
    model: LOGER,
    users: Sequence[str],
    path: Path,
    k: int = 10,
    *,
    explain: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write the k best items of users to a file, whole or not at all, block by block.

    The ending of the file says its format: .parquet, .csv, or .jsonl for JSON lines. With
    ``explain`` there are the columns ``because``, ``reasons`` (in CSV as JSON) and ``carried``.
    """
    check_format(path)
    rows, columns = 0, list[str]()

    def tables() -> Iterator[pl.DataFrame]:
        nonlocal rows, columns
        for lo in range(0, max(len(users), 1), BLOCK):
            progress("recommending", lo, len(users))
            table = model.recommend(users[lo : lo + BLOCK], k, explain=explain)
            rows, columns = rows + len(table), table.columns
            yield table

    with atomic_file(path) as part:
        _WRITERS[path.suffix](tables(), part)
    progress("recommending", len(users), len(users))
    return Exported(rows, columns)


# ── formats ─────────────────────────────────────────────────────────────────────────────


def _write_parquet(tables: Iterator[pl.DataFrame], path: Path) -> None:
    """Each block as a file of its own, then all streamed into one."""
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        for k, table in enumerate(tables):
            table.write_parquet(Path(folder) / f"{k:08d}.parquet")
        pl.scan_parquet(Path(folder) / "*.parquet").sink_parquet(path)


def _write_csv(tables: Iterator[pl.DataFrame], path: Path) -> None:
    with path.open("wb") as file:
        for k, table in enumerate(tables):
            if "reasons" in table.columns:  # a cell of CSV holds no list
                texts = [dumps(row, ensure_ascii=False) for row in table["reasons"].to_list()]
                table = table.with_columns(reasons=pl.Series(texts, dtype=pl.String))
            table.write_csv(file, include_header=k == 0)


def _write_jsonl(tables: Iterator[pl.DataFrame], path: Path) -> None:
    with path.open("wb") as file:
        for table in tables:
            table.write_ndjson(file)


_WRITERS: Mapping[str, Callable[[Iterator[pl.DataFrame], Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".json": _write_jsonl,
    ".ndjson": _write_jsonl,
}
