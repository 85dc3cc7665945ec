"""What lists are like beside being right: variety, popularity, and a user's own mixture.

They take lists [users, k] of item numbers, -1 where a list has ended, and what users have as a
sparse users × items matrix of ones whose rows are the users of the lists. One value per user.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from loger.data.dataset import Dataset
from loger.metrics.faithfulness import jensen_shannon, shares
from loger.recommender import PairMatrix

Values = NDArray[np.float64]
Lists = NDArray[np.integer]
BLOCK = 20_000
"""Pairs of items that are compared at a time."""
MAX_KINDS = 1000
"""The most kinds that a user's mixture is measured in."""


def diversity(lists: Lists, seen: PairMatrix) -> Values:
    """1 less the mean cosine of two items of a list, by who has them (all of ``seen``).

    Ziegler et al., WWW 2005. 0 for a list of fewer than two items.
    """
    n, k = seen.shape[1], lists.shape[1]
    left, right = np.triu_indices(k, 1)
    a, b = lists[:, left].astype(np.int64), lists[:, right].astype(np.int64)
    there = (a >= 0) & (b >= 0)
    keys = np.where(there, np.minimum(a, b) * n + np.maximum(a, b), -1)
    pairs, place = np.unique(keys, return_inverse=True)
    alike = _cosines(sp.csr_array(seen.T), *np.divmod(pairs, n))
    alike[pairs < 0] = 0.0
    total = alike[place.reshape(keys.shape)].sum(axis=1)
    some = there.sum(axis=1)
    out: Values = np.where(some > 0, 1 - total / np.maximum(some, 1), 0.0)
    return out


def _cosines(owners: PairMatrix, one: NDArray[np.int64], two: NDArray[np.int64]) -> Values:
    """The cosine of the rows of pairs of items, a block at a time."""
    sizes = np.sqrt(np.maximum(np.diff(owners.indptr), 1).astype(np.float64))
    out = np.zeros(len(one))
    for at in range(0, len(one), BLOCK):
        i, j = one[at : at + BLOCK], two[at : at + BLOCK]
        both: Values = np.asarray(owners[i].multiply(owners[j]).sum(axis=1)).ravel()
        out[at : at + BLOCK] = both / (sizes[i] * sizes[j])
    return out


def popularity_lift(lists: Lists, own: PairMatrix, popularity: NDArray[np.integer]) -> Values:
    """How much more popular a list is than what its user has: mean popularity over mean popularity.

    Abdollahpouri et al., RecSys 2020, as a ratio: 1 is neither more nor less. 0 without a list,
    1 for who has nothing.
    """
    listed = lists >= 0
    total = np.where(listed, popularity[np.maximum(lists, 0)], 0).sum(axis=1)
    mean = total / np.maximum(listed.sum(axis=1), 1)
    counts = np.diff(own.indptr)
    before = (own @ popularity.astype(np.float64)) / np.maximum(counts, 1)
    out: Values = np.where(before > 0, mean / np.maximum(before, 1e-12), 1.0)
    return out


def calibration(lists: Lists, own: PairMatrix, kinds: PairMatrix) -> Values:
    """1 less the divergence (Jensen–Shannon, base 2) of the kinds in a list and in what the user
    has: whether it keeps the user's own mixture. ``kinds`` is items × kinds, rows adding to 1.

    Steck, RecSys 2018, with a bounded divergence. 0 without a list or a history.
    """
    rows, places = np.nonzero(lists >= 0)
    ones = np.ones(len(rows))
    chosen = sp.csr_array((ones, (rows, lists[rows, places])), shape=(len(lists), own.shape[1]))
    before, after = shares((own @ kinds).toarray()), shares((chosen @ kinds).toarray())
    return np.nan_to_num(1 - jensen_shannon(before, after), nan=0.0)


def item_kinds(dataset: Dataset, popularity: NDArray[np.integer]) -> PairMatrix:
    """Items × kinds, rows adding to 1: the tails of the relation that tells something of half the
    items or more with the fewest of them, and one kind for the rest; without such a relation,
    thirds of the catalogue by popularity. What only reviews tell is left out."""
    known = np.flatnonzero(dataset.facts.sources < 0)
    heads, relations, tails = (
        getattr(dataset.facts, column)[known] for column in ("heads", "relations", "tails")
    )
    n, first = dataset.n_items, dataset.vocabulary.span("item").start
    best: tuple[int, NDArray[np.bool_]] | None = None
    for k, relation in enumerate(dataset.relations):
        if relation.head_type != "item" or relation.tail_type in ("item", "user"):
            continue
        rows = relations == k
        size = len(np.unique(tails[rows]))
        told = 2 * len(np.unique(heads[rows])) >= n and 2 <= size <= MAX_KINDS
        if told and (best is None or size < best[0]):
            best = (size, rows)
    if best is None:
        place = np.argsort(np.argsort(-popularity, kind="stable"), kind="stable")
        items, own = np.arange(n), 3 * place // n
    else:
        facts = np.unique(np.stack([heads[best[1]], tails[best[1]]]), axis=1)
        items = facts[0].astype(np.int64) - first
        own = np.unique(facts[1], return_inverse=True)[1]
        rest = np.setdiff1d(np.arange(n), items)
        own = np.concatenate([own, np.full(len(rest), best[0])])
        items = np.concatenate([items, rest])
    each = (1.0 / np.bincount(items, minlength=n)[items]).astype(np.float32)
    return sp.csr_array((each, (items, own)), shape=(n, int(own.max(initial=0)) + 1))
