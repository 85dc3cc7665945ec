"""The lists of many users as one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.engine import Engine, LocalEngine, Progress, silent
from loger.engine.claims import PART
from loger.engine.files import atomic_file
from loger.errors import LogerError
from loger.explain.tables import explained_lists_table, lists_table
from loger.ranking.ranker import Ranker, blocks
from loger.ranking.selection import Selection
from loger.rules.wording import ENGLISH, Wording

BLOCK = 256
"""Users in a block of work: whole blocks of ranking and of explaining, so that their lists are,
to the bit, those of ``LOGER.recommend``."""


class FittedModel(Protocol):
    """What an export needs of a model; ``LOGER`` has it."""

    ranker_: Ranker
    engine: Engine


class Asked(NamedTuple):
    """What the lists of all users have in common."""

    ranker: Ranker
    k: int
    explain: bool
    selection: Selection
    words: Wording = ENGLISH


class Exported(NamedTuple):
    """What was written."""

    rows: int
    columns: list[str]
    parts: int = 1
    """Files."""
    kept: int = 0
    """Files that were there already, from an export that was interrupted."""


def check_format(path: Path) -> None:
    """Refuse a file name whose ending is not that of a known format."""
    if path.suffix not in _WRITERS:
        raise LogerError(f"{path} must end in .parquet, .csv or .jsonl; a folder has no ending")


def export_lists(
    model: FittedModel,
    users: Sequence[str],
    path: Path,
    k: int = 10,
    *,
    explain: bool = False,
    selection: Selection | None = None,
    words: Wording = ENGLISH,
    progress: Progress = silent,
) -> Exported:
    """Write the k best items of users to a file, whole or not at all, block by block.

    The ending of the file says its format: .parquet, .csv, or .jsonl for JSON lines. With
    ``explain`` there are the columns ``because``, ``reasons`` (in CSV as JSON) and ``carried``;
    ``selection`` (``loger.ranking.selection.select``) says which items, and how varied, and
    ``words`` what reasons are told in. The model's engine does the work; for many parts in a folder
    see ``loger.store.shards``.
    """
    check_format(path)
    rows, columns = 0, list[str]()
    engine = model.engine.with_progress(progress)
    shared = Asked(model.ranker_, k, explain, selection or Selection(), words)

    def tables() -> Iterator[pl.DataFrame]:
        nonlocal rows, columns
        parts = blocks(numbers(model, users), BLOCK) or [np.empty(0, np.int64)]
        for table in engine.map("recommending", table_of, parts, shared):
            rows, columns = rows + len(table), table.columns
            yield table

    with atomic_file(path) as part:
        _WRITERS[path.suffix](tables(), part)
    return Exported(rows, columns)


def numbers(model: FittedModel, users: Sequence[str]) -> NDArray[np.int64]:
    """The numbers of users by name."""
    words = model.ranker_.graph.vocabulary
    return np.array([words.id("user", name) for name in users], dtype=np.int64)


def table_of(asked: Asked, users: NDArray[np.int64]) -> pl.DataFrame:
    """The lists of a block of users; an error says whose list it is that cannot be made."""
    try:
        return _table(asked, users)
    except Exception as error:
        for k in range(len(users)):
            try:
                _table(asked, users[k : k + 1])
            except Exception:
                name = asked.ranker.graph.vocabulary.names[users[k]]
                error.add_note(f"in the list of user {name!r}")
                break
        raise


def _table(asked: Asked, users: NDArray[np.int64]) -> pl.DataFrame:
    ranker, selection, alone = asked.ranker, asked.selection, LocalEngine(1)
    if asked.explain:
        return explained_lists_table(ranker, users, asked.k, selection, alone, asked.words)
    lists = ranker.choose(users, asked.k, selection, alone)
    return lists_table(ranker.graph, users, lists, selection.varies)


# ── formats ─────────────────────────────────────────────────────────────────────────────


def _write_parquet(tables: Iterator[pl.DataFrame], path: Path) -> None:
    """Each block as a file of its own, then all streamed into one."""
    folder = path.with_suffix(f".blocks{PART}")
    folder.mkdir()
    try:
        for k, table in enumerate(tables):
            table.write_parquet(folder / f"{k:08d}.parquet")
        pl.scan_parquet(folder / "*.parquet").sink_parquet(path)
    finally:
        rmtree(folder, ignore_errors=True)


def _write_csv(tables: Iterator[pl.DataFrame], path: Path) -> None:
    with path.open("wb") as file:
        for k, table in enumerate(tables):
            if "reasons" in table.columns:  # a cell of CSV holds no list
                texts = [dumps(row, ensure_ascii=False) for row in table["reasons"].to_list()]
                table = table.with_columns(reasons=pl.Series(texts, dtype=pl.String))
            shown = [c for c in _SHOWN if c in table.columns]
            table = table.with_columns(_as_text(pl.col(name)).alias(name) for name in shown)
            table.write_csv(file, include_header=k == 0)


_SHOWN = ("label", "because", "reasons")
"""Columns for people; names stay as they are, for machines."""


def _as_text(column: pl.Expr) -> pl.Expr:
    """A column in which no cell is a formula to a spreadsheet that opens the file."""
    return (
        pl.when(column.str.contains(r"^[=+\-@\t\r]")).then(pl.lit("'") + column).otherwise(column)
    )


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
