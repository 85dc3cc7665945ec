"""What several methods share: histories that fade, item–item matrices, batches and negatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from loger.baselines._kernels import largest
from loger.data.splits import Split
from loger.encoder.protocol import TrainerConfig
from loger.engine import Progress
from loger.errors import LogerError
from loger.graph import INTERACTION, Path, pair_keys
from loger.graph.arrays import Floats, Ids
from loger.recommender import ExplainedItem, PairMatrix, Recommender, part_matrix

# ── histories that fade: the age of each interaction, and its weight ──────────────────


def pair_ages(split: Split, whose: str, *exponents: float) -> PairMatrix:
    """Training pairs as 1 + how many of the user's interactions came later; [users, items].

    Those at the same time are of the same age, as in ``KnowledgeGraph.later``. Data without
    times have ones; to let them fade, with any of ``exponents`` above 0, is refused.
    """
    if split.dataset.interactions.times is None:
        if any(exponents):
            raise LogerError(
                f"{whose} with recency needs times, but {split.dataset.name} has none; "
                "set recency and training_recency to 0"
            )
        return part_matrix(split, "train")
    users, items, times = ordered_events(split)
    ends = np.searchsorted(users, users, side="right")
    # One number per (user, time), ascending: the last event of each is what all of them share.
    new = np.ones(len(users), dtype=bool)
    new[1:] = (users[1:] != users[:-1]) | (times[1:] != times[:-1])
    moment = np.cumsum(new)
    last = np.searchsorted(moment, moment, side="right") - 1
    ages = (ends - last).astype(np.float32)
    shape = (split.dataset.n_users, split.dataset.n_items)
    out = sp.csr_array((ages, (users, items)), shape=shape)
    out.sort_indices()
    return out


def decayed(ages: PairMatrix, exponent: float) -> PairMatrix:
    """What each pair counts, age^−exponent; ones for exponent 0."""
    data = ages.data ** np.float32(-exponent)
    return sp.csr_array((data, ages.indices, ages.indptr), shape=ages.shape)


def ordered_events(
    split: Split,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Training interactions as (users, items, times), each user's in order.

    Interactions at the same time keep the order of the file.
    """
    events = split.dataset.interactions
    if events.times is None:
        raise LogerError(
            f"{split.dataset.name} has no times, so the order of interactions is unknown; "
            "use a method that doesn't need it"
        )
    rows = split.train
    rows = rows[np.lexsort((rows, events.times[rows], events.users[rows]))]
    return events.users[rows], events.items[rows], events.times[rows]


class LinearItems(Recommender):
    """A model that scores by item–item weights: score(u, v) = n_v^−β Σ_{i ∈ I_u} a_ui^−ρ B_iv."""

    SCORING = frozenset({"recency", "popularity"})

    recency: float
    popularity: float
    ages_: PairMatrix  # [users, items]: a
    weights_: Any  # [items i, items j]: B, sparse or dense
    counts_: Floats  # [items]: n

    def score(self, users: ArrayLike) -> Floats:
        """n^−β X_u B with the user's history as old as it is; [users, items]."""
        product: Any = decayed(self.ages_[np.asarray(users)], self.recency) @ self.weights_
        dense = product if isinstance(product, np.ndarray) else product.toarray()
        out = np.asarray(dense, dtype=np.float32)
        if self.popularity:
            out *= self.counts_ ** np.float32(-self.popularity)
        return out


class Factors(Recommender):
    """A model that scores by the product of a user's vector with an item's."""

    users_: Floats  # [users, dimension]
    items_: Floats  # [items, dimension]

    def score(self, users: ArrayLike) -> Floats:
        """⟨u, v⟩; [users, items]."""
        return np.asarray(self.users_[np.asarray(users)] @ self.items_.T, dtype=np.float32)


def check_cpu(name: str, device: str | None) -> None:
    """Refuse a device that a method does not train on."""
    if device not in (None, "cpu"):
        raise LogerError(f"{name} trains only on the CPU, got device {device!r}")


_BLOCK = 1024
"""Rows of the item–item matrix that are dense or half-dense at a time."""


# ── item–item matrices that keep only the largest entries of each row ─────────────────


def largest_rows(matrix: PairMatrix, n: int) -> PairMatrix:
    """Each row's n largest entries, ties to the lower column."""
    matrix.sort_indices()
    kept = largest(matrix.indptr.astype(np.int64), matrix.data, n)
    ends = np.searchsorted(kept, matrix.indptr)
    return sp.csr_array((matrix.data[kept], matrix.indices[kept], ends), shape=matrix.shape)


def item_matrix(
    n_items: int,
    rows_of: Callable[[slice], PairMatrix],
    n: int | None,
    what: str,
    progress: Progress,
) -> PairMatrix:
    """Stack blocks of rows of an items × items matrix without its diagonal.

    The diagonal would only raise items that the user has, which are left out anyway; and in
    a list of n neighbours it would take a place. ``n`` None keeps everything.
    """
    blocks: list[PairMatrix] = []
    for start in range(0, n_items, _BLOCK):
        progress(what, start, n_items)
        stop = min(start + _BLOCK, n_items)
        rows = rows_of(slice(start, stop))
        owner = np.repeat(np.arange(start, stop), np.diff(rows.indptr))
        rows.data[rows.indices == owner] = 0
        rows.eliminate_zeros()
        rows.sort_indices()
        blocks.append(rows if n is None else largest_rows(rows, n))
    progress(what, n_items, n_items)
    return sp.csr_array(sp.vstack(blocks, format="csr"))


# ── training: batches in turn, each with its learning rate ────────────────────────────────

Batch = TypeVar("Batch")


def paced(
    what: str, config: TrainerConfig, epoch: int, batches: Sequence[Batch], progress: Progress
) -> Iterator[tuple[Batch, float]]:
    """The batches of an epoch, each with its learning rate; ``what`` is the name of the work."""
    for k, batch in enumerate(batches):
        progress(what, epoch * len(batches) + k, config.epochs * len(batches))
        yield batch, config.rate_after((epoch + k / len(batches)) / config.epochs)


def chunks(rows: Ids, size: int) -> list[Ids]:
    """Rows cut into pieces of ``size``; the last may be shorter."""
    return [rows[k : k + size] for k in range(0, len(rows), size)]


# ── what a step learns from: batches by relation, negatives by frequency or unseen ────


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
    cut = [(r, part) for r, rows in plan for part in chunks(rows, batch)]
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

    A draw that the user already has is drawn again, at most 8 times, so a user who has nearly all
    items may still get one of their own.
    """

    def __init__(self, known: PairMatrix) -> None:
        owners = np.repeat(np.arange(known.shape[0], dtype=np.int64), np.diff(known.indptr))
        self.n_items = known.shape[1]
        self._have = np.sort(pair_keys(owners, known.indices, self.n_items))

    def draw(
        self, users: NDArray[np.integer], rng: np.random.Generator, pool: Ids | None = None
    ) -> Ids:
        """An item for each entry of ``users``, of a pool or of all items."""
        among = np.arange(self.n_items) if pool is None else pool
        items = among[rng.integers(len(among), size=len(users))]
        again = np.arange(len(users))
        for _ in range(8 if len(self._have) else 0):
            keys = pair_keys(users[again], items[again], self.n_items)
            found = np.minimum(np.searchsorted(self._have, keys), len(self._have) - 1)
            again = again[self._have[found] == keys]
            if not len(again):
                break
            items[again] = among[rng.integers(len(among), size=len(again))]
        return items


# ── reasons ─────────────────────────────────────────────────────────────────────────────


def with_best_paths(
    item: int, score: float, found: Iterable[tuple[Path, float]], n: int
) -> ExplainedItem:
    """An item with the n paths of largest weight, equal ones by their entities and relations."""
    best = sorted(found, key=lambda one: (-one[1], one[0].entities, one[0].relations))[:n]
    paths, weights = tuple(path for path, _ in best), tuple(weight for _, weight in best)
    return ExplainedItem(int(item), float(score), paths, weights)
