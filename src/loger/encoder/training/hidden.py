"""Hidden pairs: what an encoder learns from besides the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HiddenPairs:
    """Interactions to learn from besides those of the graph: H⁺ of the E-step, with weights p."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    weights: NDArray[np.float32]

    def beside(
        self, interactions: tuple[Ids, Ids], first_item: int, seed: int, epoch: int, warm: bool
    ) -> tuple[Ids, Ids]:
        """What an epoch draws from, as entities: the interactions, and some of the pairs, each with
        the probability that it weighs. So the many that are hardly believed take no place of the
        real ones, and none of them needs a weight in the loss."""
        rng = np.random.default_rng([seed, 0x41DD, epoch, warm])
        often = (self.weights + rng.random(len(self.weights))).astype(np.int64)
        users, items = (np.repeat(x, often).astype(np.int64) for x in (self.users, self.items))
        known, owned = interactions
        return np.concatenate([known, users]), np.concatenate([owned, items + first_item])
