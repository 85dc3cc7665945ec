"""Questions that people ask about a list and its rules.

Why is an item not in the list (``WhyNot``)? What if I had done something else (``WhatIf``)? Which
few actions keep an item in the list (``Counterfactual``)? What are examples of a rule
(``rule_examples``)?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.explain.attribution import Explanation, RulePart, explain
from loger.explain.record import entity_record
from loger.explain.render import what_if_html, why_not_html
from loger.graph import Graph, KnowledgeGraph, Path, history
from loger.graph.arrays import Doubles, Floats
from loger.grounding import Walk, ground, reach_best, strongest_paths
from loger.ranking.ranker import Ranker
from loger.rules import Rule, RuleSet
from loger.rules.sentences import path_sentence
from loger.rules.wording import ENGLISH, Wording

MAX_ACTIONS = 3
"""The most actions that a counterfactual removes."""
BUDGET = 2000
"""The most sets of actions to try."""
RIVALS = 20
"""Number of items after the list whose places attribution predicts; any item may replace the
removed one."""
_MOST_SETS = 200_000
"""The most sets of one size to sort; if there are more, only the largest actions are combined."""
EXAMPLES = 5
SAMPLE = 256
"""Number of users whose histories are searched for examples of a rule."""


@dataclass(frozen=True, repr=False)
class WhyNot:
    """Why an item is not in a user's list."""

    explanation: Explanation
    k: int
    last: Explanation | None
    """The last item of the list; None if the list is shorter than k."""
    silent: tuple[RulePart, ...]
    """Rules that apply to the list but not to the item, with their mean contribution to the list;
    the largest first."""
    owned: bool
    """Whether the user already has the item."""
    disliked: bool = False
    """Whether the item is hidden because the user dislikes it."""

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
        _, owned = history(ranker.graph, [user])
        _, barred = ranker.known([user])
        last = others[-1] if len(others) == k else None
        has = item in owned.tolist()
        return cls(mine, k, last, tuple(silent), has, not has and item in barred.tolist())

    @property
    def gap(self) -> float:
        """How far its score is below the last item of the list; negative if it is in the list."""
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
        if self.owned or self.disliked:
            return say("owned" if self.owned else "disliked", item=label, user=labels[e.user])
        if e.rank <= self.k:
            return say("listed", item=label, rank=e.rank)
        lines = [say("below", item=label, rank=e.rank, gap=f"{self.gap:.3f}", k=self.k)]
        for part in self.silent:
            usual = say("usual", rule=part.rule.sentence(e.words))
            lines.append(f"  {part.contribution:+.3f}  {usual}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class WhatIf:
    """A user's list with a changed history, next to the current list."""

    graph: Graph
    user: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    scores: tuple[float, ...]
    """Of the items after."""

    @classmethod
    def of(
        cls, ranker: Ranker, changed: Ranker, user: int, k: int, removed: Sequence[int] = ()
    ) -> WhatIf:
        """One user's lists by a ranker and by the same ranker on a changed graph. Items ``removed``
        from the history are not recommended, because the user knows them."""
        before, _ = ranker.top([user], k)
        after, scores = changed.top([user], k + len(removed))
        present = np.flatnonzero((after[0] >= 0) & ~np.isin(after[0], removed))[:k]
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


# ── without which actions? ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a search for actions to remove."""

    actions: tuple[int, ...]
    """Their places in the history; empty if no set suffices."""
    exact: bool
    """Whether every smaller set was tried; if no actions were found, every allowed set."""
    tried: int


def fewest_removals(
    above: Callable[[tuple[int, ...]], float],
    leads: Doubles,
    contributions: Doubles,
    k: int,
    most: int = MAX_ACTIONS,
    budget: int = BUDGET,
) -> Removal:
    """Find the fewest actions whose removal drops an item from the top k.

    ``leads`` [items] and ``contributions`` [actions, items] describe the item, which comes first,
    and its rivals. They predict the item's place, and so decide which sets are tried first;
    ``above`` returns how far above the k-th other item it really is. Larger sets are tried only
    after every smaller one has failed, so the result is the fewest. At most ``most`` actions are
    removed and ``budget`` sets tried.
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
    """All sets of a size, or those of the largest actions if there are too many."""
    places, n = np.arange(len(contributions)), len(contributions)
    while comb(n, size) > _MOST_SETS:
        n -= 1
    if n < len(places):
        places = np.sort(np.argsort(-contributions, kind="stable")[:n])
    return places[np.array(list(combinations(range(n), size)), dtype=np.int64)]


def above(scores: ArrayLike, item: int, known: ArrayLike, k: int) -> float:
    """An item's score minus that of the k-th best other; negative exactly if it is not in the top
    k."""
    s = np.array(scores, dtype=np.float64)
    s[np.asarray(known, dtype=np.int64)] = -np.inf
    others = np.delete(s, item)
    if (others > -np.inf).sum() < k:
        return np.inf
    place = len(others) - k
    gap = float(s[item] - np.partition(others, place)[place])
    before = (s > s[item]).sum() + (s[:item] == s[item]).sum()
    return -5e-324 if gap == 0 and before >= k else gap  # ties go to the lower number


@dataclass(frozen=True, repr=False)
class Counterfactual:
    """The fewest of a user's interactions without which an item leaves the list.

    Removed items don't return to the list, so the item that enters is new to the user.
    """

    graph: Graph
    user: int
    item: int
    k: int
    listed: bool
    """Whether the item is in the list at all."""
    actions: tuple[int, ...]
    """The items whose interactions are removed; empty if no small set suffices."""
    instead: int | None
    """The best item that enters the list."""
    exact: bool
    """Whether every smaller set was tried; if no actions were found, every allowed set."""
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
        """Search for an item of a user; there is nothing to remove if it is not in the list."""
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


# ── examples of a rule ────────────────────────────────────────────────────────────────


def rule_examples(
    graph: KnowledgeGraph,
    rule: Rule,
    walk: Walk | None,
    n: int = EXAMPLES,
    words: Wording = ENGLISH,
) -> list[dict[str, Any]]:
    """The n strongest paths of a rule from users to items that they have, one per user, each with
    its sentence, entities and relations.

    A derived relation isn't illustrated by the interactions it was made from (METHOD L2), so the
    examples of its rules lead to items that people don't have.
    """
    rules = RuleSet((rule,))
    users, items = _strongest_pairs(graph, rules, walk, n)
    zeros = np.zeros(len(users), dtype=np.int64)
    nodes, _ = strongest_paths(graph, rules, zeros, users, items, 1, walk)
    paths = [
        Path((int(u), *inner[0][: len(rule) - 1].tolist(), int(v) + graph.n_users), rule.relations)
        for u, v, inner in zip(users, items, nodes, strict=True)
    ]
    return [
        {
            "sentence": path_sentence(graph, path, words),
            "entities": [_entity(graph, e, words) for e in path.entities],
            "relations": list(rule.names),
        }
        for path in paths
    ]


def _entity(graph: KnowledgeGraph, entity: int, words: Wording) -> dict[str, str]:
    """An entity of an example, with people unnamed."""
    if graph.vocabulary.type_of(entity) == "user":
        return {"name": "", "label": words.pronoun("someone"), "type": "user"}
    return entity_record(graph.vocabulary, entity)


def _strongest_pairs(
    graph: KnowledgeGraph, rules: RuleSet, walk: Walk | None, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The n sampled users for whom the rule leads most strongly to an item, and these items."""
    sample = np.linspace(0, graph.n_users - 1, min(SAMPLE, graph.n_users)).astype(np.int64)
    if rules[0].derived:
        none = np.empty((len(sample), 0), dtype=np.int32)
        groundings = reach_best(graph, rules, sample, walk or Walk.uniform(0.0), [1], none)
        users, items = groundings.users.astype(np.int64), groundings.items.astype(np.int64)
    else:
        owners, items = history(graph, sample)
        users = sample[owners]
        groundings = ground(graph, rules, users, items, walk=walk)
    strengths = groundings.counts if groundings.strengths is None else groundings.strengths
    pairs = np.repeat(np.arange(len(groundings)), np.diff(groundings.indptr))
    best: dict[int, int] = {}  # user → pair
    for cell in np.argsort(-strengths, kind="stable").tolist():
        best.setdefault(int(users[pairs[cell]]), int(pairs[cell]))
        if len(best) == n:
            break
    rows = np.array(list(best.values()), dtype=np.int64)
    return users[rows], items[rows]
