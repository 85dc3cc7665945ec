"""What a step learns from: batches of triples by relation, negatives by frequency or unseen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loger.graph import INTERACTION, pair_keys
from loger.recommender import PairMatrix

Ids = NDArray[np.int64]


def relation_batches(
    sizes: Sequence[int], batch: int, facts_per_interaction: float, rng: np.random.Generator
) -> list[tuple[int, Ids]]:
    """The batches of an epoch in random order, each of one relation: (relation, places).

    ``sizes`` are the numbers of triples of the relations. All interactions come once; facts
    are drawn, ``facts_per_interaction`` times as many in all, and relations share them
    ∝ √size, so that large ones do not drown the others.
    """
    n = sizes[INTERACTION]
    plan = [(INTERACTION, rng.permutation(n))]
    roots = np.sqrt(np.asarray(sizes, dtype=np.float64))
    roots[INTERACTION] = 0
    for r in np.flatnonzero(roots).tolist():
        share = int(np.ceil(facts_per_interaction * n * roots[r] / roots.sum()))
        plan.append((r, rng.integers(sizes[r], size=share)))
    cut = [(r, rows[k : k + batch]) for r, rows in plan for k in range(0, len(rows), batch)]
    return [cut[k] for k in rng.permutation(len(cut))]


class Noise:
    """Draws of places 0 … n-1 in proportion to counts^power.

    What has no count has no share of its own; where nothing has one, all have the same.
    """

    def __init__(self, counts: NDArray[np.integer], power: float = 0.75) -> None:
        masses = np.where(counts > 0, np.maximum(counts, 1) ** float(power), 0.0)
        if not masses.any():
            masses = np.ones(len(counts))
        self.shares = masses / masses.sum()
        self._ends = np.cumsum(self.shares)

    def draw(self, n: int, rng: np.random.Generator) -> Ids:
        """n places, with repetition."""
        places = np.searchsorted(self._ends, rng.random(n) * self._ends[-1], side="right")
        out: Ids = np.minimum(places, len(self._ends) - 1).astype(np.int64)
        return out


class Unseen:
    """Draws of items that a user does not have, uniformly.

    A draw that the user has is drawn anew, at most ``rounds`` times: of a user who has nearly
    all items one of its own may come.
    """

    def __init__(self, known: PairMatrix, rounds: int = 8) -> None:
        owners = np.repeat(np.arange(known.shape[0], dtype=np.int64), np.diff(known.indptr))
        self.n_items, self.rounds = known.shape[1], rounds
        self._have = np.sort(pair_keys(owners, known.indices, self.n_items))

    def draw(
        self, users: NDArray[np.integer], rng: np.random.Generator, pool: Ids | None = None
    ) -> Ids:
        """An item for each entry of ``users``, of a pool or of all items."""
        among = np.arange(self.n_items) if pool is None else pool
        items = among[rng.integers(len(among), size=len(users))]
        again = np.arange(len(users))
        for _ in range(self.rounds if len(self._have) else 0):
            keys = pair_keys(users[again], items[again], self.n_items)
            found = np.minimum(np.searchsorted(self._have, keys), len(self._have) - 1)
            again = again[self._have[found] == keys]
            if not len(again):
                break
            items[again] = among[rng.integers(len(among), size=len(again))]
        return items
