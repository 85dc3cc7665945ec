"""Interactions and triples as plain CSV, TSV or Parquet tables.

A folder holds ``interactions`` and, if there are facts, ``triples`` (or ``kg``), each as
.csv, .tsv, .txt or .parquet, text also compressed; ``items`` and ``users`` may name those
without interactions and give labels. A first row that holds a known column name (user,
item, rating, time, part; head, relation, tail, head_type, tail_type; id, label) is the
header, columns may then come in any order; otherwise they are user, item[, rating[, time]],
head, relation, tail, and id[, label]. Columns that are not known are noted, not read.
In Parquet files the "line" of a message is the number of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from loger.data import tables
from loger.data.assemble import NO_FACTS, assemble
from loger.data.dataset import Dataset, Note
from loger.data.times import seconds
from loger.errors import DataError

ENDINGS = (".csv", ".tsv", ".txt", ".parquet")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_PARTS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
_INTERACTIONS = {
    "user": ("user", "user_id", "userid"),
    "item": ("item", "item_id", "itemid"),
    "rating": ("rating", "score"),
    "time": ("time", "timestamp"),
    "part": ("part", "split"),
}
_TRIPLES = {
    "head": ("head", "head_id", "subject"),
    "relation": ("relation", "relation_id", "predicate"),
    "tail": ("tail", "tail_id", "object"),
    "head_type": ("head_type",),
    "tail_type": ("tail_type",),
}
_NAMES = {
    "name": ("id", "item", "item_id", "user", "user_id", "name"),
    "label": ("label", "title", "name"),
}


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
    item_names, item_labels = _read_names(place(items, "items"), notes)
    user_names, user_labels = _read_names(place(users, "users"), notes)
    return assemble(
        name or (folder or path.parent).resolve().name,
        read_interactions(path, notes),
        NO_FACTS if facts_path is None else _read_triples(facts_path, notes),
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
    frame = read_columns(path, _INTERACTIONS, ("user", "item", "rating", "time"), 2, notes)
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


def _read_triples(path: Path, notes: list[Note]) -> pl.DataFrame:
    frame = read_columns(path, _TRIPLES, ("head", "relation", "tail"), 0, notes)
    kinds = [c for c in ("head_type", "tail_type") if c in frame.columns]
    return frame.with_columns(pl.col(c).replace("", None) for c in kinds)


def _read_names(path: Path | None, notes: list[Note]) -> tuple[pl.Series, dict[str, str]]:
    """The names that a table lists and the labels that it gives them."""
    if path is None:
        return pl.Series("name", [], dtype=pl.String), {}
    frame = read_columns(path, _NAMES, ("name", "label"), 1, notes)
    labels = dict[str, str]()
    if "label" in frame.columns:
        given = frame.filter(pl.col("label").fill_null("") != "")
        labels = dict(given.select("name", "label").iter_rows())
    return frame["name"], labels


def read_columns(
    path: Path,
    known: Mapping[str, tuple[str, ...]],
    columns: tuple[str, ...],
    optional: int,
    notes: list[Note],
) -> pl.DataFrame:
    """A table with its columns under our names; those that must be there are checked.

    ``known`` maps our name of a column to the names it may have in a header, best first;
    ``columns`` is the order without a header, of which the last ``optional`` may be absent.
    """
    words = {word for some in known.values() for word in some}
    if path.name.endswith(".parquet"):
        frame = tables.read_parquet(path)
    else:
        ending = next((e for e in _SEPARATORS if e in path.suffixes), "")
        frame = tables.read_table(
            path,
            columns,
            separator=_SEPARATORS.get(ending),
            optional=optional,
            header_words=words,
        )
    found = {c.lower(): c for c in frame.columns if c != "line"}
    chosen = dict[str, str]()
    for ours, theirs in known.items():
        free = [found[w] for w in theirs if w in found and found[w] not in chosen.values()]
        if free:
            chosen[ours] = free[0]
        elif ours in columns[: len(columns) - optional]:
            raise DataError(
                f"there is no column {ours}, only {', '.join(found.values())}",
                path=path,
                line=None if path.name.endswith(".parquet") else int(frame["line"][0]) - 1,
                remedy=f"name the columns {', '.join(columns[: len(columns) - optional])}, or let "
                "`loger data build table` map them",
            )
    unread = [c for c in found.values() if c not in chosen.values()]
    if unread:
        notes.append(Note(f"columns of {path.name} that are not read", len(unread), unread[0]))
    frame = frame.select("line", *(pl.col(theirs).alias(ours) for ours, theirs in chosen.items()))
    for column in set(chosen) - {"rating", "time"}:
        frame = _as_text(frame, column, path)
    return tables.filled(frame, columns[: len(columns) - optional], path)


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
