"""The format of our own, for data too large to read from text each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger import files
from loger.data.dataset import PARTS, Dataset, Facts, Interactions, Note
from loger.errors import DataError
from loger.files import Kind, atomic_folder, check_files, read_manifest
from loger.graph import Relation, Vocabulary

SAVED = Kind("dataset", "saved data set", 2, "read the original and save it again")
TABLES = ("entities", "relations", "facts", "interactions")


def check_target(folder: Path | str, *, replace: bool) -> None:
    """Refuse to save unless the folder is new, empty, or a saved data set to ``replace``."""
    files.check_target(folder, SAVED, replace=replace)


def save(dataset: Dataset, folder: Path | str) -> None:
    """Write a data set as four Parquet files and a manifest, all or nothing."""
    about = {
        "name": dataset.name,
        "types": dataset.vocabulary.types,
        "notes": [(note.what, note.count, note.example) for note in dataset.notes],
    }
    with atomic_folder(folder, SAVED, about) as part:
        for name, table in zip(TABLES, _tables(dataset), strict=True):
            table.write_parquet(part / f"{name}.parquet")


def _tables(dataset: Dataset) -> tuple[pl.DataFrame, ...]:
    """The content, in the order of ``TABLES``."""
    words, facts, interactions = dataset.vocabulary, dataset.facts, dataset.interactions
    types = pl.Series(words.types)[np.repeat(np.arange(len(words.types)), np.diff(words.offsets))]
    columns = {
        "user": interactions.users,
        "item": interactions.items,
        "rating": interactions.ratings,
        "time": interactions.times,
        "part": interactions.parts,
    }
    relations = [(r.name, r.head_type, r.tail_type) for r in dataset.relations]
    return (
        pl.DataFrame({"type": types, "name": words.names, "label": words.labels}),
        pl.DataFrame(relations, schema=["name", "head_type", "tail_type"], orient="row"),
        pl.DataFrame(
            {
                "head": facts.heads,
                "relation": facts.relations,
                "tail": facts.tails,
                "source": facts.sources,
            }
        ),
        pl.DataFrame({k: v for k, v in columns.items() if v is not None}),
    )


def read(folder: Path) -> Dataset:
    """The data set that ``save`` wrote; one that is incomplete or damaged is an error."""
    manifest = read_manifest(folder, SAVED)
    check_files(folder, manifest, SAVED)
    entities, relations, facts, interactions = (
        pl.read_parquet(folder / f"{name}.parquet") for name in TABLES
    )
    about = manifest.about
    of_type = {t: entities.filter(pl.col("type") == t) for t in about["types"]}
    optional = (
        interactions[c].to_numpy() if c in interactions.columns else None
        for c in ("rating", "time", "part")
    )
    dataset = Dataset(
        name=about["name"],
        vocabulary=Vocabulary(
            {t: rows["name"].to_list() for t, rows in of_type.items()},
            {t: rows["label"].to_list() for t, rows in of_type.items()},
        ),
        relations=tuple(Relation(*row) for row in relations.iter_rows()),
        facts=Facts(*(facts[c].to_numpy() for c in ("head", "relation", "tail", "source"))),
        interactions=Interactions(
            *(interactions[c].to_numpy() for c in ("user", "item")), *optional
        ),
        notes=tuple(Note(*note) for note in about["notes"]),
    )
    _check_ranges(dataset, folder)
    return dataset


def _check_ranges(dataset: Dataset, folder: Path) -> None:
    """Every number must be that of something that exists."""
    facts, interactions, n = dataset.facts, dataset.interactions, len(dataset.vocabulary)
    parts = np.zeros(0, dtype=np.int8) if interactions.parts is None else interactions.parts
    checks: list[tuple[str, str, NDArray[np.integer], int, int]] = [
        ("facts", "head", facts.heads, 0, n),
        # Relation 0 is the interaction; as a fact it would leak what is held out (METHOD L1).
        ("facts", "relation", facts.relations, 1, len(dataset.relations)),
        ("facts", "tail", facts.tails, 0, n),
        ("facts", "source", facts.sources, -1, len(interactions)),
        ("interactions", "user", interactions.users, 0, dataset.n_users),
        ("interactions", "item", interactions.items, 0, dataset.n_items),
        ("interactions", "part", parts, 0, len(PARTS)),
    ]
    for table, column, values, low, high in checks:
        wrong = np.flatnonzero((values < low) | (values >= high))
        if len(wrong):
            raise DataError(
                f"row {int(wrong[0])}: {column} must lie in {low} … {high - 1}",
                path=folder / f"{table}.parquet",
                value=int(values[wrong[0]]),
                remedy="correct the data set and save it again",
            )
