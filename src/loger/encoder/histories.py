"""Entities as sums of rows: a user is the sum of its items, any other entity its own row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from loger.engine.kernels import kernel


@dataclass(frozen=True, eq=False)
class Bags:
    """For each of some entities the rows to add up, and with what weight.

    Without ``starts`` each entity is one row.
    """

    rows: Tensor  # [parts]
    starts: Tensor | None = None  # [entities]
    owners: Tensor | None = None  # [parts]
    weights: Tensor | None = None  # [parts]

    def part(self, own: slice) -> Bags:
        """The bags of some of the entities, which are in a row."""
        if self.starts is None:
            return Bags(self.rows[own])
        if own == slice(0, len(self.starts)):
            return self
        assert self.owners is not None and self.weights is not None
        ends = torch.cat([self.starts, self.starts.new_tensor([len(self.rows)])])
        lo, hi = int(ends[own.start]), int(ends[own.stop])
        starts, owners = self.starts[own] - lo, self.owners[lo:hi] - own.start
        return Bags(self.rows[lo:hi], starts, owners, self.weights[lo:hi])

    def sum(self, table: Tensor) -> Tensor:
        """The vectors of the entities; [entities, dimension]."""
        if self.starts is None:
            return table[self.rows]
        assert self.weights is not None
        return embedding_bag(
            self.rows, table, self.starts, mode="sum", per_sample_weights=self.weights
        )


class Histories:
    """Who has what: the items of each user, as bags of rows of the entity table."""

    def __init__(
        self,
        users: NDArray[np.int64],
        items: NDArray[np.int64],
        n_users: int,
        device: torch.device,
        free: bool = False,
    ) -> None:
        order = np.lexsort((items, users))
        self.items = items[order]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=n_users))])
        self.n_users, self.device, self.free = n_users, device, free

    def bags(
        self,
        entities: NDArray[np.int64],
        left_out: NDArray[np.int64] | None = None,
        longest: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Bags:
        """The bags of entities that are either all users or none.

        ``left_out`` names for each an item that does not count; a history of more than
        ``longest`` items is represented by so many of them, drawn by ``rng`` before any is read:
        however long it is, it costs no more than these.
        """
        if self.free or not len(entities) or entities[0] >= self.n_users:
            return Bags(torch.from_numpy(entities).to(self.device))
        sizes = self.starts[entities + 1] - self.starts[entities]
        taken = sizes if longest is None else np.minimum(sizes, longest)
        parts, draws, turns = int(taken.sum()), np.empty(0), np.empty(0)
        if longest is not None and (sizes > longest).any():
            assert rng is not None
            draws, turns = rng.random(parts), rng.random(len(sizes))
        none = np.empty(0, np.int64) if left_out is None else left_out
        filled = fill_bags(self.items, self.starts, entities, taken, none, draws, turns)
        return Bags(*(torch.from_numpy(x).to(self.device) for x in filled))


@kernel
def fill_bags(items, starts, entities, taken, left_out, draws, turns):  # type: ignore[no-untyped-def]
    """The rows of all bags, where each begins, whose each is and with what weight it counts.

    Where fewer than all of a history are ``taken``, these are different ones, each place with the
    same chance: the history is cut into as many stretches as places are taken, one is drawn from
    each, and all are turned by the same random step, for stretches differ in length by one.
    """
    most = taken.sum()
    rows, owners = np.empty(most, np.int64), np.empty(most, np.int64)
    begins, weights = np.empty(len(entities), np.int64), np.empty(most, np.float32)
    read = held = 0
    for k in range(len(entities)):
        first = starts[entities[k]]
        n, wanted = starts[entities[k] + 1] - first, taken[k]
        begins[k], lo = held, 0
        turn = np.int64(turns[k] * n) if len(draws) > 0 else 0
        for p in range(wanted):
            hi = p + 1 if n == wanted else (p + 1) * n // wanted
            place = lo + turn
            if len(draws) > 0:
                place += np.int64(draws[read] * (hi - lo))
            place -= n if place >= n else 0
            read, lo = read + 1, hi
            row = items[first + place]
            if len(left_out) == 0 or row != left_out[k]:
                rows[held], owners[held] = row, k
                held += 1
        for p in range(begins[k], held):
            weights[p] = np.float32(1 / np.sqrt(held - begins[k]))
    return rows[:held], begins, owners[:held], weights[:held]
