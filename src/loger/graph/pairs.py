"""Pairs of a user and an item that are known beside a graph, looked up by user."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.graph.arrays import gather


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
