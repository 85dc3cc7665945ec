"""The layout of PGPR and CAFE: names by line number, one file of tail numbers per relation.

``users``, ``product``, ``related_product``, ``brand``, ``category`` (.txt, also compressed)
hold one name per line. Line i of ``also_bought_p_p``, ``brand_p_b`` and so on has the tails
of product i; those of ``_p_p`` point into ``related_product``, where an ASIN that is also in
``product`` is that product, and the rest are products outside the catalogue.
``train_labels`` and ``test_labels`` are lines of a user and that user's items.
``item_short_names`` gives labels. A brand or the like whose name is blank is no entity: its
facts are left out and noted.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loger.data import table_files
from loger.data.assemble import NO_FACTS, assemble
from loger.data.dataset import Dataset, Note
from loger.errors import DataError

_RELATIONS = {  # file → relation, file of tail names
    "also_bought_p_p": ("also_bought", "related_product"),
    "also_viewed_p_p": ("also_viewed", "related_product"),
    "bought_together_p_p": ("bought_together", "related_product"),
    "brand_p_b": ("has_brand", "brand"),
    "category_p_c": ("has_category", "category"),
}


def read(folder: Path, *, min_rating: float | None = None, name: str | None = None) -> Dataset:
    """The data set of a folder in PGPR's layout."""
    notes = list[Note]()
    users = _read_names(table_files.need(folder, "users.txt"), unique=True)
    items = _read_names(table_files.need(folder, "product.txt"), unique=True)
    interactions = [
        _read_labels(path, users, items).with_columns(part=pl.lit(part))
        for part, look in (("train", table_files.need), ("test", table_files.find))
        if (path := look(folder, f"{part}_labels.txt"))
    ]
    tables_of_facts = [
        _read_relation(path, folder, relation, tails, items, notes)
        for file, (relation, tails) in _RELATIONS.items()
        if (path := table_files.find(folder, f"{file}.txt"))
    ]
    facts = pl.concat(tables_of_facts) if tables_of_facts else NO_FACTS
    for tails in ("related_product", "brand", "category"):
        if path := table_files.find(folder, f"{tails}.txt"):
            _note_idle(path, _read_names(path)["text"], facts, notes)
    unread = sorted(
        p.name for p in folder.glob("*_p_*.txt*") if p.name.split(".")[0] not in _RELATIONS
    )
    if unread:
        notes.append(Note("files of unknown relations, not read", len(unread), unread[0]))
    return assemble(
        name or folder.resolve().name,
        pl.concat(interactions),
        facts,
        interaction="purchase",
        users=users["text"],
        items=items["text"],
        labels={
            "item": table_files.read_short_names(table_files.find(folder, "item_short_names.txt"))
        },
        min_rating=min_rating,
        notes=notes,
        path=folder,
        facts_path=folder,
    )


def _read_names(path: Path, *, unique: bool = False) -> pl.DataFrame:
    """One name per line; where names identify users or items, each just once and not blank."""
    names = table_files.read_lines(path).with_columns(pl.col("text").str.strip_chars())
    bad = names.filter((pl.col("text") == "") | ~pl.col("text").is_first_distinct())
    if unique:
        remedy = "give each line a name of its own; ids are line numbers"
        table_files.refuse(bad, "a name is blank or appears twice", path, "text", remedy=remedy)
    return names


def _read_labels(path: Path, users: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """The interactions of lines of a user number and item numbers."""
    cells = table_files.read_lists(path)
    owner = cells.filter(pl.col("place") == 0).rename({"value": "user"})
    owner = table_files.number(
        owner, "user", pl.Int64, path, below=len(users), remedy=_points_into("users")
    )
    rows = cells.filter(pl.col("place") > 0).rename({"value": "item"})
    rows = table_files.number(
        rows, "item", pl.Int64, path, below=len(items), remedy=_points_into("product")
    )
    rows = rows.join(owner.select("line", "user"), on="line", maintain_order="left")
    return rows.select(
        "line",
        users["text"].gather(rows["user"]).alias("user"),
        items["text"].gather(rows["item"]).alias("item"),
    )


def _read_relation(
    path: Path, folder: Path, relation: str, kind: str, items: pl.DataFrame, notes: list[Note]
) -> pl.DataFrame:
    """The facts of a file whose line i has the tails of product i."""
    names = _read_names(table_files.need(folder, f"{kind}.txt"))
    cells = table_files.number(
        table_files.read_lists(path),
        "value",
        pl.Int64,
        path,
        below=len(names),
        remedy=_points_into(kind),
    )
    if int(cells["line"].max() or 0) > len(items):  # type: ignore[arg-type]
        raise DataError(
            f"has more lines than product.txt has products ({len(items)})",
            path=path,
            line=len(items) + 1,
            remedy="give each product one line",
        )
    facts = cells.select(
        "line",
        items["text"].gather(cells["line"] - 1).alias("head"),
        pl.lit(relation).alias("relation"),
        names["text"].gather(cells["value"]).alias("tail"),
        pl.lit("item").alias("head_type"),
        pl.lit(path.name).alias("file"),
    )
    blank = facts.filter(pl.col("tail") == "")
    if len(blank):
        example = f"{blank['head'][0]} {relation}, line {blank['line'][0]} of {path.name}"
        notes.append(Note(f"facts about a {kind} without a name left out", len(blank), example))
    facts = facts.filter(pl.col("tail") != "")
    is_item = pl.col("tail").is_in(items["text"].implode()) & (kind == "related_product")
    return facts.with_columns(
        pl.when(is_item).then(pl.lit("item")).otherwise(pl.lit(kind)).alias("tail_type")
    )


def _note_idle(path: Path, names: pl.Series, facts: pl.DataFrame, notes: list[Note]) -> None:
    """Note names that no fact mentions: they do not become entities."""
    mentioned = pl.concat([facts["head"], facts["tail"]]).unique()
    idle = names.filter(~names.is_in(mentioned.implode()) & (names != ""))
    if len(idle):
        notes.append(Note(f"names in {path.name} that are in no fact", len(idle), idle[0]))


def _points_into(file: str) -> str:
    return f"ids are line numbers of {file}.txt, from 0"
