"""From named tables to a Dataset: the one place where names become numbers.

Readers differ in how they find rows; all of them end here, so that types, duplicates,
self-loops, thresholds and leakage through user–item facts are treated alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data.dataset import (
    PARTS,
    TRAIN,
    Dataset,
    Interactions,
    Note,
    moment,
    unit_of_epoch,
)
from loger.data.facts import OTHER, numbered, places_of
from loger.data.table_files import note
from loger.errors import DataError
from loger.graph import DISLIKED, Vocabulary, pair_keys
from loger.graph.arrays import as_strengths

__all__ = ["NO_FACTS", "OTHER", "assemble"]

PAIR = ("user", "item")

NO_FACTS = pl.DataFrame(
    schema=dict.fromkeys(("head", "relation", "tail", "head_type", "tail_type"), pl.String)
)


def assemble(
    name: str,
    interactions: pl.DataFrame,
    facts: pl.DataFrame = NO_FACTS,
    *,
    interaction: str = "interacted",
    users: Sequence[str] | pl.Series = (),
    items: Sequence[str] | pl.Series = (),
    labels: Mapping[str, Mapping[str, str]] | None = None,
    min_rating: float | None = None,
    notes: Sequence[Note] = (),
    path: Path | None = None,
    facts_path: Path | None = None,
    integers: Collection[str] = (),
) -> Dataset:
    """Number named interactions and facts into a Dataset.

    ``interactions`` has columns user, item and optionally rating, strength or count (how often it
    was), time, part (train, validation or test). ``facts`` has head, relation, tail and optionally
    head_type, tail_type (null where unknown: users and items are then known by name, other types
    are inferred; ``OTHER`` where only users and items are ruled out) and source (the interaction
    row that a fact is known from); columns line and file make messages more exact. ``users``
    and ``items`` fix the order of their ids and name those without interactions. ``labels``
    maps type → name → label, ``OTHER`` being all types but user and item. Interactions rated
    below ``min_rating`` become facts about what users dislike. ``path`` and ``facts_path`` are
    for messages. ``integers`` has "user" and "item" where these had integers for ids.
    """
    collected, said = list(notes), interactions.columns
    if "count" in said and "strength" not in said:
        interactions = interactions.rename({"count": "strength"})
    interactions, facts = (in_seconds(t, interactions, collected) for t in (interactions, facts))
    kept = _kept_interactions(interactions, min_rating, collected, path)
    if min_rating is not None:
        facts = pl.concat([facts, dislikes(interactions, kept, min_rating)], how="diagonal")
    user_names = names_in_order(users, interactions["user"])
    item_names = names_in_order(items, interactions["item"])
    table, relations, names = numbered(
        facts, kept, interactions, interaction, user_names, item_names, collected, facts_path
    )
    dataset = Dataset(
        name=name,
        vocabulary=Vocabulary(names, _labels(names, labels or {}), integers),
        relations=relations,
        facts=table,
        interactions=Interactions(
            users=places_of(kept["user"], user_names).astype(np.int32),
            items=places_of(kept["item"], item_names).astype(np.int32),
            ratings=_optional(kept, "rating", pl.Float32),
            times=_optional(kept, "time", pl.Int64),
            parts=_optional(kept, "part", pl.Int8),
            strengths=_optional(kept, "strength", pl.Float64),
            counted="strength" in kept.columns and "strength" not in said,
        ),
    )
    return _noted(dataset, collected)


def in_seconds(table: pl.DataFrame, interactions: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    """A table with its times in seconds, if the interactions count time since 1970 in smaller
    units; noted for the interactions themselves."""
    if "time" not in interactions.columns or "time" not in table.columns:
        return table
    unit, size = unit_of_epoch(int(interactions["time"].max() or 0))  # type: ignore[arg-type]
    if size == 1:
        return table
    if table is interactions:
        first = table["time"].drop_nulls()[0]
        what = f"times in {unit} since 1970, converted to seconds"
        notes.append(Note(what, len(table), f"{first} is {moment(first // size)}"))
    return table.with_columns(pl.col("time") // size)


def _kept_interactions(
    table: pl.DataFrame, min_rating: float | None, notes: list[Note], path: Path | None
) -> pl.DataFrame:
    """Interactions, one per pair: the earliest part stays and, of its rows, the latest time, so
    that what a user is said to have done last is what the tables say."""
    interactions = table.with_row_index("row")
    if "part" in interactions.columns:
        codes = pl.DataFrame({"part": PARTS, "code": [0, 1, 2]}, schema_overrides={"code": pl.Int8})
        interactions = interactions.join(codes, on="part", how="left", maintain_order="left")
        interactions = interactions.drop("part").rename({"code": "part"})
    if min_rating is not None:
        if "rating" not in interactions.columns:
            raise DataError(
                "min_rating needs ratings, but the interactions have none",
                path=path,
                remedy="leave min_rating out or add a rating column",
            )
        low = interactions.filter(pl.col("rating") < min_rating)
        note(notes, f"interactions rated below {min_rating:g} counted as dislikes", low, *PAIR)
        interactions = interactions.filter(pl.col("rating") >= min_rating)
    first = _one_per_pair(interactions)
    if len(first) < len(interactions):
        again = interactions.join(first.select("row"), on="row", how="anti")
        if "part" in interactions.columns:
            kept = first.select("user", "item", pl.col("part").alias("kept"))
            again = again.join(kept, on=["user", "item"], maintain_order="left")
            later = again.filter(pl.col("part") != pl.col("kept"))
            note(
                notes,
                "held-out pairs that are also in an earlier part, kept only in the earlier one",
                later,
                *PAIR,
            )
            again = again.filter(pl.col("part") == pl.col("kept"))
        latest = ", keeping the latest time" if "time" in interactions.columns else ""
        what = f"repeated interactions of the same user and item merged{latest}"
        note(notes, what, again, *PAIR)
    if not len(first):
        why = "; ".join(str(n) for n in notes if n.what.startswith(("rows", "interactions")))
        raise DataError(
            "no interactions are left to learn from" + (f" ({why})" if why else ""),
            path=path,
            remedy="check the interactions and min_rating",
        )
    return first


def dislikes(rows: pl.DataFrame, kept: pl.DataFrame, min_rating: float) -> pl.DataFrame:
    """Facts about what users rated low and nothing else speaks for: the items are hidden from them,
    and what such items have in common may count against others."""
    low = rows.filter(pl.col("rating") < min_rating)
    low = low.join(kept.select(PAIR), on=PAIR, how="anti", maintain_order="left")
    return low.select(
        pl.col("user").alias("head"),
        pl.lit(DISLIKED).alias("relation"),
        pl.col("item").alias("tail"),
        pl.lit("user").alias("head_type"),
        pl.lit("item").alias("tail_type"),
        *(column for column in ("time",) if column in rows.columns),
    )


def _one_per_pair(rows: pl.DataFrame) -> pl.DataFrame:
    """One row of each pair, of its earliest part, with the latest time there and how strong it was:
    its amounts added up, else its highest rating, else how many rows it has."""
    by = [*PAIR, "part"] if "part" in rows.columns else list(PAIR)
    if "strength" in rows.columns:
        amounts = as_strengths(rows["strength"].cast(pl.Float64).fill_null(1.0).to_numpy())
        rows = rows.with_columns(pl.Series("strength", amounts))
    order = [c for c in ("part", "time", "row") if c in rows.columns]
    rows = rows.sort(order, maintain_order=True)
    first = rows.unique(PAIR, keep="first", maintain_order=True)
    if len(first) == len(rows):
        return first.sort("row")
    if "strength" in rows.columns:
        merged = [pl.col("strength").sum()]
    elif "rating" in rows.columns:
        merged = [pl.col("rating").max()]
    else:
        merged = [pl.len().cast(pl.Float64).alias("strength")]
    if "time" in rows.columns:
        merged.append(pl.col("time").max())
    found = rows.group_by(by).agg(merged)
    rest = first.drop(found.columns[len(by) :], strict=False)
    return rest.join(found, on=by, how="left").sort("row")


def note_unused(
    entities: pl.Series,
    facts: pl.DataFrame,
    notes: list[Note],
    what: str = "entities that are named but in no fact",
) -> None:
    """Note entities that are named in a list of their own but are in no fact."""
    in_facts = pl.concat([facts["head"], facts["tail"]])
    note(notes, what, entities.filter(~entities.is_in(in_facts.implode())))


def _labels(
    names: Mapping[str, list[str]], labels: Mapping[str, Mapping[str, str]]
) -> dict[str, list[str]]:
    out = {}
    for kind, of_kind in names.items():
        of_type = labels.get(kind, {} if kind in PAIR else labels.get(OTHER, {}))
        if of_type:
            out[kind] = [of_type.get(n, n) for n in of_kind]
    return out


def _optional(
    interactions: pl.DataFrame, column: str, dtype: type[pl.DataType]
) -> np.ndarray | None:
    return interactions[column].cast(dtype).to_numpy() if column in interactions.columns else None


def _noted(dataset: Dataset, notes: list[Note]) -> Dataset:
    """The data set with its notes, those about lonely users and items added."""
    facts, interactions, words = dataset.facts, dataset.interactions, dataset.vocabulary
    users, items = words.span("user"), words.span("item")

    def tell(what: str, span: range | NDArray[np.integer], known: NDArray[np.integer]) -> None:
        """Note those of a span that are not among the known."""
        rest = np.setdiff1d(span, known)
        if len(rest):
            notes.append(Note(what, len(rest), words.names[int(rest[0])]))

    by_users = np.array([r.head_type == "user" for r in dataset.relations])[facts.relations]
    if not by_users.all():
        linked = np.concatenate([facts.heads[~by_users], facts.tails[~by_users]])
        tell("items without any fact", items, linked)
    tell("items without any interaction", items, interactions.items + items.start)
    tell("users without any interaction", users, interactions.users)
    if interactions.parts is not None:
        seen, trained = interactions.users, interactions.users[interactions.parts == TRAIN]
        tell(
            "users with held-out interactions but no training interactions",
            np.unique(seen),
            trained,
        )
    return replace(dataset, notes=tuple(notes))


def names_in_order(*columns: pl.Series | Sequence[str]) -> list[str]:
    """Every distinct name, in order of first appearance."""
    whole = pl.concat([pl.Series("name", c, dtype=pl.String) for c in columns])
    return whole.drop_nulls().unique(maintain_order=True).to_list()


def facts_of(
    pairs: pl.DataFrame, relation: str, head_type: str, tail_type: str, head: str = "head"
) -> pl.DataFrame:
    """Pairs of head and tail as facts of one relation."""
    kinds = {"head_type": pl.lit(head_type), "tail_type": pl.lit(tail_type)}
    return pairs.select(pl.col(head).alias("head"), "tail", relation=pl.lit(relation), **kinds)


def without_rare_and_hubs(
    pairs: pl.DataFrame,
    name: str,
    least: int,
    hub_share: float,
    n: int,
    what: str,
    notes: list[Note],
    head: str = "head",
) -> pl.DataFrame:
    """Pairs without tails that fewer than ``least`` heads have, or more than a share of all n;
    ``name`` is what notes call the tails, ``what`` the heads."""
    counts = pairs.group_by("tail").agg(pl.col(head).n_unique().alias("n")).sort("tail")
    for chosen, why in (
        (pl.col("n") < least, f"fewer than {least} {what}"),
        (pl.col("n") > max(least, hub_share * n), f"more than {hub_share:.0%} of the {what}"),
    ):
        few = counts.filter(chosen)
        note(notes, f"{name}: values left out because {why} have them", few["tail"])
        pairs = pairs.join(few, on="tail", how="anti", maintain_order="left")
    return pairs


def in_core(interactions: pl.DataFrame, least_user: int, least_item: int) -> pl.Series:
    """Which rows of a table of interactions are in the core."""
    users, items = (interactions[c].cast(pl.Categorical).to_physical().to_numpy() for c in PAIR)
    return pl.Series(core(users, items, least_user, least_item))


def core(
    users: NDArray[np.integer], items: NDArray[np.integer], least_user: int, least_item: int
) -> NDArray[np.bool_]:
    """Rows of the largest set in which every user has at least ``least_user`` items and every
    item at least ``least_item`` users; a pair counts once, however often it occurs.

    >>> core(np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1]), 2, 2)
    array([ True,  True,  True,  True, False])
    """
    users, items = np.asarray(users, dtype=np.int64), np.asarray(items, dtype=np.int64)
    if not len(users):
        return np.zeros(0, dtype=bool)
    n_users, n_items = int(users.max()) + 1, int(items.max()) + 1
    _, first = np.unique(pair_keys(users, items, n_items), return_index=True)
    u, v = users[first], items[first]
    while True:
        good_user = np.bincount(u, minlength=n_users) >= max(1, least_user)
        good_item = np.bincount(v, minlength=n_items) >= max(1, least_item)
        stay = good_user[u] & good_item[v]
        if stay.all():
            kept: NDArray[np.bool_] = good_user[users] & good_item[items]
            return kept
        u, v = u[stay], v[stay]
