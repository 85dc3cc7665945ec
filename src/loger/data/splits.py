"""Train, validation and test parts, and the training graph that knows nothing of the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from loger.data.dataset import PARTS, TEST, TRAIN, VALIDATION, Dataset, Interactions
from loger.engine.progress import table as html_table
from loger.errors import DataError, LogerError, UnknownNameError
from loger.graph import KnowledgeGraph

How = Literal["auto", "given", "time", "random"]
Part = Literal["train", "validation", "test"]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of a data set's interactions, in three parts."""

    dataset: Dataset
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    why: str = ""
    """How the split was made and why, as a sentence."""

    @cached_property
    def graph(self) -> KnowledgeGraph:
        """The training graph: what a model may see, and nothing of the other parts (L1)."""
        return self.dataset.graph(self.train)

    def pairs(self, part: Part) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The users and items of a part, row by row."""
        rows = getattr(self, part)
        return self.dataset.interactions.users[rows], self.dataset.interactions.items[rows]

    def __repr__(self) -> str:
        return (
            f"Split({self.dataset.name!r}, {len(self.train):,} train, "
            f"{len(self.validation):,} validation, {len(self.test):,} test)"
        )

    def _repr_html_(self) -> str:
        total, rows = max(1, len(self.dataset.interactions)), []
        for part in get_args(Part):
            n, users = len(getattr(self, part)), len(np.unique(self.pairs(part)[0]))
            rows.append((part, f"{n:,}", f"{n / total:.0%}", f"{users:,}"))
        head = ("part", "interactions", "share", "users")
        return f"<div><b>Split of {escape(self.dataset.name)}</b>{html_table(head, rows)}</div>"

    @property
    def sizes(self) -> dict[str, int]:
        """The number of interactions in each part."""
        return {part: len(getattr(self, part)) for part in PARTS}

    def marked(self) -> Dataset:
        """The data set with this split as its own, for others to read."""
        parts = np.empty(len(self.dataset.interactions), dtype=np.int8)
        for k, part in enumerate(PARTS):
            parts[getattr(self, part)] = k
        return replace(self.dataset, interactions=replace(self.dataset.interactions, parts=parts))

    def refit(self) -> Split:
        """The split for the fit after tuning: validation joins train."""
        both = np.sort(np.concatenate([self.train, self.validation]))
        return Split(self.dataset, both, self.validation[:0], self.test, self.why)

    def whole(self) -> Split:
        """The split for a model to use, after it has been measured: everything is train."""
        none = self.test[:0]
        every = np.arange(len(self.dataset.interactions), dtype=self.train.dtype)
        return Split(self.dataset, every, none, none, self.why)

    def unobserved(self, users: NDArray[np.integer], n: int, seed: int) -> NDArray[np.int32]:
        """For each user n items, drawn uniformly and without repetition, that the user has
        in no part at all (METHOD L4); [users, n]."""
        interactions = self.dataset.interactions
        n_items = self.dataset.n_items
        known = np.bincount(interactions.users, minlength=self.dataset.n_users)
        short = np.flatnonzero(known[users] + n > n_items)
        if len(short):
            raise LogerError(
                f"user {int(users[short[0]])} has fewer than {n} items without an interaction, "
                f"of {n_items} items in all"
            )
        order = np.argsort(interactions.users, kind="stable")
        ends = np.concatenate([[0], np.cumsum(known)])
        out = np.empty((len(users), n), dtype=np.int32)
        for row, u in enumerate(np.asarray(users)):
            # Draw ranks among the items the user does not have, then step over those it has.
            have = np.sort(interactions.items[order[ends[u] : ends[u + 1]]])
            rng = np.random.default_rng([seed, row, int(u)])
            ranks = rng.choice(n_items - len(have), size=n, replace=False, shuffle=True)
            gaps = have - np.arange(len(have))  # how many free items lie before each
            out[row] = ranks + np.searchsorted(gaps, ranks, side="right")
        return out


def split(
    dataset: Dataset,
    how: How = "auto",
    *,
    test: float = 0.2,
    validation: float = 0.1,
    seed: int = 0,
) -> Split:
    """Divide each user's interactions into train, validation and test.

    At least one interaction of each user stays in train, unless the data set's own split says
    otherwise. ``how`` is ``given`` (the data set's own split), ``time`` (hold out each user's
    latest interactions), ``random``, or ``auto``, the first of these that the data allow. ``test``
    is the share of each user's interactions to hold out; ``validation``, unless given, is a share
    of the rest. ``seed`` is for ``random``.
    """
    if how not in get_args(How):
        raise UnknownNameError("split", how, get_args(How))
    for name, share in (("test", test), ("validation", validation)):
        if not 0 <= share < 1:
            raise LogerError(f"{name} must be a share in [0, 1), got {share!r}")
    interactions, asked_for = dataset.interactions, how != "auto"
    if not asked_for:
        how = (
            "given"
            if interactions.parts is not None
            else "time"
            if interactions.times is not None
            else "random"
        )
    if how == "given" and interactions.parts is None:
        raise DataError(
            f"{dataset.name} doesn't come with a split", remedy="choose 'time' or 'random'"
        )
    if how == "time" and interactions.times is None:
        raise DataError(f"{dataset.name} has no timestamps", remedy="use the split 'random'")
    # Within a user: latest last, ties by item; a random key does for 'random'.
    rng = np.random.default_rng([seed, 0x5EED])
    shuffled = (
        rng.permutation(len(interactions))
        if how == "random" or interactions.times is None
        else None
    )
    key = interactions.times if shuffled is None else shuffled
    parts = np.full(len(interactions), TRAIN, dtype=np.int8)
    if how == "given":
        assert interactions.parts is not None
        parts = interactions.parts.copy()
    else:
        _hold_out(parts, interactions.users, interactions.items, key, test, TEST)
    if not (parts == VALIDATION).any():
        _hold_out(parts, interactions.users, interactions.items, key, validation, VALIDATION)
    train, held_out, tested = (np.flatnonzero(parts == p) for p in (TRAIN, VALIDATION, TEST))
    why = _why(how, asked_for, test, validation)
    if how == "time":
        why += _moments_torn(interactions, parts == TEST)
    return Split(dataset, train, held_out, tested, why)


def _why(how: How, asked_for: bool, test: float, validation: float) -> str:
    """What a split is, and why."""
    reasons = {
        "given": "the data come with one",
        "time": "the data have times",
        "random": "the data have no times",
    }
    names = {"given": "as given", "time": "by time", "random": "at random"}
    reason = "as requested" if asked_for else f"because {reasons[how]}"
    if how == "given":
        return f"{names[how]}, {reason}"
    which = "latest" if how == "time" else "any"
    parts = (
        f"{which} {test:.0%} of each user's items to test, {validation:.0%} of the rest to validate"
    )
    return f"{names[how]}, {reason}: {parts}"


def _moments_torn(interactions: Interactions, tested: NDArray[np.bool_]) -> str:
    """The share of test items with the same time as one that stays, such as the rest of an order: a
    model that knows the rest predicts them more easily than later ones. Reported from 1% on."""
    assert interactions.times is not None
    users, times = interactions.users, interactions.times
    latest = np.full(int(users.max(initial=-1)) + 1, np.iinfo(np.int64).min)  # that stays
    np.maximum.at(latest, users[~tested], times[~tested])
    torn = np.mean(times[tested] == latest[users[tested]]) if tested.any() else 0.0
    if torn < 0.01:
        return ""
    return f"; {torn:.0%} of the test items have the same time as one that isn't held out"


def _hold_out(
    parts: NDArray[np.int8],
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    key: NDArray[np.integer] | None,
    share: float,
    part: int,
) -> None:
    """Move the last share of each user's train rows, by key, into a part."""
    rows = np.flatnonzero(parts == TRAIN)
    if share == 0 or not len(rows):
        return
    keys = (items[rows], users[rows]) if key is None else (items[rows], key[rows], users[rows])
    rows = rows[np.lexsort(keys)]
    owner = users[rows]
    total = np.bincount(owner)[owner]
    place = np.arange(len(rows)) - np.searchsorted(owner, owner)  # 0 … total-1 within the user
    held = np.minimum(np.maximum(1, np.rint(share * total)), total - 1)
    parts[rows[place >= total - held]] = part
