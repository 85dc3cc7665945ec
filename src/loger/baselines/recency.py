"""Histories that fade: how old each interaction is, and what it still counts."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from loger.data.splits import Split
from loger.errors import LogerError
from loger.recommender import PairMatrix, part_matrix


def pair_ages(split: Split, whose: str, *exponents: float) -> PairMatrix:
    """Training pairs as 1 + how many of the user's interactions came later; [users, items].

    Those at the same time are of the same age, as in ``KnowledgeGraph.later``. Data without
    times have ones; to let them fade, with any of ``exponents`` above 0, is refused.
    """
    check_exponents(*exponents)
    if split.dataset.interactions.times is None:
        if any(exponents):
            raise LogerError(
                f"{whose} with recency needs times, and {split.dataset.name} has none; "
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


def check_exponents(*exponents: float) -> None:
    """Refuse a history that would count more the older it gets."""
    if any(exponent < 0 for exponent in exponents):
        raise LogerError(f"recency must be at least 0, got {exponents!r}")


def decayed(ages: PairMatrix, exponent: float) -> PairMatrix:
    """What each pair counts, age^−exponent; ones for exponent 0."""
    data = ages.data ** np.float32(-exponent)
    return sp.csr_array((data, ages.indices, ages.indptr), shape=ages.shape)


def ordered_events(
    split: Split,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Training interactions as (users, items, times), each user's in order.

    Of those at the same time the data's own order stands: what a file lists first came first.
    """
    events = split.dataset.interactions
    if events.times is None:
        raise LogerError(f"{split.dataset.name} has no times, so there is no order to learn from")
    rows = split.train
    rows = rows[np.lexsort((rows, events.times[rows], events.users[rows]))]
    return events.users[rows], events.items[rows], events.times[rows]
