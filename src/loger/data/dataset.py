"""What every reader returns: entities, facts, interactions, and notes on what it repaired or left
out. Users and items have text as names, or integers where the data had integers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loger.engine.progress import table as html_table
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph, Relation, Vocabulary
from loger.graph.arrays import run_starts
from loger.graph.catalogue import NOTHING, Catalogue


@dataclass(frozen=True, slots=True)
class Note:
    """Something in the input that a reader handled instead of refusing it."""

    what: str
    count: int
    example: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.count:,}" + (
            f" (first: {self.example})" if self.example else ""
        )


ALWAYS = int(np.iinfo(np.int64).min)
"""The time of a fact that holds at any time."""
TRAIN, VALIDATION, TEST = 0, 1, 2
PARTS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Interactions:
    """Which user took which item, once per pair. Both are numbered from 0 within their type."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    ratings: NDArray[np.float32] | None = None
    times: NDArray[np.int64] | None = None
    parts: NDArray[np.int8] | None = None
    """The split that comes with the data: TRAIN, VALIDATION or TEST for each row."""
    strengths: NDArray[np.float64] | None = None
    """Amounts, such as plays, pieces or seconds; the sum where a pair has several rows."""
    counted: bool = False
    """Whether strengths count how often something happened: plays, or rows of a pair."""

    @property
    def known_strengths(self) -> NDArray[np.floating] | None:
        """Amounts or else ratings, unless they are all the same."""
        values = self.ratings if self.strengths is None else self.strengths
        if values is None or not len(values) or np.nanmin(values) == np.nanmax(values):
            return None
        return values

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True, eq=False)
class Facts:
    """Triples of all relations but the interaction, by entity id.

    ``sources`` is the interaction row a triple is known from (a mention is known from a
    review), or -1 for what is simply known; one triple may stand in several rows then.
    ``times`` says when users did something other than the interaction, such as viewing an item,
    and is ``ALWAYS`` for facts that hold at any time; None if all of them do.
    """

    heads: NDArray[np.int32]
    relations: NDArray[np.int32]
    tails: NDArray[np.int32]
    sources: NDArray[np.int32]
    times: NDArray[np.int64] | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.heads)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions and a knowledge graph as read, before any split."""

    name: str
    vocabulary: Vocabulary
    relations: tuple[Relation, ...]  # relation 0 is the interaction
    facts: Facts
    interactions: Interactions
    notes: tuple[Note, ...] = field(default=())
    mapping: object = None
    """What ``loger.from_tables`` made of each column; print it. It isn't saved."""
    catalogue: Catalogue = NOTHING
    """What the tables say about items besides the graph: values to filter by, pictures."""

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.vocabulary.span("user"))

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.vocabulary.span("item"))

    def graph(self, rows: NDArray[np.integer]) -> KnowledgeGraph:
        """The knowledge graph that knows only these interactions (METHOD L1).

        A fact with sources stays if one of them is among the rows; if exactly one is, the fact
        carries it as its origin (METHOD L3). What a user did at the time of their first
        interaction outside the rows, or later, isn't known yet.
        """
        seen = np.zeros(len(self.interactions), dtype=bool)
        seen[rows] = True
        facts, interactions = self.facts, self.interactions
        # Index -1 would read the last row; sourceless facts are kept in any case.
        kept = (facts.sources < 0) | seen[facts.sources] if len(interactions) else facts.sources < 0
        if facts.times is not None and interactions.times is not None:
            kept &= facts.times < self._first_unseen(seen)[facts.heads]
        first_item = self.vocabulary.span("item").start
        chosen = np.flatnonzero(seen)
        heads = np.concatenate([facts.heads[kept], interactions.users[chosen]])
        tails = np.concatenate([facts.tails[kept], interactions.items[chosen] + first_item])
        kinds = np.concatenate([facts.relations[kept], np.full(len(chosen), INTERACTION)])
        origins = None
        if (facts.sources >= 0).any():
            sources = np.concatenate([facts.sources[kept], np.full(len(chosen), -1)])
            heads, kinds, tails, sources = _single_sources(heads, kinds, tails, sources)
            user = np.where(sources < 0, -1, interactions.users[sources])
            item = np.where(sources < 0, -1, interactions.items[sources] + first_item)
            origins = (user, item)
        graph = KnowledgeGraph.from_triples(
            self.vocabulary, self.relations, heads, kinds, tails, origins=origins
        )
        users, items = interactions.users[chosen], interactions.items[chosen]
        strengths = interactions.known_strengths
        if strengths is not None:
            rated = interactions.strengths is None
            graph = graph.strengthened(users, items, strengths[chosen], rated, interactions.counted)
        if interactions.times is None:
            return graph
        graph = graph.timed(users, items, interactions.times[chosen])
        if facts.times is None:
            return graph
        did = kept & (facts.times > ALWAYS)
        behaviours = facts.heads[did], facts.relations[did], facts.tails[did]
        return graph.with_times_of_behaviours(behaviours, facts.times[did])

    def _first_unseen(self, seen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """When the first interaction of each entity that isn't seen was; [entities]."""
        out = np.full(len(self.vocabulary), np.iinfo(np.int64).max)
        times = self.interactions.times
        if times is not None:
            np.minimum.at(out, self.interactions.users[~seen], times[~seen])
        return out

    def __repr__(self) -> str:
        notes = f", {len(self.notes)} note{'s' * (len(self.notes) > 1)}" if self.notes else ""
        return (
            f"Dataset({self.name!r}, {self.n_users:,} users, {self.n_items:,} items, "
            f"{len(self.interactions):,} interactions, {len(self.relations)} relations, "
            f"{len(self.facts):,} facts{notes})"
        )

    def _repr_html_(self) -> str:
        counts = np.bincount(self.facts.relations, minlength=len(self.relations))
        counts[INTERACTION] = len(self.interactions)  # no fact has this relation
        relations = [
            (r.name, f"{r.head_type} → {r.tail_type}", f"{n:,}")
            for r, n in zip(self.relations, counts.tolist(), strict=True)
        ]
        types = [(t, f"{len(self.vocabulary.span(t)):,}") for t in self.vocabulary.types]
        notes = "".join(f"<li>{escape(str(note))}</li>" for note in self.notes)
        return (
            f"<div><b>{escape(self.name)}</b>{html_table(('entities', 'count'), types)}"
            f"{html_table(('relation', 'from → to', 'count'), relations)}"
            f"{f'notes<ul>{notes}</ul>' if notes else ''}</div>"
        )

    def save(self, folder: Path | str) -> None:
        """Write the data set as Parquet files that ``loger.data.load`` reads in seconds.

        What was saved there before stays until this one is complete.
        """
        from loger.data.saved import save

        save(self, folder)

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
    start = np.flatnonzero(run_starts(h, k, t))
    last = np.append(start[1:], len(h)) - 1
    # Sorted by source: first and last agree only where there is one source (or none at all).
    return h[start], k[start], t[start], np.where(s[start] == s[last], s[start], -1)


EPOCH = (10**8, 41 * 10**8)
"""Numbers between 1973 and 2099 in seconds since 1970. Smaller ones only say what came first."""


def unit_of_epoch(latest: int) -> tuple[str, int]:
    """The unit of times since 1970, judged by the latest of them, and how many make a second.

    >>> unit_of_epoch(1_700_000_000), unit_of_epoch(1_700_000_000_000), unit_of_epoch(17)
    (('seconds', 1), ('milliseconds', 1000), ('', 1))
    """
    for unit, size in (("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6)):
        if EPOCH[0] * size <= latest < EPOCH[1] * size:
            return unit, size
    return "", 1


def moment(seconds: int) -> str:
    """A time in seconds since 1970 as text for people.

    >>> moment(1_700_000_000)
    '2023-11-14 22:13:20'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


Name = str | int | np.integer


def as_name(value: object) -> str:
    """The name of a user or item as text, which is how data sets and graphs know it.

    >>> as_name("ann"), as_name(17), as_name(np.int64(17))
    ('ann', '17', '17')
    >>> as_name(17.0)
    Traceback (most recent call last):
    loger.errors.LogerError: names of users and items must be text or integers, got 17.0
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    raise LogerError(f"names of users and items must be text or integers, got {value!r}")


def as_names(names: Name | Iterable[Name]) -> list[str]:
    """One name or several as a list of texts.

    >>> as_names("ann"), as_names([1, "bob"])
    (['ann'], ['1', 'bob'])
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [as_name(names)]
    return [as_name(name) for name in names]


def is_frame(source: object) -> bool:
    """Whether this is a frame of polars or pandas, or looks like one."""
    return hasattr(source, "columns") and hasattr(source, "__getitem__")
