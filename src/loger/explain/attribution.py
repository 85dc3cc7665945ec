"""Explanations: the parts of a score, read off the computation itself (METHOD 7).

    S = encoder + logic,    logit p = prior + popularity + Σ_l w_l φ_l

With the default fusion, logic is logit p; with the paper's, encoder is q and logic α·p. A rule's
part is w_l φ_l. A path's part of that is its share of the rule's strength, or of its count if the
feature counts paths. All parts add up, and none is made up afterwards.

This module splits logit p by rule and path. ``by_action`` splits S by the user's actions, and
``reasons`` looks up their evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from loger.explain.by_action import Attribution, Encoders, attribute
from loger.explain.reasons import PathPart, Reason, Strongest, Together, grouped, leading, reasons
from loger.explain.record import explanation_record
from loger.explain.render import explanation_html, explanation_text
from loger.graph import Graph, Path
from loger.grounding import strongest_paths
from loger.ranking.ranker import Parts, Ranker, Scores, blocks
from loger.recommender import ExplainedItem
from loger.rules import Rule
from loger.rules.sentences import path_sentence
from loger.rules.wording import ENGLISH, Wording

if TYPE_CHECKING:
    from loger.explain.questions import Counterfactual

BLOCK = 64
"""Number of users whose items are ranked at a time."""


class RulePart(NamedTuple):
    """What a rule adds to a pair's logit p."""

    rule: Rule
    weight: float
    paths: int
    """n_l: the number of paths."""
    contribution: float
    """w_l φ_l."""


@dataclass(frozen=True, eq=False)
class ByRule:
    """The logit p of several pairs, split by rule and by path."""

    ranker: Ranker
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    parts: Parts
    n: int
    """Number of paths to look up for each pair."""
    words: Wording

    @cached_property
    def rules(self) -> list[tuple[RulePart, ...]]:
        """For each pair, the rules that apply, the largest contribution first."""
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
        """Up to n paths of each pair: first the strongest path of each rule, with the rules sorted
        by contribution and ``leading``; then the second of each, and so on."""
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
        """The order of the paths, pair by pair; path j of a cell has the number n · cell + j."""
        users, n = self.users, self.n
        counts = self.ranker.counts_of
        later = ~leading(pair, given, lambda tied: counts(users[pair[tied]], rules[tied]))
        each = [np.repeat(x, n) for x in (-given, later, pair)]
        place = np.tile(np.arange(n), len(given))
        return np.lexsort((each[0], each[1], place, each[2]))


@dataclass(frozen=True, repr=False)
class ExplainedPair:
    """A user, an item and its score: what every explanation is about."""

    ranker: Ranker
    user: int
    item: int
    score: float
    """S, in double precision."""
    words: Wording = field(default=ENGLISH, kw_only=True)
    """Language and style of the sentences."""

    @property
    def graph(self) -> Graph:
        """The graph that the paths are in."""
        return self.ranker.graph

    @property
    def held_out(self) -> int:
        """Number of interactions held out for testing, which the model doesn't know."""
        return len(self.ranker.held_out)

    def said(self, words: Wording) -> Self:
        """The same explanation in other words."""
        return replace(self, words=words)

    def _named(self, about: str) -> str:
        names, item = self.graph.vocabulary.names, self.item + self.graph.n_users
        return f"<{type(self).__name__} of {names[item]!r} for {names[self.user]!r}: {about}>"


@dataclass(frozen=True, repr=False)
class Explanation(ExplainedPair):
    """Why an item has its score for a user; the parts add up to it."""

    encoder: float
    """What the encoder contributes: w_enc·s, or q with the paper's fusion."""
    logic: float
    """What the logic contributes: logit p, or α·p with the paper's fusion."""
    logit: float
    """logit p = prior + popularity + Σ of the rules."""
    prior: float
    popularity: float
    q: float
    p: float
    rank: int
    """Its place among the items that the user doesn't have, from 1; 0 unless requested."""
    rank_without_logic: int
    """The same by the encoder's score alone."""
    attribution: Attribution
    """S by the user's actions."""
    by_rule: ByRule
    """logit p by rule and path, for all pairs that were explained together with this one."""
    together: Together
    """The shown reasons of these pairs."""
    place: int
    """This pair's place among them."""
    counterfactual: Counterfactual | None = None
    """The fewest actions without which the item leaves the list; None unless requested."""

    # ── by action ───────────────────────────────────────────────────────────────────────

    @property
    def mean(self) -> float:
        """The mean score of all items that the user doesn't have."""
        return self.attribution.mean

    @property
    def lead(self) -> float:
        """S minus the mean item's score: what the reasons have to account for."""
        return self.attribution.lead

    @property
    def appeal(self) -> float:
        """What the item has for any user, beyond the mean item."""
        return self.attribution.appeal

    @property
    def expected(self) -> bool:
        """Whether the appeal is estimated from similar items, because the item is newer than the
        fit."""
        expected = self.ranker.logic.expected
        return expected is not None and bool(expected[self.item])

    @property
    def opaque(self) -> float | None:
        """What the encoder contributes if it can't be split by action; None if it can."""
        return self.attribution.opaque

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """All of the user's actions that contribute, the largest total first."""
        totals = self.attribution.actions
        order = np.argsort(-totals, kind="stable")
        return tuple(self._reasons([int(edge) for edge in order[totals[order] != 0]]))

    @cached_property
    def shown(self) -> tuple[Reason, ...]:
        """Up to five reasons, enough to carry 80% of what all actions contribute. If five actions
        don't carry that much, actions that share their main evidence form one reason."""
        groups, cells = self.together.shown[self.place]
        every = self._reasons([edge for group in groups for edge in group], cells)
        return tuple(grouped([next(every) for _ in group], self.graph) for group in groups)

    @property
    def carried(self) -> float:
        """The share of the lead that the shown reasons carry."""
        return sum(reason.share for reason in self.shown)

    @property
    def carried_of_actions(self) -> float:
        """The share of all actions' contributions that the shown reasons carry; 0 if all actions
        together count against the item."""
        whole = float(self.attribution.actions.sum())
        return sum(reason.total for reason in self.shown) / whole if whole > 0 else 0.0

    @property
    def parts(self) -> dict[str, float]:
        """The parts of the score by readable names; the values add up to the score."""
        say = self.words.text
        appeal = say("appeal_expected" if self.expected else "appeal")
        out = {say("mean_item"): self.mean, appeal: self.appeal}
        if self.opaque is not None:
            out[say("opaque")] = self.opaque
        names = self.graph.vocabulary.names
        for reason in self.reasons:
            known = reason.action in out and self.graph.vocabulary.type_of(reason.entity) != "user"
            key = f"{reason.action} ({names[reason.entity]})" if known else reason.action
            out[key if key not in out else f"{key} {len(out)}"] = reason.total
        return out

    def _reasons(self, edges: list[int], known: Strongest | None = None) -> Iterator[Reason]:
        pair = self.ranker, self.user, self.item, self.attribution
        return reasons(*pair, edges, self.words, known)

    # ── by rule ─────────────────────────────────────────────────────────────────────────

    @property
    def rules(self) -> tuple[RulePart, ...]:
        """All rules that apply, the largest contribution first."""
        return self.by_rule.rules[self.place]

    @property
    def paths(self) -> tuple[PathPart, ...]:
        """The strongest path of each rule, then the second strongest of each, and so on. The rule
        with the largest contribution comes first; among rules within 10% of it, the one that occurs
        most in the user's history."""
        return self.by_rule.paths[self.place]

    @property
    def logic_share(self) -> float:
        """The rules' share of all evidence (rules, encoder and popularity), in [0, 1]."""
        rules = sum(abs(part.contribution) for part in self.rules)
        whole = rules + abs(self.encoder) + abs(self.popularity)
        return rules / whole if whole else 0.0

    @property
    def decomposition_error(self) -> float:
        """The gap between the sum of the parts and logit p; METHOD 8 allows 1e-6."""
        parts = sum(part.contribution for part in self.rules)
        return abs(self.prior + self.popularity + parts - self.logit)

    def sentences(self) -> list[str]:
        """Each path as a sentence."""
        return [path_sentence(self.graph, part.path, self.words) for part in self.paths]

    def because(self) -> str:
        """The first reason in the wording's style, or a note that there is none."""
        words = self.words
        if self.shown:
            return words.text("because", reason=self.shown[0].text())
        opaque = self.opaque is not None and self.opaque > 0
        if words.style == "tile":
            appeal = "appeal_expected" if self.expected else "appeal"
            return words.tile("opaque" if opaque or self.appeal <= 0 else appeal)
        own = "no_reason" if self.lead > 0 else "nothing_for_it"
        return words.line(words.text("opaque" if opaque else own))

    def text(self, style: str | None = None) -> str:
        """The explanation in a style, by default that of its wording. "tile" is one line of at most
        60 characters, "sentence" all reasons in plain words, "debug" the same with every number."""
        e = self if style is None else self.said(self.words.styled(style))
        return e.because() if e.words.style == "tile" else explanation_text(e)

    def explained(self) -> ExplainedItem:
        """The record that every recommender with reasons returns."""
        paths = tuple(part.path for part in self.paths)
        weights = tuple(part.contribution for part in self.paths)
        return ExplainedItem(self.item, self.score, paths, weights)

    def as_dict(self, *, every: bool = False) -> dict[str, Any]:
        """The explanation for programs, with names instead of numbers: an ``ExplanationRecord``. If
        ``every`` is set, it lists every action as a reason, not only those that are shown."""
        return explanation_record(self, self.reasons if every else self.shown)

    def __repr__(self) -> str:
        return self._named(f"rank {self.rank}, {self.lead:+.3f}, {len(self.reasons)} reasons")

    def _repr_html_(self) -> str:
        return explanation_html(self)

    def __str__(self) -> str:
        return self.text()


def explain(
    ranker: Ranker,
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    paths: int = 3,
    scores: Scores | None = None,
    words: Wording = ENGLISH,
    ranked: bool = True,
) -> list[Explanation]:
    """Explain pairs of a user and an item, in the given order.

    ``users`` and ``items`` hold the pairs' numbers. Each explanation has up to ``paths`` paths.
    ``scores`` holds these users' scores of all items if they are already computed, and ``words``
    sets the language. Ranks take two more passes over all items; ``ranked=False`` leaves them out.
    Pairs of one user share work, so explain many pairs in one call.
    """
    if not len(users):
        return []
    u, v = users.astype(np.int64), items.astype(np.int64)
    every = _scores(ranker, u, scores)
    encoders = _encoder_parts(ranker, u, v)
    s = _encoder_scores(u, v, every, encoders)
    ranks, bare_ranks = _places(u, v, every) if ranked else np.zeros((2, len(u)), dtype=np.int64)
    parts = ranker.parts(u, v, s)
    encoder, logic = parts.fused
    score, p, q = encoder + logic, parts.p, parts.q
    by_action = attribute(ranker, u, v, parts, encoders, every)
    # Rules and evidence are looked up for all pairs at once, on the first request for one of them.
    by_rule, together = ByRule(ranker, u, v, parts, paths, words), Together(ranker, u, v, by_action)
    return [
        Explanation(
            ranker=ranker,
            user=int(u[k]),
            item=int(v[k]),
            score=float(score[k]),
            encoder=float(encoder[k]),
            logic=float(logic[k]),
            logit=float(parts.logit[k]),
            prior=parts.prior,
            popularity=float(parts.popularity[k]),
            q=float(q[k]),
            p=float(p[k]),
            rank=int(ranks[k]),
            rank_without_logic=int(bare_ranks[k]),
            attribution=by_action[k],
            by_rule=by_rule,
            together=together,
            place=k,
            words=words,
        )
        for k in range(len(u))
    ]


def _scores(
    ranker: Ranker, users: NDArray[np.int64], scores: Scores | None
) -> dict[int, tuple[Scores, int]]:
    """For each user, the scores of all items and the user's row in them."""
    distinct = np.unique(users)
    parts = [scores] if scores is not None else [ranker.scores(b) for b in blocks(distinct, BLOCK)]
    return {int(u): (part, row) for part in parts for row, u in enumerate(part.users)}


def _encoder_parts(
    ranker: Ranker, users: NDArray[np.int64], items: NDArray[np.int64]
) -> dict[int, Encoders]:
    """For each user, the encoders' scores of that user's pairs, split by interaction."""
    distinct = np.unique(users).tolist()
    if ranker.fusion.kind == "sum":  # q is not a sum
        return dict.fromkeys(distinct, (None, None))
    return {user: ranker.encoder_parts(user, items[users == user]) for user in distinct}


def _encoder_scores(
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    every: Mapping[int, tuple[Scores, int]],
    encoders: Mapping[int, Encoders],
) -> NDArray[np.float64]:
    """The encoder's scores of the pairs."""
    s = np.empty(len(users))
    for user, both in encoders.items():
        rows = np.flatnonzero(users == user)
        scores, row = every[user]
        if both[0] is None:
            s[rows] = scores.encoder[row, items[rows]]
        else:  # the same in double precision
            s[rows] = sum(part.appeal + part.actions.sum(axis=0) for part in both if part)
    return s


def _places(
    users: NDArray[np.int64], items: NDArray[np.int64], every: Mapping[int, tuple[Scores, int]]
) -> NDArray[np.int64]:
    """The ranks of the items by S, and by the encoder's scores alone; [2, pairs]."""
    out = np.empty((2, len(users)), dtype=np.int64)
    for user in np.unique(users).tolist():
        rows = np.flatnonzero(users == user)
        scores, row = every[user]
        out[:, rows] = scores.ranks(np.full(len(rows), row), items[rows])
    return out
