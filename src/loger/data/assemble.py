"""From named tables to a Dataset: the one place where names become numbers.

Readers differ in how they find rows; all of them end here, so that types, duplicates,
self-loops, thresholds and leakage through user–item facts are treated alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from loger.data.dataset import PARTS, TRAIN, Dataset, Facts, Interactions, Note, names_in_order
from loger.errors import DataError
from loger.graph import Relation, Vocabulary

NO_FACTS = pl.DataFrame(schema={"head": pl.String, "relation": pl.String, "tail": pl.String})


def assemble(
    name: str,
    interactions: pl.DataFrame,
    facts: pl.DataFrame = NO_FACTS,
    *,
    interaction: str = "interacted",
    users: Sequence[str] | pl.Series = (),
    items: Sequence[str] | pl.Series = (),
    labels: Mapping[str, Mapping[str, str]] | None = None,
    positive_from: float | None = None,
    notes: Sequence[Note] = (),
    path: Path | None = None,
) -> Dataset:
    """Number named interactions and facts into a Dataset.

    ``interactions`` has columns user, item and optionally rating, time, part (train,
    validation or test). ``facts`` has head, relation, tail and optionally head_type,
    tail_type (null where unknown: users and items are then known by name, other types are
    inferred) and source (the interaction row that a fact is known from). ``users`` and
    ``items`` fix the order of their ids and name those without interactions. ``labels``
    maps type → name → label. ``positive_from`` drops interactions rated lower.
    """
    found = list(notes)
    events = _events(interactions, positive_from, found, path)
    user_names = names_in_order(users, events["user"])
    item_names = names_in_order(items, events["item"])
    table = _typed_facts(facts, interaction, user_names, item_names, found, path)
    table = _follow_sources(table, interactions, events, found)
    names = {"user": user_names, "item": item_names} | _other_names(table)
    table, relations = _split_relations(table, interaction, found)
    table = _numbered(table, names, relations)
    table = _clean(table, names, found)
    numbers = {t: pl.DataFrame({"name": n}).with_row_index("id") for t, n in names.items()}
    user, item = (
        events.select(name=kind).join(numbers[kind], on="name", how="left", maintain_order="left")[
            "id"
        ]
        for kind in ("user", "item")
    )
    dataset = Dataset(
        name=name,
        vocabulary=Vocabulary(names, _labels(names, labels or {})),
        relations=relations,
        facts=Facts(*(table[c].cast(pl.Int32).to_numpy() for c in ("h", "r", "t", "source"))),
        interactions=Interactions(
            users=user.cast(pl.Int32).to_numpy(),
            items=item.cast(pl.Int32).to_numpy(),
            ratings=_optional(events, "rating", pl.Float32),
            times=_optional(events, "time", pl.Int64),
            parts=_optional(events, "part", pl.Int8),
        ),
    )
    return _noted(dataset, found)


def _events(
    table: pl.DataFrame, positive_from: float | None, notes: list[Note], path: Path | None
) -> pl.DataFrame:
    """Interactions, one per pair: the earliest part, then the earliest time, stays."""
    events = table.drop([c for c in ("line",) if c in table.columns]).with_row_index("row")
    if "part" in events.columns:
        codes = pl.DataFrame({"part": PARTS, "code": [0, 1, 2]}, schema_overrides={"code": pl.Int8})
        events = events.join(codes, on="part", how="left", maintain_order="left")
        events = events.drop("part").rename({"code": "part"})
    if positive_from is not None:
        if "rating" not in events.columns:
            raise DataError(
                "positive_from needs ratings, and there are none",
                path=path,
                remedy="leave positive_from out or add a rating column",
            )
        low = events.filter(pl.col("rating") < positive_from)
        _note(notes, f"interactions rated below {positive_from:g} left out", low, "user", "item")
        events = events.filter(pl.col("rating") >= positive_from)
    order = [c for c in ("part", "time", "row") if c in events.columns]
    first = events.sort(order, maintain_order=True).unique(
        ["user", "item"], keep="first", maintain_order=True
    )
    first = first.sort("row")
    if len(first) < len(events):
        again = events.join(first.select("row"), on="row", how="anti")
        _note(notes, "repeated interactions of one user and item merged", again, "user", "item")
    if not len(first):
        raise DataError(
            "no interactions are left to learn from",
            path=path,
            remedy="check the interactions and positive_from",
        )
    return first


def _typed_facts(
    facts: pl.DataFrame,
    interaction: str,
    users: list[str],
    items: list[str],
    notes: list[Note],
    path: Path | None,
) -> pl.DataFrame:
    """Facts with head_type and tail_type filled in: as given, by name, or inferred."""
    for column in ("head_type", "tail_type"):
        if column not in facts.columns:
            facts = facts.with_columns(pl.lit(None, dtype=pl.String).alias(column))
    if "source" not in facts.columns:
        facts = facts.with_columns(pl.lit(None, dtype=pl.Int64).alias("source"))
    same = facts.filter(pl.col("relation") == interaction)
    if len(same):
        raise DataError(
            f"a fact has the relation {interaction!r}, the name of the interaction itself",
            path=path,
            line=int(same["line"][0]) if "line" in same.columns else None,
            value=(same["head"][0], same["relation"][0], same["tail"][0]),
            remedy="give such rows as interactions, or the interaction another name, "
            "or held-out pairs would leak into the graph",
        )
    known = pl.DataFrame({"name": items, "type": "item"}).vstack(
        pl.DataFrame({"name": users, "type": "user"})
    )
    both = sorted(set(items) & set(users)) if facts["head_type"].null_count() else []
    known = known.unique("name", keep="first", maintain_order=True)
    used = 0
    for side in ("head", "tail"):
        if both:
            used += len(facts.filter(pl.col(f"{side}_type").is_null() & pl.col(side).is_in(both)))
        facts = facts.join(
            known.rename({"name": side, "type": "by_name"}),
            on=side,
            how="left",
            maintain_order="left",
        )
        facts = facts.with_columns(
            pl.coalesce(f"{side}_type", "by_name").alias(f"{side}_type")
        ).drop("by_name")
    if used:
        notes.append(
            Note("names in facts that are both a user and an item, taken as items", used, both[0])
        )
    return _inferred_types(facts)


def _inferred_types(facts: pl.DataFrame) -> pl.DataFrame:
    """Give entities of unknown type one: places of relations that share entities share a type.

    A place is the head side or the tail side of a relation. The type is called after the
    place with the most entities: ``has_brand`` names the type ``brand``.
    """
    places = pl.concat(
        facts.filter(pl.col(f"{side}_type").is_null()).select(
            pl.col(side).alias("name"), "relation", pl.lit(side).alias("side")
        )
        for side in ("head", "tail")
    ).unique(maintain_order=True)
    if not len(places):
        return facts
    entity = places["name"].rank("dense").cast(pl.Int64).to_numpy() - 1
    slots = places.select("relation", "side").unique(maintain_order=True).with_row_index("slot")
    slot = places.join(slots, on=["relation", "side"], maintain_order="left")["slot"].to_numpy()
    n = int(entity.max()) + 1
    links = coo_matrix((np.ones(len(slot)), (entity, slot + n)), shape=(n + len(slots),) * 2)
    _, group = connected_components(links, directed=False)
    sized = (
        pl.DataFrame({"slot": slot, "group": group[n:][slot]})
        .group_by("slot", "group")
        .len()
        .join(slots.with_columns(pl.col("slot").cast(pl.Int64)), on="slot")
        # The tail side names a type better than the head side; ties go to the name.
        .sort(["side", "len", "relation"], descending=[True, True, False], maintain_order=True)
        .unique("group", keep="first", maintain_order=True)
    )
    taken = {"user", "item"} | {
        t for s in ("head", "tail") for t in facts[f"{s}_type"].unique().drop_nulls()
    }
    titles = {}
    for row in sized.iter_rows(named=True):
        title = row["relation"].removeprefix("has_") + ("_head" if row["side"] == "head" else "")
        while title in taken:
            title += "_"
        taken.add(title)
        titles[row["group"]] = title
    types = pl.DataFrame(
        {"name": places["name"], "inferred": [titles[g] for g in group[:n][entity]]}
    ).unique("name", maintain_order=True)
    for side in ("head", "tail"):
        facts = facts.join(types.rename({"name": side}), on=side, how="left", maintain_order="left")
        facts = facts.with_columns(
            pl.coalesce(f"{side}_type", "inferred").alias(f"{side}_type")
        ).drop("inferred")
    return facts


def _follow_sources(
    facts: pl.DataFrame, before: pl.DataFrame, events: pl.DataFrame, notes: list[Note]
) -> pl.DataFrame:
    """Sources as rows of the interactions that stayed; facts of the others go with them.

    A fact between a user and an item that also interacted says no more than the
    interaction: it takes that interaction as its source, so that it cannot leak it.
    """
    rows = events.select("row", "user", "item").with_row_index("kept")
    named = before.select("user", "item").with_row_index("source")
    to_kept = named.join(rows.select("kept", "user", "item"), on=["user", "item"], how="left")
    facts = facts.with_columns(pl.col("source").cast(pl.UInt32)).join(
        to_kept.select("source", "kept"), on="source", how="left", maintain_order="left"
    )
    lost = facts.filter(pl.col("source").is_not_null() & pl.col("kept").is_null())
    _note(notes, "facts known only from interactions left out", lost, "head", "relation", "tail")
    facts = facts.filter(pl.col("source").is_null() | pl.col("kept").is_not_null())
    for user, item in (("head", "tail"), ("tail", "head")):
        pairs = rows.select(
            pl.col("user").alias(user), pl.col("item").alias(item), pl.col("kept").alias("own")
        ).with_columns(pl.lit("user").alias(f"{user}_type"), pl.lit("item").alias(f"{item}_type"))
        keys = [user, item, f"{user}_type", f"{item}_type"]
        facts = facts.join(pairs, on=keys, how="left", maintain_order="left")
        facts = facts.with_columns(pl.coalesce("own", "kept").alias("kept")).drop("own")
    return facts.with_columns(pl.col("kept").cast(pl.Int64).fill_null(-1).alias("source")).drop(
        "kept"
    )


def _other_names(facts: pl.DataFrame) -> dict[str, list[str]]:
    """Entities that are neither users nor items, by type, in order of first appearance."""
    mentioned = pl.concat(
        facts.select(pl.col(side).alias("name"), pl.col(f"{side}_type").alias("type"))
        for side in ("head", "tail")
    ).unique(maintain_order=True)
    others = mentioned.filter(~pl.col("type").is_in(["user", "item"]))
    return {
        str(key[0]): part["name"].to_list()
        for key, part in others.partition_by("type", as_dict=True, maintain_order=True).items()
    }


def _split_relations(
    facts: pl.DataFrame, interaction: str, notes: list[Note]
) -> tuple[pl.DataFrame, tuple[Relation, ...]]:
    """One relation per (name, head type, tail type); where a name mixes types, it is split."""
    kinds = (
        facts.group_by("relation", "head_type", "tail_type", maintain_order=True)
        .len()
        .with_columns(
            pl.len().over("relation").alias("variants"),
            pl.col("head_type").n_unique().over("relation").alias("heads"),
            pl.col("tail_type").n_unique().over("relation").alias("tails"),
        )
    )
    relations, titles = [Relation(interaction, "user", "item")], []
    for row in kinds.iter_rows(named=True):
        sides = [row[f"{s}_type"] for s in ("head", "tail") if row[f"{s}s"] > 1]
        title = row["relation"] + (f"[{'>'.join(sides)}]" if sides else "")
        titles.append(title)
        relations.append(Relation(title, row["head_type"], row["tail_type"]))
    mixed = kinds.filter(pl.col("variants") > 1)
    if len(mixed):
        example = mixed["relation"][0]
        into = [t for t, r in zip(titles, kinds["relation"], strict=True) if r == example]
        notes.append(
            Note(
                "relations that mix types, split by type",
                mixed["relation"].n_unique(),
                f"{example} into {', '.join(into)}",
            )
        )
    keys = ["relation", "head_type", "tail_type"]
    numbered = kinds.select(keys).with_row_index("r", offset=1)
    return facts.join(numbered, on=keys, how="left", maintain_order="left"), tuple(relations)


def _numbered(
    facts: pl.DataFrame, names: Mapping[str, list[str]], relations: Sequence[Relation]
) -> pl.DataFrame:
    """Facts with columns h, r, t of entity and relation ids."""
    start, parts = 0, []
    for kind, of_kind in names.items():
        parts.append(
            pl.DataFrame({"name": of_kind}, schema={"name": pl.String})
            .with_row_index("id", offset=start)
            .with_columns(pl.lit(kind).alias("type"))
        )
        start += len(of_kind)
    ids = pl.concat(parts)
    for side, short in (("head", "h"), ("tail", "t")):
        facts = facts.join(
            ids.rename({"name": side, "type": f"{side}_type", "id": short}),
            on=[side, f"{side}_type"],
            how="left",
            maintain_order="left",
        )
        stray = facts.filter(pl.col(short).is_null())
        if len(stray):
            raise DataError(
                f"a fact names a {stray[f'{side}_type'][0]} that does not exist",
                line=int(stray["line"][0]) if "line" in stray.columns else None,
                value=stray[side][0],
                remedy="list it among the users or items, or give it another type",
            )
    return facts


def _clean(facts: pl.DataFrame, names: Mapping[str, list[str]], notes: list[Note]) -> pl.DataFrame:
    """Facts without self-loops and without repetition from one source."""
    loops = facts.filter(pl.col("h") == pl.col("t"))
    _note(notes, "facts that link an entity to itself left out", loops, "head", "relation", "tail")
    facts = facts.filter(pl.col("h") != pl.col("t"))
    once = facts.unique(["h", "r", "t", "source"], keep="first", maintain_order=True)
    if len(once) < len(facts):
        again = facts.filter(~pl.struct("h", "r", "t", "source").is_first_distinct())
        _note(notes, "repeated facts counted once", again, "head", "relation", "tail")
    return once


def _labels(
    names: Mapping[str, list[str]], labels: Mapping[str, Mapping[str, str]]
) -> dict[str, list[str]]:
    return {t: [labels[t].get(n, n) for n in names[t]] for t in names if t in labels}


def _optional(events: pl.DataFrame, column: str, dtype: type[pl.DataType]) -> np.ndarray | None:
    return events[column].cast(dtype).to_numpy() if column in events.columns else None


def _noted(dataset: Dataset, notes: list[Note]) -> Dataset:
    """The data set with its notes, those about lonely users and items added."""
    facts, events, words = dataset.facts, dataset.interactions, dataset.vocabulary
    touched = np.zeros(len(words), dtype=bool)
    touched[facts.heads] = touched[facts.tails] = True
    seen = np.zeros(dataset.n_users, dtype=bool)
    seen[events.users] = True
    if len(facts):
        bare = np.flatnonzero(~touched[words.span("item").start : words.span("item").stop])
        if len(bare):
            first = words.names[words.span("item").start + int(bare[0])]
            notes.append(Note("items without any fact", len(bare), first))
    idle = np.flatnonzero(~seen)
    if len(idle):
        notes.append(Note("users without any interaction", len(idle), words.names[int(idle[0])]))
    if events.parts is not None:
        trained = np.zeros(dataset.n_users, dtype=bool)
        trained[events.users[events.parts == TRAIN]] = True
        cold = np.flatnonzero(seen & ~trained)
        if len(cold):
            name = words.names[int(cold[0])]
            notes.append(
                Note("users with held-out interactions but none in train", len(cold), name)
            )
    return replace(dataset, notes=tuple(notes))


def _note(notes: list[Note], what: str, rows: pl.DataFrame, *columns: str) -> None:
    """Add a note on these rows, if there are any, with the first of them as the example."""
    if len(rows):
        example = " ".join(str(rows[c][0]) for c in columns)
        line = f", line {rows['line'][0]}" if "line" in rows.columns else ""
        notes.append(Note(what, len(rows), example + line))
