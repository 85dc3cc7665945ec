"""The layout of KGAT and KGIN: train.txt, test.txt and kg_final.txt, all of them numbers.

``train.txt`` and ``test.txt`` have lines of a user and that user's items (a user alone has
none there); ``kg_final.txt`` has lines of head, relation, tail. Entities below the number of
items are the items. ``user_list.txt``, ``item_list.txt``, ``entity_list.txt`` and
``relation_list.txt`` (header ``org_id remap_id …``) give names; without them numbers are
the names, entities called e7 and relations r7. Without ``item_list.txt`` the items are those
up to the highest number in train and test.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loger.data import table_files
from loger.data.assemble import OTHER, assemble, note_unused
from loger.data.dataset import Dataset, Note
from loger.errors import DataError


def read(folder: Path, *, min_rating: float | None = None, name: str | None = None) -> Dataset:
    """The data set of a folder in KGAT's layout."""
    notes = list[Note]()
    users, items, entities, relations = (
        _read_list(table_files.find(folder, f"{kind}_list.txt"))
        for kind in ("user", "item", "entity", "relation")
    )
    interactions = pl.concat(
        _read_pairs(table_files.need(folder, f"{part}.txt"), users, items).with_columns(
            part=pl.lit(part)
        )
        for part in ("train", "test")
    )
    if not interactions["item"].count():
        raise DataError(
            "train.txt and test.txt contain no interactions",
            path=folder,
            remedy="start each line with a user ID, followed by item IDs",
        )
    items = _numbers("", folder, interactions["item"].drop_nulls()) if items is None else items
    users = _numbers("", folder, interactions["user"]) if users is None else users
    interactions = interactions.drop_nulls("item")
    path = table_files.need(folder, "kg_final.txt")
    facts = _read_graph(path, items, entities, relations)
    if entities is not None:
        note_unused(entities.slice(len(items)), facts, notes)
    return assemble(
        name or folder.resolve().name,
        interactions.with_columns(
            users.gather(interactions["user"]).alias("user"),
            items.gather(interactions["item"]).alias("item"),
        ),
        facts,
        users=users,
        items=items,
        min_rating=min_rating,
        notes=notes,
        path=folder,
        facts_path=path,
    )


def _read_list(path: Path | None) -> pl.Series | None:
    """Names by number, from lines of a name, its number, and optionally more."""
    if path is None:
        return None
    lines = table_files.read_lines(path).filter(pl.col("text").str.strip_chars() != "")
    header = str(lines["text"][0]).split()
    if header[:2] != ["org_id", "remap_id"]:
        raise DataError(
            "the first line should be the header org_id remap_id",
            path=path,
            line=int(lines["line"][0]),
            value=lines["text"][0][:80],
            remedy="add the header, and put names first and numbers second",
        )
    # A name may contain blanks, so the columns after it are counted from the end.
    row = pl.col("text").str.extract_groups(
        r"^(.+?)\s+(\S+)" + r"\s+\S+" * (len(header) - 2) + r"\s*$"
    )
    rows = lines[1:].select(
        "line", "text", row.struct.field("1").alias("name"), row.struct.field("2").alias("id")
    )
    table_files.filled(rows, ["name"], path)
    remedy, n = "number the names from 0 without gaps", len(rows)
    rows = table_files.number(rows, "id", pl.Int64, path, below=n, what="remap_id", remedy=remedy)
    again = rows.filter(~pl.col("id").is_first_distinct() | ~pl.col("name").is_first_distinct())
    remedy = "give each name its own number"
    table_files.refuse(again, "a name or number appears twice", path, "text", remedy=remedy)
    return rows.sort("id")["name"]


def _read_pairs(path: Path, users: pl.Series | None, items: pl.Series | None) -> pl.DataFrame:
    """User and item numbers; a user without items has a row with none."""
    owner, rows = table_files.read_heads(path, "user", "item")
    owner = _numbered(owner, "user", path, users, "user_list.txt")
    rows = _numbered(rows, "item", path, items, "item_list.txt")
    return owner.join(rows, on="line", how="left", maintain_order="left_right")


def _read_graph(
    path: Path, items: pl.Series, entities: pl.Series | None, relations: pl.Series | None
) -> pl.DataFrame:
    """The facts of kg_final, with items under their own names."""
    frame = table_files.read_table(
        path, ("head", "relation", "tail"), separator=table_files.shown_separator
    )
    frame = _numbered(frame, "relation", path, relations, "relation_list.txt")
    for side in ("head", "tail"):
        frame = _numbered(frame, side, path, entities, "entity_list.txt")
    if entities is None:
        entities = _numbers("e", path, pl.concat([frame["head"], frame["tail"].rename("head")]))
    if relations is None:
        relations = _numbers("r", path, frame["relation"])
    # Of a relation that is named by an address, people need only the last part.
    short = relations.str.extract(r"([^/#]+)[/#]*$")
    unclear = short.null_count() or short.n_unique() < len(relations)
    titles = relations if unclear else short
    names = pl.concat([items.rename("name"), entities.slice(len(items)).rename("name")])
    kinds = (
        table_files.kind_if(pl.col(side) < len(items), f"{side}_type", "item", OTHER)
        for side in ("head", "tail")
    )
    return frame.select(
        "line",
        names.gather(frame["head"]).alias("head"),
        titles.gather(frame["relation"]).alias("relation"),
        names.gather(frame["tail"]).alias("tail"),
        *kinds,
    )


def _numbered(
    frame: pl.DataFrame, column: str, path: Path, names: pl.Series | None, file: str
) -> pl.DataFrame:
    """The frame with a column of numbers, within the list of names where there is one."""
    limit = 2**31 if names is None else len(names)
    remedy = "write IDs as numbers from 0" + ("" if names is None else f", as in {file}")
    return table_files.number(frame, column, pl.Int64, path, below=limit, remedy=remedy)


def _numbers(prefix: str, path: Path, used: pl.Series) -> pl.Series:
    """Names for numbers without a list; a number far beyond the others is taken for an error."""
    last = int(used.max() or 0)  # type: ignore[arg-type]
    if last > 1_000 + 10 * used.n_unique():
        raise DataError(
            f"{used.name} has only {used.n_unique()} different numbers, but one is far too large",
            path=path,
            value=last,
            remedy="number from 0 without gaps, or add a list file with the names",
        )
    return pl.select(pl.format(prefix + "{}", pl.int_range(last + 1)).alias("name")).to_series()
