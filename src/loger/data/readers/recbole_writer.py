"""A data set as RecBole's atomic files, which RecBole, hopwise and ``recbole.read`` take.

    NAME.inter   user_id, item_id, rating, timestamp; NAME.train.inter and so on for a given split
    NAME.kg      head_id, relation_id, tail_id: all facts but those of users
    NAME.link    which entity of .kg each item is
    NAME.item    item_id, item_name, where items have labels
    NAME.user    user_id, user_name, and a column for each relation of users

RecBole's entities have no types: those of other types than item are called ``type:name``, so that
a brand and a category of one name stay two. What a single interaction tells (a mention in a review)
has no place in these files and is left out; the answer says how much.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data.dataset import Dataset
from loger.engine.files import atomic_file
from loger.errors import DataError
from loger.graph import INTERACTION

_ENDINGS = ("train", "valid", "test")


def write(dataset: Dataset, folder: Path | str) -> dict[str, int]:
    """Write the files; rows of each, and under ``left out`` facts that have no place in them."""
    folder, name = Path(folder), dataset.name
    if folder.is_dir() and any(folder.iterdir()):
        raise DataError("is not empty", path=folder, remedy="give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    facts = dataset.facts
    known = facts.sources < 0
    of_users = facts.heads < dataset.n_users
    files = {
        **_interactions(dataset),
        f"{name}.kg": _graph(dataset, np.flatnonzero(known & ~of_users)),
        f"{name}.link": _links(dataset),
        f"{name}.item": _labels(dataset, "item"),
        f"{name}.user": _users(dataset, np.flatnonzero(known & of_users)),
    }
    for file, table in files.items():
        with atomic_file(folder / file) as part:
            table.write_csv(part, separator="\t", quote_style="never")
    return {file: len(table) for file, table in files.items()} | {"left out": int((~known).sum())}


def _interactions(dataset: Dataset) -> dict[str, pl.DataFrame]:
    given = dataset.interactions
    names, first = _cleaned(dataset.vocabulary.names), dataset.n_users
    columns = {
        "user_id:token": names.gather(given.users),
        "item_id:token": names.gather(given.items + first),
    }
    if given.ratings is not None:
        columns["rating:float"] = pl.Series(given.ratings)
    if given.strengths is not None:
        columns["strength:float"] = pl.Series(given.strengths)
    if given.times is not None:
        columns["timestamp:float"] = pl.Series(given.times)
    table = pl.DataFrame(columns)
    if given.parts is None:
        return {f"{dataset.name}.inter": table}
    return {
        f"{dataset.name}.{ending}.inter": table.filter(pl.Series(given.parts == part))
        for part, ending in enumerate(_ENDINGS)
    }


def _graph(dataset: Dataset, rows: NDArray[np.int64]) -> pl.DataFrame:
    facts, entities = dataset.facts, _entities(dataset)
    relations = _cleaned([relation.name for relation in dataset.relations])
    return pl.DataFrame(
        {
            "head_id:token": entities.gather(facts.heads[rows]),
            "relation_id:token": relations.gather(facts.relations[rows]),
            "tail_id:token": entities.gather(facts.tails[rows]),
        }
    )


def _links(dataset: Dataset) -> pl.DataFrame:
    items = _cleaned([dataset.vocabulary.names[e] for e in dataset.vocabulary.span("item")])
    return pl.DataFrame({"item_id:token": items, "entity_id:token": items})


def _labels(dataset: Dataset, kind: str) -> pl.DataFrame:
    words, span = dataset.vocabulary, dataset.vocabulary.span(kind)
    return pl.DataFrame(
        {
            f"{kind}_id:token": _cleaned([words.names[e] for e in span]),
            f"{kind}_name:token_seq": _cleaned([words.labels[e] for e in span]),
        }
    )


def _users(dataset: Dataset, rows: NDArray[np.int64]) -> pl.DataFrame:
    """The users, with what is known of them; values are words, so their spaces become ``_``."""
    facts, table = dataset.facts, _labels(dataset, "user")
    values = _cleaned(dataset.vocabulary.names).str.replace_all(r"\s", "_")
    for r, relation in enumerate(dataset.relations):
        of_relation = rows[facts.relations[rows] == r]
        if r == INTERACTION or not len(of_relation):
            continue
        said = pl.DataFrame(
            {"user": facts.heads[of_relation], "value": values.gather(facts.tails[of_relation])}
        )
        said = said.group_by("user", maintain_order=True).agg(pl.col("value").str.join(" "))
        told = dict(said.iter_rows())
        column = [told.get(u, "") for u in range(dataset.n_users)]
        table = table.with_columns(pl.Series(f"{relation.name}:token_seq", column))
    return table


def _entities(dataset: Dataset) -> pl.Series:
    """The names of all entities in .kg: items under their own, others with their type."""
    words = dataset.vocabulary
    kinds = {kind: words.span(kind) for kind in words.types}
    names = list(words.names)
    for kind, span in kinds.items():
        if kind not in ("user", "item"):
            names[span.start : span.stop] = [f"{kind}:{words.names[e]}" for e in span]
    return _cleaned(names)


def _cleaned(names: list[str]) -> pl.Series:
    """Names without the signs that divide cells and rows."""
    return pl.Series(names, dtype=pl.String).str.replace_all(r"[\t\r\n]", " ")
