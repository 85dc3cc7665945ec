"""Interactions and triples as plain CSV, TSV or Parquet tables.

A folder holds ``interactions`` and, if there are facts, ``triples`` (or ``kg``), each as
.csv, .tsv, .txt or .parquet, text also compressed; ``items`` and ``users`` may name those
without interactions and give labels. A first row that holds known column names (user,
item, rating, strength, time, part; head, relation, tail, head_type, tail_type; id, label; and those
that ``loger.data.columns`` takes for the same) is the header, columns may then come in any
order; otherwise they are user, item[, rating[, time]], head, relation, tail, and id[, label].
Columns that are not known are noted, not read.
In Parquet files and frames the "line" of a message is the number of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import polars as pl

from loger.data import table_files
from loger.data.assemble import NO_FACTS, assemble
from loger.data.columns import INTERACTIONS, ITEMS, NUMBERS, TRIPLES, USERS, Columns
from loger.data.dataset import Dataset, Note
from loger.data.frames import polars_frame
from loger.data.times import seconds
from loger.engine.threads import check_not_forked
from loger.errors import DataError

ENDINGS = (".csv", ".tsv", ".txt", ".parquet")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
PART_WORDS = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation",
    "val": "validation", "dev": "validation", "test": "test", "testing": "test",
}  # fmt: skip
"""What people call the parts of a split."""


class Source(NamedTuple):
    """A table in a file or, under the name by which messages call it, in memory."""

    path: Path
    frame: pl.DataFrame | None = None

    @classmethod
    def of_frame(cls, frame: object, what: str) -> Source | None:
        """A frame of polars or pandas; None stays None."""
        name = f"{what} frame"
        return None if frame is None else cls(Path(name), polars_frame(frame, name))


def read(path: Path, *, min_rating: float | None = None, name: str | None = None) -> Dataset:
    """The data set of a folder, or of a single table of interactions."""
    folder = path.parent if path.is_file() else path
    if path.is_file():
        tables: list[Path | None] = [path, None, None, None]
    else:
        stems = (("interactions",), ("triples", "kg"), ("items",), ("users",))
        tables = [locate(folder, *names) for names in stems]
    interactions = Source(needed(tables[0], folder))
    others = (None if table is None else Source(table) for table in tables[1:])
    name = name or folder.resolve().name
    return _dataset(interactions, *others, min_rating=min_rating, name=name)


def from_frames(
    interactions: object,
    triples: object = None,
    *,
    items: object = None,
    users: object = None,
    interaction: str = "interacted",
    min_rating: float | None = None,
    name: str = "frames",
) -> Dataset:
    """Read a data set from frames of polars or pandas: the tables of the plain format, with the
    same column names, checks and notes.

    ``interactions`` has user, item and optionally rating, strength (a quantity, seconds) or count
    (plays), time, part; ``triples`` has head, relation, tail and optionally head_type, tail_type;
    ``items`` and ``users`` have id and optionally label. Messages count rows from 1.
    Interactions rated below ``min_rating`` become dislikes; ``interaction`` is the name of the
    relation that the others become.
    """
    check_not_forked("reading frames")
    table = Source.of_frame(interactions, "interactions")
    if table is None:
        raise DataError(
            "interactions are missing", remedy="pass a data frame with the columns user and item"
        )
    return _dataset(
        table,
        Source.of_frame(triples, "triples"),
        Source.of_frame(items, "items"),
        Source.of_frame(users, "users"),
        interaction=interaction,
        min_rating=min_rating,
        name=name,
    )


def _dataset(
    interactions: Source,
    triples: Source | None,
    items: Source | None,
    users: Source | None,
    *,
    min_rating: float | None,
    name: str,
    interaction: str = "interacted",
) -> Dataset:
    notes = list[Note]()
    table = read_interactions(interactions, notes)
    lost = dict[Path, list[str]]()
    item_names, item_labels = _read_names(items, ITEMS, notes, table["item"], lost)
    user_names, user_labels = _read_names(users, USERS, notes, table["user"], lost)
    if triples is None and lost:
        _refuse_facts_in_columns(interactions, items, users, lost)
    seen = pl.concat([table["item"], table["user"]])
    return assemble(
        name,
        table,
        NO_FACTS if triples is None else read_triples(triples, notes, seen),
        interaction=interaction,
        users=user_names,
        items=item_names,
        labels={"item": item_labels, "user": user_labels},
        min_rating=min_rating,
        notes=notes,
        path=interactions.path,
        facts_path=None if triples is None else triples.path,
        integers=_integers(interactions),
    )


def _integers(source: Source) -> list[str]:
    """Which of user and item have integers as ids. Text files have no types, so there both may."""
    if source.frame is not None:
        schema = source.frame.schema
    elif source.path.name.endswith(".parquet"):
        schema = pl.Schema(pl.read_parquet_schema(source.path))
    else:
        return ["user", "item"]
    chosen = INTERACTIONS.chosen(list(schema))
    return [kind for kind in ("user", "item") if schema[chosen[kind]].is_integer()]


def _refuse_facts_in_columns(
    interactions: Source,
    items: Source | None,
    users: Source | None,
    lost: Mapping[Path, Sequence[str]],
) -> None:
    """Refuse columns that contain facts when there are no triples, and say what reads them: nobody
    wants to fit without the only facts there are."""
    path, columns = next(iter(lost.items()))
    if interactions.frame is not None:
        remedy = "loger.from_tables(interactions, items=…, users=…) turns columns into facts"
    else:
        given = (("interactions", interactions), ("items", items), ("users", users))
        options = [f"--{n} {quote(str(f.path))}" for n, f in given if f is not None]
        out = f"-o {quote(interactions.path.parent.resolve().name + '.loger')}"
        remedy = f"to turn columns into facts, run loger data build table {' '.join(options)} {out}"
    raise DataError(
        f"columns would be ignored ({', '.join(columns)}), and there are no triples",
        path=path,
        remedy=f"{remedy}; or remove these columns",
    )


def locate(folder: Path, *stems: str, endings: tuple[str, ...] = ENDINGS) -> Path | None:
    """The one table in a folder with one of these names; two of them are an error."""
    matches = [p for s in stems for e in endings if (p := table_files.find(folder, s + e))]
    if len(matches) > 1:
        raise DataError(
            f"both {matches[0].name} and {matches[1].name} exist",
            path=folder,
            remedy="keep only one of them",
        )
    return matches[0] if matches else None


def needed(interactions: Path | None, folder: Path | None) -> Path:
    """The table of interactions; that there is none is an error."""
    if interactions is None:
        remedy = "add interactions.csv, .tsv, .txt or .parquet"
        raise DataError("interactions are missing", path=folder, remedy=remedy)
    return interactions


def read_interactions(source: Source, notes: list[Note]) -> pl.DataFrame:
    """The interactions of a table: user, item and, where given, rating, strength, count, time and
    part."""
    frame, path = read_columns(source, INTERACTIONS, notes), source.path
    for column in ("rating", "strength", "count"):
        if column in frame.columns:
            frame = table_files.number(frame, column, pl.Float64, path)
    if "time" in frame.columns:
        frame = seconds(frame, "time", path)
    if "part" in frame.columns:
        part = pl.col("part").str.to_lowercase().replace_strict(PART_WORDS, default=None)
        bad = frame.filter(part.is_null())
        what, remedy = "part should be train, validation or test", "use one of these"
        table_files.refuse(bad, what, path, "part", remedy=remedy)
        frame = frame.with_columns(part)
    return frame


def read_triples(source: Source, notes: list[Note], seen: pl.Series) -> pl.DataFrame:
    """The facts of a table: head, relation, tail and, where given, their types."""
    frame = read_columns(source, TRIPLES, notes, seen)
    kinds = [c for c in ("head_type", "tail_type") if c in frame.columns]
    return frame.with_columns(pl.col(c).replace("", None) for c in kinds)


def _read_names(
    source: Source | None,
    columns: Columns,
    notes: list[Note],
    seen: pl.Series,
    lost: dict[Path, list[str]],
) -> tuple[pl.Series, dict[str, str]]:
    """The names that a table lists and the labels that it gives them; columns that are not read
    are added to ``lost``."""
    if source is None:
        return pl.Series("name", [], dtype=pl.String), {}
    frame = read_columns(source, columns, notes, seen, lost)
    labels = dict[str, str]()
    if "label" in frame.columns:
        labelled = frame.filter(pl.col("label").fill_null("") != "")
        labels = dict(labelled.select("name", "label").iter_rows())
    return frame["name"], labels


def read_columns(
    source: Source,
    columns: Columns,
    notes: list[Note],
    seen: pl.Series | None = None,
    lost: dict[Path, list[str]] | None = None,
) -> pl.DataFrame:
    """A table with its columns under our names; those that must be there are checked.

    A first line with a name that was ``seen`` elsewhere cannot be a header.
    """
    path, frame = source.path, read_whole(source, columns, notes, seen)
    names = [c for c in frame.columns if c != "line"]
    chosen = columns.chosen(names)
    for ours in columns.needed:
        if ours not in chosen:
            in_rows = source.frame is not None or path.name.endswith(".parquet")
            raise DataError(
                f"there is no column {ours}, only {', '.join(names)}",
                path=path,
                line=None if in_rows else int(frame["line"][0]) - 1,
                remedy=f"name the columns {', '.join(columns.needed)}, or let "
                "`loger data build table` map them",
            )
    unread = [c for c in names if c not in chosen.values()]
    table_files.note(notes, f"columns of {path.name} that are ignored", unread)
    if unread and lost is not None:
        lost[path] = unread
    frame = frame.select("line", *(pl.col(theirs).alias(ours) for ours, theirs in chosen.items()))
    frame = table_files.filled(frame, columns.needed, path)
    for column in chosen:
        if column not in NUMBERS:
            frame = _as_text(frame, column, path)
        elif frame.schema[column].is_nested() or frame.schema[column] == pl.Object:
            raise _wrong_kind(frame, column, path, "numbers")
    return table_files.filled(frame, columns.needed, path)  # as text a cell may be empty, too


def read_whole(
    source: Source, columns: Columns, notes: list[Note], seen: pl.Series | None
) -> pl.DataFrame:
    """A table as it is, its columns under their own names, or by their order."""
    path, frame = source
    if frame is not None:
        if not len(frame):
            raise DataError("the table has no rows", path=path, remedy="add rows or leave it out")
        return frame
    if path.name.endswith(".parquet"):
        return table_files.read_parquet(path).drop("line_", strict=False)
    ending = next((e for e in _SEPARATORS if e in path.suffixes), "")
    return table_files.read_table(
        path,
        columns.order,
        separator=_SEPARATORS.get(ending, table_files.shown_separator),
        optional=columns.optional,
        is_header=columns.are_named_by,
        headless=lambda table: columns.doubt(table, path, notes, seen),
    )


def _as_text(frame: pl.DataFrame, column: str, path: Path) -> pl.DataFrame:
    kind = frame.schema[column]
    if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Null)):
        raise _wrong_kind(frame, column, path, "text or whole numbers")
    return frame.with_columns(pl.col(column).cast(pl.String))


def _wrong_kind(frame: pl.DataFrame, column: str, path: Path, wanted: str) -> DataError:
    return DataError(
        f"column {column} should hold {wanted}, not {frame.schema[column]}",
        path=path,
        line=int(frame["line"][0]),
        value=frame[column][0],
        remedy="write it as text" if "text" in wanted else "write it as a number",
    )
