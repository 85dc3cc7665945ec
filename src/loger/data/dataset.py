"""What every reader gives: entities, facts, interactions, and what was mended on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.errors import DataError
from loger.graph import INTERACTION, KnowledgeGraph, Relation, Vocabulary

TRAIN, VALIDATION, TEST = 0, 1, 2
PARTS = ("train", "validation", "test")

MANIFEST = "loger-dataset.json"
"""The file by which a folder that ``Dataset.save`` wrote is known."""

SAVE_AGAIN = "save it again with Dataset.save"


@dataclass(frozen=True, slots=True)
class Note:
    """Something in the input that was handled rather than refused, so that nothing is silent."""

    what: str
    count: int
    example: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.count:,}" + (
            f" (first: {self.example})" if self.example else ""
        )


@dataclass(frozen=True, eq=False)
class Interactions:
    """User–item events, one per pair; users and items are numbered from 0 within their type."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    ratings: NDArray[np.float32] | None = None
    times: NDArray[np.int64] | None = None
    parts: NDArray[np.int8] | None = None
    """The split that the data brings: TRAIN, VALIDATION or TEST per row."""

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True, eq=False)
class Facts:
    """Triples of all relations but the interaction, by entity id.

    ``sources`` is the interaction row a triple is known from (a mention is known from a
    review), or -1 for what is simply known; one triple may stand in several rows then.
    """

    heads: NDArray[np.int32]
    relations: NDArray[np.int32]
    tails: NDArray[np.int32]
    sources: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.heads)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions and a knowledge graph, as read: nothing is split or left out yet."""

    name: str
    vocabulary: Vocabulary
    relations: tuple[Relation, ...]  # relation 0 is the interaction
    facts: Facts
    interactions: Interactions
    notes: tuple[Note, ...] = field(default=())

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.vocabulary.span("user"))

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.vocabulary.span("item"))

    def graph(self, rows: NDArray[np.integer]) -> KnowledgeGraph:
        """The knowledge graph that knows just these interactions (METHOD L1).

        A fact with sources stays if one of them is among the rows; one that is left with a
        single source carries it as its origin (METHOD L3).
        """
        seen = np.zeros(len(self.interactions), dtype=bool)
        seen[rows] = True
        facts, events = self.facts, self.interactions
        # Index -1 would read the last row; sourceless facts are kept in any case.
        kept = (facts.sources < 0) | seen[facts.sources] if len(events) else facts.sources < 0
        first_item = self.vocabulary.span("item").start
        chosen = np.flatnonzero(seen)
        heads = np.concatenate([facts.heads[kept], events.users[chosen]])
        tails = np.concatenate([facts.tails[kept], events.items[chosen] + first_item])
        kinds = np.concatenate([facts.relations[kept], np.full(len(chosen), INTERACTION)])
        origins = None
        if (facts.sources >= 0).any():
            sources = np.concatenate([facts.sources[kept], np.full(len(chosen), -1)])
            heads, kinds, tails, sources = _single_sources(heads, kinds, tails, sources)
            user = np.where(sources < 0, -1, events.users[sources])
            item = np.where(sources < 0, -1, events.items[sources] + first_item)
            origins = (user, item)
        graph = KnowledgeGraph.from_triples(
            self.vocabulary, self.relations, heads, kinds, tails, origins=origins
        )
        if events.times is None:
            return graph
        return graph.timed(events.users[chosen], events.items[chosen], events.times[chosen])

    def __repr__(self) -> str:
        notes = f", {len(self.notes)} note{'s' * (len(self.notes) > 1)}" if self.notes else ""
        return (
            f"Dataset({self.name!r}, {self.n_users:,} users, {self.n_items:,} items, "
            f"{len(self.interactions):,} interactions, {len(self.relations)} relations, "
            f"{len(self.facts):,} facts{notes})"
        )

    # ── the format of our own, for data too large to read from text each time ──────────

    def save(self, folder: Path | str) -> None:
        """Write the data set as Parquet files that ``loger.data.load`` reads in seconds.

        The manifest, with name, notes, and a checksum of each file, is written last: a folder
        in which writing was interrupted is refused, not half read.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        checksums = {}
        for stem, table in self._tables().items():
            table.write_parquet(folder / f"{stem}.parquet")
            checksums[stem] = crc32((folder / f"{stem}.parquet").read_bytes())
        manifest = {
            "version": 1,
            "name": self.name,
            "types": self.vocabulary.types,
            "notes": [(note.what, note.count, note.example) for note in self.notes],
            "crc32": checksums,
        }
        text = json.dumps(manifest, ensure_ascii=False, indent=2)
        (folder / MANIFEST).write_text(text, encoding="utf-8")

    def _tables(self) -> dict[str, pl.DataFrame]:
        """The content as tables, by the names of their files."""
        words, facts, events = self.vocabulary, self.facts, self.interactions
        types = pl.Series(words.types)[
            np.repeat(np.arange(len(words.types)), np.diff(words.offsets))
        ]
        columns = {
            "user": events.users,
            "item": events.items,
            "rating": events.ratings,
            "time": events.times,
            "part": events.parts,
        }
        rows = [(r.name, r.head_type, r.tail_type) for r in self.relations]
        ends = (facts.heads, facts.relations, facts.tails, facts.sources)
        return {
            "entities": pl.DataFrame({"type": types, "name": words.names, "label": words.labels}),
            "relations": pl.DataFrame(
                rows, schema=["name", "head_type", "tail_type"], orient="row"
            ),
            "facts": pl.DataFrame(
                dict(zip(("head", "relation", "tail", "source"), ends, strict=True))
            ),
            "interactions": pl.DataFrame({k: v for k, v in columns.items() if v is not None}),
        }

    def renamed(self, name: str) -> Dataset:
        """The same data under another name."""
        return replace(self, name=name)


def _single_sources(
    heads: NDArray[np.int32],
    kinds: NDArray[np.int32],
    tails: NDArray[np.int32],
    sources: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Each triple once, with its source where that is its only one, else -1."""
    order = np.lexsort((sources, tails, kinds, heads))
    h, k, t, s = heads[order], kinds[order], tails[order], sources[order]
    new = np.ones(len(h), dtype=bool)
    new[1:] = (h[1:] != h[:-1]) | (k[1:] != k[:-1]) | (t[1:] != t[:-1])
    start = np.flatnonzero(new)
    last = np.append(start[1:], len(h)) - 1
    # Sorted by source: first and last agree only where there is one source (or none at all).
    return h[start], k[start], t[start], np.where(s[start] == s[last], s[start], -1)


def load_saved(folder: Path) -> Dataset:
    """Read what ``Dataset.save`` wrote; what is missing, damaged or inconsistent is an error."""
    manifest = _read_manifest(folder / MANIFEST)
    entities, relations, facts, events = (
        _read_saved(folder / f"{stem}.parquet", manifest["crc32"].get(stem))
        for stem in ("entities", "relations", "facts", "interactions")
    )
    of_type = {t: entities.filter(pl.col("type") == t) for t in manifest["types"]}
    dataset = Dataset(
        name=manifest["name"],
        vocabulary=Vocabulary(
            {t: rows["name"].to_list() for t, rows in of_type.items()},
            {t: rows["label"].to_list() for t, rows in of_type.items()},
        ),
        relations=tuple(Relation(*row) for row in relations.iter_rows()),
        facts=Facts(*(facts[c].to_numpy() for c in ("head", "relation", "tail", "source"))),
        interactions=Interactions(
            *(events[c].to_numpy() for c in ("user", "item")),
            *(
                events[c].to_numpy() if c in events.columns else None
                for c in ("rating", "time", "part")
            ),
        ),
        notes=tuple(Note(*note) for note in manifest["notes"]),
    )
    _check_ranges(dataset, folder)
    return dataset


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if manifest["version"] != 1:
            raise DataError(
                "was saved by another version of loger",
                path=path,
                value=manifest["version"],
                remedy="save it again with this version",
            )
        return {k: manifest[k] for k in ("name", "types", "notes", "crc32")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from None


def _read_saved(path: Path, checksum: int | None) -> pl.DataFrame:
    try:
        raw = path.read_bytes()
        if crc32(raw) != checksum:
            raise DataError(
                f"is not as Dataset.save left it ({len(raw):,} bytes, their checksum differs)",
                path=path,
                remedy=SAVE_AGAIN,
            )
        return pl.read_parquet(raw)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    why = "there is no such file" if isinstance(error, FileNotFoundError) else repr(error)
    what = f"a data set saved by loger cannot be read: {why}"
    return DataError(what, path=path, remedy=SAVE_AGAIN)


def _check_ranges(dataset: Dataset, folder: Path) -> None:
    """Every number must be that of something that exists."""
    facts, events, n = dataset.facts, dataset.interactions, len(dataset.vocabulary)
    parts = np.zeros(0, dtype=np.int8) if events.parts is None else events.parts
    checks: list[tuple[str, str, NDArray[np.integer], int, int]] = [
        ("facts", "head", facts.heads, 0, n),
        # Relation 0 is the interaction, which a fact must not tell: it would leak (METHOD L1).
        ("facts", "relation", facts.relations, 1, len(dataset.relations)),
        ("facts", "tail", facts.tails, 0, n),
        ("facts", "source", facts.sources, -1, len(events)),
        ("interactions", "user", events.users, 0, dataset.n_users),
        ("interactions", "item", events.items, 0, dataset.n_items),
        ("interactions", "part", parts, 0, len(PARTS)),
    ]
    for stem, column, values, low, high in checks:
        wrong = np.flatnonzero((values < low) | (values >= high))
        if len(wrong):
            raise DataError(
                f"row {int(wrong[0])}: {column} must lie in {low} … {high - 1}",
                path=folder / f"{stem}.parquet",
                value=int(values[wrong[0]]),
                remedy="mend the data set and save it again",
            )


def names_in_order(*columns: pl.Series | Sequence[str]) -> list[str]:
    """Every distinct name, in order of first appearance."""
    whole = pl.concat([pl.Series("name", c, dtype=pl.String) for c in columns])
    return whole.drop_nulls().unique(maintain_order=True).to_list()
