"""From the tables of any shop to a data set: interactions, items, and perhaps users.

``propose`` guesses what each column becomes, ``mapping.write`` puts that into a TOML file to edit,
``build`` follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data.assemble import assemble
from loger.data.dataset import Dataset, Note
from loger.data.readers.plain import INTERACTIONS
from loger.engine.forks import check_not_forked
from loger.errors import DataError
from loger.graph.catalogue import Catalogue, Unwalked
from loger.tables import frames
from loger.tables.mapping import Column, EntityTable, InteractionTable, TableMapping
from loger.tables.propose import propose
from loger.tables.reviews.aspects import Extractor, lexicon, mentions, plain_text, singular
from loger.tables.reviews.cores import core
from loger.tables.reviews.parts import feature
from loger.tables.reviews.review_facts import FACTS, feature_labels
from loger.tables.values import (
    DateOrder,
    as_numbers,
    as_ratings,
    cells,
    moments,
    split_cells,
    unit_of,
    unit_within,
    without_address,
    without_brackets,
    without_number,
    zero_width,
)

_PARTS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation",
          "val": "validation", "dev": "validation", "test": "test", "testing": "test"}  # fmt: skip
_ENTITIES = ("entity", "list", "series")
"""Ways to take a column whose cells name entities."""
_LINES = 5  # numbers of lines that a note on them gives
_KEYWORDS = 10  # per item, the rarest first
_DULL = {
    "adverb",
    "determiner",
    "preposition",
    "joiner",
    "break",
    "pronoun",
    "auxiliary",
    "be",
    "not",
    "to",
    "nothing",
    "number",
}


@dataclass
class _Work:
    """What grows while tables are read."""

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
    unwalked: list[tuple[str, str, pl.DataFrame]] = field(default_factory=list)
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
        self, frame: pl.DataFrame, good: pl.Series, what: str, column: str, file: str
    ) -> None:
        """Note rows that cannot be used, or refuse them."""
        bad = frame.filter(~good)
        if not len(bad):
            return
        line, value = int(bad["line"][0]), bad[column][0]
        if self.strict:
            raise DataError(
                what,
                path=file or None,
                line=line,
                value=value,
                remedy="fix the row, or build without --strict",
            )
        shown = "" if value is None else f": {value}"
        where = f" of {Path(file).name}" if file else ""
        more = ", ".join(str(n) for n in bad["line"][1:_LINES])
        more = f"; also {more}{', …' * (len(bad) > _LINES)}" if more else ""
        example = f"line {line}{shown}{more}"
        self.notes.append(Note(f"rows{where} left out: {what}", len(bad), example))

    def note(self, what: str, rows: pl.DataFrame, column: str) -> None:
        """Note something about these rows, with the first as the example."""
        if len(rows):
            self.notes.append(Note(what, len(rows), str(rows[column][0])))

    def note_strangers(self, kind: str, named: pl.Series, known: Iterable[str], where: str) -> None:
        """Note items (users) of the interactions that their table has not: they may be misspelt."""
        strange = named.filter(~named.is_in(list(known))).unique(maintain_order=True)
        if len(strange):
            what = f"{kind}s of the interactions are {where}: taken as new, without facts"
            self.notes.append(Note(what, len(strange), str(strange[0])))


def from_tables(
    interactions: object,
    items: object = None,
    users: object = None,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    mapping: TableMapping | Path | str | None = None,
    strict: bool = False,
    name: str = "tables",
) -> Dataset:
    """The data set of a shop's own tables: paths, or frames of polars or pandas.

    What each column becomes is guessed, as by ``loger data build table``, and is in the data
    set's ``mapping``: print it, change it (``mapping.with_column("genre", take="list")``), give
    it back as ``mapping``, or ``save`` it for ``loger data build table --mapping`` and for later,
    when its path can be given as well. ``user``, ``item`` and ``time`` say which columns of the
    interactions these are, where the guess would fail.
    """
    check_not_forked("reading tables")
    if isinstance(mapping, str | Path):
        mapping = TableMapping.load(mapping)
    if mapping is None:
        tables = [frames.read(interactions), *(_given(table) for table in (items, users))]
        given = (interactions, items, users)
        files = [t if isinstance(t, str | Path) else None for t in given]
        mapping = propose(*tables, name=name, files=files, user=user, item=item, time=time)  # type: ignore[arg-type]
        dataset = _build(mapping, tables, mentions, strict)
    else:
        dataset = build(mapping, interactions, items, users, strict=strict)
    return replace(dataset, mapping=mapping)


def _given(table: object) -> pl.DataFrame | None:
    return None if table is None else frames.read(table)


def build(
    mapping: TableMapping,
    interactions: object = None,
    items: object = None,
    users: object = None,
    *,
    extractor: Extractor = mentions,
    strict: bool = False,
) -> Dataset:
    """The data set that a mapping makes of tables: those given (paths, or frames of polars or
    pandas), else the files that the mapping names.

    Rows without a user or an item, and with ratings or times that are none, are left out and
    noted; with ``strict`` they are errors. What is told in a row of the interactions has this
    row as its source.
    """
    files = (mapping.interactions, mapping.items, mapping.users)
    tables = [
        None if part is None else _table(table, part.file, what)
        for part, table, what in zip(
            files, (interactions, items, users), ("interactions", "items", "users"), strict=True
        )
    ]
    return _build(mapping, tables, extractor, strict)


def _build(
    mapping: TableMapping,
    tables: Sequence[pl.DataFrame | None],
    extractor: Extractor,
    strict: bool,
) -> Dataset:
    """Follow a mapping; the tables are those of interactions, items and users."""
    work = _Work(mapping, extractor, strict)
    columns, table = mapping.interactions, tables[0]
    assert table is not None
    roles = (columns.rating, columns.strength, columns.time, columns.part)
    for column in (columns.user, columns.item, *roles):
        _check(table, column, columns.file)
    _match_zeros(work, tables)
    interactions, table = _interactions(work, table)
    work.known_items = interactions["item"].unique(maintain_order=True)
    for kind, entities, frame in (
        ("item", mapping.items, tables[1]),
        ("user", mapping.users, tables[2]),
    ):
        if entities is not None and frame is not None:
            _add_entities(work, entities, frame, kind)
    for kind, entities in (("item", mapping.items), ("user", mapping.users)):
        if entities is not None and kind in work.names:
            where = f"not in {Path(entities.file).name if entities.file else f'the {kind}s'}"
            work.note_strangers(kind, interactions[kind], work.names[kind], where)
    for taken in columns.columns:
        _check(table, taken.column, columns.file)
        _add_of_interactions(work, taken, table, interactions)
    dataset = assemble(
        mapping.name,
        interactions,
        pl.concat(work.facts, how="diagonal") if work.facts else pl.DataFrame(schema=FACTS),
        interaction=mapping.interaction,
        users=work.names.get("user", ()),
        items=work.names.get("item", ()),
        labels=work.labels,
        positive_from=mapping.positive_from,
        notes=work.notes,
        path=Path(columns.file) if columns.file else None,
    )
    return replace(dataset, catalogue=_catalogue(work, dataset))


def _catalogue(work: _Work, dataset: Dataset) -> Catalogue:
    """What the tables say beside the graph, and how they were read."""
    ids, first = dataset.vocabulary.ids("item"), dataset.n_users
    unwalked = [
        Unwalked.of(relation, kind, ((v, ids[head] - first) for head, v in pairs.iter_rows()))
        for relation, kind, pairs in work.unwalked
    ]
    images = {ids[name] - first: file for name, file in work.images.items()}
    return Catalogue(
        tuple(unwalked), images, _as_read(work.mapping, work.edges, work.date_order).plain()
    )


def _as_read(
    mapping: TableMapping, edges: Mapping[str, tuple[float, ...]], date_order: DateOrder
) -> TableMapping:
    """The mapping that also says where numbers were cut and in which order dates were read."""
    dated = replace(mapping.interactions, date_order=date_order)
    mapping = replace(mapping, interactions=dated)
    for table in ("items", "users"):
        part: EntityTable | None = getattr(mapping, table)
        if part is not None:
            columns = tuple(
                replace(c, edges=edges.get(f"{table} {c.column}", c.edges)) for c in part.columns
            )
            mapping = mapping.with_table(table, replace(part, columns=columns))
    return mapping


def _match_zeros(work: _Work, tables: Sequence[pl.DataFrame | None]) -> None:
    """Fill ids with zeros where one table has 00032 and the other 32."""
    columns, mapping = work.mapping.interactions, work.mapping
    for kind, column, entities, frame in (
        ("item", columns.item, mapping.items, tables[1]),
        ("user", columns.user, mapping.users, tables[2]),
    ):
        if tables[0] is not None:
            _note_zeros(work, kind, cells(tables[0][column]))
        if entities is None or frame is None or tables[0] is None:
            continue
        _check(frame, entities.id, entities.file)
        ours, theirs = cells(tables[0][column]), cells(frame[entities.id])
        width = zero_width(ours, theirs)
        if width:
            work.widths[kind] = width
            what = f"{kind}s written without their leading zeros in one table: filled up"
            short = (ours if ours.str.len_chars().min() != width else theirs).drop_nulls()
            example = f"{short[0]} is {short.str.zfill(width)[0]}"
            work.notes.append(Note(what, short.n_unique(), example))


def _note_zeros(work: _Work, kind: str, values: pl.Series) -> None:
    """Say where one table writes both 00032 and 32: they stay two."""
    ids = values.drop_nulls().unique().sort()
    plain = ids.filter(ids.str.contains(r"^\d+$"))
    twice = plain.filter(plain.str.strip_chars_start("0").is_duplicated())
    if len(twice):
        what = f"{kind}s whose ids differ in leading zeros only, in one table: taken as different"
        work.notes.append(Note(what, len(twice), str(twice[0])))


def _table(table: object, file: str, what: str) -> pl.DataFrame:
    if table is None and not file:
        raise DataError(f"the {what} are missing", remedy="give a table, or a file in the mapping")
    return frames.read(file if table is None else table)


def _check(frame: pl.DataFrame, column: str, file: str) -> None:
    if column and column not in frame.columns:
        names = ", ".join(c for c in frame.columns if c != "line")
        raise DataError(
            f"there is no column {column!r}, only {names}",
            path=file or None,
            remedy="correct the mapping",
        )


def _interactions(work: _Work, table: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The interactions that stay under our names, and the same rows of the table."""
    names = work.mapping.interactions
    columns = {
        "line": table["line"],
        "user": work.ids("user", table[names.user]),
        "item": work.ids("item", table[names.item]),
    }
    needs = [("user", names.user, "no user"), ("item", names.item, "no item")]
    if names.rating:
        columns["rating"] = as_ratings(table[names.rating])
        needs.append(("rating", names.rating, "the rating is not a number"))
    if names.strength:
        ours = "count" if "count" in INTERACTIONS.chosen([names.strength]) else "strength"
        columns[ours] = as_numbers(table[names.strength])
    if names.time:
        columns["time"] = _times(work, table)
        needs.append(("time", names.time, "not a time"))
    if names.part:
        parts = cells(table[names.part]).str.to_lowercase()
        columns["part"] = parts.replace_strict(_PARTS, default=None, return_dtype=pl.String)
        needs.append(("part", names.part, "the part is neither train, validation nor test"))
    interactions = pl.DataFrame(columns)
    for ours, theirs, what in needs:
        good = interactions[ours].is_not_null()
        work.usable(table, good, what, theirs, names.file)
        interactions, table = interactions.filter(good), table.filter(good)
    again = _repeated(table, names)
    where = f" of {Path(names.file).name}" if names.file else ""
    work.note(
        f"rows{where} left out: the same as an earlier one in every column",
        table.filter(again).with_columns(pl.format("line {}", "line").alias("at")),
        "at",
    )
    interactions, table = interactions.filter(~again), table.filter(~again)
    if names.rating and work.mapping.positive_from is None:
        _note_low_ratings(work, interactions)
    codes = [
        interactions[c].cast(pl.Categorical).to_physical().to_numpy() for c in ("user", "item")
    ]
    stay = pl.Series(core(codes[0], codes[1], work.mapping.user_core, work.mapping.item_core))
    work.note("interactions outside the core left out", interactions.filter(~stay), "user")
    return interactions.filter(stay), table.filter(stay)


def _repeated(table: pl.DataFrame, names: InteractionTable) -> pl.Series:
    """Which rows say again, in every column, what an earlier one says: an export that went wrong.

    Where there is nothing but who, what and when, none is: one may play a song twice a day. Nor
    where nothing says when.
    """
    roles = {names.user, names.item, names.time, names.rating, names.strength, names.part, "line"}
    if not names.time or roles >= set(table.columns):
        return pl.repeat(False, len(table), eager=True)
    return ~table.select(pl.struct(pl.exclude("line")).is_first_distinct()).to_series()


def _times(work: _Work, table: pl.DataFrame) -> pl.Series:
    """When the interactions were; how dates are written is noted where it is not plain."""
    names = work.mapping.interactions
    read = moments(table[names.time], names.date_order)
    work.date_order = read.order
    if len(read.ways) > 1:
        what = "ways in which times are written, all of them read"
        work.notes.append(Note(what, len(read.ways), ", ".join(read.ways)))
    if read.mixed:
        n, example = read.mixed
        what = (
            f"times that are dates only with the other order than {read.order}: the column has "
            "both, so days up to 12 may be taken for months; write all of them alike"
        )
        work.notes.append(Note(what, n, example))
    if read.guessed:
        what = (
            f'times such as 03/04/2024 read with the {read.order} (date_order = "…" in the mapping)'
        )
        n = len(read.seconds) - read.seconds.null_count()
        work.notes.append(Note(what, n, read.ways[-1]))
    return read.seconds


def _note_low_ratings(work: _Work, interactions: pl.DataFrame) -> None:
    """Say that bad ratings count like good ones, and how to leave them out."""
    ratings = interactions["rating"]
    low, high = ratings.min(), ratings.max()
    if not isinstance(low, float) or not isinstance(high, float) or low == high:
        return
    below = interactions.filter(pl.col("rating") < (low + high) / 2)
    bar = f"{(low + high) / 2 + (high - low) / 4:g}"
    what = f"low ratings that count like high ones (positive_from = {bar} leaves them out)"
    if len(below) >= 0.05 * len(interactions):
        work.note(what, below, "rating")


def _add_entities(work: _Work, entities: EntityTable, table: pl.DataFrame, kind: str) -> None:
    """The facts, names and labels of a table of items or users."""
    for name in (entities.id, entities.label, *(c.column for c in entities.columns)):
        _check(table, name, entities.file)
    ids = work.ids(kind, table[entities.id])
    work.usable(table, ids.is_not_null(), f"no {kind}", entities.id, entities.file)
    table, ids = table.filter(ids.is_not_null()), ids.drop_nulls()
    first = ids.is_first_distinct()
    twice = f"rows of {kind}s that are in their table already left out: the first is taken"
    work.note(twice, table.filter(~first), entities.id)
    table, ids = table.filter(first), ids.filter(first)
    work.names[kind] = ids
    if entities.label:
        titles = pl.DataFrame({"name": ids, "label": cells(table[entities.label])}).drop_nulls()
        work.labels[kind] = {name: plain_text(label) for name, label in titles.iter_rows()}
    elif kind == "item" and len(ids):
        what = "items go by their ids: no column has names for people; label = … in the mapping"
        work.notes.append(Note(what, len(ids), str(ids[0])))
    for column in entities.columns:
        values = table[column.column]
        pairs = pl.DataFrame({"head": ids, "tail": cells(values)})
        if column.take == "bins":
            numbers = as_numbers(values).alias("tail")
            work.note(
                f"{column.column}: values left out because they are not numbers",
                pairs.filter(pairs["tail"].is_not_null() & numbers.is_null()),
                "tail",
            )
            pairs = pairs.select("head", numbers)
            pairs = _binned(work, column, pairs, f"{kind}s", unit_within(values))
        _add(work, column, pairs.drop_nulls(), kind)


def _add(work: _Work, column: Column, pairs: pl.DataFrame, kind: str) -> None:
    """Facts of one column, from the names of items (users) and the cells beside them."""
    tail_type = column.entity_type
    if column.take == "leave out":
        return
    if column.take == "image":
        work.images |= dict(pairs.iter_rows()) if kind == "item" else {}
        return
    if column.take == "items":
        pairs = _pointed(work, column, pairs)
    elif column.take in _ENTITIES:
        pairs = _named_in(pairs, column)
    elif column.take == "keywords":
        pairs = _worded(pairs)
    elif column.take == "aspects":
        pairs = _mined(work, pairs)
    if column.take not in ("items", "bins"):
        n = len(work.names[kind])
        every, pairs = pairs, _shared(work, pairs, column, n, f"{kind}s")
        if kind == "item" and column.take in _ENTITIES and len(every) > len(pairs):
            rest = every.join(pairs, on="tail", how="anti", maintain_order="left")
            work.unwalked.append((column.relation_made, tail_type, rest))
    if column.take == "keywords":
        # The rarest words tell most; ties go by the alphabet.
        counts = pairs.group_by("tail").len()
        pairs = pairs.join(counts, on="tail", maintain_order="left").sort("len", "tail")
        pairs = pairs.group_by("head", maintain_order=True).head(_KEYWORDS).drop("len")
    work.facts.append(_facts(pairs, column.relation_made, kind, tail_type))


def _pointed(work: _Work, column: Column, pairs: pl.DataFrame) -> pl.DataFrame:
    """The items that cells name by their ids. What is no id is tried without what stands behind it
    in brackets, and divided at "|": "libc6 (>= 2.34)", "mawk | gawk"."""
    ids = pl.concat([work.names.get("item", work.known_items), work.known_items]).implode()
    pairs = split_cells(pairs, column.separator)
    plain = pairs["tail"].is_in(ids)
    rest = split_cells(pairs.filter(~plain), "|")
    bare = rest.with_columns(without_brackets(rest["tail"]).alias("tail"))
    known = bare["tail"].is_in(ids)
    strange = rest.filter(~known)
    work.note(f"{column.column}: ids left out because no item has them", strange, "tail")
    return pl.concat([pairs.filter(plain), bare.filter(known)])


def _add_of_interactions(
    work: _Work, column: Column, table: pl.DataFrame, interactions: pl.DataFrame
) -> None:
    """Facts that are known from interactions: of the user and of the item, each with its source."""
    if column.take == "leave out":
        return
    if column.take not in (*_ENTITIES, "aspects"):
        raise DataError(
            f"column {column.column!r} of the interactions cannot be taken as {column.take!r}",
            path=work.mapping.interactions.file or None,
            remedy="take it as entity, list, series, aspects or 'leave out'",
        )
    rows = pl.int_range(len(interactions), dtype=pl.Int64, eager=True)
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
        facts = _facts(pairs, relation, side, kind).with_columns(values["head"].alias("source"))
        work.facts.append(facts)


def _named_in(pairs: pl.DataFrame, column: Column) -> pl.DataFrame:
    """The entities that cells name, in place of the cells."""
    if column.take == "series":
        pairs = pairs.with_columns(without_number(pairs["tail"]).alias("tail"))
    pairs = split_cells(pairs, column.separator if column.take == "list" else "")
    return pairs.with_columns(without_address(pairs["tail"]).alias("tail"))


def _facts(pairs: pl.DataFrame, relation: str, head_type: str, tail_type: str) -> pl.DataFrame:
    return pairs.select(
        "head",
        pl.lit(relation).alias("relation"),
        "tail",
        pl.lit(head_type).alias("head_type"),
        pl.lit(tail_type).alias("tail_type"),
    )


def _shared(work: _Work, pairs: pl.DataFrame, column: Column, n: int, what: str) -> pl.DataFrame:
    """The pairs without tails that too few, or too many, have."""
    mapping = work.mapping
    counts = pairs.group_by("tail").agg(pl.col("head").n_unique().alias("n")).sort("tail")
    alike = counts.filter(counts["tail"].str.to_lowercase().is_duplicated())
    work.note(
        f"{column.column}: values that differ in capitals only, taken as different", alike, "tail"
    )
    for few, why in (
        (counts.filter(pl.col("n") < mapping.least), f"fewer than {mapping.least} {what}"),
        (
            counts.filter(pl.col("n") > max(mapping.least, mapping.hub_share * n)),
            f"more than {mapping.hub_share:.0%} of the {what}",
        ),
    ):
        work.note(f"{column.column}: values left out because {why} have them", few, "tail")
        pairs = pairs.join(few, on="tail", how="anti", maintain_order="left")
    return pairs


def _binned(
    work: _Work, column: Column, pairs: pl.DataFrame, table: str, unit: str
) -> pl.DataFrame:
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


def _mined(work: _Work, texts: pl.DataFrame) -> pl.DataFrame:
    """The features that texts mention, in place of the texts."""
    features = [sorted({feature(*m) for m in work.extractor(text)}) for text in texts["tail"]]
    if len(texts) and not any(features):
        what = "texts in which nothing is said that is understood (English reviews are)"
        work.note(what, texts, "tail")
    lists = pl.Series("tail", features, dtype=pl.List(pl.String))
    out = texts.with_columns(lists).filter(pl.col("tail").list.len() > 0).explode("tail")
    work.labels.setdefault("feature", {}).update(feature_labels(out["tail"].unique()))
    return out


def _worded(pairs: pl.DataFrame) -> pl.DataFrame:
    """The words of texts, without those that carry no meaning, in place of the texts."""
    words = lexicon()
    words_of_texts = []
    for text in pairs["tail"]:
        plain = pl.Series([plain_text(text).lower()]).str.extract_all(r"\p{L}[\p{L}-]+\p{L}")[0]
        words_of_texts.append(sorted({singular(w) for w in plain if not words.of(w) & _DULL}))
    lists = pl.Series("tail", words_of_texts, dtype=pl.List(pl.String))
    return pairs.with_columns(lists).filter(pl.col("tail").list.len() > 0).explode("tail")
