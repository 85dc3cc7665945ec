"""What every reader gives: entities, facts, interactions, and what was mended on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.errors import DataError
from loger.graph import INTERACTION, KnowledgeGraph, Relation, Vocabulary

TRAIN, VALIDATION, TEST = 0, 1, 2
PARTS = ("train", "validation", "test")


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
        if (facts.sources < 0).all():
            return KnowledgeGraph.from_triples(self.vocabulary, self.relations, heads, kinds, tails)
        sources = np.concatenate([facts.sources[kept], np.full(len(chosen), -1)])
        heads, kinds, tails, sources = _single_sources(heads, kinds, tails, sources)
        user = np.where(sources < 0, -1, events.users[sources])
        item = np.where(sources < 0, -1, events.items[sources] + first_item)
        return KnowledgeGraph.from_triples(
            self.vocabulary, self.relations, heads, kinds, tails, origins=(user, item)
        )

    # ── the format of our own, for data too large to read from text each time ──────────

    def save(self, folder: Path | str) -> None:
        """Write the data set as Parquet files that ``loger.data.load`` reads in seconds."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        words, facts, events = self.vocabulary, self.facts, self.interactions
        kinds = [
            t for t, n in zip(words.types, np.diff(words.offsets), strict=True) for _ in range(n)
        ]
        pl.DataFrame({"type": kinds, "name": words.names, "label": words.labels}).write_parquet(
            folder / "entities.parquet"
        )
        pl.DataFrame(
            [(r.name, r.head_type, r.tail_type) for r in self.relations],
            schema=["name", "head_type", "tail_type"],
            orient="row",
        ).write_parquet(folder / "relations.parquet")
        pl.DataFrame(
            {
                "head": facts.heads,
                "relation": facts.relations,
                "tail": facts.tails,
                "source": facts.sources,
            }
        ).write_parquet(folder / "facts.parquet")
        columns = {
            "user": events.users,
            "item": events.items,
            "rating": events.ratings,
            "time": events.times,
            "part": events.parts,
        }
        pl.DataFrame({k: v for k, v in columns.items() if v is not None}).write_parquet(
            folder / "interactions.parquet"
        )

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
    """Read what ``Dataset.save`` wrote."""
    try:
        entities = pl.read_parquet(folder / "entities.parquet")
        relations = pl.read_parquet(folder / "relations.parquet")
        facts = pl.read_parquet(folder / "facts.parquet")
        events = pl.read_parquet(folder / "interactions.parquet")
        of_type = entities.partition_by("type", as_dict=True, maintain_order=True)
        return Dataset(
            name=folder.name,
            vocabulary=Vocabulary(
                {str(k[0]): v["name"].to_list() for k, v in of_type.items()},
                {str(k[0]): v["label"].to_list() for k, v in of_type.items()},
            ),
            relations=tuple(Relation(*row) for row in relations.iter_rows()),
            facts=Facts(*(facts[c].to_numpy() for c in ("head", "relation", "tail", "source"))),
            interactions=Interactions(
                events["user"].to_numpy(),
                events["item"].to_numpy(),
                *(
                    events[c].to_numpy() if c in events.columns else None
                    for c in ("rating", "time", "part")
                ),
            ),
        )
    except (pl.exceptions.PolarsError, FileNotFoundError, OSError) as error:
        raise DataError(
            f"cannot be read as a data set saved by loger ({str(error).splitlines()[0]})",
            path=folder,
            remedy="save it again with Dataset.save",
        ) from None


def names_in_order(*columns: pl.Series | Sequence[str]) -> list[str]:
    """Every distinct name, in order of first appearance."""
    whole = pl.concat([pl.Series("name", c, dtype=pl.String) for c in columns])
    return whole.drop_nulls().unique(maintain_order=True).to_list()
