"""Reviews with sentiment: ratings, and what each review says about which aspect.

``rating.txt`` is user,item,rating,time. ``sentiment.txt`` is user,item,aspect:opinion:polarity,…:
the mentions of one review. Each makes two facts, (user, mentions, feature) and
(item, described_as, feature), known from that interaction only, so that a held-out review
takes its mentions with it. ``also_viewed.txt`` and ``bought_together.txt`` are
head,tail,tail,…; products that nobody rated are of type related_product.
``item_short_names.txt`` gives labels. Mentions of a pair that has no rating are left out
and noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from loger.data import table_files
from loger.data.assemble import assemble
from loger.data.dataset import Dataset, Note
from loger.data.times import seconds

_MOODS = {"+1": "good", "0": "neutral", "-1": "bad"}
_RELATIONS = ("also_viewed", "bought_together")


def read(folder: Path, *, min_rating: float | None = None, name: str | None = None) -> Dataset:
    """The data set of a folder in this layout."""
    notes = list[Note]()
    path = table_files.need(folder, "rating.txt")
    interactions = table_files.read_table(path, ("user", "item", "rating", "time"))
    interactions = table_files.filled(interactions, ("user", "item"), path)
    interactions = seconds(
        table_files.number(interactions, "rating", pl.Float64, path), "time", path
    )
    mentions = read_mentions(table_files.need(folder, "sentiment.txt"), interactions, notes)
    facts = [
        mentions.select(
            "line", "file", "source", pl.col(kind).alias("head"), pl.col("feature").alias("tail"),
            relation=pl.lit(relation), head_type=pl.lit(kind), tail_type=pl.lit("feature"),
        )
        for kind, relation in (("user", "mentions"), ("item", "described_as"))
    ]  # fmt: skip
    items = interactions["item"].unique(maintain_order=True)
    facts += [
        _read_related(related, relation, items)
        for relation in _RELATIONS
        if (related := table_files.find(folder, f"{relation}.txt"))
    ]
    return assemble(
        name or folder.resolve().name,
        interactions,
        pl.concat(facts, how="diagonal"),
        interaction="purchase",
        labels={
            "item": table_files.read_short_names(table_files.find(folder, "item_short_names.txt")),
            "feature": feature_labels(mentions["feature"].unique()),
        },
        min_rating=min_rating,
        notes=notes,
        path=path,
        facts_path=folder,
    )


def read_mentions(path: Path, interactions: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    """One row per mention: line, user, item, feature, its label, and the row of the rating."""
    cells = table_files.read_lists(path, ",")
    heads = [
        cells.filter(pl.col("place") == k).select("line", pl.col("value").alias(column))
        for k, column in enumerate(("user", "item"))
    ]
    short = heads[0].filter(~pl.col("line").is_in(heads[1]["line"].implode()))
    what = "each line should be user,item,aspect:opinion:polarity,…"
    remedy = "complete the line or remove it"
    table_files.refuse(short, what, path, "user", remedy=remedy)
    pairs = heads[0].join(heads[1], on="line", maintain_order="left")
    rows = interactions.select("user", "item").with_row_index("source")
    rows = rows.unique(["user", "item"], keep="first", maintain_order=True)
    pairs = pairs.join(rows, on=["user", "item"], how="left", maintain_order="left")
    mentions = cells.filter(pl.col("place") >= 2).join(pairs, on="line", maintain_order="left")
    mentions = _with_features(mentions, path).with_columns(file=pl.lit(path.name))
    stray = mentions.filter(pl.col("source").is_null())
    table_files.note(notes, "mentions of pairs without a rating left out", stray, "user", "item")
    return mentions.drop_nulls("source").with_columns(pl.col("source").cast(pl.Int64))


def _with_features(mentions: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Mentions with the feature they name."""
    parts = mentions["value"].str.extract_groups(r"^([^:]+):([^:]+):([+-]?[01])$").struct
    aspect, opinion, polarity = (parts.field(str(k)) for k in (1, 2, 3))
    bad = mentions.filter(polarity.is_null())
    what = "a mention should be aspect:opinion:polarity with a polarity of -1, 0 or 1"
    remedy = "fix the mention or remove it"
    table_files.refuse(bad, what, path, "value", remedy=remedy)
    sign = polarity.cast(pl.Int8).cast(pl.String).replace("1", "+1")
    return mentions.with_columns((aspect + "|" + opinion + "|" + sign).alias("feature"))


def feature_name(aspect: str, opinion: str, polarity: int) -> str:
    """The name of a feature, ``aspect|opinion|±1``.

    >>> feature_name("battery life", "short", -1)
    'battery life|short|-1'
    """
    clean = (part.replace("|", " ").strip() for part in (aspect, opinion))
    return f"{'|'.join(clean)}|{'+1' if polarity > 0 else '-1' if polarity < 0 else '0'}"


def feature_labels(names: Iterable[str]) -> dict[str, str]:
    """Features as people read them.

    >>> feature_labels(["battery life|short|-1"])
    {'battery life|short|-1': 'battery life: short (bad)'}
    """
    out = {}
    for name in names:
        aspect, opinion, sign = name.rsplit("|", 2)
        out[name] = f"{aspect}: {opinion} ({_MOODS.get(sign, sign)})"
    return out


def _read_related(path: Path, relation: str, items: pl.Series) -> pl.DataFrame:
    """Facts between products, from lines of a head and its tails."""
    heads, facts = table_files.read_heads(path, "head", "tail", ",")
    facts = facts.join(heads, on="line", maintain_order="left")
    is_item = {side: pl.col(side).is_in(items.implode()) for side in ("head", "tail")}
    kinds = (
        table_files.kind_if(condition, f"{side}_type", "item", "related_product")
        for side, condition in is_item.items()
    )
    return facts.with_columns(*kinds, relation=pl.lit(relation), file=pl.lit(path.name))
