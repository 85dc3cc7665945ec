"""Ranking measures at k (METHOD 8), one value per user.

They take ``hits`` [users, k], true where the item at that rank is relevant, and
``n_relevant`` [users] = ``|T_u|``. A list that is shorter than k is filled up with misses, so
every user with something to find counts, and a short list never looks better for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError

Values = NDArray[np.float64]
Hits = NDArray[np.bool_]


def hits(recommended: NDArray[np.integer], rows: ArrayLike, items: ArrayLike) -> Hits:
    """Where the recommended items are relevant; [users, k].

    ``recommended`` [users, k] holds item ids, -1 where the list has ended; the relevant
    pairs are given as (row of ``recommended``, item).
    """
    rows, items = np.asarray(rows, dtype=np.int64), np.asarray(items)
    width = 1 + max(int(recommended.max(initial=0)), int(items.max(initial=0)))
    keys = np.arange(len(recommended))[:, None] * width + recommended
    return np.isin(keys, rows * width + items) & (recommended >= 0)


def precision(hits: Hits) -> Values:
    """Hits among the k recommended items: hits / k."""
    share: Values = hits.mean(axis=1)
    return share


def recall(hits: Hits, n_relevant: ArrayLike) -> Values:
    """Share of the relevant items that were found: ``hits / |T_u|``."""
    share: Values = hits.sum(axis=1) / _relevant(n_relevant)
    return share


def hit_rate(hits: Hits) -> Values:
    """Whether anything relevant was found: 1 or 0."""
    return np.asarray(hits.any(axis=1), dtype=np.float64)


def ndcg(hits: Hits, n_relevant: ArrayLike) -> Values:
    """Discounted gain Σ hit_j / log2(j + 1) over that of the best possible list.

    The best possible list begins with ``min(k, |T_u|)`` relevant items.
    """
    ideal: Values = np.cumsum(_discounts(hits.shape[1]))
    best = ideal[np.minimum(_relevant(n_relevant), hits.shape[1]) - 1]
    share: Values = _gain(hits) / best
    return share


def ndcg_retrieved(hits: Hits) -> Values:
    """Discounted gain over that of the same hits moved to the top; 0 without hits.

    This is the NDCG of the authors' code. It is inflated, because what was not found does
    not count against it: use it beside the paper's table only.
    """
    ideal = np.concatenate([[1.0], np.cumsum(_discounts(hits.shape[1]))])
    share: Values = _gain(hits) / ideal[hits.sum(axis=1)]
    return share


def reciprocal_rank(hits: Hits) -> Values:
    """1 / the rank of the first hit; 0 without hits. Its mean is MRR@k."""
    first: Values = np.where(hits.any(axis=1), 1.0 / (1 + hits.argmax(axis=1)), 0.0)
    return first


def novelty(recommended: NDArray[np.integer], popularity: ArrayLike, n_users: int) -> Values:
    """Mean self-information log2(n_users / popularity) of a user's recommended items, in bits.

    Zhou et al., PNAS 2010. ``popularity`` [items] counts the users who have an item in
    train; an item that nobody has counts as if one did. 0 for an empty list.
    """
    bits = np.log2(n_users / np.maximum(np.asarray(popularity), 1))
    listed = recommended >= 0
    total = np.where(listed, bits[np.maximum(recommended, 0)], 0.0).sum(axis=1)
    mean: Values = total / np.maximum(listed.sum(axis=1), 1)
    return mean


def coverage(recommended: NDArray[np.integer], n_items: int) -> float:
    """Share of the catalogue that is recommended to anyone at all."""
    return len(np.unique(recommended[recommended >= 0])) / n_items


def _discounts(k: int) -> Values:
    discounts: Values = 1.0 / np.log2(np.arange(2, k + 2))
    return discounts


def _gain(hits: Hits) -> Values:
    gain: Values = hits @ _discounts(hits.shape[1])
    return gain


def _relevant(n_relevant: ArrayLike) -> NDArray[np.int64]:
    """``|T_u|``, refused where there is nothing to find: the measure is not defined there."""
    counts = np.asarray(n_relevant, dtype=np.int64)
    if (counts < 1).any():
        row = int(np.argmax(counts < 1))
        raise LogerError(f"the user in row {row} has no relevant items; evaluate those who have")
    return counts
