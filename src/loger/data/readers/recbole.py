"""RecBole's atomic files (hopwise has the same): .inter, .kg, .link, .item, .user.

Tables separated by TABs whose header gives each column a type: token, token_seq, float,
float_seq. ``name.train.inter``, ``name.valid.inter``, ``name.test.inter`` bring a split and
go before ``name.inter``. ``.link`` says which entity of ``.kg`` an item is. Columns of
``.item`` and ``.user`` become facts when their type is token or token_seq (the relation and
the type of its tails are called like the column), labels when they are called name or
title (the first such); float columns are noted, not read. An empty cell is a missing value.

``write`` makes these files of a data set, for RecBole, hopwise and ``read``:

    NAME.inter   user_id, item_id, rating, timestamp; NAME.train.inter and so on for a given split
    NAME.kg      head_id, relation_id, tail_id: all facts but those of users
    NAME.link    which entity of .kg each item is
    NAME.item    item_id, item_name, where items have labels
    NAME.user    user_id, user_name, and a column for each relation of users

RecBole's entities have no types: those of other types than item are called ``type:name``, so that
a brand and a category of one name stay two. What is known from a single interaction (a mention in a
review) has no place in these files and is left out; the result says how much.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data import table_files
from loger.data.assemble import NO_FACTS, OTHER, assemble
from loger.data.dataset import PARTS, Dataset, Note
from loger.data.times import seconds
from loger.engine.files import atomic_file
from loger.errors import DataError
from loger.graph import INTERACTION

_TYPES = ("token", "token_seq", "float", "float_seq")
OPTIONAL = {"rating": "rating", "strength": "strength", "time": "timestamp"}
"""What is read of interactions where it is there, and the column's name."""
_ENDINGS = ("train", "valid", "test")
_SPLIT = {f".{ending}": part for ending, part in zip(_ENDINGS, PARTS, strict=True)}


def read(folder: Path, *, min_rating: float | None = None, name: str | None = None) -> Dataset:
    """The data set that the atomic files of a folder hold."""
    stem, notes = _stem(folder), list[Note]()
    interactions, path = _read_interactions(folder, stem, notes)
    facts, labels, names, kg = [], {}, {}, table_files.find(folder, f"{stem}.kg")
    links = pl.DataFrame(schema={"item": pl.String, "entity": pl.String})
    if kg is not None:
        links = _read_links(table_files.need(folder, f"{stem}.link"))
        facts.append(_read_graph(kg, links))
    for kind in ("item", "user"):
        names[kind], labels[kind] = pl.Series([], dtype=pl.String), dict[str, str]()
        source = table_files.find(folder, f"{stem}.{kind}")
        if source is not None:
            some, names[kind], labels[kind] = _read_features(source, kind, notes)
            facts.append(some)
    return assemble(
        name or stem,
        interactions,
        pl.concat([NO_FACTS, *facts], how="diagonal"),
        users=names["user"],
        items=pl.concat([names["item"].rename("item"), links["item"]]),
        labels=labels,
        min_rating=min_rating,
        notes=notes,
        path=path,
        facts_path=kg,
    )


def _stem(folder: Path) -> str:
    """The name of the data set: what its interaction files have before the first dot-part."""
    stems = set()
    for path in folder.iterdir():
        plain = path.name.removesuffix(
            path.suffix if path.suffix in table_files.COMPRESSIONS else ""
        )
        if plain.endswith(".inter"):
            stem = plain.removesuffix(".inter")
            stems.add(next((stem.removesuffix(s) for s in _SPLIT if stem.endswith(s)), stem))
    if folder.resolve().name in stems:
        return folder.resolve().name
    if len(stems) != 1:
        raise DataError(
            "the folder should contain the .inter files of only one data set",
            path=folder,
            value=sorted(stems),
            remedy="keep one data set per folder",
        )
    return stems.pop()


def _read_interactions(folder: Path, stem: str, notes: list[Note]) -> tuple[pl.DataFrame, Path]:
    split = {
        p: part for s, part in _SPLIT.items() if (p := table_files.find(folder, f"{stem}{s}.inter"))
    }
    whole = table_files.find(folder, f"{stem}.inter")
    redundant = [whole.name] if whole and split else []
    table_files.note(notes, "files ignored because the split files replace them", redundant)
    frames = []
    for path in split or [table_files.need(folder, f"{stem}.inter")]:
        frame, types = _read_atomic(path)
        tokens = [c for c, t in types.items() if t == "token"]
        user, item = _two_tokens(path, tokens)
        columns = {"user": user, "item": item}
        columns |= {o: t for o, t in OPTIONAL.items() if t in types}
        unread = [c for c in types if c not in columns.values()]
        table_files.note(notes, f"columns of {path.name} that are ignored", unread)
        frame = frame.select("line", *(pl.col(t).alias(o) for o, t in columns.items()))
        frame = table_files.filled(frame, ["user", "item"], path)
        for column in ("rating", "strength"):
            if column in columns:
                frame = table_files.number(frame, column, pl.Float64, path)
        if "time" in columns:
            frame = seconds(frame, "time", path)
        if split:
            frame = frame.with_columns(pl.lit(split[path]).alias("part"))
        frames.append(frame)
        if frame.columns != frames[0].columns:
            raise _wrong_columns(
                "the columns differ from those of the first split file",
                path,
                types,
                "give all split files the same header",
            )
    return pl.concat(frames), path


def _two_tokens(path: Path, tokens: list[str]) -> tuple[str, str]:
    """Which columns name the user and the item: by name, else the first two tokens."""
    if "user_id" in tokens and "item_id" in tokens:
        return "user_id", "item_id"
    if len(tokens) < 2:
        raise DataError(
            "the header needs a user column and an item column, both of type token",
            path=path,
            line=1,
            value=tokens,
            remedy="add user_id:token and item_id:token to the header",
        )
    return tokens[0], tokens[1]


def _read_links(path: Path) -> pl.DataFrame:
    """Which entity each item is; an entity of two items, or an item of two entities, is refused."""
    frame, _ = _read_atomic(path)
    frame = frame.select("line", pl.nth(1).alias("item"), pl.nth(2).alias("entity"))
    table_files.filled(frame, ["item", "entity"], path)
    for column in ("item", "entity"):
        again = frame.filter(~pl.col(column).is_first_distinct())
        remedy = "link each item to its own entity"
        table_files.refuse(again, f"the {column} is linked twice", path, column, remedy=remedy)
    return frame.drop("line")


def _read_graph(path: Path, links: pl.DataFrame) -> pl.DataFrame:
    """The triples of .kg, linked entities under the names of their items."""
    frame, types = _read_atomic(path)
    if len(types) != 3:
        raise _wrong_columns(
            "the columns should be head_id, relation_id, tail_id",
            path,
            types,
            "use exactly these three",
        )
    columns = ("head", "relation", "tail")
    frame = frame.rename(dict(zip(types, columns, strict=True)))
    table_files.filled(frame, columns, path)
    for side in ("head", "tail"):
        item = links.rename({"item": "linked", "entity": side})
        frame = frame.join(item, on=side, how="left", maintain_order="left")
        kind = table_files.kind_if(pl.col("linked").is_null(), f"{side}_type", OTHER, "item")
        frame = frame.with_columns(kind, pl.coalesce("linked", side).alias(side)).drop("linked")
    return frame.with_columns(file=pl.lit(path.name))


def _read_features(
    path: Path, kind: str, notes: list[Note]
) -> tuple[pl.DataFrame, pl.Series, dict[str, str]]:
    """Facts, names and labels from a table with one row per item or user."""
    frame, types = _read_atomic(path)
    key, *rest = types
    frame = table_files.filled(frame, [key], path)
    labels, facts, unread = dict[str, str](), [], []
    for column in rest:
        filled = frame.filter(pl.col(column).fill_null("") != "").select(
            "line", pl.col(key).alias("head"), pl.col(column).alias("tail")
        )
        says_name = column.lower().endswith(("name", "title"))
        if types[column].startswith("float") or (says_name and labels):
            unread.append(column)
        elif says_name:
            labels = dict(filled.select("head", "tail").iter_rows())
        else:
            if types[column] == "token_seq":
                words = pl.col("tail").str.extract_all(r"\S+")
                filled = filled.with_columns(words).explode("tail")
            facts.append(filled.with_columns(relation=pl.lit(column), tail_type=pl.lit(column)))
    table_files.note(notes, f"columns of {path.name} that are ignored", unread)
    table = pl.concat(facts) if facts else NO_FACTS
    table = table.with_columns(head_type=pl.lit(kind), file=pl.lit(path.name))
    return table, frame[key], labels


def _read_atomic(path: Path) -> tuple[pl.DataFrame, dict[str, str]]:
    """A table and the types of its columns, from a header of ``name:type``."""
    frame = table_files.read_table(path, separator="\t")
    types = dict[str, str]()
    for column in frame.columns[1:]:
        name, _, kind = column.rpartition(":")
        if kind not in _TYPES or not name or name in types:
            raise DataError(
                "each column in the header should have the form name:type",
                path=path,
                line=int(frame["line"][0]) - 1,
                value=column,
                remedy=f"use one of these types: {', '.join(_TYPES)}",
            )
        types[name] = kind
    return frame.rename(dict(zip(frame.columns[1:], types, strict=True))), types


def write(dataset: Dataset, folder: Path | str) -> dict[str, int]:
    """Write the files; rows of each, and under ``left out`` facts that have no place in them."""
    folder, name = Path(folder), dataset.name
    if folder.is_dir() and any(folder.iterdir()):
        raise DataError("the folder is not empty", path=folder, remedy="choose a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    facts = dataset.facts
    known = facts.sources < 0
    of_users = facts.heads < dataset.n_users
    files = {
        **_interactions(dataset),
        f"{name}.kg": _graph(dataset, np.flatnonzero(known & ~of_users)),
        f"{name}.link": _links(dataset),
        f"{name}.item": _labels(dataset, "item"),
        f"{name}.user": _users(dataset, np.flatnonzero(known & of_users)),
    }
    for file, table in files.items():
        with atomic_file(folder / file) as part:
            table.write_csv(part, separator="\t", quote_style="never")
    return {file: len(table) for file, table in files.items()} | {"left out": int((~known).sum())}


def _interactions(dataset: Dataset) -> dict[str, pl.DataFrame]:
    given = dataset.interactions
    names, first = _cleaned(dataset.vocabulary.names), dataset.n_users
    columns = {
        "user_id:token": names.gather(given.users),
        "item_id:token": names.gather(given.items + first),
    }
    if given.ratings is not None:
        columns["rating:float"] = pl.Series(given.ratings)
    if given.strengths is not None:
        columns["strength:float"] = pl.Series(given.strengths)
    if given.times is not None:
        columns["timestamp:float"] = pl.Series(given.times)
    table = pl.DataFrame(columns)
    if given.parts is None:
        return {f"{dataset.name}.inter": table}
    return {
        f"{dataset.name}.{ending}.inter": table.filter(pl.Series(given.parts == part))
        for part, ending in enumerate(_ENDINGS)
    }


def _graph(dataset: Dataset, rows: NDArray[np.int64]) -> pl.DataFrame:
    facts, entities = dataset.facts, _entities(dataset)
    relations = _cleaned([relation.name for relation in dataset.relations])
    return pl.DataFrame(
        {
            "head_id:token": entities.gather(facts.heads[rows]),
            "relation_id:token": relations.gather(facts.relations[rows]),
            "tail_id:token": entities.gather(facts.tails[rows]),
        }
    )


def _links(dataset: Dataset) -> pl.DataFrame:
    items = _cleaned(dataset.vocabulary.of_type("item")[0])
    return pl.DataFrame({"item_id:token": items, "entity_id:token": items})


def _labels(dataset: Dataset, kind: str) -> pl.DataFrame:
    names, labels = map(_cleaned, dataset.vocabulary.of_type(kind))
    return pl.DataFrame({f"{kind}_id:token": names, f"{kind}_name:token_seq": labels})


def _users(dataset: Dataset, rows: NDArray[np.int64]) -> pl.DataFrame:
    """The users, with what is known of them; values are words, so their spaces become ``_``."""
    facts, table = dataset.facts, _labels(dataset, "user")
    values = _cleaned(dataset.vocabulary.names).str.replace_all(r"\s", "_")
    for r, relation in enumerate(dataset.relations):
        of_relation = rows[facts.relations[rows] == r]
        if r == INTERACTION or not len(of_relation):
            continue
        said = pl.DataFrame(
            {"user": facts.heads[of_relation], "value": values.gather(facts.tails[of_relation])}
        )
        said = said.group_by("user", maintain_order=True).agg(pl.col("value").str.join(" "))
        value_of = dict(said.iter_rows())
        column = [value_of.get(u, "") for u in range(dataset.n_users)]
        table = table.with_columns(pl.Series(f"{relation.name}:token_seq", column))
    return table


def _entities(dataset: Dataset) -> pl.Series:
    """The names of all entities in .kg: items under their own, others with their type."""
    names = list[str]()
    for kind in dataset.vocabulary.types:
        prefix = "" if kind in ("user", "item") else f"{kind}:"
        names += [prefix + name for name in dataset.vocabulary.of_type(kind)[0]]
    return _cleaned(names)


def _cleaned(names: list[str]) -> pl.Series:
    """Names without the signs that divide cells and rows."""
    return pl.Series(names, dtype=pl.String).str.replace_all(r"[\t\r\n]", " ")


def _wrong_columns(what: str, path: Path, types: Iterable[str], remedy: str) -> DataError:
    """The error that a header has other columns than it should."""
    return DataError(what, path=path, line=1, value=list(types), remedy=remedy)
