"""The facts of Amazon's dumps.

From single reviews (``of_reviews``): features that are mentioned, styles that were bought. Every
such fact names the row of its review, once for the user and once for the item.

From the catalogue (``of_products``): brand, categories, price within the category, related
products, styles. They are simply known: no review is their source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
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
LEAST_PRICED = 50
"""Priced items that a category needs for bins of its own; else its parent's are taken."""
_MOODS = {"+1": "good", "0": "neutral", "-1": "bad"}


def of_reviews(
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
            spoken = _spoken(review_parts, kept, "mentions", config.min_mentions, notes)
        else:
            spoken = _given(Path(mentions_file), interactions, config.min_mentions, notes)
        spoken = _capped(spoken, interactions, config, "features", notes)
        made += _both_sides(spoken, interactions, wanted, "feature")
        labels = feature_labels(spoken["value"].unique(maintain_order=True))
    wanted = [r for r in ("like_style", "has_style") if r not in config.leave_out]
    if wanted:
        styles = _spoken(review_parts, kept, "styles", config.min_styles, notes)
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


ALL = "all products"
RELATED = "related_product"


def of_products(
    product_parts: Parts, items: pl.Series, config: AmazonConfig, notes: list[Note]
) -> tuple[list[pl.DataFrame], dict[str, dict[str, str]]]:
    """Facts of these items, and labels by type."""
    products = _products(product_parts, items, notes)
    labels = {
        "item": dict(products.filter(pl.col("title") != "").select("item", "title").iter_rows())
    }
    made = list[pl.DataFrame]()
    wanted = set(config.leave_out).isdisjoint
    if wanted({"has_brand"}):
        brands = products.select("item", pl.col("brand").alias("tail"))
        made.append(_shared(brands, "has_brand", "brand", len(items), config, notes))
    levels = _levels(products, config)
    if wanted({"has_category"}):
        tails = levels.select("item", pl.col("category").alias("tail"))
        made.append(_shared(tails, "has_category", "category", len(items), config, notes))
        labels["category"] = {c: c.rsplit(" > ", 1)[-1] for c in levels["category"].unique()}
    if wanted({"has_price"}):
        prices, names = price_bins(products, levels, config.price_bins)
        made.append(prices)
        labels["price"] = names
    for relation in ("also_buy", "also_view"):
        if wanted({relation}):
            made.append(_related(products, relation, items, config, notes))
    if wanted({"has_style"}):
        made += _styles(products, len(items), config, notes)
    return made, labels


def _products(product_parts: Parts, items: pl.Series, notes: list[Note]) -> pl.DataFrame:
    """The products that somebody reviewed, each by its first line."""
    wanted = pl.DataFrame({"item": items})
    kept = [
        part.join(wanted, on="item", how="semi", maintain_order="left")
        for part in product_parts.scan()
    ]
    products = pl.concat(kept)
    first = products.unique("item", keep="first", maintain_order=True)
    if len(first) < len(products):
        again = products.filter(~pl.col("item").is_first_distinct())
        example = f"{again['item'][0]}, line {again['line'][0]}"
        notes.append(
            Note("products listed twice in the catalogue, the first kept", len(again), example)
        )
    missing = wanted.join(first, on="item", how="anti")
    if len(missing):
        notes.append(
            Note("items that the catalogue does not have", len(missing), min(missing["item"]))
        )
    return first


def fact_frame(pairs: pl.DataFrame, relation: str, tail_type: str) -> pl.DataFrame:
    """Facts of items from columns item and tail."""
    return pairs.select(
        pl.col("item").alias("head"),
        pl.lit(relation).alias("relation"),
        "tail",
        pl.lit("item").alias("head_type"),
        pl.lit(tail_type).alias("tail_type"),
    )


def _shared(
    pairs: pl.DataFrame,
    relation: str,
    tail_type: str,
    n_items: int,
    config: AmazonConfig,
    notes: list[Note],
) -> pl.DataFrame:
    """Facts whose tails neither too few nor too many items have."""
    pairs = pairs.filter(pl.col("tail").fill_null("") != "")
    counts = pairs.group_by("tail").agg(pl.col("item").n_unique().alias("n")).sort("tail")
    rare = counts.filter(pl.col("n") < config.min_items)
    hubs = counts.filter(pl.col("n") > config.hub_share * n_items)
    for few, why in (
        (rare, f"fewer than {config.min_items} items"),
        (hubs, f"more than {config.hub_share:.0%} of the items"),
    ):
        if len(few):
            what = f"{tail_type}: those that {why} have left out"
            notes.append(Note(what, len(few), few["tail"][0]))
            pairs = pairs.join(few, on="tail", how="anti", maintain_order="left")
    return fact_frame(pairs, relation, tail_type)


def _levels(products: pl.DataFrame, config: AmazonConfig) -> pl.DataFrame:
    """item, category, depth (from 1), the levels of each item in order."""
    levels = products.select("item", pl.col("categories").alias("category"))
    levels = levels.filter(pl.col("category").list.len() > 0).explode("category")
    depth = pl.col("category").str.count_matches(" > ", literal=True) + 1
    return levels.with_columns(depth.alias("depth")).filter(
        pl.col("depth") <= config.category_levels
    )


def price_bins(
    products: pl.DataFrame, levels: pl.DataFrame, bins: int
) -> tuple[pl.DataFrame, dict[str, str]]:
    """has_price facts: the quantile of a price within the item's deepest category that has
    enough priced items; and labels such as "Cases: $5.00 to $9.99"."""
    priced = products.filter(pl.col("price").is_not_null()).select("item", "price")
    root = priced.with_columns(pl.lit(ALL).alias("category"), pl.lit(0, pl.UInt32).alias("depth"))
    deep = priced.join(levels, on="item", maintain_order="left")
    places = pl.concat(
        [root, deep.select(root.columns).with_columns(pl.col("depth").cast(pl.UInt32))]
    )
    sizes = places.group_by("category").agg(pl.col("item").n_unique().alias("n"))
    fit = places.join(sizes, on="category", maintain_order="left")
    fit = fit.filter((pl.col("n") >= LEAST_PRICED) | (pl.col("depth") == 0))
    fit = fit.sort("depth", descending=True, maintain_order=True)
    fit = fit.unique("item", keep="first", maintain_order=True)
    rows, labels = list[pl.DataFrame](), dict[str, str]()
    for (category,), group in fit.partition_by(
        "category", as_dict=True, maintain_order=True
    ).items():
        # The quantiles are those of all priced items of the category, deeper ones included.
        every = places.filter(pl.col("category") == category)["price"].to_numpy()
        edges = np.unique(np.quantile(every, np.linspace(0, 1, bins + 1)[1:-1]))
        price = group["price"].to_numpy()
        place = np.searchsorted(edges, price, side="left")
        names = [f"{category}|{k + 1} of {len(edges) + 1}" for k in range(len(edges) + 1)]
        ends = [every.min(), *edges, every.max()]
        for k, name in enumerate(names):
            short = str(category).rsplit(" > ", 1)[-1]
            labels[name] = f"{short}: ${ends[k]:,.2f} to ${ends[k + 1]:,.2f}"
        rows.append(pl.DataFrame({"item": group["item"], "tail": [names[k] for k in place]}))
    pairs = pl.concat(rows) if rows else pl.DataFrame(schema={"item": pl.String, "tail": pl.String})
    return fact_frame(pairs, "has_price", "price"), labels


def _related(
    products: pl.DataFrame, relation: str, items: pl.Series, config: AmazonConfig, notes: list[Note]
) -> pl.DataFrame:
    """Links between products; those that nobody reviewed need some items that name them."""
    links = products.select("item", pl.col(relation).list.head(config.max_related).alias("tail"))
    links = links.filter(pl.col("tail").list.len() > 0).explode("tail")
    links = links.filter(pl.col("tail") != pl.col("item"))
    known = pl.DataFrame({"tail": items}).with_columns(pl.lit("item").alias("tail_type"))
    links = links.join(known, on="tail", how="left", maintain_order="left")
    links = links.with_columns(pl.col("tail_type").fill_null(RELATED))
    outside = links.filter(pl.col("tail_type") == RELATED).group_by("tail").len().sort("tail")
    rare = outside.filter(pl.col("len") < config.min_items)
    if len(rare):
        what = (
            f"{relation}: products outside that fewer than {config.min_items} items name left out"
        )
        notes.append(Note(what, len(rare), rare["tail"][0]))
        links = links.join(rare, on="tail", how="anti", maintain_order="left")
    frame = fact_frame(links, relation, RELATED)
    return frame.with_columns(links["tail_type"])


def _styles(
    products: pl.DataFrame, n_items: int, config: AmazonConfig, notes: list[Note]
) -> list[pl.DataFrame]:
    """Styles that the catalogue itself gives (the layout of 2023)."""
    styles = (
        products.select("item", "styles").filter(pl.col("styles").list.len() > 0).explode("styles")
    )
    cells = pl.col("styles").str.splitn("\t", 2).struct
    styles = styles.select(
        "item", cells.field("field_0").alias("kind"), cells.field("field_1").alias("tail")
    )
    return [
        _shared(rows.drop("kind"), f"has_style::{kind}", f"style::{kind}", n_items, config, notes)
        for (kind,), rows in styles.partition_by("kind", as_dict=True, maintain_order=True).items()
    ]
