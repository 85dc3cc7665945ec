"""loger's own format: Parquet files and a manifest, which load faster than text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data.dataset import PARTS, Dataset, Facts, Interactions, Note
from loger.data.table_files import MARK, read_parquet_table
from loger.engine import files
from loger.engine.files import Kind, atomic_folder, check_files, read_manifest
from loger.errors import DataError, LogerError
from loger.graph import Relation, Vocabulary
from loger.graph.catalogue import Catalogue, FilterOnlyColumn

SAVED = Kind("dataset", "saved data set", 2, "load the original data and save it again")
TABLES = ("entities", "relations", "facts", "interactions")
CATALOGUE, IMAGE = "catalogue", "(image)"
_TEXTS = {
    "entities": {"type", "name", "label"},
    "relations": {"name", "head_type", "tail_type"},
    CATALOGUE: {"relation", "type", "value"},
}
"""Columns of texts, by table; all others are of numbers."""
_MISUNDERSTOOD = (
    AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError,
    pl.exceptions.PanicException, pl.exceptions.PolarsError,
)  # fmt: skip
"""Errors of manifests and tables that have right checksums but that loger didn't write."""


def check_target(folder: Path | str, *, replace: bool) -> None:
    """Refuse to save unless the folder is new, empty, or a saved data set to ``replace``."""
    files.check_target(folder, SAVED, replace=replace)


def save(dataset: Dataset, folder: Path | str) -> None:
    """Write a data set as four Parquet files and a manifest, all or nothing."""
    about = {
        "name": dataset.name,
        "types": dataset.vocabulary.types,
        "notes": [(note.what, note.count, note.example) for note in dataset.notes],
        "mapping": dataset.catalogue.mapping,
        **({"counted": True} if dataset.interactions.counted else {}),
        **({"integers": sorted(ints)} if (ints := dataset.vocabulary.integers) else {}),
    }
    with atomic_folder(folder, SAVED, about) as part:
        for name, table in zip(TABLES, _tables(dataset), strict=True):
            table.write_parquet(part / f"{name}.parquet", metadata={MARK: SAVED.name})
        if dataset.catalogue.filter_only or dataset.catalogue.images:
            catalogue = _catalogue_table(dataset.catalogue)
            catalogue.write_parquet(part / f"{CATALOGUE}.parquet", metadata={MARK: SAVED.name})


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
        "strength": interactions.strengths,
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
                **({} if facts.times is None else {"time": facts.times}),
            }
        ),
        pl.DataFrame({k: v for k, v in columns.items() if v is not None}),
    )


def _catalogue_table(catalogue: Catalogue) -> pl.DataFrame:
    """Items, by number, with values that are not in the graph, and their pictures."""
    rows = [
        (column.relation, column.type, column.values[place], item)
        for column in catalogue.filter_only
        for place, item in zip(column.places.tolist(), column.items.tolist(), strict=True)
    ]
    rows += [(IMAGE, IMAGE, file, item) for item, file in catalogue.images.items()]
    schema = {"relation": pl.String, "type": pl.String, "value": pl.String, "item": pl.Int32}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _catalogue(folder: Path, mapping: Mapping[str, Any] | None) -> Catalogue:
    """The catalogue of the table that ``_catalogue_table`` made; empty without a table."""
    path = folder / f"{CATALOGUE}.parquet"
    if not path.is_file():
        return Catalogue(mapping=mapping)
    table = _table(path)
    images = dict(table.filter(pl.col("relation") == IMAGE).select("item", "value").iter_rows())
    rest = table.filter(pl.col("relation") != IMAGE)
    filter_only = tuple(
        FilterOnlyColumn.of(str(relation), str(kind), rows.select("value", "item").iter_rows())
        for (relation, kind), rows in rest.group_by("relation", "type", maintain_order=True)
    )
    return Catalogue(filter_only, images, mapping)


def read(folder: Path) -> Dataset:
    """The data set that ``save`` wrote; one that is incomplete or damaged is an error."""
    manifest = read_manifest(folder, SAVED)
    check_files(folder, manifest, SAVED)
    try:
        return _parsed(folder, manifest.about)
    except LogerError:
        raise
    except _MISUNDERSTOOD as error:
        raise DataError(
            f"can't read the data set ({error!r:.200})", path=folder, remedy=SAVED.remedy
        ) from error


def _table(path: Path) -> pl.DataFrame:
    """A table whose columns have the right types and no empty cells."""
    table, texts = read_parquet_table(path), _TEXTS.get(path.stem, ())
    for name, dtype in table.schema.items():
        if not (dtype == pl.String if name in texts else dtype.is_numeric()):
            what = f"{name} must contain {'text' if name in texts else 'numbers'}, not {dtype}"
            raise DataError(what, path=path, remedy=SAVED.remedy)
    for column in table:
        if column.null_count():
            raise DataError(f"{column.name} has empty cells", path=path, remedy=SAVED.remedy)
    return table


def _parsed(folder: Path, about: Mapping[str, Any]) -> Dataset:
    entities, relations, facts, interactions = (
        _table(folder / f"{name}.parquet") for name in TABLES
    )
    if not all(isinstance(t, str) for t in about["types"]):
        raise TypeError(f"types must be text, got {about['types']!r}")
    of_type = {t: entities.filter(pl.col("type") == t) for t in about["types"]}
    ratings, times, parts, strengths = (
        interactions[c].to_numpy() if c in interactions.columns else None
        for c in ("rating", "time", "part", "strength")
    )
    dataset = Dataset(
        name=about["name"],
        vocabulary=Vocabulary(
            {t: rows["name"].to_list() for t, rows in of_type.items()},
            {t: rows["label"].to_list() for t, rows in of_type.items()},
            [t for t in about.get("integers", ()) if t in of_type],
        ),
        relations=tuple(Relation(*row) for row in relations.iter_rows()),
        facts=Facts(
            *(facts[c].to_numpy() for c in ("head", "relation", "tail", "source")),
            times=facts["time"].to_numpy() if "time" in facts.columns else None,
        ),
        interactions=Interactions(
            interactions["user"].to_numpy(),
            interactions["item"].to_numpy(),
            ratings,
            times,
            parts,
            strengths,
            about.get("counted") is True,
        ),
        notes=tuple(Note(*note) for note in about["notes"]),
        catalogue=_catalogue(folder, about.get("mapping")),
    )
    _check_ranges(dataset, folder)
    dataset.catalogue.check(dataset.n_items)
    return dataset


def _check_ranges(dataset: Dataset, folder: Path) -> None:
    """Refuse numbers that point to nothing."""
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
        if values.dtype.kind not in "iu":
            raise DataError(
                f"{column} must contain whole numbers, not {values.dtype}",
                path=folder / f"{table}.parquet",
                remedy=SAVED.remedy,
            )
        wrong = np.flatnonzero((values < low) | (values >= high))
        if len(wrong):
            raise DataError(
                f"row {int(wrong[0])}: {column} must be from {low} to {high - 1}",
                path=folder / f"{table}.parquet",
                value=int(values[wrong[0]]),
                remedy="fix the data set and save it again",
            )
