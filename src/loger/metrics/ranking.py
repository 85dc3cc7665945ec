"""Ranking measures at k (METHOD 8), one value per user.

They take ``hits`` [users, k], true if the item at that rank is relevant, and ``n_relevant`` [users]
= ``|T_u|``. Lists shorter than k are padded with misses, so every user with relevant items counts,
and a short list never looks better.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from loger.data.dataset import Dataset
from loger.errors import LogerError
from loger.graph.arrays import Doubles
from loger.metrics.faithfulness import jensen_shannon, shares
from loger.recommender import PairMatrix

Hits = NDArray[np.bool_]


def hits(recommended: NDArray[np.integer], rows: ArrayLike, items: ArrayLike) -> Hits:
    """Whether each recommended item is relevant; [users, k].

    ``recommended`` [users, k] holds item numbers, -1 after the end of a list. The relevant pairs
    are (row of ``recommended``, item).
    """
    rows, items = np.asarray(rows, dtype=np.int64), np.asarray(items)
    width = 1 + max(int(recommended.max(initial=0)), int(items.max(initial=0)))
    keys = np.arange(len(recommended))[:, None] * width + recommended
    return np.isin(keys, rows * width + items) & (recommended >= 0)


def precision(hits: Hits) -> Doubles:
    """Share of hits among the k recommended items."""
    share: Doubles = hits.mean(axis=1)
    return share


def recall(hits: Hits, n_relevant: ArrayLike) -> Doubles:
    """Share of the relevant items that are recommended: ``hits / |T_u|``."""
    share: Doubles = hits.sum(axis=1) / _relevant(n_relevant)
    return share


def hit_rate(hits: Hits) -> Doubles:
    """Whether any recommended item is relevant: 1 or 0."""
    return np.asarray(hits.any(axis=1), dtype=np.float64)


def ndcg(hits: Hits, n_relevant: ArrayLike) -> Doubles:
    """Discounted gain Σ hit_j / log2(j + 1), divided by that of the best possible list.

    The best possible list begins with ``min(k, |T_u|)`` relevant items.
    """
    ideal: Doubles = np.cumsum(_discounts(hits.shape[1]))
    best = ideal[np.minimum(_relevant(n_relevant), hits.shape[1]) - 1]
    share: Doubles = _gain(hits) / best
    return share


def ndcg_retrieved(hits: Hits) -> Doubles:
    """Discounted gain, divided by that of the same hits moved to the top; 0 without hits.

    The authors' code calls this NDCG. It is inflated, because missed items don't count: use it only
    to compare with the paper's table.
    """
    ideal = np.concatenate([[1.0], np.cumsum(_discounts(hits.shape[1]))])
    share: Doubles = _gain(hits) / ideal[hits.sum(axis=1)]
    return share


def reciprocal_rank(hits: Hits) -> Doubles:
    """1 / the rank of the first hit; 0 without hits. Its mean is MRR@k."""
    first: Doubles = np.where(hits.any(axis=1), 1.0 / (1 + hits.argmax(axis=1)), 0.0)
    return first


def novelty(recommended: NDArray[np.integer], popularity: ArrayLike, n_users: int) -> Doubles:
    """Mean self-information log2(n_users / popularity) of a user's recommended items, in bits.

    Zhou et al., PNAS 2010. ``popularity`` [items] counts the users who have an item in train; items
    that nobody has count as if one user had them. 0 for an empty list.
    """
    bits = np.log2(n_users / np.maximum(np.asarray(popularity), 1))
    listed = recommended >= 0
    total = np.where(listed, bits[np.maximum(recommended, 0)], 0.0).sum(axis=1)
    mean: Doubles = total / np.maximum(listed.sum(axis=1), 1)
    return mean


def coverage(recommended: NDArray[np.integer], n_items: int) -> float:
    """Share of the catalogue that is recommended to anyone."""
    return len(np.unique(recommended[recommended >= 0])) / n_items


def _discounts(k: int) -> Doubles:
    discounts: Doubles = 1.0 / np.log2(np.arange(2, k + 2))
    return discounts


def _gain(hits: Hits) -> Doubles:
    gain: Doubles = hits @ _discounts(hits.shape[1])
    return gain


def _relevant(n_relevant: ArrayLike) -> NDArray[np.int64]:
    """``|T_u|``; an error if a user has no relevant items, because the measure is undefined
    then."""
    counts = np.asarray(n_relevant, dtype=np.int64)
    if (counts < 1).any():
        row = int(np.argmax(counts < 1))
        raise LogerError(f"the user in row {row} has no relevant items; leave such users out")
    return counts


# ── beyond accuracy ──────────────────────────────────────────────────────────────────────────
# Diversity, popularity and calibration of lists [users, k] of item numbers, -1 after the end of a
# list. Histories are a sparse users × items matrix of ones with the same rows as the lists.

Lists = NDArray[np.integer]
BLOCK = 20_000
"""Number of item pairs to compare at a time."""
MAX_KINDS = 1000
"""The most kinds of items that calibration distinguishes."""


def diversity(lists: Lists, seen: PairMatrix) -> Doubles:
    """1 minus the mean cosine of two items of a list, by the users who have them (``seen``).

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
    out: Doubles = np.where(some > 0, 1 - total / np.maximum(some, 1), 0.0)
    return out


def _cosines(owners: PairMatrix, one: NDArray[np.int64], two: NDArray[np.int64]) -> Doubles:
    """The cosines of pairs of items, a block at a time."""
    sizes = np.sqrt(np.maximum(np.diff(owners.indptr), 1).astype(np.float64))
    out = np.zeros(len(one))
    for at in range(0, len(one), BLOCK):
        i, j = one[at : at + BLOCK], two[at : at + BLOCK]
        both: Doubles = np.asarray(owners[i].multiply(owners[j]).sum(axis=1)).ravel()
        out[at : at + BLOCK] = both / (sizes[i] * sizes[j])
    return out


def popularity_lift(lists: Lists, own: PairMatrix, popularity: NDArray[np.integer]) -> Doubles:
    """The mean popularity of a list, divided by that of its user's history.

    Abdollahpouri et al., RecSys 2020, as a ratio: 1 means equally popular. 0 for an empty list, 1
    for an empty history.
    """
    listed = lists >= 0
    total = np.where(listed, popularity[np.maximum(lists, 0)], 0).sum(axis=1)
    mean = total / np.maximum(listed.sum(axis=1), 1)
    counts = np.diff(own.indptr)
    before = (own @ popularity.astype(np.float64)) / np.maximum(counts, 1)
    out: Doubles = np.where(before > 0, mean / np.maximum(before, 1e-12), 1.0)
    return out


def calibration(lists: Lists, own: PairMatrix, kinds: PairMatrix) -> Doubles:
    """1 minus the Jensen–Shannon divergence (base 2) between the kinds of items in a list and in
    the user's history. ``kinds`` is items × kinds, and its rows add up to 1.

    Steck, RecSys 2018, with a bounded divergence. 0 without a list or a history.
    """
    rows, places = np.nonzero(lists >= 0)
    ones = np.ones(len(rows))
    chosen = sp.csr_array((ones, (rows, lists[rows, places])), shape=(len(lists), own.shape[1]))
    before, after = shares((own @ kinds).toarray()), shares((chosen @ kinds).toarray())
    return np.nan_to_num(1 - jensen_shannon(before, after), nan=0.0)


def item_kinds(dataset: Dataset, popularity: NDArray[np.integer]) -> PairMatrix:
    """Items × kinds, with rows that add up to 1.

    The kinds are the tails of one relation, and one more for items without it. Among relations that
    cover at least half of the items, it is the one with the fewest tails. Without such a
    relation, the kinds are thirds of the catalogue by popularity. Facts from reviews don't count.
    """
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
