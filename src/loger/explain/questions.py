"""What people ask of a list: why is this not in it, and what if I had done otherwise?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loger.explain.attribution import Explanation, explain
from loger.explain.by_rule import RulePart
from loger.explain.html import what_if_html, why_not_html
from loger.graph import Graph
from loger.ranking.ranker import Ranker
from loger.rules import Rule
from loger.rules.wording import ENGLISH, Wording


@dataclass(frozen=True, repr=False)
class WhyNot:
    """What keeps an item out of a user's list."""

    explanation: Explanation
    k: int
    last: Explanation | None
    """The last item of the list; None if the list is shorter than k."""
    silent: tuple[RulePart, ...]
    """Rules that do not fire for the item though they do for the list, with what they give
    there on average; the largest first."""
    owned: bool
    """Whether the user has the item already."""

    @classmethod
    def of(cls, ranker: Ranker, user: int, item: int, k: int, words: Wording = ENGLISH) -> WhyNot:
        """Compare an item with the k that the user gets."""
        scores = ranker.scores([user])
        lists, _ = scores.best(k)
        pairs = np.append(lists[0][lists[0] >= 0].astype(np.int64), item)
        users = np.full(len(pairs), user)
        *others, mine = explain(ranker, users, pairs, scores=scores, words=words)
        fires = {part.rule for part in mine.rules}
        gives: dict[Rule, list[RulePart]] = {}
        for other in others:
            for part in other.rules:
                gives.setdefault(part.rule, []).append(part)
        silent = [
            RulePart(rule, parts[0].weight, 0, sum(p.contribution for p in parts) / len(others))
            for rule, parts in gives.items()
            if rule not in fires
        ]
        silent.sort(key=lambda part: -part.contribution)
        _, owned = ranker.known([user])
        last = others[-1] if len(others) == k else None
        return cls(mine, k, last, tuple(silent), item in owned.tolist())

    @property
    def gap(self) -> float:
        """How far its score is below the last of the list; negative if it is in it."""
        return self.last.score - self.explanation.score if self.last else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The record for machines."""
        return {
            "explanation": self.explanation.as_dict(),
            "k": self.k,
            "gap": self.gap,
            "owned": self.owned,
            "last": self.last.as_dict() if self.last else None,
            "silent": [
                {
                    "rule": str(part.rule),
                    "sentence": part.rule.sentence(self.explanation.words),
                    "weight": part.weight,
                    "gives_on_average": part.contribution,
                }
                for part in self.silent
            ],
        }

    def __repr__(self) -> str:
        return f"<WhyNot, k = {self.k}, {self.explanation!r}>"

    def _repr_html_(self) -> str:
        return why_not_html(self)

    def __str__(self) -> str:
        e, say = self.explanation, self.explanation.words.text
        labels = e.graph.vocabulary.shown
        label = labels[e.item + e.graph.n_users]
        if self.owned:
            return say("owned", item=label, user=labels[e.user])
        if e.rank <= self.k:
            return say("listed", item=label, rank=e.rank)
        lines = [say("below", item=label, rank=e.rank, gap=f"{self.gap:.3f}", k=self.k)]
        for part in self.silent:
            usual = say("usual", rule=part.rule.sentence(e.words))
            lines.append(f"  {part.contribution:+.3f}  {usual}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class WhatIf:
    """A user's list with other interactions, beside the list as it is."""

    graph: Graph
    user: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    scores: tuple[float, ...]
    """Of the items after."""

    @classmethod
    def of(cls, ranker: Ranker, changed: Ranker, user: int, k: int) -> WhatIf:
        """The lists of one user by a ranker, and by the same on another graph."""
        before, _ = ranker.top([user], k)
        after, scores = changed.top([user], k)
        present = after[0] >= 0
        return cls(
            ranker.graph,
            user,
            tuple(int(v) for v in before[0] if v >= 0),
            tuple(after[0][present].tolist()),
            tuple(float(s) for s in scores[0][present]),
        )

    @property
    def gone(self) -> list[int]:
        """Items that leave the list."""
        return [v for v in self.before if v not in self.after]

    @property
    def new(self) -> list[int]:
        """Items that enter it."""
        return [v for v in self.after if v not in self.before]

    def as_dict(self) -> dict[str, Any]:
        """The record for machines."""
        return {
            "user": self.graph.vocabulary.names[self.user],
            "before": self._names(self.before),
            "after": self._names(self.after),
            "scores": list(self.scores),
            "gone": self._names(self.gone),
            "new": self._names(self.new),
        }

    def _names(self, items: Iterable[int]) -> list[str]:
        names, first = self.graph.vocabulary.names, self.graph.n_users
        return [names[v + first] for v in items]

    def __repr__(self) -> str:
        return f"<WhatIf, {len(self.gone)} gone, {len(self.new)} new of {len(self.before)}>"

    def _repr_html_(self) -> str:
        return what_if_html(self)

    def __str__(self) -> str:
        labels, first = self.graph.vocabulary.shown, self.graph.n_users
        place = {v: k for k, v in enumerate(self.before)}
        lines = []
        for k, v in enumerate(self.after):
            move = "new" if v not in place else f"{place[v] - k:+d}" if place[v] != k else ""
            lines.append(f"{k + 1:3d}  {labels[v + first]}  {move}".rstrip())
        lines += [f"  –  {labels[v + first]}  gone" for v in self.gone]
        return "\n".join(lines)
