"""Changes after a fit: tables of new interactions, facts, items and users, by name.

Files, frames of polars or pandas, or records (rows as dicts or tuples; for items and users plain
names will do), with the columns of the plain format.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data import table_files
from loger.data.assemble import NO_FACTS, dislikes, in_seconds
from loger.data.columns import INTERACTIONS, ITEMS, TRIPLES, USERS, Columns
from loger.data.dataset import Note, as_name, is_frame, unit_of_epoch
from loger.data.facts import Names, is_known, typed
from loger.data.readers import plain
from loger.data.readers.plain import Source
from loger.errors import DataError
from loger.graph import DISLIKED, INTERACTION, KnowledgeGraph, Relation
from loger.graph.arrays import Ids
from loger.tables.columns import worded
from loger.tables.nearest import by_texts

NO_INTERACTIONS = pl.DataFrame(schema={"user": pl.String, "item": pl.String})
NO_COLUMNS = pl.DataFrame(schema=dict.fromkeys(("kind", "head", "column", "value"), pl.String))
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Changes:
    """Named rows to add or to remove; each is checked on its own."""

    interactions: pl.DataFrame = field(default_factory=lambda: NO_INTERACTIONS)
    """user, item and optionally time, rating, strength or count."""
    facts: pl.DataFrame = field(default_factory=lambda: NO_FACTS)
    """head, relation, tail and optionally head_type, tail_type."""
    items: Names = field(default_factory=dict)
    users: Names = field(default_factory=dict)
    columns: pl.DataFrame = field(default_factory=lambda: NO_COLUMNS)
    """kind, head, column, value: what tables of items and users have besides id and label."""
    notes: tuple[Note, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    """The picture's file of an item by name."""
    numbers: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Of columns that were cut into ranges, the numbers themselves: head, tail."""

    def with_dislikes(self, floor: float | None) -> Changes:
        """These with interactions that are rated lower taken as dislikes; what has no rating
        stays."""
        rows = self.interactions
        if floor is None or "rating" not in rows.columns:
            return self
        low = (pl.col("rating") < floor).fill_null(False)
        kept = rows.filter(~low)
        if len(kept) == len(rows):
            return self
        more = dislikes(rows, kept, floor)
        note = Note(
            f"interactions rated below {floor:g} counted as dislikes", len(rows) - len(kept)
        )
        facts = pl.concat([self.facts, more], how="diagonal")
        return replace(self, interactions=kept, facts=facts, notes=(*self.notes, note))

    def timed(self, graph: KnowledgeGraph) -> Changes:
        """These with a time for each interaction, where the graph knows times: what comes without
        one is later than all that the graph has."""
        rows = self.interactions
        if graph.times is None or not len(rows):
            return self
        notes = list[Note]()
        if unit_of_epoch(int(graph.times.max(initial=0)))[1] == 1:
            rows = in_seconds(rows, rows, notes)
        if "time" not in rows.columns:
            rows = rows.with_columns(pl.lit(None, pl.Int64).alias("time"))
        n = rows["time"].null_count()
        if not n:
            return replace(self, interactions=rows, notes=(*self.notes, *notes))
        later = int(graph.times.max(initial=0)) + 1
        rows = rows.with_columns(pl.col("time").cast(pl.Int64).fill_null(later))
        what = "interactions without a time, treated as newer than everything the model knows"
        return replace(self, interactions=rows, notes=(*self.notes, *notes, Note(what, n)))

    def plus(self, other: Changes) -> Changes:
        """These and others."""
        return Changes(
            pl.concat([self.interactions, other.interactions], how="diagonal_relaxed"),
            pl.concat([self.facts, other.facts], how="diagonal_relaxed"),
            {**self.items, **other.items},
            {**self.users, **other.users},
            pl.concat([self.columns, other.columns]),
            (*self.notes, *other.notes),
            {**self.images, **other.images},
            {**self.numbers, **other.numbers},
        )


@dataclass(frozen=True, eq=False)
class Fold:
    """The sum of a store's events up to a number: what to remove, then what to add."""

    users: list[str]
    """Users to forget; all of them exist."""
    items: list[str]
    less: Changes
    """Interactions and facts to remove if they exist."""
    more: Changes
    store: str
    """The id of the store."""
    seq: int
    """The number of its last event."""

    @property
    def removes(self) -> bool:
        """Whether anything may go."""
        less = self.less
        return bool(self.users or self.items or len(less.interactions) or len(less.facts))


@dataclass(frozen=True, eq=False)
class Placed:
    """Changes in the form that a graph takes: new entities and relations, and facts with the types
    and names of their ends."""

    entities: Mapping[str, Mapping[str, str]]
    """Type → name → label, new ones and known ones that get another label."""
    relations: tuple[Relation, ...]
    """New ones."""
    facts: pl.DataFrame
    """head_type, head, relation, tail_type, tail, time, strength; relations by the name the graph
    has."""

    def numbered(self, graph: KnowledgeGraph) -> tuple[Ids, Ids, Ids, Ids, NDArray[np.float64]]:
        """Heads, relations, tails, times and strengths, by the numbers of a graph that has all of
        them."""
        words, facts = graph.vocabulary, self.facts
        number = {r.name: k for k, r in enumerate(graph.relations)}
        relation = [number[name] for name in facts["relation"]]
        columns = [
            [words.ids(kind)[name] for kind, name in facts.select(f"{side}_type", side).iter_rows()]
            for side in ("head", "tail")
        ]
        heads, tails = (np.array(c, dtype=np.int64) for c in columns)
        when, strong = facts["time"].to_numpy(), facts["strength"].to_numpy()
        return heads, np.array(relation, dtype=np.int64), tails, when, strong


# ── reading ─────────────────────────────────────────────────────────────────────────────


def read(
    interactions: object = None,
    items: object = None,
    facts: object = None,
    users: object = None,
    min_rating: float | None = None,
) -> Changes:
    """Read changes from files, frames or records."""
    notes = list[Note]()
    rows = _interactions(_source(interactions, "interactions", INTERACTIONS), notes)
    check_rated(rows, min_rating)
    triples = _source(facts, "facts", TRIPLES)
    columns = [NO_COLUMNS]
    things = _names(_source(items, "items", ITEMS), "item", ITEMS, notes, columns)
    people = _names(_source(users, "users", USERS), "user", USERS, notes, columns)
    table = NO_FACTS
    if triples is not None:
        table = plain.read_triples(triples, notes, pl.Series([], dtype=pl.String))
    found = Changes(rows, table, things, people, pl.concat(columns), tuple(notes))
    return found.with_dislikes(min_rating)


def check_rated(rows: pl.DataFrame, floor: float | None) -> None:
    """Refuse interactions without ratings where the model needs them."""
    if floor is not None and len(rows) and "rating" not in rows.columns:
        raise DataError(
            f"the model counts only interactions rated {floor:g} or higher, but the new ones "
            "have no ratings",
            remedy="add a rating column",
        )


def _interactions(source: Source | None, notes: list[Note]) -> pl.DataFrame:
    if source is None:
        return NO_INTERACTIONS
    with table_files.errors_naming(source.path):
        return plain.read_interactions(source, notes).drop("part", strict=False)


def _names(
    source: Source | None,
    kind: str,
    columns: Columns,
    notes: list[Note],
    others: list[pl.DataFrame],
) -> Names:
    """The names and labels of a table; its other columns are added to ``others``."""
    if source is None:
        return {}
    nobody = pl.Series([], dtype=pl.String)
    frame = plain.read_columns(source, columns, notes, nobody)
    table = plain.read_whole(source, columns, notes, nobody)
    for name in (
        c for c in table.columns if c not in ("line", *columns.chosen(table.columns).values())
    ):
        if table.schema[name].is_nested():
            continue
        cells = table.select(
            pl.lit(kind).alias("kind"), frame["name"].alias("head"),
            pl.lit(name).alias("column"), pl.col(name).cast(pl.String).alias("value"),
        )  # fmt: skip
        others.append(cells.filter(pl.col("value").fill_null("").str.strip_chars() != ""))
    labels = frame["label"].to_list() if "label" in frame.columns else [None] * len(frame)
    return {name: label or None for name, label in zip(frame["name"], labels, strict=True)}


def _source(source: object, what: str, columns: Columns) -> Source | None:
    """A file, a frame, or rows as a frame; None where there is nothing."""
    if source is None or isinstance(source, pl.DataFrame | pl.LazyFrame) or is_frame(source):
        found = Source.of_frame(source, what)
        return found if found is None or found.frame is None or len(found.frame) else None
    if isinstance(source, str | PathLike):
        return Source(Path(source))
    if not isinstance(source, Iterable):
        raise DataError(
            f"{what} must be a file, a data frame or rows", value=source, remedy="pass one of these"
        )
    rows = list(source)
    if not rows:
        return None
    return Source.of_frame(_records(rows, what, columns.order), what)


def _records(rows: list[object], what: str, order: tuple[str, ...]) -> pl.DataFrame:
    """Rows that are dicts, tuples in the order of the columns, or plain names."""
    if all(isinstance(row, Mapping) for row in rows):
        dicts = [dict(row) for row in rows if isinstance(row, Mapping)]
    else:
        dicts = []
        for k, row in enumerate(rows, 1):
            cells = list(row) if isinstance(row, tuple | list) else [row]
            if isinstance(row, Mapping) or len(cells) > len(order):
                raise DataError(
                    f"a row should be a dict or a tuple of {', '.join(order)}",
                    path=f"{what} rows",
                    line=k,
                    value=row,
                    remedy="write all rows in one of these forms",
                )
            named = cells if len(cells) > 1 else [as_name(cells[0])]
            dicts.append(dict(zip(order, named, strict=False)))
    try:
        return pl.DataFrame(dicts, infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"a column mixes values of different types ({str(error).splitlines()[0]:.200})",
            path=f"{what} rows",
            remedy="make each column all text or all numbers",
        ) from None


# ── next to a graph ─────────────────────────────────────────────────────────────────────


def placed(changes: Changes, graph: KnowledgeGraph) -> Placed:
    """Changes in the form that a graph takes; what it can't take is refused before any change."""
    interactions = _timed(changes.interactions, graph)
    named = {
        "user": dict.fromkeys(interactions["user"]) | changes.users,
        "item": dict.fromkeys(interactions["item"]) | changes.items,
    }
    stated = pl.concat([changes.facts, _of_columns(changes.columns, graph)], how="diagonal")
    stated = pl.concat([stated, by_texts(stated, graph)], how="diagonal")
    stated = _about_somebody(stated, graph, named)
    facts, relations = typed(stated, graph, named)
    kinds = {graph.relations[INTERACTION].name: ("user", "item")}
    taken = interactions.select(
        pl.lit("user").alias("head_type"), pl.col("user").alias("head"),
        pl.lit(next(iter(kinds))).alias("relation"),
        pl.lit("item").alias("tail_type"), pl.col("item").alias("tail"), "time", "strength",
    )  # fmt: skip
    rows = pl.concat([taken, facts])
    entities = {kind: _labelled(graph, kind, names) for kind, names in named.items()}
    for side in ("head", "tail"):
        ends = rows.select(f"{side}_type", side).unique(maintain_order=True)
        for kind, name in ends.iter_rows():
            here = entities.setdefault(kind, {})
            if name not in here and not is_known(graph, kind, name):
                here[name] = name
    return Placed({k: v for k, v in entities.items() if v}, relations, rows)


def _about_somebody(
    facts: pl.DataFrame, graph: KnowledgeGraph, named: Mapping[str, Names]
) -> pl.DataFrame:
    """Facts without dislikes of users and items that nothing else is known of."""
    known = [
        pl.col(side).is_in([*graph.vocabulary.ids(kind), *named[kind]])
        for side, kind in (("head", "user"), ("tail", "item"))
    ]
    return facts.filter((pl.col("relation") != DISLIKED) | (known[0] & known[1]))


def _timed(rows: pl.DataFrame, graph: KnowledgeGraph) -> pl.DataFrame:
    """Interactions with times where the graph has them, 0 elsewhere, and strengths."""
    known = graph.times is not None and len(rows)
    when = pl.col("time").cast(pl.Int64) if known else pl.lit(0, pl.Int64)
    amount = "strength" if "strength" in rows.columns else "count"
    column, default = "rating" if graph.rated else amount, pl.lit(graph.default_strength)
    strong = pl.col(column).fill_null(default) if column in rows.columns else default
    return rows.select(
        "user", "item", when.alias("time"), strong.cast(pl.Float64).alias("strength")
    )


def _labelled(graph: KnowledgeGraph, kind: str, names: Names) -> dict[str, str]:
    """The entities of a type that are new, or known and given a label."""
    return {
        name: label or name
        for name, label in names.items()
        if label is not None or not is_known(graph, kind, name)
    }


def _of_columns(columns: pl.DataFrame, graph: KnowledgeGraph) -> pl.DataFrame:
    """Facts of the columns that became relations when the data were built, by their names."""
    rows = []
    for (kind, column), cells in columns.group_by("kind", "column", maintain_order=True):
        wanted = (str(column), f"has_{column}", f"{column}_says")
        found = [
            r for r in graph.relations
            if not r.derived and r.head_type == kind and r.name in wanted
        ]  # fmt: skip
        if not found:
            log.warning(
                "ignored column %s of the %ss: the model has no such relation", column, kind
            )
            continue
        relation, known = found[0], graph.vocabulary.ids(found[0].tail_type)
        if relation.name.endswith("_says"):  # a text
            words = worded(cells.select("head", pl.col("value").alias("tail")))
            words = words.filter(pl.col("tail").is_in([*known]))
            rows += [(h, relation.name, w, kind, relation.tail_type) for h, w in words.iter_rows()]
            continue
        for head, value in cells.select("head", "value").iter_rows():
            for tail in _cell(str(value), known):
                if tail not in known and re.fullmatch(r"-?[\d.,]+", tail):
                    log.warning(
                        "ignored %s %s: the model knows only ranges of this column", column, tail
                    )
                    continue
                rows.append((head, relation.name, tail, kind, relation.tail_type))
    return pl.DataFrame(rows, schema=NO_FACTS.schema, orient="row")


def _cell(text: str, known: Mapping[str, int]) -> list[str]:
    """The values of a cell: one that is known, or a list divided by | or ;, or by commas if some
    part is known."""
    whole = text.strip()
    if whole in known:
        return [whole]
    parts = [part.strip() for part in re.split(r"[|;]", whole) if part.strip()]
    if len(parts) == 1:
        by_comma = [part.strip() for part in whole.split(",") if part.strip()]
        parts = by_comma if any(part in known for part in by_comma) else parts
    return parts
