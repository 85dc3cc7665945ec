"""From the raw reviews and catalogue of Amazon's dumps to a data set with a knowledge graph.

The relations are those of the paper's data (METHOD 10): purchase; (user, mentions, feature) and
(item, has_feature, feature), a feature being ``aspect|opinion|±1``; has_brand, has_category,
has_price, also_buy, also_view; has_style::X and like_style::X. What a review says carries the
review as its source, so that no split leaks it (METHOD L1-L3). ``PRESETS`` are the settings that
come nearest to the paper's three data sets, with its statistics to compare.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import get_args

import polars as pl

from loger.data.assemble import NO_FACTS, PAIR, assemble, in_core
from loger.data.dataset import Dataset, Note
from loger.data.readers.plain import Source, read_interactions
from loger.data.table_files import note
from loger.engine import Progress, silent
from loger.errors import DataError, LogerError, UnknownNameError
from loger.tables.reviews import parts, review_facts
from loger.tables.reviews.aspects import Extractor
from loger.tables.reviews.layouts import Tally
from loger.tables.reviews.parts import Parts

RELATIONS = (
    "mentions", "has_feature", "has_brand", "has_category", "has_price",
    "also_buy", "also_view", "has_style", "like_style",
)  # fmt: skip

PATTERNS = "loger.tables.reviews.aspects:mentions"
"""The extractor that comes with loger."""


@dataclass(frozen=True)
class AmazonConfig:
    """Which parts of the raw data enter the graph."""

    user_core: int = 5
    """Items that a user must have; with fewer there is nothing to hold out and learn from."""
    item_core: int = 5
    """Users that an item must have; Amazon's own 5-core files are cut so."""
    min_rating: float | None = None
    """Reviews with fewer stars don't count as purchases; None counts all, like the paper."""
    min_mentions: int = 5
    """Reviews that a feature or style must occur in; rarer ones are mostly errors of the miner."""
    min_items: int = 2
    """Items that a brand, category or product outside the catalogue must have; with one it
    links nothing to anything."""
    hub_share: float = 0.5
    """A brand, category, feature or style that more than this share of the items (or users)
    have is left out: it tells hardly anyone apart, and most paths would lead through it."""
    leave_out: tuple[str, ...] = field(default=())
    """Relations to leave out."""

    def __post_init__(self) -> None:
        for name in self.leave_out:
            if name not in RELATIONS:
                raise UnknownNameError("relation", name, RELATIONS)
        for setting in fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, int) and value < 1:
                raise LogerError(f"{setting.name} must be at least 1, got {value!r}")
        if not 0 < self.hub_share <= 1:
            raise LogerError(f"hub_share must be above 0 and at most 1, got {self.hub_share!r}")


def build(
    reviews: Path | str,
    meta: Path | str | None = None,
    *,
    work: Path | str,
    config: AmazonConfig | None = None,
    extractor: Extractor | str | None = PATTERNS,
    mentions_file: Path | str | None = None,
    parts_file: Path | str | None = None,
    strict: bool = False,
    workers: int = 1,
    name: str | None = None,
    progress: Progress = silent,
) -> Dataset:
    """The data set of raw reviews and, if given, a catalogue.

    Both are read in blocks of lines whose results stay in the folder ``work``: an interrupted
    build goes on from there, and one with another config begins where mining ended. With
    ``workers`` > 1 blocks are mined in processes of their own, so a script must guard its
    main part by ``if __name__ == "__main__"``. ``extractor`` mines the texts: a function, or
    its name as module:function; None mines nothing. ``mentions_file`` holds mentions that
    were mined elsewhere, as lines user,item,aspect:opinion:polarity,…; ``parts_file`` a split
    made elsewhere, as a table of user, item and part.
    """
    config, work = config or AmazonConfig(), Path(work)
    if mentions_file is not None or {"mentions", "has_feature"} <= set(config.leave_out):
        extractor = None
    named = extractor if isinstance(extractor, str) else parts.name_of(extractor)
    if named:
        parts.named_extractor(named)  # an error before work starts, not in the workers
    make = partial(parts.make, work=work, strict=strict, workers=workers, progress=progress)
    review_parts = make("reviews", Path(reviews), extractor=named)
    products = None if meta is None else make("products", Path(meta), extractor="")
    notes = _notes(review_parts) + ([] if products is None else _notes(products))
    interactions = _interactions(review_parts, config, notes)
    if parts_file is not None:
        interactions = _with_parts(interactions, Path(parts_file), notes)
    progress("making the graph", 0, 3)
    facts, features = review_facts.of_reviews(
        review_parts, interactions, config, notes, mentions_file
    )
    progress("making the graph", 1, 3)
    labels = {"feature": features}
    if products is not None:
        more, names = review_facts.of_products(
            products, interactions["item"].unique(), config, notes
        )
        facts += more
        labels |= names
    progress("making the graph", 2, 3)
    dataset = assemble(
        name or Path(reviews).name.split(".")[0],
        interactions.drop("row"),
        pl.concat([NO_FACTS, *facts], how="diagonal"),
        interaction="purchase",
        labels=labels,
        notes=notes,
        path=Path(reviews),
    )
    progress("making the graph", 3, 3)
    return dataset


def clear(work: Path) -> None:
    """Take away the parts that were kept for a build to go on; nothing else that lies there."""
    for kind in get_args(parts.Kind):
        for folder in work.glob(f"{kind}-????????"):
            rmtree(folder)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()


def _interactions(review_parts: Parts, config: AmazonConfig, notes: list[Note]) -> pl.DataFrame:
    """The reviews that stay, in the order of the file: line, user, item, rating, time, and the
    number of each among all reviews that could be read, as ``row``."""
    interactions = review_parts.column("line", "user", "item", "rating", "time").with_row_index(
        "row"
    )
    if config.min_rating is not None:
        low = interactions.filter(pl.col("rating") < config.min_rating)
        note(notes, f"reviews with fewer than {config.min_rating:g} stars left out", low, *PAIR)
        interactions = interactions.filter(pl.col("rating") >= config.min_rating)
    stay = in_core(interactions, config.user_core, config.item_core)
    limits = f"{config.user_core} items per user, {config.item_core} users per item"
    gone = interactions.filter(~stay)
    note(notes, f"reviews outside the core ({limits}) left out", gone, *PAIR)
    interactions = interactions.filter(stay)
    if not len(interactions):
        raise DataError(
            f"no reviews are left: no group of them has at least {config.user_core} items per user "
            f"and {config.item_core} users per item",
            path=review_parts.path,
            remedy="lower these limits: --set user_core=2 --set item_core=2",
        )
    return interactions


def _with_parts(interactions: pl.DataFrame, path: Path, notes: list[Note]) -> pl.DataFrame:
    """The reviews with the part of each pair, as a file says it; others are left out."""
    parted = read_interactions(Source(path), notes)
    if "part" not in parted.columns:
        raise DataError(
            "there is no column part",
            path=path,
            remedy="use the columns user, item and part (train, validation or test)",
        )
    parted = parted.select("user", "item", "part").unique(["user", "item"], maintain_order=True)
    joined = interactions.join(parted, on=["user", "item"], how="left", maintain_order="left")
    without = joined.filter(pl.col("part").is_null())
    note(
        notes,
        f"reviews left out because {path.name} doesn't say which part they are in",
        without,
        *PAIR,
    )
    strange = parted.join(interactions, on=["user", "item"], how="anti", maintain_order="left")
    note(notes, f"pairs in {path.name} without a review left out", strange, *PAIR)
    return joined.drop_nulls("part")


def _notes(source: Parts) -> list[Note]:
    """What was wrong in a file, by kind, with the first line of each."""
    tally: Tally = source.tally
    return [
        Note(
            f"{source.path.name}: {kind}"
            if kind.startswith(parts.FIELD)
            else f"lines of {source.path.name} left out: {kind}",
            count,
            f"line {line}: {value}",
        )
        for kind, (count, line, value) in sorted(tally.kinds.items())
    ]


@dataclass(frozen=True)
class Statistics:
    """The size of a data set, as the paper's appendix counts it."""

    users: int
    items: int
    interactions: int
    entities: int
    relations: int
    triples: int


# The paper gives neither filters nor thresholds, only what came out (its appendix). That nearly all
# items of Amazon's 5-core files are left, but less than half of the users, says that users were cut
# harder and items not again; 7 is the cut that fits the published counts of the 5-core files best.
# It is an estimate: the statistics printed next to the paper's show how close it comes.
_CONFIG = AmazonConfig(user_core=7, item_core=1)


@dataclass(frozen=True)
class Preset:
    """One of the paper's data sets."""

    reviews: str
    """The file of the dump of 2018 that holds its reviews."""
    meta: str
    paper: Statistics
    config: AmazonConfig = _CONFIG


PRESETS = {
    "cellphones": Preset(
        "Cell_Phones_and_Accessories_5.json.gz",
        "meta_Cell_Phones_and_Accessories.json.gz",
        Statistics(61_254, 47_604, 607_673, 169_331, 45, 3_117_051),
    ),
    "grocery": Preset(
        "Grocery_and_Gourmet_Food_5.json.gz",
        "meta_Grocery_and_Gourmet_Food.json.gz",
        Statistics(57_822, 40_694, 709_280, 173_369, 45, 3_742_954),
    ),
    "automotive": Preset(
        "Automotive_5.json.gz",
        "meta_Automotive.json.gz",
        Statistics(95_445, 78_557, 1_122_776, 270_543, 73, 4_580_318),
    ),
}


def preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    return PRESETS[name]


def count(dataset: Dataset) -> Statistics:
    """The statistics of a data set; a fact that several reviews state counts once."""
    facts = dataset.facts
    triples = pl.DataFrame({"h": facts.heads, "r": facts.relations, "t": facts.tails})
    return Statistics(
        users=dataset.n_users,
        items=dataset.n_items,
        interactions=len(dataset.interactions),
        entities=len(dataset.vocabulary),
        relations=len(dataset.relations),
        triples=triples.n_unique() + len(dataset.interactions),
    )
