"""Facts that are known from single reviews: features that are mentioned, styles that were bought.

Every such fact names the row of its review, once for the user and once for the item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from loger.data.dataset import Note
from loger.data.readers.sentiment import read_mentions
from loger.tables.reviews.parts import Parts

if TYPE_CHECKING:
    from loger.tables.reviews.amazon import AmazonConfig

FACTS = {
    "head": pl.String,
    "relation": pl.String,
    "tail": pl.String,
    "head_type": pl.String,
    "tail_type": pl.String,
    "source": pl.Int64,
}
_MOODS = {"+1": "good", "0": "neutral", "-1": "bad"}


def facts(
    review_parts: Parts,
    interactions: pl.DataFrame,
    config: AmazonConfig,
    notes: list[Note],
    mentions_file: Path | str | None,
) -> tuple[list[pl.DataFrame], dict[str, str]]:
    """Facts from reviews, and labels of the features.

    ``interactions`` are the reviews that stay; ``source`` is a row of theirs.
    """
    kept = interactions.select("row", pl.int_range(pl.len(), dtype=pl.UInt32).alias("source"))
    made, labels = list[pl.DataFrame](), dict[str, str]()
    wanted = [r for r in ("mentions", "has_feature") if r not in config.leave_out]
    if wanted:
        if mentions_file is None:
            spoken = _spoken(review_parts, kept, "mentions", config.least_mentions, notes)
        else:
            spoken = _given(Path(mentions_file), interactions, config.least_mentions, notes)
        spoken = _capped(spoken, interactions, config, "features", notes)
        made += _both_sides(spoken, interactions, wanted, "feature")
        labels = feature_labels(spoken["value"].unique(maintain_order=True))
    wanted = [r for r in ("like_style", "has_style") if r not in config.leave_out]
    if wanted:
        styles = _spoken(review_parts, kept, "styles", config.least_styles, notes)
        styles = _capped(styles, interactions, config, "styles", notes)
        cells = pl.col("value").str.splitn("\t", 2).struct
        styles = styles.with_columns(
            cells.field("field_0").alias("kind"), cells.field("field_1").alias("value")
        )
        for (kind,), rows in styles.partition_by("kind", as_dict=True, maintain_order=True).items():
            names = [f"{relation}::{kind}" for relation in wanted]
            made += _both_sides(rows, interactions, names, f"style::{kind}")
    return made, labels


def feature_labels(names: pl.Series) -> dict[str, str]:
    """Features as people read them: ``battery life|short|-1`` is "battery life: short (bad)"."""
    out = {}
    for name in names:
        aspect, opinion, sign = name.rsplit("|", 2)
        out[name] = f"{aspect}: {opinion} ({_MOODS.get(sign, sign)})"
    return out


def _values(review_parts: Parts, kept: pl.DataFrame, column: str) -> Iterator[pl.DataFrame]:
    """The values of a list column of the reviews that stay, part by part: source, value."""
    start = 0
    for file in review_parts.files:
        part = pl.read_parquet(file, columns=[column])
        rows = pl.int_range(start, start + len(part), dtype=pl.UInt32, eager=True).alias("row")
        start += len(part)
        part = part.with_columns(rows).join(kept, on="row", maintain_order="left")
        once = pl.col(column).list.unique(maintain_order=True).alias("value")
        yield part.select("source", once).filter(pl.col("value").list.len() > 0).explode("value")


def _spoken(
    review_parts: Parts, kept: pl.DataFrame, column: str, least: int, notes: list[Note]
) -> pl.DataFrame:
    """Values that occur in at least so many of the reviews that stay: source, value.

    The parts are read twice, so that rare values, by far the most, are never held together.
    """
    counts = pl.concat(
        [part.group_by("value").len() for part in _values(review_parts, kept, column)]
    )
    counts = counts.group_by("value").agg(pl.col("len").sum())
    common = _common(counts, least, column, notes)
    return pl.concat(
        [
            part.join(common, on="value", how="semi", maintain_order="left")
            for part in _values(review_parts, kept, column)
        ]
    )


def _common(counts: pl.DataFrame, least: int, what: str, notes: list[Note]) -> pl.DataFrame:
    rare = counts.filter(pl.col("len") < least)
    if len(rare):
        kinds = f"{what} of {len(rare):,} kinds that occur in fewer than {least} reviews left out"
        notes.append(Note(kinds, int(rare["len"].sum()), min(rare["value"]).replace("\t", " ")))
    return counts.filter(pl.col("len") >= least).select("value")


def _given(path: Path, interactions: pl.DataFrame, least: int, notes: list[Note]) -> pl.DataFrame:
    """Mentions that were mined elsewhere: source, value."""
    spoken = read_mentions(path, interactions, notes).select(
        pl.col("source").cast(pl.UInt32), pl.col("feature").alias("value")
    )
    spoken = spoken.unique(maintain_order=True)
    common = _common(spoken.group_by("value").len(), least, "mentions", notes)
    return spoken.join(common, on="value", how="semi", maintain_order="left")


def _capped(
    spoken: pl.DataFrame,
    interactions: pl.DataFrame,
    config: AmazonConfig,
    what: str,
    notes: list[Note],
) -> pl.DataFrame:
    """The values without those that too many users, or items, have."""
    for side in ("user", "item"):
        names = interactions[side].cast(pl.Categorical).to_physical()
        pairs = spoken.select("value", names.gather(spoken["source"]).alias("end"))
        counts = pairs.group_by("value").agg(pl.col("end").n_unique())
        limit = config.hub_share * names.n_unique()
        hubs = counts.filter(pl.col("end") > limit).sort("value")
        if len(hubs):
            share = f"more than {config.hub_share:.0%} of the {side}s have"
            first = hubs["value"][0].replace("\t", " ")
            notes.append(Note(f"{what} that {share} left out", len(hubs), first))
            spoken = spoken.join(hubs, on="value", how="anti", maintain_order="left")
    return spoken


def _both_sides(
    spoken: pl.DataFrame, interactions: pl.DataFrame, relations: Sequence[str], tail_type: str
) -> list[pl.DataFrame]:
    """One fact of the user and one of the item, as far as the relations are wanted."""
    sides = {"mentions": "user", "like_style": "user", "has_feature": "item", "has_style": "item"}
    return [
        spoken.select(
            interactions[side].gather(spoken["source"]).alias("head"),
            pl.lit(relation).alias("relation"),
            pl.col("value").alias("tail"),
            pl.lit(side).alias("head_type"),
            pl.lit(tail_type).alias("tail_type"),
            pl.col("source").cast(pl.Int64),
        )
        for relation in relations
        for side in [sides[relation.split("::")[0]]]
    ]
