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
from loger.data.assemble import NO_FACTS, assemble, note_unused
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
    facts = pl.concat([NO_FACTS, *tables_of_facts], how="diagonal")
    for tails in ("related_product", "brand", "category"):
        if path := table_files.find(folder, f"{tails}.txt"):
            names = _read_names(path)["text"]
            what = f"names in {path.name} that no fact uses"
            note_unused(names.filter(names != ""), facts, notes, what)
    unread = sorted(
        p.name for p in folder.glob("*_p_*.txt*") if p.name.split(".")[0] not in _RELATIONS
    )
    table_files.note(notes, "files of unknown relations, ignored", unread)
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
        remedy = "give each line its own name; IDs are line numbers"
        table_files.refuse(bad, "a name is blank or appears twice", path, "text", remedy=remedy)
    return names


def _read_labels(path: Path, users: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """The interactions of lines of a user number and item numbers."""
    owner, rows = table_files.read_heads(path, "user", "item")
    owner = table_files.gathered(owner, "user", users["text"], path, _points_into("users"))
    rows = table_files.gathered(rows, "item", items["text"], path, _points_into("product"))
    return rows.join(owner, on="line", maintain_order="left").select("line", "user", "item")


def _read_relation(
    path: Path, folder: Path, relation: str, kind: str, items: pl.DataFrame, notes: list[Note]
) -> pl.DataFrame:
    """The facts of a file whose line i has the tails of product i."""
    names = _read_names(table_files.need(folder, f"{kind}.txt"))
    cells = table_files.read_lists(path)
    cells = table_files.gathered(cells, "value", names["text"], path, _points_into(kind))
    if int(cells["line"].max() or 0) > len(items):  # type: ignore[arg-type]
        raise DataError(
            f"the file has more lines than product.txt has products ({len(items)})",
            path=path,
            line=len(items) + 1,
            remedy="write one line per product",
        )
    facts = cells.select(
        "line",
        items["text"].gather(cells["line"] - 1).alias("head"),
        pl.lit(relation).alias("relation"),
        pl.col("value").alias("tail"),
        pl.lit("item").alias("head_type"),
        pl.lit(path.name).alias("file"),
    )
    what, blank = f"facts about a {kind} without a name left out", pl.col("tail") == ""
    table_files.note(notes, what, facts.filter(blank), "head", "relation")
    is_item = pl.col("tail").is_in(items["text"].implode()) & (kind == "related_product")
    return facts.filter(~blank).with_columns(
        table_files.kind_if(is_item, "tail_type", "item", kind)
    )


def _points_into(file: str) -> str:
    return f"use line numbers of {file}.txt, counted from 0"
