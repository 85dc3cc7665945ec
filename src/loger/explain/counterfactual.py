"""The fewest actions without which an item is not recommended, and what would come instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.protocol import Floats
from loger.explain.attribution import explain
from loger.graph import Graph, history
from loger.ranking.ranker import Ranker
from loger.rules.wording import ENGLISH, Wording

Doubles = NDArray[np.float64]
MAX_ACTIONS = 3
BUDGET = 2000
"""Sets of actions whose removal is tried at most."""
RIVALS = 20
"""Items after the list that attribution foresees the places of; any item may come instead."""
_MOST_SETS = 200_000
"""Sets of one size that are put in order; beyond, only those of the weightiest actions."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What was found: places of actions, and what is known about smaller sets."""

    actions: tuple[int, ...]
    """Their places in the history; empty if no set that was tried suffices."""
    exact: bool
    """Every smaller set was tried; without actions: every set of up to the most."""
    tried: int


def fewest_removals(
    above: Callable[[tuple[int, ...]], float],
    leads: Doubles,
    contributions: Doubles,
    k: int,
    most: int = MAX_ACTIONS,
    budget: int = BUDGET,
) -> Removal:
    """The fewest actions that drop the first of some items from the top k.

    ``leads`` [items] and ``contributions`` [actions, items] are those of the item and of its
    rivals. They only foresee where the item will be, and so which sets are tried first;
    ``above`` says how far above the k-th other it really is. A size is begun when every smaller
    set has failed, so what is found is the fewest.
    """
    tried, complete = 0, True  # whether every set of the sizes before has been tried
    for size in range(1, min(most, len(contributions)) + 1):
        sets = _sets(contributions[:, 0], size)
        kept = leads - contributions[sets].sum(axis=1)  # [sets, items]
        rivals = np.sort(kept[:, 1:], axis=1)[:, ::-1]
        rival = rivals[:, k - 1] if rivals.shape[1] >= k else np.zeros(len(sets))
        for chosen in sets[np.argsort(kept[:, 0] - rival, kind="stable")].tolist():
            if tried == budget:
                return Removal((), False, tried)
            tried += 1
            if above(tuple(chosen)) < 0:
                return Removal(tuple(chosen), complete, tried)
        complete &= len(sets) == comb(len(contributions), size)
    return Removal((), complete, tried)


def _sets(contributions: Doubles, size: int) -> NDArray[np.int64]:
    """All sets of a size, or those of the weightiest actions where there are too many."""
    places, n = np.arange(len(contributions)), len(contributions)
    while comb(n, size) > _MOST_SETS:
        n -= 1
    if n < len(places):
        places = np.sort(np.argsort(-contributions, kind="stable")[:n])
    return places[np.array(list(combinations(range(n), size)), dtype=np.int64)]


def above(scores: ArrayLike, item: int, known: ArrayLike, k: int) -> float:
    """An item's score above the k-th best other; below 0 just when it is out of the top k."""
    s = np.array(scores, dtype=np.float64)
    s[np.asarray(known, dtype=np.int64)] = -np.inf
    others = np.delete(s, item)
    if (others > -np.inf).sum() < k:
        return np.inf
    place = len(others) - k
    gap = float(s[item] - np.partition(others, place)[place])
    before = (s > s[item]).sum() + (s[:item] == s[item]).sum()
    return -5e-324 if gap == 0 and before >= k else gap  # a tie may be lost by number


@dataclass(frozen=True, repr=False)
class Counterfactual:
    """The fewest interactions of a user without which an item leaves the list.

    What the user has stays out of the list, whether it is removed or not: the item that comes
    instead is one that the user does not know.
    """

    graph: Graph
    user: int
    item: int
    k: int
    listed: bool
    """Whether the item is in the list at all."""
    actions: tuple[int, ...]
    """The items whose interactions are removed; empty if no few suffice."""
    instead: int | None
    """The best item that enters the list."""
    exact: bool
    """Every smaller set was tried; without actions: every set of up to the most asked for."""
    words: Wording = ENGLISH

    @classmethod
    def of(
        cls,
        ranker: Ranker,
        user: int,
        item: int,
        k: int = 10,
        most: int = MAX_ACTIONS,
        budget: int = BUDGET,
    ) -> Counterfactual:
        """Search for a user's item; no actions are needed if it is not in the list anyway."""
        _, owned = history(ranker.graph, np.array([user]))
        _, known = ranker.known([user])
        every = ranker.scores([user])
        before = every.best(k + RIVALS)[0][0]
        before = before[before >= 0].astype(np.int64)
        items = np.append(item, before[before != item])
        records = explain(ranker, np.full(len(items), user), items, 0, every)
        leads = np.array([e.lead for e in records])
        given = np.stack([e.attribution.actions[: len(owned)] for e in records], axis=1)

        def scores(gone: Sequence[int]) -> Floats:
            viewed = ranker.user_view(user, remove=owned[list(gone)].tolist())
            total: Floats = viewed.scores([user], observed=False).total[0]
            return total

        found, listed = Removal((), True, 0), item in before[:k].tolist()
        if listed:
            found = fewest_removals(
                lambda gone: above(scores(gone), item, known, k), leads, given, k, most, budget
            )
        instead = None
        if found.actions:
            after = np.array(scores(found.actions), dtype=np.float64)
            after[known] = after[before[:k]] = -np.inf
            instead = int(after.argmax())
        removed = tuple(owned[list(found.actions)].tolist())
        return cls(ranker.graph, user, item, k, listed, removed, instead, found.exact)

    def as_dict(self) -> dict[str, Any]:
        """The record for machines."""
        names, first = self.graph.vocabulary.names, self.graph.n_users
        return {
            "user": names[self.user],
            "item": names[self.item + first],
            "k": self.k,
            "listed": self.listed,
            "without": [names[v + first] for v in self.actions],
            "instead": None if self.instead is None else names[self.instead + first],
            "exact": self.exact,
        }

    def __repr__(self) -> str:
        return f"<Counterfactual, {len(self.actions)} actions, k = {self.k}>"

    def __str__(self) -> str:
        labels, first = self.graph.vocabulary.shown, self.graph.n_users
        label, say = labels[self.item + first], self.words.text
        if not self.listed:
            return say("cf_not_listed", item=label, k=self.k)
        if self.instead is None:
            return say("cf_none", item=label, k=self.k)
        *most, last = (labels[v + first] for v in self.actions)
        gone = say("and").join([", ".join(most), last] if most else [last])
        return say("cf_without", gone=gone, instead=labels[self.instead + first], item=label)
