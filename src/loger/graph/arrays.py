"""The arrays beneath a graph: slices and keys, edges by head, pairs, strengths, and σ.

``gather``, ``pair_keys``, ``run_starts`` and ``checked_ids`` are small functions that many modules
need. ``Rows`` are facts by their heads, the form in which graphs and views are read. ``Pairs`` are
users and items outside a graph, such as held-out interactions.

Strengths say how strong each interaction was: play counts, quantities, ratings. Amounts of one pair
add up; of its ratings the highest counts. So their order does not matter. A strength that is not
above 0 is unknown, and counts like the user's other interactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]
Ints = NDArray[np.integer[Any]]
"""Whole numbers of any size."""
Bools = NDArray[np.bool_]


def gather(starts: Ints, sizes: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of slices, one slice after another, as (which slice, place).

    >>> owners, places = gather(np.array([5, 0, 9]), np.array([2, 0, 3]))
    >>> owners.tolist(), places.tolist()
    ([0, 0, 2, 2, 2], [5, 6, 9, 10, 11])
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    owners = np.repeat(np.arange(len(ends), dtype=np.int64), sizes)
    total = int(ends[-1]) if len(ends) else 0
    return owners, np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - sizes), sizes)


def pair_keys(users: Ints, items: Ints, n_items: int) -> NDArray[np.int64]:
    """One number for each pair, ascending by user and then by item.

    >>> pair_keys(np.array([0, 2]), np.array([3, 1]), 10).tolist()
    [3, 21]
    """
    return users.astype(np.int64) * n_items + items


def run_starts(*columns: Ints) -> NDArray[np.bool_]:
    """Whether each of some sorted rows differs from the one before; the first does.

    >>> run_starts(np.array([1, 1, 1, 2]), np.array([5, 5, 6, 6])).tolist()
    [True, False, True, True]
    """
    new = np.zeros(len(columns[0]), dtype=bool)
    new[:1] = True
    for values in columns:
        new[1:] |= values[1:] != values[:-1]
    return new


def lower_bound(values: Ints, low: Ints, high: Ints, wanted: Ints) -> NDArray[np.int64]:
    """For each query, the first place in its slice of sorted values whose value is not below it.

    >>> low, high = np.array([0, 2]), np.array([2, 4])
    >>> lower_bound(np.array([2, 4, 1, 9]), low, high, np.array([3, 1])).tolist()
    [1, 2]
    """
    a, b = np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)
    while (open_ := a < b).any():
        middle = (a + b) // 2
        below = open_ & (values[np.where(open_, middle, 0)] < wanted)
        a = np.where(below, middle + 1, a)
        b = np.where(open_ & ~below, middle, b)
    return a


def checked_ids(ids: ArrayLike, n: int, what: str) -> NDArray[np.int64]:
    """Numbers as an array; an error if one is not in 0 … n - 1.

    Compiled code doesn't check bounds, so its callers do.
    """
    array = np.atleast_1d(np.asarray(ids))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        got = f"{array.dtype} {array.shape}" if array.size > 5 else repr(ids)
        raise LogerError(f"{what} numbers must be a list of integers, got {got}")
    wrong = array[(array < 0) | (array >= n)]
    if len(wrong):
        raise LogerError(f"{what} numbers must be from 0 to {n - 1}, got {int(wrong[0])}")
    return array.astype(np.int64)


UNIT = 2.0**-20
"""Amounts are rounded to this, about a millionth, so that sums are the same in any order."""


def as_strengths(values: ArrayLike) -> Doubles:
    """Numbers as strengths: rounded, and 0 unless above 0."""
    x = np.asarray(values, dtype=np.float64)
    x = np.where(np.isfinite(x) & (x > 0), x, 0.0)
    out: Doubles = np.minimum(np.rint(x / UNIT), 2.0**52) * UNIT
    return out


def merged(a: Doubles, b: Doubles, rated: bool) -> Doubles:
    """The strengths of pairs that occur twice."""
    return np.maximum(a, b) if rated else a + b


def merged_runs(strengths: Doubles, starts: NDArray[np.int64], rated: bool) -> Doubles:
    """The strengths of pairs, whose runs of rows begin at these places."""
    if not len(starts):
        return strengths[:0]
    out: Doubles = (np.maximum if rated else np.add).reduceat(strengths, starts)
    return out


def relative_to_mean(strengths: Doubles, users: NDArray[np.integer], power: float) -> Doubles:
    """How much interactions count by their strength: x^power divided by its user's mean, or 1 if x
    is unknown. So a user's known interactions count 1 on average."""
    known = strengths > 0
    x = np.where(known, strengths, 1.0) ** power
    n = np.bincount(users, known)
    total = np.bincount(users, x * known)
    mean = np.where(n > 0, total / np.maximum(n, 1), 1.0)
    out: Doubles = np.where(known, x / mean[users], 1.0)
    return out


FEW = 16
"""Up to this many edges are looked up one by one, which is faster: views ask for a handful."""
NO_ORIGINS = np.empty(0, dtype=np.int32)
NO_ORIGINS.flags.writeable = False  # as the arrays of graphs are: to numba another type
NO_WEIGHTS = np.empty(0, dtype=np.float32)
NO_WEIGHTS.flags.writeable = False


class Rows(NamedTuple):
    """Edges sorted by head, relation and tail; see ``KnowledgeGraph`` for how they are cut."""

    row_segments: NDArray[np.int64]  # [heads + 1]
    segment_relations: NDArray[np.uint16]  # [segments]
    segment_starts: NDArray[np.int64]  # [segments + 1]
    tails: NDArray[np.int32]  # [edges]
    origins: NDArray[np.int32]  # [edges], -1 for none; empty where no edge has one
    weights: NDArray[np.float32]  # [edges], what each fact counts; empty where all count 1

    def span(self, head: int) -> slice:
        """Where a head's edges are in ``tails``."""
        lo, hi = self.segment_starts[self.row_segments[head : head + 2]]
        return slice(int(lo), int(hi))

    def facts(self, head: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The relation and the tail of each of a head's edges, in their order."""
        lo, hi = self.row_segments[head : head + 2]
        sizes = np.diff(self.segment_starts[lo : hi + 1])
        relations = np.repeat(self.segment_relations[lo:hi].astype(np.int64), sizes)
        return relations, self.tails[self.span(head)]

    def segment(self, head: int, relation: int) -> int:
        """The segment of a head's neighbours under a relation, or -1."""
        lo, hi = self.row_segments[head], self.row_segments[head + 1]
        s = lo + np.searchsorted(self.segment_relations[lo:hi], relation)
        return int(s) if s < hi and self.segment_relations[s] == relation else -1

    def neighbours(self, head: int, relation: int) -> NDArray[np.int32]:
        """Where a relation leads from a head, ascending."""
        s = self.segment(head, relation)
        if s < 0:
            return self.tails[:0]
        return self.tails[self.segment_starts[s] : self.segment_starts[s + 1]]

    def edge(self, head: int, relation: int, tail: int) -> int:
        """The place of an edge in ``tails``, or -1."""
        s = self.segment(head, relation)
        if s < 0:
            return -1
        lo, hi = self.segment_starts[s : s + 2]
        e = lo + np.searchsorted(self.tails[lo:hi], tail)
        return int(e) if e < hi and self.tails[e] == tail else -1

    def segments(self, heads: Ints, relations: Ints) -> tuple[Ids, Bools]:
        """Where the segments of heads and relations are, or would be, and whether they exist."""
        low, high = self.row_segments[heads], self.row_segments[np.asarray(heads) + 1]
        at = lower_bound(self.segment_relations, low, high, relations)
        there = at < high
        there[there] = self.segment_relations[at[there]] == np.asarray(relations)[there]
        return at, there

    def edges(self, heads: Ints, relations: Ints, tails: Ints) -> Ids:
        """The places of edges in ``tails``; -1 for missing ones."""
        if len(heads) <= FEW:
            one_by_one = zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True)
            return np.array([self.edge(*edge) for edge in one_by_one], dtype=np.int64)
        segment, there = self.segments(heads, relations)
        found, wanted = segment[there], np.asarray(tails)[there]
        low, high = self.segment_starts[found], self.segment_starts[found + 1]
        at = lower_bound(self.tails, low, high, wanted)
        hit = at < high
        hit[hit] = self.tails[at[hit]] == wanted[hit]
        out = np.full(len(segment), -1, dtype=np.int64)
        out[np.flatnonzero(there)[hit]] = at[hit]
        return out

    def without(self, edges: NDArray[np.int64]) -> Rows:
        """The same segments less some edges, given ascending; a segment may become empty."""
        starts = self.segment_starts - np.searchsorted(edges, self.segment_starts)
        tails, origins, weights = self.tails, self.origins, self.weights
        left = Rows(
            self.row_segments,
            self.segment_relations,
            starts,
            np.delete(tails, edges),
            np.delete(origins, edges) if len(origins) else origins,
            np.delete(weights, edges) if len(weights) else weights,
        )
        return left.read_only()

    def read_only(self) -> Rows:
        """The same arrays, from now on not to be written to."""
        for array in self:
            array.flags.writeable = False
        return self


def later_interactions(
    times: NDArray[np.int64], edges: NDArray[np.int64], users: NDArray[np.integer]
) -> NDArray[np.int32]:
    """For each interaction, how many of its user's came after it; [times], 0 on other edges.

    ``times`` are of all edges of users, ``edges`` the places of interactions among them.
    """
    order = np.lexsort((-times[edges], users))
    user, time = users[order], times[edges][order]
    tied = np.concatenate([[False], (user[1:] == user[:-1]) & (time[1:] == time[:-1])])
    # Latest first; those at the same time share the place of the first of them.
    first = np.maximum.accumulate(np.where(tied, -1, np.arange(len(order))))
    out = np.zeros(len(times), dtype=np.int32)
    out[edges[order]] = first - np.searchsorted(user, user)
    return out


def _none() -> NDArray[np.int32]:
    return np.empty(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Users and items, numbered from 0 within their type, ascending by user and then by item.

    >>> held_out = Pairs.sorted([2, 0, 2], [5, 1, 3])
    >>> [part.tolist() for part in held_out.of([2, 1, 0])]
    [[0, 0, 2], [3, 5, 1]]
    """

    users: NDArray[np.int32] = field(default_factory=_none)
    items: NDArray[np.int32] = field(default_factory=_none)

    @classmethod
    def sorted(cls, users: ArrayLike, items: ArrayLike) -> Pairs:
        """Pairs that come in any order."""
        u, v = np.asarray(users, dtype=np.int32), np.asarray(items, dtype=np.int32)
        order = np.lexsort((v, u))
        return cls(u[order], v[order])

    def __len__(self) -> int:
        return len(self.users)

    def of(self, users: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pairs of some users as (place among them, item), as ``history`` has them."""
        asked = np.asarray(users)
        starts = np.searchsorted(self.users, asked)
        owners, places = gather(starts, np.searchsorted(self.users, asked, side="right") - starts)
        return owners, self.items[places].astype(np.int64)


def expit(x: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """1 / (1 + e⁻ˣ), in double precision.

    >>> expit(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    # SciPy has it too, and takes a quarter of a second to import.
    with np.errstate(over="ignore"):  # e⁻ˣ = ∞ gives 0, as it should
        return 1 / (1 + np.exp(-np.asarray(x, dtype=np.float64)))
