"""Interactions and triples as plain CSV, TSV or Parquet tables.

A folder holds ``interactions`` and, if there are facts, ``triples`` (or ``kg``), each as
.csv, .tsv, .txt or .parquet, text also compressed; ``items`` and ``users`` may name those
without interactions and give labels. A first row that holds known column names (user,
item, rating, time, part; head, relation, tail, head_type, tail_type; id, label; and those
that ``loger.data.headers`` takes for the same) is the header, columns may then come in any
order; otherwise they are user, item[, rating[, time]], head, relation, tail, and id[, label].
Columns that are not known are noted, not read.
In Parquet files the "line" of a message is the number of the row.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loger.data import headers, tables
from loger.data.assemble import NO_FACTS, assemble
from loger.data.dataset import Dataset, Note
from loger.data.headers import Columns
from loger.data.times import seconds
from loger.errors import DataError

ENDINGS = (".csv", ".tsv", ".txt", ".parquet")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_PARTS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
_INTERACTIONS = Columns(headers.INTERACTIONS, ("user", "item", "rating", "time"), 2)
_TRIPLES = Columns(headers.TRIPLES, ("head", "relation", "tail"))
_ITEMS = Columns(headers.ITEMS, ("name", "label"), 1)
_USERS = Columns(headers.USERS, ("name", "label"), 1)


def read(
    folder: Path | None = None,
    *,
    interactions: Path | str | None = None,
    triples: Path | str | None = None,
    items: Path | str | None = None,
    users: Path | str | None = None,
    interaction: str = "interacted",
    positive_from: float | None = None,
    name: str | None = None,
) -> Dataset:
    """The data set of a folder, or of the files that are named."""

    def place(given: Path | str | None, *stems: str) -> Path | None:
        if given is not None or folder is None:
            return None if given is None else Path(given)
        return locate(folder, *stems)

    path, notes = place(interactions, "interactions"), list[Note]()
    if path is None:
        raise DataError(
            "interactions are missing", path=folder, remedy="give interactions.csv or the like"
        )
    facts_path = place(triples, "triples", "kg")
    events = read_interactions(path, notes)
    item_names, item_labels = _read_names(place(items, "items"), _ITEMS, notes, events["item"])
    user_names, user_labels = _read_names(place(users, "users"), _USERS, notes, events["user"])
    seen = pl.concat([events["item"], events["user"]])
    return assemble(
        name or (folder or path.parent).resolve().name,
        events,
        NO_FACTS if facts_path is None else _read_triples(facts_path, notes, seen),
        interaction=interaction,
        users=user_names,
        items=item_names,
        labels={"item": item_labels, "user": user_labels},
        positive_from=positive_from,
        notes=notes,
        path=path,
        facts_path=facts_path,
    )


def locate(folder: Path, *stems: str, endings: tuple[str, ...] = ENDINGS) -> Path | None:
    """The one table in a folder with one of these names; two of them are an error."""
    found = [p for s in stems for e in endings if (p := tables.find(folder, s + e))]
    if len(found) > 1:
        raise DataError(
            f"both {found[0].name} and {found[1].name} are there",
            path=folder,
            remedy="keep one of them",
        )
    return found[0] if found else None


def read_interactions(path: Path, notes: list[Note]) -> pl.DataFrame:
    """The interactions of a table: user, item and, where given, rating, time and part."""
    frame = read_columns(path, _INTERACTIONS, notes)
    if "rating" in frame.columns:
        frame = tables.number(frame, "rating", pl.Float64, path)
    if "time" in frame.columns:
        frame = seconds(frame, "time", path)
    if "part" in frame.columns:
        parts = {word: part for part, words in _PARTS.items() for word in words}
        part = pl.col("part").str.to_lowercase().replace_strict(parts, default=None)
        bad = frame.filter(part.is_null())
        if len(bad):
            raise DataError(
                "is not the name of a part",
                path=path,
                line=int(bad["line"][0]),
                value=bad["part"][0],
                remedy="write train, validation or test",
            )
        frame = frame.with_columns(part)
    return frame


def _read_triples(path: Path, notes: list[Note], seen: pl.Series) -> pl.DataFrame:
    frame = read_columns(path, _TRIPLES, notes, seen)
    kinds = [c for c in ("head_type", "tail_type") if c in frame.columns]
    return frame.with_columns(pl.col(c).replace("", None) for c in kinds)


def _read_names(
    path: Path | None, columns: Columns, notes: list[Note], seen: pl.Series
) -> tuple[pl.Series, dict[str, str]]:
    """The names that a table lists and the labels that it gives them."""
    if path is None:
        return pl.Series("name", [], dtype=pl.String), {}
    frame = read_columns(path, columns, notes, seen)
    labels = dict[str, str]()
    if "label" in frame.columns:
        given = frame.filter(pl.col("label").fill_null("") != "")
        labels = dict(given.select("name", "label").iter_rows())
    return frame["name"], labels


def read_columns(
    path: Path, columns: Columns, notes: list[Note], seen: pl.Series | None = None
) -> pl.DataFrame:
    """A table with its columns under our names; those that must be there are checked.

    A first line with a name that was ``seen`` elsewhere cannot be a header.
    """
    if path.name.endswith(".parquet"):
        frame = tables.read_parquet(path)
    else:
        ending = next((e for e in _SEPARATORS if e in path.suffixes), "")
        frame = tables.read_table(
            path,
            columns.order,
            separator=_SEPARATORS.get(ending),
            optional=columns.optional,
            is_header=columns.are_named_by,
            headless=lambda table: columns.doubt(table, path, notes, seen),
        )
    there = [c for c in frame.columns if c != "line"]
    chosen = columns.chosen(there)
    for ours in columns.needed:
        if ours not in chosen:
            raise DataError(
                f"there is no column {ours}, only {', '.join(there)}",
                path=path,
                line=None if path.name.endswith(".parquet") else int(frame["line"][0]) - 1,
                remedy=f"name the columns {', '.join(columns.needed)}, or let "
                "`loger data build table` map them",
            )
    unread = [c for c in there if c not in chosen.values()]
    if unread:
        notes.append(Note(f"columns of {path.name} that are not read", len(unread), unread[0]))
    frame = frame.select("line", *(pl.col(theirs).alias(ours) for ours, theirs in chosen.items()))
    for column in set(chosen) - {"rating", "time"}:
        frame = _as_text(frame, column, path)
    return tables.filled(frame, columns.needed, path)


def _as_text(frame: pl.DataFrame, column: str, path: Path) -> pl.DataFrame:
    kind = frame.schema[column]
    if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum)):
        raise DataError(
            f"column {column} should hold text or whole numbers",
            path=path,
            value=str(kind),
            remedy="write it as text",
        )
    return frame.with_columns(pl.col(column).cast(pl.String))
