"""Entities as sums of rows: a user is the sum of its items, any other entity its own row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from loger.graph import gather


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
        first = self.starts[entities]
        sizes = self.starts[entities + 1] - first
        taken = sizes if longest is None else np.minimum(sizes, longest)
        owners, places = gather(np.zeros_like(first), taken)
        if longest is not None and (sizes > longest).any():
            assert rng is not None
            places = _drawn(sizes, taken, owners, places, rng)
        rows = self.items[first[owners] + places]
        if left_out is not None:
            stays = rows != left_out[owners]
            owners, rows = owners[stays], rows[stays]
        counts = np.bincount(owners, minlength=len(entities))
        weights = (1 / np.sqrt(np.maximum(counts, 1)))[owners].astype(np.float32)
        starts = np.cumsum(counts) - counts
        tensors = (torch.from_numpy(x).to(self.device) for x in (rows, starts, owners, weights))
        return Bags(*tensors)


def _drawn(
    sizes: NDArray[np.int64],
    taken: NDArray[np.int64],
    owners: NDArray[np.int64],
    places: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Places in histories, ``taken`` different ones of each, every place with the same chance.

    A history is cut into as many stretches as places are taken, one is drawn from each, and all
    are turned by the same random step, for stretches differ in length by one.
    """
    n, k = sizes[owners], taken[owners]
    lo, hi = places * n // k, (places + 1) * n // k
    drawn = lo + (rng.random(len(owners)) * (hi - lo)).astype(np.int64)
    turn = (rng.random(len(sizes)) * sizes).astype(np.int64)
    return (drawn + turn[owners]) % n
