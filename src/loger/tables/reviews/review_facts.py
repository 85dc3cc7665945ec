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

from loger.data.assemble import facts_of, without_rare_and_hubs
from loger.data.dataset import Note
from loger.data.readers.sentiment import feature_labels, read_mentions
from loger.data.table_files import note
from loger.tables.reviews.parts import Parts

if TYPE_CHECKING:
    from loger.tables.reviews.amazon import AmazonConfig


CATEGORY_LEVELS = 5
"""Levels of the category tree; what stands deeper are mostly scraped features."""
MAX_RELATED = 50
"""also_buy and also_view links taken per item, in the dump's order, best first."""
PRICE_BINS = 5
"""Quantile bins of the price within a category."""
LEAST_PRICED = 50
"""Priced items that a category needs for bins of its own; else its parent's are taken."""


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
        styles = _spoken(review_parts, kept, "styles", config.min_mentions, notes)
        styles = _capped(styles, interactions, config, "styles", notes)
        cells = pl.col("value").str.splitn("\t", 2).struct
        styles = styles.with_columns(
            cells.field("field_0").alias("kind"), cells.field("field_1").alias("value")
        )
        for (kind,), rows in styles.partition_by("kind", as_dict=True, maintain_order=True).items():
            names = [f"{relation}::{kind}" for relation in wanted]
            made += _both_sides(rows, interactions, names, f"style::{kind}")
    return made, labels


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
    """Values that occur in at least ``least`` of the remaining reviews: source, value.

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
        kinds = (
            f"{what} left out because fewer than {least} reviews have them ({len(rare):,} kinds)"
        )
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
        share = f"more than {config.hub_share:.0%} of the {side}s have them"
        note(notes, f"{what} left out because {share}", hubs["value"].str.replace("\t", " "))
        spoken = spoken.join(hubs, on="value", how="anti", maintain_order="left")
    return spoken


def _both_sides(
    spoken: pl.DataFrame, interactions: pl.DataFrame, relations: Sequence[str], tail_type: str
) -> list[pl.DataFrame]:
    """One fact of the user and one of the item, as far as the relations are wanted."""
    sides = {"mentions": "user", "like_style": "user", "has_feature": "item", "has_style": "item"}
    out, source = [], spoken["source"]
    for relation in relations:
        side = sides[relation.split("::")[0]]
        pairs = {"head": interactions[side].gather(source), "tail": spoken["value"]}
        facts = facts_of(pl.DataFrame(pairs), relation, side, tail_type)
        out.append(facts.with_columns(source.cast(pl.Int64).alias("source")))
    return out


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
    levels = _levels(products)
    if wanted({"has_category"}):
        tails = levels.select("item", pl.col("category").alias("tail"))
        made.append(_shared(tails, "has_category", "category", len(items), config, notes))
        labels["category"] = {c: c.rsplit(" > ", 1)[-1] for c in levels["category"].unique()}
    if wanted({"has_price"}):
        prices, names = price_bins(products, levels, PRICE_BINS)
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
        pl.read_parquet(file).join(wanted, on="item", how="semi", maintain_order="left")
        for file in product_parts.files
    ]
    products = pl.concat(kept)
    first = pl.col("item").is_first_distinct()
    again = products.filter(~first)
    note(notes, "products listed twice in the catalogue, keeping the first", again, "item")
    missing = wanted.join(products, on="item", how="anti")["item"].sort()
    note(notes, "items missing from the catalogue", missing)
    return products.filter(first)


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
    limits = config.min_items, config.hub_share, n_items
    pairs = without_rare_and_hubs(pairs, tail_type, *limits, "items", notes, head="item")
    return facts_of(pairs, relation, "item", tail_type, "item")


def _levels(products: pl.DataFrame) -> pl.DataFrame:
    """item, category, depth (from 1), the levels of each item in order."""
    levels = products.select("item", pl.col("categories").alias("category"))
    levels = levels.filter(pl.col("category").list.len() > 0).explode("category")
    depth = pl.col("category").str.count_matches(" > ", literal=True) + 1
    return levels.with_columns(depth.alias("depth")).filter(pl.col("depth") <= CATEGORY_LEVELS)


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
    return facts_of(pairs, "has_price", "item", "price", "item"), labels


def _related(
    products: pl.DataFrame, relation: str, items: pl.Series, config: AmazonConfig, notes: list[Note]
) -> pl.DataFrame:
    """Links between products. A product without reviews needs several items that link to it."""
    links = products.select("item", pl.col(relation).list.head(MAX_RELATED).alias("tail"))
    links = links.filter(pl.col("tail").list.len() > 0).explode("tail")
    links = links.filter(pl.col("tail") != pl.col("item"))
    known = pl.DataFrame({"tail": items}).with_columns(pl.lit("item").alias("tail_type"))
    links = links.join(known, on="tail", how="left", maintain_order="left")
    links = links.with_columns(pl.col("tail_type").fill_null(RELATED))
    outside = links.filter(pl.col("tail_type") == RELATED).group_by("tail").len().sort("tail")
    rare = outside.filter(pl.col("len") < config.min_items)
    few = f"because fewer than {config.min_items} items name them"
    note(notes, f"{relation}: products outside the catalogue left out {few}", rare["tail"])
    links = links.join(rare, on="tail", how="anti", maintain_order="left")
    frame = facts_of(links, relation, "item", RELATED, "item")
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
