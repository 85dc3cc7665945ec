"""Which rows stay when users and items need so many partners each: the k-core."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loger.graph import pair_keys


def core(
    users: NDArray[np.integer], items: NDArray[np.integer], least_user: int, least_item: int
) -> NDArray[np.bool_]:
    """Rows of the largest set in which every user has at least ``least_user`` items and every
    item at least ``least_item`` users; a pair counts once, however often it occurs.

    >>> core(np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1]), 2, 2)
    array([ True,  True,  True,  True, False])
    """
    users, items = np.asarray(users, dtype=np.int64), np.asarray(items, dtype=np.int64)
    if not len(users):
        return np.zeros(0, dtype=bool)
    n_users, n_items = int(users.max()) + 1, int(items.max()) + 1
    _, first = np.unique(pair_keys(users, items, n_items), return_index=True)
    u, v = users[first], items[first]
    while True:
        good_user = np.bincount(u, minlength=n_users) >= max(1, least_user)
        good_item = np.bincount(v, minlength=n_items) >= max(1, least_item)
        stay = good_user[u] & good_item[v]
        if stay.all():
            kept: NDArray[np.bool_] = good_user[users] & good_item[items]
            return kept
        u, v = u[stay], v[stay]
