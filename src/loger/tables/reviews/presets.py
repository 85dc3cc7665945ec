"""The paper's three data sets: the settings that come nearest, and its statistics to compare.

The paper gives neither filters nor thresholds, only what came out (its appendix). That nearly
all items of Amazon's 5-core files are left, but less than half of the users, says that users
were cut harder and items not again; 7 is the cut that fits the published counts of the 5-core
files best. It is an estimate: the statistics printed beside the paper's say how near it comes.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from loger.data.dataset import Dataset
from loger.errors import UnknownNameError
from loger.tables.reviews.amazon import AmazonConfig


@dataclass(frozen=True)
class Statistics:
    """The size of a data set, as the paper's appendix counts it."""

    users: int
    items: int
    interactions: int
    entities: int
    relations: int
    triples: int


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
    """The statistics of a data set; a fact that several reviews tell counts once."""
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
