"""The lists of many users as one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from loger.engine import Progress, silent
from loger.errors import LogerError
from loger.files import atomic_file
from loger.model import LOGER

BLOCK = 1024
"""Users between two reports of progress."""
_WRITERS: Mapping[str, Callable[[pl.DataFrame, Path], None]] = {
    ".parquet": lambda table, path: table.write_parquet(path),
    ".csv": lambda table, path: table.write_csv(path),
    ".jsonl": lambda table, path: table.write_ndjson(path),
}
_WRITERS = {**_WRITERS, ".json": _WRITERS[".jsonl"], ".ndjson": _WRITERS[".jsonl"]}


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
) -> pl.DataFrame:
    """Write the k best items of users to a file, whole or not at all, and give the table.

    The ending of the file says its format: .parquet, .csv, or .jsonl for JSON lines.
    """
    check_format(path)
    tables = []
    for lo in range(0, len(users), BLOCK):
        progress("recommending", lo, len(users))
        tables.append(model.recommend(users[lo : lo + BLOCK], k, explain=explain))
    table = pl.concat(tables)
    with atomic_file(path) as part:
        _WRITERS[path.suffix](table, part)
    progress("recommending", len(users), len(users))
    return table
