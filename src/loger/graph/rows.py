"""Facts by their heads: the arrays that a graph, and the view of a user, are read by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
