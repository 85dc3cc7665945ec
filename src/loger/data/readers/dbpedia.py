"""MovieLens linked to DBpedia: the layout of ``ml1m`` and its kin, tables separated by TABs.

``train``, ``valid``, ``test`` (.txt, also compressed) are user, item, 1, time, by the
``new_id`` of ``user`` and ``product``, which also hold the original ids: these are the
names. ``kg_final`` is head, relation, tail with a header; an item's entity id is its
``new_id``. ``e_map`` is id, name, resource (the resource is the entity's name, the name its
label), ``r_map`` is id, resource, name. ``products`` gives titles as labels and genres
(several apart by ``|``), ``users`` gender and age: these become the facts has_genre,
has_gender and has_age.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loger.data import table_files
from loger.data.assemble import OTHER, assemble, facts_of, note_unused
from loger.data.dataset import PARTS, Dataset, Note
from loger.data.times import seconds


def read(
    folder: Path,
    *,
    min_rating: float | None = None,
    name: str | None = None,
    interaction: str = "watch",
) -> Dataset:
    """The data set of a folder in this layout."""
    notes = list[Note]()
    table_files.need(folder, "train.txt")
    users = _read_map(table_files.need(folder, "user.txt"), ("new_id", "uid"))["uid"]
    items = _read_map(table_files.need(folder, "product.txt"), ("new_id", "pid"))["pid"]
    entities = _read_map(table_files.need(folder, "e_map.txt"), ("eid", "name", "entity"))
    relations = _read_map(table_files.need(folder, "r_map.txt"), ("id", "kb_relation", "name"))[
        "name"
    ]
    interactions = pl.concat(
        _read_part(path, users, items).with_columns(part=pl.lit(part))
        for part, file in zip(PARTS, ("train", "valid", "test"), strict=True)
        if (path := table_files.find(folder, f"{file}.txt"))
    )
    if interactions["rating"].n_unique() == 1:
        interactions = interactions.drop("rating")  # a mark that says "seen", not a rating
    kg = table_files.need(folder, "kg_final.txt")
    facts = [_read_graph(kg, items, entities["entity"], relations)]
    others = entities.slice(len(items))
    note_unused(others["entity"], facts[0], notes)
    words = others.select("entity", pl.col("name").str.replace_all("_", " "))
    labels = {OTHER: dict(words.iter_rows())}
    if path := table_files.find(folder, "products.txt"):
        table = _described(path, "pid", items, notes)
        titles = table.filter(pl.col("name") != "").select("pid", "name")
        labels["item"] = dict(titles.iter_rows())
        facts.append(_features(table, "pid", "item", "genre"))
    if path := table_files.find(folder, "users.txt"):
        table = _described(path, "uid", users, notes)
        facts += [_features(table, "uid", "user", column) for column in ("gender", "age")]
    return assemble(
        name or folder.resolve().name,
        interactions,
        pl.concat(facts, how="diagonal"),
        interaction=interaction,
        users=users,
        items=items,
        labels=labels,
        min_rating=min_rating,
        notes=notes,
        path=folder,
        facts_path=kg,
    )


def _read_map(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    """A table whose first column counts its rows from 0; each other column, without repetition
    where it identifies."""
    frame = table_files.read_table(path, separator="\t")
    if tuple(frame.columns[1:]) != columns:
        what = f"the header should be {' '.join(columns)}"
        table_files.refuse_header(frame, what, path, "put the columns in this order")
    table_files.filled(frame, columns, path)
    key = columns[0]
    remedy = "number the rows from 0 without gaps"
    frame = table_files.number(frame, key, pl.Int64, path, below=len(frame), remedy=remedy)
    name = {"r_map": "name"}.get(path.name.split(".")[0], columns[-1])
    again = frame.filter(~pl.col(key).is_first_distinct() | ~pl.col(name).is_first_distinct())
    what, remedy = f"{key} or {name} appears twice", "give each one its own row"
    table_files.refuse(again, what, path, key, name, remedy=remedy)
    return frame.sort(key)


def _read_part(path: Path, users: pl.Series, items: pl.Series) -> pl.DataFrame:
    """The interactions of a file of user, item, mark, time."""
    frame = table_files.read_table(
        path, ("user", "item", "rating", "time"), separator="\t", optional=1
    )
    for column, names, file in (("user", users, "user"), ("item", items, "product")):
        remedy = f"use the IDs in column new_id of {file}.txt"
        frame = table_files.gathered(frame, column, names, path, remedy)
    frame = table_files.number(frame, "rating", pl.Float64, path)
    return seconds(frame, "time", path) if "time" in frame.columns else frame


def _read_graph(
    path: Path, items: pl.Series, entities: pl.Series, relations: pl.Series
) -> pl.DataFrame:
    """The facts of kg_final, with items under their own names."""
    frame = table_files.read_table(path, separator="\t")
    if len(frame.columns) != 4:
        what = "the columns should be entity_head, relation, entity_tail"
        table_files.refuse_header(frame, what, path, "use exactly these three")
    frame = frame.rename(dict(zip(frame.columns[1:], ("head", "relation", "tail"), strict=True)))
    names = pl.concat([items.rename("entity"), entities.slice(len(items))])
    for side in ("head", "tail"):
        remedy = "use the IDs in column eid of e_map.txt"
        frame = table_files.number(frame, side, pl.Int64, path, below=len(entities), remedy=remedy)
        item = table_files.kind_if(pl.col(side) < len(items), f"{side}_type", "item", OTHER)
        frame = frame.with_columns(item, names.gather(frame[side]).alias(side))
    remedy = "use the IDs in column id of r_map.txt"
    return table_files.gathered(frame, "relation", relations, path, remedy)


def _described(path: Path, key: str, known: pl.Series, notes: list[Note]) -> pl.DataFrame:
    """A table of what users or products are like, less the rows of unknown ones."""
    frame = table_files.read_table(path, separator="\t")
    need = (key, "name", "genre") if key == "pid" else (key, "gender", "age")
    missing = [c for c in need if c not in frame.columns]
    if missing:
        table_files.refuse_header(
            frame,
            f"there is no column {missing[0]}",
            path,
            f"add it; loger needs {', '.join(need)}",
        )
    is_known = pl.col(key).is_in(known.implode())
    what = f"rows of {path.name} about unknown {key}s ignored"
    table_files.note(notes, what, frame.filter(~is_known), key)
    return frame.filter(is_known)


def _features(table: pl.DataFrame, key: str, kind: str, column: str) -> pl.DataFrame:
    """One fact for each value in a column; an empty cell is a missing value."""
    values = table.select(key, pl.col(column).str.split("|").alias("tail")).explode("tail")
    return facts_of(values.filter(pl.col("tail") != ""), f"has_{column}", kind, column, key)
