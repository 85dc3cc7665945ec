"""What came after a fit, in tables like those that the data were built from.

A bundle keeps the mapping of its tables. A table with the columns that the mapping names is read as
the build read it: the same columns are users, items and times, the same become facts, and numbers
fall into the same ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from loger.data.dataframes import is_frame
from loger.data.dataset import Note
from loger.errors import DataError
from loger.graph import KnowledgeGraph
from loger.tables import frames
from loger.tables.mapping import EntityTable, TableMapping
from loger.tables.reviews.aspects import mentions
from loger.tables.reviews.review_facts import FACTS
from loger.tables.table import _add_entities, _interactions, _Work
from loger.tables.values import cells, zero_width
from loger.updates import changes
from loger.updates.changes import Changes, Names

BUNDLE = Path("the bundle")
TABLES = ("interactions", "items", "users")


def read(
    mapping: Mapping[str, Any] | None,
    graph: KnowledgeGraph,
    tables: Mapping[str, object],
    facts: object = None,
    positive_from: float | None = None,
) -> Changes:
    """Changes from tables of interactions, items and users: those with the columns of the mapping
    are read by it, the others by the names of the plain format."""
    given: dict[str, object] = {name: tables.get(name) for name in TABLES}
    mapped = dict[str, pl.DataFrame]()
    known = None if mapping is None else TableMapping.of_plain(mapping, BUNDLE)
    for name in TABLES if known is not None else ():
        frame = _frame(given[name])
        if frame is not None and known is not None and _fits(frame, known, name):
            mapped[name], given[name] = frame, None
    floor = None if "interactions" in mapped else positive_from
    plain = changes.read(
        given["interactions"], given["items"], facts, given["users"], positive_from=floor
    )
    if known is None or not mapped:
        return plain
    return _mapped(known, graph, mapped, positive_from).plus(plain)


def _frame(table: object) -> pl.DataFrame | None:
    """A table from a file or a frame; None for rows, which the plain format names."""
    if isinstance(table, str | PathLike):
        return frames.read(Path(table))
    if isinstance(table, pl.DataFrame | pl.LazyFrame) or is_frame(table):
        return frames.read(table)
    return None


def _fits(frame: pl.DataFrame, mapping: TableMapping, name: str) -> bool:
    """Whether a table has the columns that name its users and items."""
    if name == "interactions":
        return {mapping.interactions.user, mapping.interactions.item} <= set(frame.columns)
    part: EntityTable | None = getattr(mapping, name)
    return part is not None and part.id in frame.columns


def _mapped(
    mapping: TableMapping,
    graph: KnowledgeGraph,
    tables: Mapping[str, pl.DataFrame],
    positive_from: float | None,
) -> Changes:
    """What a mapping makes of tables; a value is taken however few or many have it."""
    all_of_them = {"least": 1, "hub_share": 1.0, "user_core": 1, "item_core": 1}
    mapping = replace(mapping, **all_of_them)  # type: ignore[arg-type]
    for name in ("items", "users"):
        if name in tables:
            mapping = _with_columns_of(mapping, name, tables[name])
    items = pl.Series(list(graph.vocabulary.ids("item")), dtype=pl.String)
    work = _Work(mapping, mentions, False, known_items=items)
    _write_ids_alike(work, graph, tables)
    rows = changes.NO_INTERACTIONS
    if "interactions" in tables:
        floors = [f for f in (positive_from, mapping.positive_from) if f is not None]
        rows = _taken(work, tables["interactions"], max(floors, default=None))
    named: dict[str, Names] = {"item": {}, "user": {}}
    for kind, entities in (("item", mapping.items), ("user", mapping.users)):
        if f"{kind}s" in tables and entities is not None:
            _add_entities(work, entities, tables[f"{kind}s"], kind)
            labels = work.labels.get(kind, {})
            named[kind] = {name: labels.get(name) for name in work.names[kind]}
    if mapping.items is not None:
        known = [*graph.vocabulary.ids("item"), *named["item"]]
        work.note_strangers(
            "item", rows["item"], known, "neither in the model nor among the new items"
        )
    facts = pl.concat(work.facts, how="diagonal") if work.facts else pl.DataFrame(schema=FACTS)
    facts = _known_words(facts, mapping, graph).select(
        "head", "relation", "tail", "head_type", "tail_type"
    )
    told: dict[str, Any] = {"notes": tuple(work.notes), "images": work.images}
    return Changes(rows, facts, named["item"], named["user"], **told)


def _with_columns_of(mapping: TableMapping, name: str, frame: pl.DataFrame) -> TableMapping:
    """The mapping less the columns that a table leaves out: new items may have fewer."""
    part: EntityTable = getattr(mapping, name)
    columns = tuple(c for c in part.columns if c.column in frame.columns)
    label = part.label if part.label in frame.columns else ""
    return mapping.with_table(name, replace(part, columns=columns, label=label))


def _write_ids_alike(
    work: _Work, graph: KnowledgeGraph, tables: Mapping[str, pl.DataFrame]
) -> None:
    """Fill ids with zeros where the model knows 00032 and a table has 32."""
    mapping = work.mapping
    for kind, column, part in (
        ("item", mapping.interactions.item, mapping.items),
        ("user", mapping.interactions.user, mapping.users),
    ):
        known = pl.Series(list(graph.vocabulary.ids(kind)), dtype=pl.String)
        given = [tables["interactions"][column]] if "interactions" in tables else []
        if part is not None and f"{kind}s" in tables:
            given.append(tables[f"{kind}s"][part.id])
        for values in given:
            work.widths[kind] = max(work.widths.get(kind, 0), zero_width(cells(values), known))


def _taken(work: _Work, table: pl.DataFrame, floor: float | None) -> pl.DataFrame:
    """The interactions of a table, without those that are rated too low."""
    names = work.mapping.interactions
    missing = [c for c in (names.rating, names.time) if c and c not in table.columns]
    if missing:
        raise DataError(
            f"there is no column {missing[0]!r}, which the model was built with",
            remedy="add it; its values may be empty only where the row may be left out",
        )
    told = replace(names, part="", columns=())
    work.mapping = replace(work.mapping, interactions=told)
    rows, _ = _interactions(work, table)
    if floor is not None:
        if "rating" not in rows.columns:
            raise DataError(
                f"the model keeps interactions rated at least {floor:g}, and the new ones have "
                "no ratings",
                remedy="add a rating column",
            )
        low = rows.filter(pl.col("rating") < floor)
        if len(low):
            work.notes.append(Note(f"interactions rated below {floor:g} left out", len(low)))
        rows = rows.filter(pl.col("rating") >= floor)
    return rows.drop("line")


def _known_words(facts: pl.DataFrame, mapping: TableMapping, graph: KnowledgeGraph) -> pl.DataFrame:
    """Facts without words and features of texts that the model does not know: the build chose those
    that tell items apart, among all texts."""
    texts = [c for _, c in mapping.columns() if c.take in ("keywords", "aspects")]
    for column in texts:
        kind = "feature" if column.take == "aspects" else column.type or column.column
        known = list(graph.vocabulary.ids(kind)) if kind in graph.vocabulary.types else []
        strange = (pl.col("tail_type") == kind) & ~pl.col("tail").is_in(known)
        facts = facts.filter(~strange)
    return facts
