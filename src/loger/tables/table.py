"""From the tables of any shop to a data set: interactions, items, and optionally users.

``propose`` guesses what each column becomes, ``TableMapping.save`` writes that to a file to edit,
``build`` follows it.

``read_changes`` reads what came after a fit. A bundle keeps the mapping of its tables, and a table
with the columns that the mapping names is read as the build read it: the same columns are users,
items and times, the same become facts, and numbers fall into the same ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from loger.data import frames
from loger.data.assemble import NO_FACTS, assemble, facts_of, in_core
from loger.data.columns import INTERACTIONS
from loger.data.dataset import Dataset, Note, is_frame, moment, unit_of_epoch
from loger.data.facts import Names
from loger.data.readers.plain import PART_WORDS
from loger.data.times import DateOrder
from loger.engine.threads import check_not_forked
from loger.errors import DataError
from loger.graph import DISLIKED, KnowledgeGraph
from loger.graph.catalogue import Catalogue, FilterOnlyColumn
from loger.tables import changes
from loger.tables.changes import Changes
from loger.tables.columns import Work, add_entities, add_of_interactions
from loger.tables.joining import check_column
from loger.tables.mapping import EntityTable, InteractionTable, TableMapping, UnknownItems
from loger.tables.nearest import by_vectors, by_words, similar_name
from loger.tables.propose import is_dislike, propose, relation_of
from loger.tables.reviews.aspects import Extractor, mentions
from loger.tables.values import as_numbers, as_ratings, cells, moments, zero_width

EXAMPLES = 5  # of unknown items in a note
TABLES = ("interactions", "items", "users")


def from_tables(
    interactions: object,
    items: object = None,
    users: object = None,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    mapping: TableMapping | Path | str | None = None,
    vectors: Mapping[str, object] | None = None,
    unknown_items: UnknownItems | None = None,
    strict: bool = False,
    name: str = "tables",
) -> Dataset:
    """Build a data set from a shop's own tables: paths, or frames of polars or pandas.

    loger guesses what each column becomes, like ``loger data build table``. The guess is the data
    set's ``mapping``: print it, change it (``mapping.with_column("genre", take="list")``) and pass
    it back as ``mapping``. Or ``save`` it, and pass its path here or to ``loger data build table
    --mapping``. ``user``, ``item`` and ``time`` name columns of the interactions, for when the
    guess is wrong.

    ``vectors`` maps the name of a relation, such as looks_like, to a table with a vector for each
    item (its id, then numbers or one list): the relation links each item to those with the nearest
    vectors. ``unknown_items`` says whether to "keep" (the default) or "drop" items that ``items``
    doesn't list. With ``strict``, rows that can't be used are errors. ``name`` is the name of the
    data set.
    """
    check_not_forked("reading tables")
    if isinstance(mapping, str | Path):
        mapping = TableMapping.load(mapping)
    if mapping is None:
        given = (interactions, items, users)
        others = (None if table is None else frames.read(table) for table in given[1:])
        tables = [frames.read(interactions), *others]
        files = [t if isinstance(t, str | Path) else None for t in given]
        mapping = propose(*tables, name=name, files=files, user=user, item=item, time=time)  # type: ignore[arg-type]
        named = {k: str(v) for k, v in (vectors or {}).items() if isinstance(v, str | Path)}
        mapping = replace(mapping, vectors=named, unknown_items=unknown_items or "keep")
        dataset = _build(mapping, tables, mentions, strict, vectors, _typed(interactions))
    else:
        if unknown_items is not None:
            mapping = replace(mapping, unknown_items=unknown_items)
        dataset = build(mapping, interactions, items, users, vectors=vectors, strict=strict)
    return replace(dataset, mapping=mapping)


def build(
    mapping: TableMapping,
    interactions: object = None,
    items: object = None,
    users: object = None,
    *,
    vectors: Mapping[str, object] | None = None,
    extractor: Extractor = mentions,
    strict: bool = False,
) -> Dataset:
    """Build a data set as a mapping says, from the given tables (paths, or frames of polars or
    pandas) or from the files that the mapping names.

    Rows that lack a user or an item, or whose rating can't be read, are left out and noted; with
    ``strict`` they are errors. Facts from a row of the interactions have this row as their source.
    """
    given = zip(TABLES, (interactions, items, users), strict=True)
    tables = [_table(getattr(mapping, what), table, what) for what, table in given]
    typed = _typed(mapping.interactions.file if interactions is None else interactions)
    return _build(mapping, tables, extractor, strict, vectors, typed)


def _typed(source: object) -> bool:
    """Whether a table says which of its columns are numbers: all do but those in text files."""
    return not isinstance(source, str | Path) or any(
        ending in (".parquet", ".json", ".jsonl", ".ndjson") for ending in Path(source).suffixes
    )


def _build(
    mapping: TableMapping,
    tables: Sequence[pl.DataFrame | None],
    extractor: Extractor,
    strict: bool,
    vectors: Mapping[str, object] | None,
    typed: bool,
) -> Dataset:
    """Follow a mapping; the tables are those of interactions, items and users. Where types are
    known, ids that are text stay text, also if they look like numbers."""
    work = Work(mapping, extractor, strict)
    columns, table = mapping.interactions, tables[0]
    assert table is not None
    roles = (columns.rating, columns.strength, columns.time, columns.part, columns.behaviour)
    for column in (columns.user, columns.item, *roles):
        check_column(table, column, columns.file)
    if columns.behaviour:
        _check_target(table, columns)
    _match_zeros(work, tables)
    interactions, table = _interactions(work, table)
    if mapping.items is not None and tables[1] is not None:
        interactions, table = _of_listed_items(work, interactions, table, tables[1])
    work.known_items = interactions["item"].unique(maintain_order=True)
    for (kind, _, entities), frame in zip(mapping.sides(), tables[1:], strict=True):
        if entities is not None and frame is not None:
            add_entities(work, entities, frame, kind)
    if mapping.users is not None and "user" in work.names:
        where = f"not in {_name_of(mapping.users, 'users')}"
        work.note_strangers("user", interactions["user"], work.names["user"], where)
    _add_similar(work, {**mapping.vectors, **(vectors or {})})
    for taken in columns.columns:
        check_column(table, taken.column, columns.file)
        add_of_interactions(work, taken, table, interactions)
    facts = _without_strange_items(work, interactions)
    dataset = assemble(
        mapping.name,
        interactions,
        pl.concat([NO_FACTS, *facts], how="diagonal"),
        interaction=mapping.interaction,
        users=_all_users(work, interactions, facts),
        items=work.names.get("item", ()),
        labels=work.labels,
        min_rating=mapping.min_rating,
        notes=work.notes,
        path=Path(columns.file) if columns.file else None,
        integers=[
            kind
            for kind, column, _ in mapping.sides()
            if not typed or table.schema[column].is_numeric()
        ],
    )
    return replace(dataset, catalogue=_catalogue(work, dataset))


def _name_of(entities: EntityTable, what: str) -> str:
    return Path(entities.file).name if entities.file else f"the {what}"


def _of_listed_items(
    work: Work, interactions: pl.DataFrame, table: pl.DataFrame, items: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The interactions, and their rows of the table, without those with items that are not listed
    if the mapping drops these; noted either way, because such items may be misspelt."""
    entities = work.mapping.items
    assert entities is not None
    known = interactions["item"].is_in(work.ids("item", items[entities.id]).drop_nulls().implode())
    strange = interactions["item"].filter(~known).unique(maintain_order=True)
    if not len(strange):
        return interactions, table
    drop = work.mapping.unknown_items == "drop"
    where = f"items of the interactions are not in {_name_of(entities, 'items')}"
    what = (
        f"{where}: their {len(known) - known.sum():,} rows are left out"
        if drop
        else f'{where}: kept as items without facts (unknown_items = "drop" leaves them out)'
    )
    more = ", …" * (len(strange) > EXAMPLES)
    work.notes.append(Note(what, len(strange), ", ".join(strange[:EXAMPLES]) + more))
    return (interactions.filter(known), table.filter(known)) if drop else (interactions, table)


def _add_similar(work: Work, vectors: Mapping[str, object]) -> None:
    """Which items are alike by their texts and by given vectors."""
    for column in () if work.mapping.items is None else work.mapping.items.columns:
        if column.take == "similar":
            said = column.relation_made
            words = [f.select("head", "tail") for f in work.facts if (f["relation"] == said).all()]
            near = by_words(pl.concat(words).unique(maintain_order=True))
            work.facts.append(facts_of(near, similar_name(said), "item", "item"))
    listed = pl.Series(work.names.get("item", ()), dtype=pl.String)
    items = pl.concat([work.known_items, listed]).unique(maintain_order=True)
    work.facts += _near(work, vectors, items)


def _near(
    work: Work, vectors: Mapping[str, object], items: pl.Series, new: pl.Series | None = None
) -> list[pl.DataFrame]:
    """Facts about which items have near vectors; with ``new``, about these alone."""
    mapping, out = work.mapping, []
    ids = [mapping.items.id] if mapping.items is not None else []
    for relation, table in vectors.items():
        near, n = by_vectors(
            table, items, [*ids, mapping.interactions.item], new, work.widths.get("item", 0)
        )
        if n < len(items):
            what = f"{relation}: items without a vector, so they have no neighbours"
            work.notes.append(Note(what, len(items) - n))
        out.append(facts_of(near, relation, "item", "item"))
    return out


def _all_users(
    work: Work, interactions: pl.DataFrame, facts: Sequence[pl.DataFrame]
) -> pl.Series | Sequence[str]:
    """The users of their table, then those of the interactions, then those who only did something
    else."""
    more = [f.filter(head_type="user")["head"] for f in facts if "head_type" in f.columns]
    if not any(map(len, more)):
        return work.names.get("user", ())
    listed = pl.Series(work.names.get("user", ()), dtype=pl.String)
    return pl.concat([listed, interactions["user"], *more]).unique(maintain_order=True)


def _catalogue(work: Work, dataset: Dataset) -> Catalogue:
    """What the tables know besides the graph, and how they were read."""
    ids, first = dataset.vocabulary.ids("item"), dataset.n_users
    filter_only = [
        FilterOnlyColumn.of(
            relation, kind, ((v, ids[head] - first) for head, v in pairs.iter_rows())
        )
        for relation, kind, pairs in work.filter_only
    ]
    images = {ids[name] - first: file for name, file in work.images.items()}
    return Catalogue(
        tuple(filter_only), images, _as_read(work.mapping, work.edges, work.date_order).plain()
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


def _match_zeros(work: Work, tables: Sequence[pl.DataFrame | None]) -> None:
    """Fill ids with zeros where one table has 00032 and the other 32."""
    interactions = tables[0]
    assert interactions is not None
    for (kind, column, entities), frame in zip(work.mapping.sides(), tables[1:], strict=True):
        ours = cells(interactions[column])
        _note_zeros(work, kind, ours)
        if entities is None or frame is None:
            continue
        check_column(frame, entities.id, entities.file)
        theirs = cells(frame[entities.id])
        width = zero_width(ours, theirs)
        if width:
            work.widths[kind] = width
            what = f"{kind}s that one table writes without leading zeros: zeros added"
            short = (ours if ours.str.len_chars().min() != width else theirs).drop_nulls()
            example = f"{short[0]} is {short.str.zfill(width)[0]}"
            work.notes.append(Note(what, short.n_unique(), example))


def _note_zeros(work: Work, kind: str, values: pl.Series) -> None:
    """Note where one table writes both 00032 and 32: they stay two."""
    ids = values.drop_nulls().unique().sort()
    plain = ids.filter(ids.str.contains(r"^\d+$"))
    twice = plain.filter(plain.str.strip_chars_start("0").is_duplicated())
    what = f"{kind}s whose IDs differ only in leading zeros, in one table: kept separate"
    work.note(what, twice)


def _table(
    part: InteractionTable | EntityTable | None, table: object, what: str
) -> pl.DataFrame | None:
    """A table that a mapping has a place for, as given or from the file that it names."""
    if part is None:
        return None
    if table is None and not part.file:
        raise DataError(
            f"the {what} are missing", remedy="pass a table or name a file in the mapping"
        )
    return frames.read(part.file if table is None else table)


def _interactions(
    work: Work, table: pl.DataFrame, new: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The interactions that stay under our names, and the same rows of the table; ``new`` ones
    came after a fit."""
    names = work.mapping.interactions
    if names.behaviour:
        table = _by_target(work, table)
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
    if names.part:
        parts = cells(table[names.part]).str.to_lowercase()
        columns["part"] = parts.replace_strict(PART_WORDS, default=None, return_dtype=pl.String)
        needs.append(("part", names.part, "the part is neither train, validation nor test"))
    interactions = pl.DataFrame(columns)
    for ours, theirs, what in needs:
        good = interactions[ours].is_not_null()
        work.usable(table, good, what, theirs, names.file)
        interactions, table = interactions.filter(good), table.filter(good)
    if names.time and not new:
        interactions = _with_first_times(work, interactions, table)
    again = _repeated(table, names)
    where = f" of {Path(names.file).name}" if names.file else ""
    lines = table.filter(again).select(pl.format("line {}", "line")).to_series()
    work.note(f"rows{where} left out: identical to an earlier row", lines)
    interactions, table = interactions.filter(~again), table.filter(~again)
    if names.rating and work.mapping.min_rating is None:
        _note_low_ratings(work, interactions)
    stay = in_core(interactions, work.mapping.user_core, work.mapping.item_core)
    work.note("interactions outside the core left out", interactions.filter(~stay), "user")
    return interactions.filter(stay), table.filter(stay)


def _check_target(table: pl.DataFrame, names: InteractionTable) -> None:
    """Refuse a target that no row has."""
    found = cells(table[names.behaviour]).drop_nulls().unique().sort().to_list()
    if names.target not in found:
        raise DataError(
            f"no row of column {names.behaviour!r} has the target {names.target!r}",
            path=names.file or None,
            remedy=f"set target to one of {', '.join(found[:10])}",
        )


def _by_target(work: Work, table: pl.DataFrame) -> pl.DataFrame:
    """The rows with the behaviour that counts. The others become facts about what users did, so
    that a view is something to learn from but doesn't hide the item as a purchase does."""
    names = work.mapping.interactions
    did = cells(table[names.behaviour])
    work.usable(table, did.is_not_null(), "no behaviour", names.behaviour, names.file)
    table, did = table.filter(did.is_not_null()), did.drop_nulls()
    relations = did.replace_strict(
        {x: relation_of(x) for x in did.unique()}, return_dtype=pl.String
    )
    counts = relations == relation_of(names.target)
    others, kinds = table.filter(~counts), did.filter(~counts)
    if len(others):
        what = (
            f"rows read as facts about what users did, not as interactions, because column "
            f"{names.behaviour} isn't {names.target!r} (target = … in the mapping)"
        )
        work.notes.append(Note(what, len(others), ", ".join(kinds.unique(maintain_order=True)[:5])))
        work.facts.append(_behaviours(work, others, kinds))
        disliked = kinds.filter([is_dislike(kind, names.target) for kind in kinds])
        work.note("behaviours counted as dislikes", disliked)
    return table.filter(counts)


def _behaviours(work: Work, table: pl.DataFrame, kinds: pl.Series) -> pl.DataFrame:
    """What users did besides the interaction, as facts; rows without user or item are left out."""
    names = work.mapping.interactions
    taken = {
        kind: DISLIKED if is_dislike(kind, names.target) else relation_of(kind)
        for kind in kinds.unique()
    }
    relations = kinds.replace_strict(taken, return_dtype=pl.String)
    relations = relations.replace(work.mapping.interaction, f"{work.mapping.interaction}_too")
    ends = {
        "head": work.ids("user", table[names.user]),
        "relation": relations,
        "tail": work.ids("item", table[names.item]),
    }
    facts = pl.DataFrame(ends).with_columns(head_type=pl.lit("user"), tail_type=pl.lit("item"))
    if names.time:
        facts = facts.with_columns(time=moments(table[names.time], names.date_order).seconds)
    for column, theirs, what in (
        ("head", names.user, "no user"), ("tail", names.item, "no item"),
        ("time", names.time, "not a time"),
    ):  # fmt: skip
        if column in facts.columns:
            good = facts[column].is_not_null()
            work.usable(table, good, what, theirs, names.file)
            facts, table = facts.filter(good), table.filter(good)
    return facts


def _without_strange_items(work: Work, interactions: pl.DataFrame) -> list[pl.DataFrame]:
    """The facts but for those about what users did to items that are in no other table."""
    known = pl.concat(
        [interactions["item"], pl.Series(work.names.get("item", ()), dtype=pl.String)]
    )
    out = []
    for facts in work.facts:
        if facts["head_type"].eq("user").all() and facts["tail_type"].eq("item").all():
            there = facts["tail"].is_in(known.implode())
            what = "facts left out because their items are in no other table"
            work.note(what, facts["tail"].filter(~there))
            facts = facts.filter(there)
        out.append(facts)
    return out


def _repeated(table: pl.DataFrame, names: InteractionTable) -> pl.Series:
    """Which rows repeat an earlier one in every column: an export that went wrong.

    Where there is nothing but who, what and when, none is: one may play a song twice a day. Nor
    where nothing says when.
    """
    roles = {names.user, names.item, names.time, names.rating, names.strength, names.part, "line"}
    if not names.time or roles >= set(table.columns):
        return pl.repeat(False, len(table), eager=True)
    return ~table.select(pl.struct(pl.exclude("line")).is_first_distinct()).to_series()


def _times(work: Work, table: pl.DataFrame) -> pl.Series:
    """When the interactions were; how dates are written is noted where it is not plain."""
    names = work.mapping.interactions
    read = moments(table[names.time], names.date_order)
    work.date_order = read.order
    if len(read.ways) > 1:
        what = "date formats in the time column, all understood"
        work.notes.append(Note(what, len(read.ways), ", ".join(read.ways)))
    known = as_numbers(table[names.time]).drop_nulls()
    first = read.seconds.drop_nulls()[:1].to_list()
    if len(known) and known[0] == first[0] and unit_of_epoch(first[0])[0] == "seconds":
        what = "times that are numbers, read as seconds since 1970"
        work.notes.append(Note(what, len(known), f"{first[0]} is {moment(first[0])}"))
    if read.mixed:
        n, example = read.mixed
        what = (
            f"dates that can't be read with the {read.order}, though others need it: the column "
            "mixes both orders, so some days and months may be swapped; write all dates alike"
        )
        work.notes.append(Note(what, n, example))
    if read.guessed:
        what = (
            f'times such as 03/04/2024 read with the {read.order} (date_order = "…" in the mapping)'
        )
        n = len(read.seconds) - read.seconds.null_count()
        work.notes.append(Note(what, n, read.ways[-1]))
    return read.seconds


def _with_first_times(work: Work, interactions: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """The interactions, in which those without a readable time come first in their user's history:
    the user has the item, but nothing says that it came after another."""
    names, known = work.mapping.interactions, interactions["time"].is_not_null()
    if not known.any():
        what, remedy = "no time can be read", 'write dates such as 2024-05-31, or time = ""'
        path, value = names.file or None, table[names.time].drop_nulls()[:1].to_list()
        raise DataError(what, path=path, value=value, remedy=remedy)
    what = "unreadable time; treated as the user's first"
    work.usable(table, known, what, names.time, names.file, kept=True)
    first = pl.col("time").min()
    return interactions.with_columns(pl.coalesce("time", first.over("user"), first).alias("time"))


def _note_low_ratings(work: Work, interactions: pl.DataFrame) -> None:
    """Say that bad ratings count like good ones, and how to leave them out."""
    ratings = interactions["rating"]
    low, high = ratings.min(), ratings.max()
    if not isinstance(low, float) or not isinstance(high, float) or low == high:
        return
    below = interactions.filter(pl.col("rating") < (low + high) / 2)
    bar = f"{(low + high) / 2 + (high - low) / 4:g}"
    what = f"low ratings that count the same as high ones (min_rating = {bar} makes them dislikes)"
    if len(below) >= 0.05 * len(interactions):
        work.note(what, below["rating"])


BUNDLE = Path("the bundle")


# ── what came after a fit ──────────────────────────────────────────────────────────────


def read_changes(
    mapping: Mapping[str, Any] | None,
    graph: KnowledgeGraph,
    tables: Mapping[str, object],
    facts: object = None,
    min_rating: float | None = None,
    vectors: Mapping[str, object] | None = None,
) -> Changes:
    """Changes from tables of interactions, items and users: those with the columns of the mapping
    are read by it, the others by the names of the plain format. ``vectors`` say which items the
    new ones are near to."""
    given: dict[str, object] = {name: tables.get(name) for name in TABLES}
    mapped = dict[str, pl.DataFrame]()
    known = None if mapping is None else TableMapping.of_plain(mapping, BUNDLE)
    for name in TABLES if known is not None else ():
        frame = _frame(given[name])
        if frame is not None and known is not None and _fits(frame, known, name):
            mapped[name], given[name] = frame, None
    floor = None if "interactions" in mapped else min_rating
    plain = changes.read(
        given["interactions"], given["items"], facts, given["users"], min_rating=floor
    )
    if known is not None and mapped:
        plain = _mapped(known, graph, mapped, min_rating).plus(plain)
    return _with_near(plain, graph, vectors or {}, known).timed(graph)


def _with_near(
    given: Changes,
    graph: KnowledgeGraph,
    vectors: Mapping[str, object],
    mapping: TableMapping | None,
) -> Changes:
    """Changes with what the new items are near to by vectors, among the items of these tables."""
    if not vectors:
        return given
    old = pl.Series(list(graph.vocabulary.ids("item")), dtype=pl.String)
    named = pl.Series([*given.items, *given.interactions["item"]], dtype=pl.String)
    new = named.filter(~named.is_in(old.implode())).unique(maintain_order=True)
    work = Work(mapping or TableMapping(InteractionTable("user", "item")), mentions, False)
    near = _near(work, vectors, pl.concat([old, new]), new)
    facts = pl.concat([given.facts, *near], how="diagonal")
    return replace(given, facts=facts, notes=(*given.notes, *work.notes))


def _frame(table: object) -> pl.DataFrame | None:
    """A table from a file or a frame; None for rows, which the plain format names."""
    path = Path(table) if isinstance(table, PathLike) else table
    known = isinstance(path, str | Path | pl.LazyFrame) or is_frame(path)
    return frames.read(path) if known else None


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
    min_rating: float | None,
) -> Changes:
    """What a mapping makes of tables; a value is taken however few or many have it."""
    all_of_them = {"least": 1, "hub_share": 1.0, "user_core": 1, "item_core": 1}
    mapping = replace(mapping, **all_of_them)  # type: ignore[arg-type]
    for name in ("items", "users"):
        if name in tables:
            mapping = _with_columns_of(mapping, name, tables[name])
    items = pl.Series(list(graph.vocabulary.ids("item")), dtype=pl.String)
    work = Work(mapping, mentions, False, known_items=items)
    _write_ids_alike(work, graph, tables)
    rows = changes.NO_INTERACTIONS
    floor = max((f for f in (min_rating, mapping.min_rating) if f is not None), default=None)
    if "interactions" in tables:
        rows = _taken(work, tables["interactions"], floor)
    named: dict[str, Names] = {"item": {}, "user": {}}
    for kind, _, entities in mapping.sides():
        if f"{kind}s" in tables and entities is not None:
            add_entities(work, entities, tables[f"{kind}s"], kind)
            labels = work.labels.get(kind, {})
            named[kind] = {name: labels.get(name) for name in work.names[kind]}
    if mapping.items is not None:
        known = [*graph.vocabulary.ids("item"), *named["item"]]
        work.note_strangers(
            "item", rows["item"], known, "neither in the model nor among the new items"
        )
    facts = pl.concat([NO_FACTS, *work.facts], how="diagonal")
    facts = _known_words(facts, mapping, graph).select(NO_FACTS.columns)
    return Changes(
        rows,
        facts,
        named["item"],
        named["user"],
        notes=tuple(work.notes),
        images=work.images,
        numbers={name: pairs for name, _, pairs in work.filter_only},
    ).with_dislikes(floor)


def _with_columns_of(mapping: TableMapping, name: str, frame: pl.DataFrame) -> TableMapping:
    """The mapping less the columns that a table leaves out: new items may have fewer."""
    part: EntityTable = getattr(mapping, name)
    columns = tuple(c for c in part.columns if c.column in frame.columns)
    label = part.label if part.label in frame.columns else ""
    return mapping.with_table(name, replace(part, columns=columns, label=label))


def _write_ids_alike(work: Work, graph: KnowledgeGraph, tables: Mapping[str, pl.DataFrame]) -> None:
    """Fill ids with zeros where the model knows 00032 and a table has 32."""
    for kind, column, part in work.mapping.sides():
        known = pl.Series(list(graph.vocabulary.ids(kind)), dtype=pl.String)
        given = [tables["interactions"][column]] if "interactions" in tables else []
        if part is not None and f"{kind}s" in tables:
            given.append(tables[f"{kind}s"][part.id])
        for values in given:
            work.widths[kind] = max(work.widths.get(kind, 0), zero_width(cells(values), known))


def _taken(work: Work, table: pl.DataFrame, floor: float | None) -> pl.DataFrame:
    """The interactions of a table, without those that are rated too low."""
    names = work.mapping.interactions
    missing = [c for c in (names.rating, names.behaviour) if c and c not in table.columns]
    if missing:
        raise DataError(
            f"column {missing[0]!r} is missing, but the model was built with it",
            remedy="add it; rows without a value are left out",
        )
    time = names.time if names.time in table.columns else ""
    plain_rows = replace(names, part="", time=time, columns=())
    work.mapping = replace(work.mapping, interactions=plain_rows)
    rows, _ = _interactions(work, table, new=True)
    changes.check_rated(rows, floor)
    return rows.drop("line")


def _known_words(facts: pl.DataFrame, mapping: TableMapping, graph: KnowledgeGraph) -> pl.DataFrame:
    """Facts without words and features of texts that the model does not know: the build chose those
    that tell items apart, among all texts."""
    texts = [c for _, c in mapping.columns() if c.take in ("keywords", "similar", "aspects")]
    for column in texts:
        kind = column.entity_type
        known = list(graph.vocabulary.ids(kind)) if kind in graph.vocabulary.types else []
        strange = (pl.col("tail_type") == kind) & ~pl.col("tail").is_in(known)
        facts = facts.filter(~strange)
    return facts
