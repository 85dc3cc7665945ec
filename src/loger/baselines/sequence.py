"""Sequence rules: what soon followed what, in everybody's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from loger.baselines._shared import decayed, item_matrix, ordered_events, pair_ages
from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.engine.kernels import kernel
from loger.engine.settings import check_numbers
from loger.graph.arrays import Floats
from loger.recommender import PairMatrix, Recommender


@dataclass(eq=False, kw_only=True)
class SequenceRules(Recommender):
    """First-order sequence rules, "sequential rules" of Ludewig & Jannach (UMUAI 2018) for whole
    histories, with shrinkage and held-back popularity.

    With p and q places in the order of one user's training interactions, i at p and j at q,

        C_ij = Σ_users Σ_{p < q, q − p ≤ W} (q − p)^−δ,   out_i = Σ_j C_ij,   in_j = Σ_i C_ij,
        S_ij = C_ij / ((out_i + shrink) · in_j^β),
        score(u, v) = Σ_{i ∈ I_u} a_ui^−ρ S_iv,

    a_ui being 1 + how many of u's interactions came after i. W is ``window``, δ ``distance``,
    β ``popularity``, ρ ``recency``. Interactions at the same time keep the data's own order
    in C, while in a they are of one age. C has at most W entries per interaction;
    ``neighbours`` keeps only so many of each row, the largest.
    """

    name = "sequence rules"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "recency": (1.0, 0.5, 0.75, 1.5),
        "shrink": (100.0, 10.0, 1000.0),
        "popularity": (0.3, -0.15, 0.0, 0.15, 0.45, 0.6),
        "window": (50, 5, 15, 100, 200),
        "distance": (0.5, 0.0, 0.25, 1.0),
    }
    SCORING = frozenset({"recency", "shrink", "popularity"})

    ages_: PairMatrix = field(init=False, repr=False)  # [users, items]: a
    counts_: PairMatrix = field(init=False, repr=False)  # [items i, items j]: C
    out_: NDArray[np.float64] = field(init=False, repr=False)  # [items]
    in_: NDArray[np.float64] = field(init=False, repr=False)  # [items]
    window: int = 50
    distance: float = 0.5
    popularity: float = 0.3
    shrink: float = 100.0
    recency: float = 1.0
    neighbours: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "shrink", window=1, neighbours=1, recency=0)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Count who follows whom, a block of items at a time."""
        users, items, _ = ordered_events(split)
        n = split.dataset.n_items
        self.ages_ = pair_ages(split, self.name, self.recency)
        firsts, stops = (np.searchsorted(users, users, side) for side in ("left", "right"))
        place = np.arange(len(users))
        near = np.arange(1, self.window + 1, dtype=np.float64) ** -self.distance
        sums = np.concatenate([[0.0], np.cumsum(near)])  # of the nearest 0, 1, … W
        after = sums[np.minimum(stops - place - 1, self.window)]
        before = sums[np.minimum(place - firsts, self.window)]
        self.out_ = np.bincount(items, after, n).astype(np.float64)
        self.in_ = np.bincount(items, before, n).astype(np.float64)
        where = np.argsort(items, kind="stable")  # each item's places in all histories
        starts = np.searchsorted(items[where], np.arange(n + 1))

        def rows_of(block: slice) -> PairMatrix:
            ends, columns, data = _followers(
                block.start, block.stop, n, starts, where, stops, items, near
            )
            return sp.csr_array((data, columns, ends), shape=(block.stop - block.start, n))

        self.counts_ = item_matrix(n, rows_of, self.neighbours, self.name, progress)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """Σ_i a_ui^−ρ S_iv; [users, items]."""
        history = decayed(self.ages_[np.asarray(users)], self.recency)
        history.data /= (self.out_ + self.shrink)[history.indices].astype(np.float32)
        out: Floats = (history @ self.counts_).toarray()
        # What never follows anything has a column of zeros, whatever it is divided by.
        out *= np.where(self.in_ > 0, self.in_, 1.0).astype(np.float32) ** np.float32(
            -self.popularity
        )
        return out


@kernel
def _followers(first, stop, n, starts, where, stops, items, near):  # type: ignore[no-untyped-def]
    """Rows first … stop of C as (row ends, columns, entries), columns ascending.

    ``where[starts[i] : starts[i + 1]]`` are the places of item i, ``stops`` the end of the
    history that a place is in, ``near[d - 1]`` what a distance of d counts.
    """
    total = np.zeros(n, dtype=np.float64)
    there = np.zeros(n, dtype=np.bool_)
    ends = np.zeros(stop - first + 1, dtype=np.int64)
    columns = np.empty(1024, dtype=np.int32)
    data = np.empty(1024, dtype=np.float32)
    size = 0
    for i in range(first, stop):
        begin, visits = size, 0
        for p in where[starts[i] : starts[i + 1]]:
            visits += min(len(near), stops[p] - p - 1)
        while size + min(visits, n) > len(columns):
            columns = np.append(columns, np.empty_like(columns))
            data = np.append(data, np.empty_like(data))
        if visits > n // 4:  # most items follow: no list of them is kept
            for p in where[starts[i] : starts[i + 1]]:
                for q in range(p + 1, min(p + 1 + len(near), stops[p])):
                    total[items[q]] += near[q - p - 1]
            for j in range(n):
                if total[j] > 0:
                    columns[size] = j
                    size += 1
        else:
            for p in where[starts[i] : starts[i + 1]]:
                for q in range(p + 1, min(p + 1 + len(near), stops[p])):
                    j = items[q]
                    if not there[j]:
                        there[j] = True
                        columns[size] = j
                        size += 1
                    total[j] += near[q - p - 1]
            columns[begin:size] = np.sort(columns[begin:size])
        for e in range(begin, size):
            j = columns[e]
            data[e] = total[j]
            total[j] = 0.0
            there[j] = False
        ends[i - first + 1] = size
    return ends, columns[:size], data[:size]


@kernel
def people_behind(starts, followers, users, items, times, window):  # type: ignore[no-untyped-def]
    """For each entry (i, j) how many users have i and, at the same time or later, j, with less than
    ``window`` other interactions at times between the two.

    ``users``, ``items`` and ``times`` are interactions, each user's by time; the order of those at
    the same time doesn't matter, so that anyone can count this again.
    """
    n = len(starts) - 1
    where = np.argsort(items, kind="mergesort")  # each item's places in all histories
    ends = np.searchsorted(items[where], np.arange(n + 1))
    out = np.zeros(len(followers), dtype=np.int64)
    last = np.full(len(followers), -1, dtype=np.int64)
    entry = np.full(n, -1, dtype=np.int64)  # of what follows the present item
    for i in range(n):
        own = followers[starts[i] : starts[i + 1]]
        entry[own] = np.arange(starts[i], starts[i + 1])
        for p in where[ends[i] : ends[i + 1]]:
            q = p
            while q > 0 and users[q - 1] == users[p] and times[q - 1] == times[p]:
                q -= 1
            after = len(users)  # the first place of a later time
            while q < len(users) and users[q] == users[p]:
                if times[q] != times[p] and times[q] != times[q - 1]:
                    after = min(after, q)
                    if q >= after + window:
                        break
                e = entry[items[q]]
                if e >= 0 and last[e] != users[p]:
                    last[e] = users[p]
                    out[e] += 1
                q += 1
        entry[own] = -1
    return out
