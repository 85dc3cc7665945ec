"""What rules and their paths add to logit p of some pairs, looked up once it is asked for.

Reasons are by action (``by_action``); this is the other view, one flag or click away.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from loger.explain.reasons import PathPart, leading
from loger.graph import Path
from loger.grounding import strongest_paths
from loger.ranking.ranker import Parts, Ranker
from loger.rules import Rule
from loger.rules.wording import Wording


@dataclass(frozen=True, slots=True)
class RulePart:
    """What a rule adds to logit p of a pair."""

    rule: Rule
    weight: float
    paths: int
    """n_l: how many paths fire."""
    contribution: float
    """w_l φ_l."""


@dataclass(frozen=True, eq=False)
class ByRule:
    """logit p of some pairs by rule and by path."""

    ranker: Ranker
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    parts: Parts
    n: int
    """How many paths are looked up for each pair."""
    words: Wording

    @cached_property
    def rules(self) -> list[tuple[RulePart, ...]]:
        """For each pair the rules that fire, the largest contribution first."""
        found, worth, logic = self.parts.groundings, self.parts.rules, self.ranker.logic
        out = []
        for lo, hi in zip(found.indptr[:-1], found.indptr[1:], strict=True):
            cells = lo + np.argsort(-np.abs(worth[lo:hi]), kind="stable")
            out.append(
                tuple(
                    RulePart(
                        logic.rules[int(found.rules[c])],
                        float(logic.weights[found.rules[c]]),
                        int(found.counts[c]),
                        float(worth[c]),
                    )
                    for c in cells
                )
            )
        return out

    @cached_property
    def paths(self) -> list[tuple[PathPart, ...]]:
        """Up to n paths of each pair: the strongest of each rule, rules by contribution and what
        leads among them; then the next of each."""
        n, found, users, items = self.n, self.parts.groundings, self.users, self.items
        if n < 1:
            return [()] * len(found)
        pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
        useful = np.flatnonzero(self.parts.rules > 0)
        pair, rules, given = pair[useful], found.rules[useful], self.parts.rules[useful]
        graph, logic = self.ranker.graph, self.ranker.logic
        nodes, strengths = strongest_paths(
            self.ranker.logic_graph, logic.rules, rules, users[pair], items[pair], n, logic.walk
        )
        total = found.counts if found.strengths is None else found.strengths
        shares = strengths / np.maximum(total[useful], 1e-300)[:, None]
        worth = shares * given[:, None]
        order = self._order(pair, rules, given)
        out: list[list[PathPart]] = [[] for _ in range(len(found))]
        for k in order[worth.ravel()[order] > 0].tolist():
            cell, which = divmod(k, n)
            i = int(pair[cell])
            if len(out[i]) == n:
                continue
            rule = logic.rules[int(rules[cell])]
            inner = nodes[cell, which][: len(rule) - 1].tolist()
            path = Path((int(users[i]), *inner, int(items[i]) + graph.n_users), rule.relations)
            share, gives = float(shares[cell, which]), float(worth[cell, which])
            out[i].append(PathPart(path, rule, gives, share, graph, self.words))
        return [tuple(own) for own in out]

    def _order(
        self, pair: NDArray[np.int64], rules: NDArray[np.integer], given: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """The order in which paths are told, pair by pair; path j of a cell is n · cell + j."""
        users, n = self.users, self.n
        counts = self.ranker.counts_of
        later = ~leading(pair, given, lambda tied: counts(users[pair[tied]], rules[tied]))
        each = [np.repeat(x, n) for x in (-given, later, pair)]
        place = np.tile(np.arange(n), len(given))
        return np.lexsort((each[0], each[1], place, each[2]))
