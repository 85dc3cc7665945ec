"""A user's list with some actions and without them, everything learned as it is (METHOD 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from loger.explain.by_action import ENOUGH, MAX_SHOWN
from loger.metrics import actions as measures
from loger.metrics.faithfulness import Values, lead, rank

Ids = NDArray[np.integer]
"""Users or items, one of each pair."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """What a user's actions are said to give some items."""

    leads: Values  # [items]
    actions: Values  # [interactions, items], in the order of the history
    facts: Values  # [facts, items]: facts about the user that no interaction takes with it


@runtime_checkable
class Acts(Protocol):
    """A recommender that says what actions give, and scores without some of them."""

    def history(self, user: int) -> NDArray[np.int64]:
        """The items that a user has."""
        ...

    def contributions(self, user: int, items: Sequence[int]) -> Contributions:
        """What each of the user's actions gives each item."""
        ...

    def rescore(self, user: int, removed: Sequence[int]) -> Values:
        """Scores of all items as if the user did not have some items, all else as learned."""
        ...


class Scenes:
    """Scores of all items for one user without some actions, each made once."""

    def __init__(self, acts: Acts, user: int) -> None:
        self.acts, self.user, self.owned = acts, user, acts.history(user)
        self._scores: dict[frozenset[int], Values] = {}

    def scores(self, gone: frozenset[int]) -> Values:
        """The scores without actions, by place in the history."""
        if gone not in self._scores:
            removed = self.owned[sorted(gone)].tolist()
            self._scores[gone] = np.asarray(self.acts.rescore(self.user, removed))
        return self._scores[gone]

    def lead(self, item: int, gone: frozenset[int]) -> float:
        """An item's lead without actions."""
        return lead(self.scores(gone), item, self.owned)

    def flips(self, item: int, gone: frozenset[int], k: int) -> float:
        """1 if an item leaves the list of length k without actions, else 0."""
        return float(rank(self.scores(gone), item, self.owned) >= k)

    def best(self, gone: frozenset[int], k: int) -> list[int]:
        """The list without actions."""
        s = self.scores(gone).copy()
        s[self.owned] = -np.inf
        order = np.argsort(-s, kind="stable")[:k]
        return [int(v) for v in order if s[v] > -np.inf]


def shown_actions(given: Values) -> list[int]:
    """The actions that are shown as reasons, by place: until they carry 80 % of what actions give,
    at most five, and none that speaks against the item."""
    order = [a for a in measures.by_contribution(given) if given[a] > 0][:MAX_SHOWN]
    enough = np.flatnonzero(np.cumsum(given[order]) >= ENOUGH * given.sum())
    return order[: enough[0] + 1] if len(enough) else order
