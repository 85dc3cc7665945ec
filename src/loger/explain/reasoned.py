"""Explanations by the path reasoner φ: what Algorithm 1 of the paper finds, and what it misses.

φ walks from the user and proposes paths. Those that follow one of the user's most important rules
(by y_u) and end at the item are the explanation. A path's contribution is read off the score, as
for any path. If rules lead to the item but the walk finds none of their paths, the explanation
says that it missed them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine
from loger.errors import LogerError
from loger.explain.attribution import BLOCK, ExplainedPair
from loger.explain.reasons import PathPart
from loger.explain.record import reasoned_record
from loger.explain.render import reasoned_html
from loger.ranking.ranker import Parts, Ranker, Scores, blocks
from loger.reasoner.search import Found, PathSearch, SearchConfig, path_strengths
from loger.recommender import ExplainedItem
from loger.rules import Rule
from loger.rules.sentences import path_sentence

if TYPE_CHECKING:
    from loger.reasoner.walker import Reasoner


class FollowedRule(NamedTuple):
    """One of the user's most important rules."""

    rule: Rule
    importance: float
    """y_{u,l}."""


class WalkedPath(NamedTuple):
    """A path that the reasoner found."""

    part: PathPart
    """What it adds to logit p."""
    score: float
    """The mean over its hops of ⟨ê, e'⟩ + ⟨r̂, r'⟩."""


@dataclass(frozen=True, repr=False)
class Reasoned(ExplainedPair):
    """The paths that the reasoner found for an item, its favourite first."""

    rank: int
    """Its place among the items that the user doesn't have, from 1."""
    followed: tuple[FollowedRule, ...]
    """The rules that the reasoner follows, the most important to the user first."""
    paths: tuple[WalkedPath, ...]
    n: int
    """Number of paths of all rules that lead to the item."""

    @property
    def missed(self) -> bool:
        """Whether rules lead to the item but none of their paths was found."""
        return self.n > 0 and not self.paths

    def sentences(self) -> list[str]:
        """Each path as a sentence."""
        return [path_sentence(self.graph, p.part.path, self.words) for p in self.paths]

    def because(self) -> str:
        """The first path as a sentence, or a note that there is none."""
        if self.paths:
            return self.sentences()[0]
        if not self.n:
            return self.words.text("reasoner_no_rule")
        key = "reasoner_missed_one" if self.n == 1 else "reasoner_missed_many"
        return self.words.text(key, n=self.words.number(self.n))

    def explained(self) -> ExplainedItem:
        """The record that every recommender with reasons returns."""
        paths = tuple(p.part.path for p in self.paths)
        weights = tuple(p.part.contribution for p in self.paths)
        return ExplainedItem(self.item, self.score, paths, weights)

    def as_dict(self) -> dict[str, Any]:
        """The explanation for programs, with names instead of numbers: a ``ReasonedRecord``."""
        return reasoned_record(self)

    def __str__(self) -> str:
        labels = self.graph.vocabulary.shown
        label, user = labels[self.item + self.graph.n_users], labels[self.user]
        lines = [self.words.text("reasoner", item=label, user=user, rank=self.rank)]
        lines += [
            f"  {p.score:+.3f}  {text}"
            for p, text in zip(self.paths, self.sentences(), strict=True)
        ]
        if not self.paths:
            lines.append(f"  {self.because()}")
        if self.held_out:
            lines.append(f"  {self.words.testing(self.held_out)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self._named(f"rank {self.rank}, {len(self.paths)} of {self.n} paths")

    def _repr_html_(self) -> str:
        return reasoned_html(self)


@dataclass(frozen=True, eq=False)
class PathReasoner:
    """φ with its search: finds paths of a ranker's rules."""

    walker: Reasoner
    search: SearchConfig

    def reasoned(
        self,
        ranker: Ranker,
        user: int,
        items: NDArray[np.integer],
        paths: int = 3,
        scores: Scores | None = None,
    ) -> list[Reasoned]:
        """What one walk from a user finds for some items, in the given order. ``scores`` holds the
        user's scores if they are already computed."""
        self._check(ranker)
        v = items.astype(np.int64)
        owners = np.full(len(v), user)
        every = ranker.scores([user]) if scores is None else scores
        row = np.flatnonzero(every.users == user)[0]
        ranks, _ = every.ranks(np.full(len(v), row), v)
        search = PathSearch(ranker.logic_graph, ranker.logic.rules, self.search)
        y = ranker.importance(user)
        found = search.best(user, v, self.walker, y)
        rules = ranker.logic.rules
        followed = tuple(FollowedRule(rules[k], float(y[k])) for k in search.followed(y).tolist())
        parts = ranker.parts(owners, v, every.encoder[row, v].astype(np.float64))
        n = np.asarray(parts.groundings.count_matrix.sum(axis=1)).ravel()
        encoder, logic = parts.fused
        total = encoder + logic
        worth, shares = _contributions(ranker, parts, found)
        return [
            Reasoned(
                ranker=ranker,
                user=user,
                item=int(v[k]),
                score=float(total[k]),
                rank=int(ranks[k]),
                followed=followed,
                paths=tuple(_walked(ranker, found, k, paths, worth, shares)),
                n=int(n[k]),
            )
            for k in range(len(v))
        ]

    def explained_items(
        self, ranker: Ranker, users: ArrayLike, k: int, paths: int, engine: Engine
    ) -> list[list[ExplainedItem]]:
        """The k best items of users, all by number, with the paths found for them."""
        asked = np.asarray(users, dtype=np.int64)
        shared = (self, ranker, k, paths)
        rows = engine.map("explaining", _explained, blocks(asked, BLOCK), shared)
        return [[one.explained() for one in row] for part in rows for row in part]

    def tops(self, ranker: Ranker, users: ArrayLike, k: int, paths: int) -> list[list[Reasoned]]:
        """The k best items of each user, with what one walk finds for them."""
        out = []
        for user in np.asarray(users).tolist():
            scores = ranker.scores([user], observed=False)
            items = scores.best(k)[0][0]
            out.append(self.reasoned(ranker, user, items[items >= 0], paths, scores))
        return out

    def _check(self, ranker: Ranker) -> None:
        known, now = self.walker.graph_.n_users, ranker.graph.n_users
        if known != now:
            raise LogerError(
                f"the reasoner was trained with {known:,} users, but this model has {now:,}; "
                "explain by contributions instead"
            )


def _explained(
    shared: tuple[PathReasoner, Ranker, int, int], users: NDArray[np.int64]
) -> list[list[Reasoned]]:
    by, ranker, k, paths = shared
    return by.tops(ranker, users, k, paths)


def _contributions(
    ranker: Ranker, parts: Parts, found: Found
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each path adds to its item's logit p, and its share of its rule's contribution."""
    if not len(found):
        return np.empty(0), np.empty(0)
    at = found.targets, found.places
    if ranker.logic.walk is None:
        shares = 1 / parts.groundings.count_matrix.toarray()[at]
    else:
        strengths = path_strengths(ranker.logic_graph, found, ranker.logic.walk)
        shares = strengths / parts.groundings.strength_matrix.toarray()[at]
    return shares * parts.groundings.as_matrix(parts.rules).toarray()[at], shares


def _walked(
    ranker: Ranker,
    found: Found,
    target: int,
    n: int,
    worth: NDArray[np.float64],
    shares: NDArray[np.float64],
) -> Iterator[WalkedPath]:
    """The first n paths of an item."""
    first = int(found.starts[target])
    for k, one in enumerate(found.of(target, n), first):
        rule = ranker.logic.rules[one.rule]
        part = PathPart(one.path, rule, float(worth[k]), float(shares[k]), ranker.graph)
        yield WalkedPath(part, float(one.score))
