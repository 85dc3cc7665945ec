"""What the columns of a shop's tables become: facts, names, labels, pictures, values to filter by.

``Work`` collects everything while tables are read; ``add_entities`` adds a table of items or users,
and ``add_of_interactions`` a column of the interactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data.assemble import facts_of, without_rare_and_hubs
from loger.data.dataset import Note
from loger.data.readers.sentiment import feature_labels, feature_name
from loger.data.table_files import note
from loger.data.times import DateOrder
from loger.errors import DataError
from loger.tables.joining import check_column
from loger.tables.mapping import Column, EntityTable, TableMapping
from loger.tables.reviews.aspects import Extractor, lexicon, plain_text, singular
from loger.tables.values import (
    as_numbers,
    cells,
    currencies_of,
    split_cells,
    stands_for_nothing,
    unit_of,
    unit_within,
    without_address,
    without_brackets,
    without_number,
)

_ENTITIES = ("entity", "list", "series")
"""Ways to take a column whose cells name entities."""
_LINES = 5  # numbers of lines that a note on them gives
_KEYWORDS = {"keywords": 10, "similar": 30}  # per item, the rarest first
_DULL = {"adverb", "determiner", "preposition", "joiner", "break", "pronoun", "auxiliary", "be",
         "not", "to", "nothing", "number"}  # fmt: skip
"""Classes of words that say nothing about an item."""


@dataclass
class Work:
    """Everything that has been read so far."""

    mapping: TableMapping
    extractor: Extractor
    strict: bool
    notes: list[Note] = field(default_factory=list)
    facts: list[pl.DataFrame] = field(default_factory=list)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    names: dict[str, pl.Series] = field(default_factory=dict)
    known_items: pl.Series = field(default_factory=lambda: pl.Series(dtype=pl.String))
    """Items that no row of their table names: those of the interactions, or of the model."""
    widths: dict[str, int] = field(default_factory=dict)
    """To how many digits the ids of users or items are filled with zeros."""
    filter_only: list[tuple[str, str, pl.DataFrame]] = field(default_factory=list)
    """Relation, type, and items (head) with values (tail) that are not in the graph."""
    images: dict[str, str] = field(default_factory=dict)
    edges: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Where each column of numbers of a table was cut: "items price"."""
    date_order: DateOrder = ""
    """Whether the day or the month is first in dates like 03/04/2024, if there are any."""

    def ids(self, kind: str, values: pl.Series) -> pl.Series:
        """The ids of users or items, written alike in all tables."""
        width = self.widths.get(kind, 0)
        return cells(values).str.zfill(width) if width else cells(values)

    def usable(
        self,
        frame: pl.DataFrame,
        good: pl.Series,
        what: str,
        column: str,
        file: str,
        kept: bool = False,
    ) -> None:
        """Note rows that are left out, or ``kept`` in part; with ``strict`` refuse them."""
        bad = frame.filter(~good)
        if not len(bad):
            return
        line, value = int(bad["line"][0]), bad[column][0]
        if self.strict:
            remedy = "fix the row or build without strict=true"
            raise DataError(what, path=file or None, line=line, value=value, remedy=remedy)
        shown = "" if value is None else f": {value}"
        where = f" of {Path(file).name}" if file else ""
        more = ", ".join(str(n) for n in bad["line"][1:_LINES])
        more = f"; also {more}{', …' * (len(bad) > _LINES)}" if more else ""
        example = f"line {line}{shown}{more}"
        out = "" if kept else " left out"
        self.notes.append(Note(f"rows{where}{out}: {what}", len(bad), example))

    def note(
        self, what: str, rows: pl.DataFrame | pl.Series | Sequence[str], *columns: str
    ) -> None:
        """Note something about these rows or values, with the first as the example."""
        note(self.notes, what, rows, *columns)

    def note_missing(self, column: str, values: pl.Series) -> None:
        """Note cells that say that nothing is known: they are not facts that items share."""
        words = values.filter(stands_for_nothing(values))
        self.note(f"{column}: words such as N/A read as missing values", words)

    def note_strangers(self, kind: str, named: pl.Series, known: Iterable[str], where: str) -> None:
        """Note items (users) of the interactions that their table lacks: they may be misspelt."""
        strange = named.filter(~named.is_in(list(known))).unique(maintain_order=True)
        self.note(f"{kind}s in the interactions that are {where}, so they have no facts", strange)


def add_entities(work: Work, entities: EntityTable, table: pl.DataFrame, kind: str) -> None:
    """The facts, names and labels of a table of items or users."""
    for name in (entities.id, entities.label, *(c.column for c in entities.columns)):
        check_column(table, name, entities.file)
    ids = work.ids(kind, table[entities.id])
    work.usable(table, ids.is_not_null(), f"no {kind}", entities.id, entities.file)
    table, ids = table.filter(ids.is_not_null()), ids.drop_nulls()
    first = ids.is_first_distinct()
    twice = f"repeated rows for the same {kind} left out, keeping the first"
    work.note(twice, table.filter(~first), entities.id)
    table, ids = table.filter(first), ids.filter(first)
    work.names[kind] = ids
    if entities.label:
        titles = pl.DataFrame(
            {"name": ids, "label": cells(table[entities.label], names=True)}
        ).drop_nulls()
        work.labels[kind] = {name: plain_text(label) for name, label in titles.iter_rows()}
    elif kind == "item":
        what = "items shown by their IDs because no column has names (label = … in the mapping)"
        work.note(what, ids)
    for column in entities.columns:
        values = table[column.column]
        if column.take not in ("leave out", "image"):
            work.note_missing(column.column, values)
        pairs = pl.DataFrame({"head": ids, "tail": cells(values)})
        if column.take == "bins":
            numbers = as_numbers(values).alias("tail")
            strange = pairs["tail"].filter(pairs["tail"].is_not_null() & numbers.is_null())
            work.note(f"{column.column}: values left out because they are not numbers", strange)
            pairs = pairs.select("head", numbers)
            money = currencies_of(values)
            if len(money) > 1:
                what = f"{column.column}: amounts in {', '.join(money)} compared as plain numbers"
                work.notes.append(Note(what, len(pairs.drop_nulls()), money[1]))
            if kind == "item":
                # Rules walk over ranges; filters such as price<10 need the number itself.
                name = "_".join(unit_of(column.column)[0].lower().split())
                texts = pl.col("tail").map_elements("{:.15g}".format, return_dtype=pl.String)
                work.filter_only.append((name, name, pairs.drop_nulls().with_columns(texts)))
            pairs = _binned(work, column, pairs, f"{kind}s", unit_within(values))
        _add(work, column, pairs.drop_nulls(), kind)


def _add(work: Work, column: Column, pairs: pl.DataFrame, kind: str) -> None:
    """Facts of one column, from the names of items (users) and their cells."""
    tail_type = column.entity_type
    if column.take == "leave out":
        return
    if column.take == "similar" and kind != "item":
        raise DataError(
            f"column {column.column!r} of the {kind}s can't be used as 'similar'",
            remedy="use it as keywords; loger compares texts only for items",
        )
    if column.take == "image":
        work.images |= dict(pairs.iter_rows()) if kind == "item" else {}
        return
    if column.take == "items":
        pairs = _pointed(work, column, pairs)
    elif column.take in _ENTITIES:
        pairs = _named_in(pairs, column)
    elif column.take in _KEYWORDS:
        pairs = worded(pairs)
    elif column.take == "aspects":
        pairs = _mined(work, pairs)
    if column.take not in ("items", "bins"):
        n = len(work.names[kind])
        every, pairs = pairs, _shared(work, pairs, column, n, f"{kind}s")
        if kind == "item" and column.take in _ENTITIES and len(every) > len(pairs):
            rest = every.join(pairs, on="tail", how="anti", maintain_order="left")
            work.filter_only.append((column.relation_made, tail_type, rest))
    if column.take in _KEYWORDS:
        # The rarest words tell most; ties go by the alphabet.
        counts = pairs.group_by("tail").len()
        pairs = pairs.join(counts, on="tail", maintain_order="left").sort("len", "tail")
        pairs = pairs.group_by("head", maintain_order=True).head(_KEYWORDS[column.take])
        pairs = pairs.drop("len")
    work.facts.append(facts_of(pairs, column.relation_made, kind, tail_type))


def _pointed(work: Work, column: Column, pairs: pl.DataFrame) -> pl.DataFrame:
    """The items that cells name by their ids. What is no id is tried without what stands behind it
    in brackets, and divided at "|": "libc6 (>= 2.34)", "mawk | gawk"."""
    ids = pl.concat([work.names.get("item", work.known_items), work.known_items]).implode()
    pairs = split_cells(pairs, column.separator)
    plain = pairs["tail"].is_in(ids)
    rest = split_cells(pairs.filter(~plain), "|")
    bare = rest.with_columns(without_brackets(rest["tail"]).alias("tail"))
    known = bare["tail"].is_in(ids)
    strange = rest["tail"].filter(~known)
    work.note(f"{column.column}: IDs left out because no item has them", strange)
    return pl.concat([pairs.filter(plain), bare.filter(known)])


def add_of_interactions(
    work: Work, column: Column, table: pl.DataFrame, interactions: pl.DataFrame
) -> None:
    """Facts that are known from interactions: of the user and of the item, each with its source."""
    if column.take == "leave out":
        return
    if column.take not in (*_ENTITIES, "aspects"):
        raise DataError(
            f"column {column.column!r} of the interactions can't be used as {column.take!r}",
            path=work.mapping.interactions.file or None,
            remedy="use it as entity, list, series, aspects or 'leave out'",
        )
    rows = pl.int_range(len(interactions), dtype=pl.Int64, eager=True)
    work.note_missing(column.column, table[column.column])
    values = pl.DataFrame({"head": rows, "tail": cells(table[column.column])}).drop_nulls()
    if column.take == "aspects":
        values, kind = _mined(work, values), "feature"
        relations = {"user": "mentions", "item": "has_feature"}
    else:
        values = _named_in(values, column)
        kind = column.type or column.column
        relations = {"user": f"chose_{kind}", "item": column.relation or f"has_{kind}"}
    values = _shared(work, values, column, len(interactions), "interactions")
    for side, relation in relations.items():
        pairs = values.with_columns(interactions[side].gather(values["head"]).alias("head"))
        facts = facts_of(pairs, relation, side, kind).with_columns(values["head"].alias("source"))
        work.facts.append(facts)


def _named_in(pairs: pl.DataFrame, column: Column) -> pl.DataFrame:
    """The entities that cells name, in place of the cells."""
    if column.take == "series":
        pairs = pairs.with_columns(without_number(pairs["tail"]).alias("tail"))
    pairs = split_cells(pairs, column.separator if column.take == "list" else "")
    return pairs.with_columns(without_address(pairs["tail"]).alias("tail"))


def _shared(work: Work, pairs: pl.DataFrame, column: Column, n: int, what: str) -> pl.DataFrame:
    """The pairs without tails that too few, or too many, have."""
    mapping = work.mapping
    values = pairs["tail"].unique().sort()
    alike = values.filter(values.str.to_lowercase().is_duplicated())
    work.note(
        f"{column.column}: values that differ only in upper and lower case, kept separate", alike
    )
    limits = mapping.least, mapping.hub_share, n
    return without_rare_and_hubs(pairs, column.column, *limits, what, work.notes)


def _binned(work: Work, column: Column, pairs: pl.DataFrame, table: str, unit: str) -> pl.DataFrame:
    """The quantile of each number, with labels that say from where to where it goes."""
    pairs = pairs.drop_nulls()
    values, kind = pairs["tail"].to_numpy(), column.type or column.column
    if not len(values):
        return pairs.with_columns(pl.col("tail").cast(pl.String))
    edges = np.array(column.edges)
    if not len(edges):
        edges = np.unique(np.quantile(values, np.linspace(0, 1, max(2, column.bins + 1))[1:-1]))
    work.edges[f"{table} {column.column}"] = tuple(edges.tolist())
    ranges = _ranges(values, edges)
    names = [f"{column.column}|{k + 1} of {len(edges) + 1}" for k in range(len(edges) + 1)]
    labels = work.labels.setdefault(kind, {})
    for k, name in enumerate(names):
        labels[name] = _range(column.column, *ranges[k], unit)
    place = np.searchsorted(edges, values, side="left")
    return pl.DataFrame({"head": pairs["head"], "tail": [names[k] for k in place]})


def _ranges(values: NDArray[np.float64], edges: NDArray[np.float64]) -> list[tuple[float, float]]:
    """From where to where the numbers of each bin go. A bin ends with its edge, so the next begins
    with the number after it: a whole one, or one of as many decimals as the values have.

    >>> _ranges(np.array([16.0, 79.0]), np.array([28.4, 40.0]))
    [(16.0, 28.0), (29.0, 40.0), (41.0, 79.0)]
    """
    digits = next((d for d in range(4) if np.allclose(values, values.round(d), 0, 1e-9)), None)
    first, last = float(min(values.min(), edges[0])), float(max(values.max(), edges[-1]))
    if digits is None:  # measured so finely that no number comes next
        return [*pairwise([first, *edges.tolist(), last])]
    ends = (np.floor(edges * 10**digits + 1e-6) / 10**digits).tolist()
    starts = [round(end + 10**-digits, digits) for end in ends]
    return [*zip([first, *starts], [*ends, last], strict=True)]


def _range(column: str, low: float, high: float, unit: str = "") -> str:
    """A bin as people say it; ``unit`` is that of the cells, where the column's name has none.

    >>> _range("tempo_bpm", 69, 98), _range("price", 5, 5), _range("year", 1990, 1999)
    ('tempo 69–98 bpm', 'price 5', 'year 1990–1999')
    >>> _range("pages", 51, 50)  # nothing goes beyond the last edge
    'pages over 50'
    """
    words, own = unit_of(column)
    ends = "–".join(dict.fromkeys(f"{end:.10g}" for end in (low, high)))
    text = ends if low <= high else f"over {high:.10g}"
    return f"{words} {text} {own or unit}".rstrip()


def _mined(work: Work, texts: pl.DataFrame) -> pl.DataFrame:
    """The features that texts mention, in place of the texts."""
    features = [sorted({feature_name(*m) for m in work.extractor(text)}) for text in texts["tail"]]
    if len(texts) and not any(features):
        what = "texts in which loger found no opinions (it understands only English reviews)"
        work.note(what, texts, "tail")
    lists = pl.Series("tail", features, dtype=pl.List(pl.String))
    out = texts.with_columns(lists).filter(pl.col("tail").list.len() > 0).explode("tail")
    work.labels.setdefault("feature", {}).update(feature_labels(out["tail"].unique()))
    return out


def worded(pairs: pl.DataFrame) -> pl.DataFrame:
    """The words of texts, without those that carry no meaning, in place of the texts."""
    words = lexicon()
    words_of_texts = []
    for text in pairs["tail"]:
        plain = pl.Series([plain_text(text).lower()]).str.extract_all(r"\p{L}[\p{L}-]+\p{L}")[0]
        words_of_texts.append(sorted({singular(w) for w in plain if not words.of(w) & _DULL}))
    lists = pl.Series("tail", words_of_texts, dtype=pl.List(pl.String))
    return pairs.with_columns(lists).filter(pl.col("tail").list.len() > 0).explode("tail")
