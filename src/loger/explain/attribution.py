"""Explanations: the parts that a score is made of, read off the computation itself (METHOD 7).

    S = encoder + logic,    logit p = prior + popularity + Σ_l w_l φ_l

With the default fusion, logic is logit p; with the paper's, encoder is q and logic α·p. A rule's
part is w_l φ_l, and a path's part of it is its share of the rule's strength (of the count, where
the feature is of counts): all parts add up, and none is made up afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loger.encoder.folding import EncoderParts, attribute_user
from loger.explain.by_action import Attribution, attribute
from loger.explain.by_rule import ByRule, RulePart
from loger.explain.html import explanation_html
from loger.explain.reasons import PathPart, Reason, Strongest, Together, reasons
from loger.explain.schema import (
    EvidenceRecord,
    ExplanationRecord,
    PathRecord,
    ReasonRecord,
    RuleRecord,
    entity_record,
    record,
)
from loger.graph import Graph
from loger.ranking.ranker import Ranker, Scores, blocks
from loger.recommender import ExplainedItem
from loger.rules import Rule
from loger.rules.sentences import path_sentence
from loger.rules.wording import ENGLISH, Wording

if TYPE_CHECKING:
    from loger.explain.counterfactual import Counterfactual

BLOCK = 64
"""Users whose items are ranked at a time, to place those that are explained."""


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why an item has its score for a user; the parts add up to it."""

    ranker: Ranker = field(repr=False)
    user: int
    item: int
    score: float
    """S, in double precision."""
    encoder: float
    """What the encoder gives: w_enc·s, or q with the paper's fusion."""
    logic: float
    """What the logic gives: logit p, or α·p with the paper's fusion."""
    logit: float
    """logit p = prior + popularity + Σ of the rules."""
    prior: float
    popularity: float
    q: float
    p: float
    rank: int
    """Its place among the items that the user does not have, from 1."""
    rank_without_logic: int
    attribution: Attribution = field(repr=False)
    """S by the user's actions."""
    by_rule: ByRule = field(repr=False)
    """logit p by rule and path, of the pairs that it was explained with …"""
    together: Together = field(repr=False)
    """… their shown reasons, …"""
    place: int = field(repr=False)
    """… and its place among them."""
    words: Wording = field(default=ENGLISH, repr=False)
    """What the sentences are said in."""
    counterfactual: Counterfactual | None = field(default=None, repr=False)
    """The fewest actions without which the item leaves the list; None if it was not asked for."""

    @property
    def graph(self) -> Graph:
        """The graph that the paths are in."""
        return self.ranker.graph

    # ── by action ───────────────────────────────────────────────────────────────────────

    @property
    def mean(self) -> float:
        """The mean score of all items that the user does not have."""
        return self.attribution.mean

    @property
    def lead(self) -> float:
        """S less that of the mean item: what the reasons have to account for."""
        return self.attribution.lead

    @property
    def appeal(self) -> float:
        """What the item has whoever asks, beyond the mean item."""
        return self.attribution.appeal

    @property
    def opaque(self) -> float | None:
        """What an encoder gives that cannot name actions; None if it can."""
        return self.attribution.opaque

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """All actions of the user that give something, the largest total first."""
        return tuple(self._reasons(self._edges))

    @cached_property
    def shown(self) -> tuple[Reason, ...]:
        """The first reasons: as many as carry 80 % of what actions carry, but at most five."""
        return tuple(self._reasons(self.attribution.shown, self.together.shown[self.place]))

    @property
    def _edges(self) -> list[int]:
        totals = self.attribution.actions
        order = np.argsort(-totals, kind="stable")
        return [int(edge) for edge in order[totals[order] != 0]]

    @property
    def carried(self) -> float:
        """The share of the lead that the shown reasons carry."""
        return sum(reason.share for reason in self.shown)

    @property
    def carried_of_actions(self) -> float:
        """The share of what all actions give that the shown reasons carry; 0 where all actions
        together speak against the item."""
        whole = float(self.attribution.actions.sum())
        return sum(reason.total for reason in self.shown) / whole if whole > 0 else 0.0

    @property
    def parts(self) -> dict[str, float]:
        """What the score is made of, by readable names; the values add up to the score."""
        say = self.words.text
        out = {say("mean_item"): self.mean, say("appeal"): self.appeal}
        if self.opaque is not None:
            out[say("opaque")] = self.opaque
        names = self.graph.vocabulary.names
        for reason in self.reasons:
            known = reason.action in out
            key = f"{reason.action} ({names[reason.entity]})" if known else reason.action
            out[key if key not in out else f"{key} {len(out)}"] = reason.total
        return out

    def _reasons(self, edges: list[int], known: Strongest | None = None) -> Iterator[Reason]:
        pair = self.ranker, self.user, self.item, self.attribution
        return reasons(*pair, edges, self.words, known)

    # ── by rule ─────────────────────────────────────────────────────────────────────────

    @property
    def rules(self) -> tuple[RulePart, ...]:
        """All rules that fire, the largest contribution first."""
        return self.by_rule.rules[self.place]

    @property
    def paths(self) -> tuple[PathPart, ...]:
        """First the strongest path of each rule, the rule of largest contribution first, but of
        those within 10 % of it the one that the user's history has most paths of; then the next
        strongest of each."""
        return self.by_rule.paths[self.place]

    @property
    def logic_share(self) -> float:
        """How much of S above an item without any evidence is due to rules, in [0, 1]."""
        rules = sum(abs(part.contribution) for part in self.rules)
        whole = rules + abs(self.encoder) + abs(self.popularity)
        return rules / whole if whole else 0.0

    @property
    def decomposition_error(self) -> float:
        """How far Σ of the parts is from logit p: what METHOD 8 asks to be at most 1e-6."""
        parts = sum(part.contribution for part in self.rules)
        return abs(self.prior + self.popularity + parts - self.logit)

    def sentences(self) -> list[str]:
        """Each path as a sentence."""
        return [path_sentence(self.graph, part.path, self.words) for part in self.paths]

    def because(self) -> str:
        """The first reason as a sentence, or that there is none."""
        if self.shown:
            return self.words.text("because", reason=self.shown[0].text)
        opaque = self.opaque is not None and self.opaque > 0
        own = "no_reason" if self.lead > 0 else "nothing_for_it"
        return self.words.text("opaque" if opaque else own)

    def said(self, words: Wording) -> Explanation:
        """The same explanation in other words."""
        return replace(self, words=words)

    @property
    def likely_text(self) -> str:
        """How likely the first reason is the cause, in words; empty if that says nothing."""
        added = abs(self.logic - self.logit) < 1e-9  # else scores are no logarithms of rates
        if not self.shown or self.lead <= 0 or not added:
            return ""
        return self.words.likely(self.shown[0].confidence)

    def explained(self) -> ExplainedItem:
        """The record as any recommender with reasons gives it."""
        paths, weights = (
            tuple(part.path for part in self.paths),
            tuple(part.contribution for part in self.paths),
        )
        return ExplainedItem(self.item, self.score, paths, weights)

    def as_dict(self, *, every: bool = False) -> dict[str, Any]:
        """The record for machines, names for numbers: a ``schema.ExplanationRecord``.

        ``every`` gives all actions as reasons, not only those that are shown.
        """
        words, item = self.graph.vocabulary, self.item + self.graph.n_users
        told = self.reasons if every else self.shown
        return record(
            ExplanationRecord,
            self,
            user=words.names[self.user],
            item=words.names[item],
            label=words.labels[item],
            opaque=self.opaque or 0.0,
            because=self.because(),
            reasons=[self._reason_record(reason) for reason in told],
            rules=[
                record(
                    RuleRecord,
                    part,
                    **_words(part.rule, self.words),
                    relations=list(part.rule.names),
                )
                for part in self.rules
            ],
            paths=[self._path_record(part) for part in self.paths],
        )

    def _reason_record(self, reason: Reason) -> dict[str, Any]:
        return record(
            ReasonRecord,
            reason,
            entity=entity_record(self.graph.vocabulary, reason.entity),
            relation=self.graph.relation_name(reason.relation),
            evidence=[
                record(
                    EvidenceRecord,
                    part,
                    rule=_words(part.rule, self.words)["rule"],
                    paths=[self._path_record(path) for path in part.paths],
                )
                for part in reason.evidence
            ],
        )

    def _path_record(self, part: PathPart) -> dict[str, Any]:
        words = self.graph.vocabulary
        return record(
            PathRecord,
            part,
            rule=_words(part.rule, self.words)["rule"],
            sentence=path_sentence(self.graph, part.path, self.words),
            entities=[entity_record(words, e) for e in part.path.entities],
            relations=[self.graph.relation_name(r) for r in part.path.relations],
        )

    def __repr__(self) -> str:
        words, item = self.graph.vocabulary, self.item + self.graph.n_users
        about = f"rank {self.rank}, {self.lead:+.3f}, {len(self.reasons)} reasons"
        return f"<Explanation of {words.names[item]!r} for {words.names[self.user]!r}: {about}>"

    def _repr_html_(self) -> str:
        return explanation_html(self)

    def __str__(self) -> str:
        labels, say = self.graph.vocabulary.shown, self.words.text
        label, lead = labels[self.item + self.graph.n_users], f"{self.lead:+.3f}"
        lines = [say("heading", item=label, user=labels[self.user], rank=self.rank, lead=lead)]
        lines += [f"  {reason.total:+.3f}  {reason.text}" for reason in self.shown]
        rest = self.lead - self.appeal - sum(r.total for r in self.shown) - (self.opaque or 0.0)
        if abs(rest) >= 0.0005:
            lines.append(f"  {rest:+.3f}  {say('others' if self.shown else 'all_actions')}")
        lines.append(f"  {self.appeal:+.3f}  {say('appeal')}")
        if self.opaque is not None:
            lines.append(f"  {self.opaque:+.3f}  {say('opaque')}")
        if not self.shown:
            lines.append(f"  {self.because()}")
        if likely := self.likely_text:
            lines.append(f"  {likely}")
        if self.counterfactual is not None:
            lines.append(f"  {self.counterfactual}")
        return "\n".join(lines)


@lru_cache(maxsize=1024)
def _words(rule: Rule, words: Wording) -> dict[str, str]:
    """A rule as machines and as people read it; said again for every item of every list."""
    return {"rule": str(rule), "sentence": rule.sentence(words)}


def explain(
    ranker: Ranker,
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    paths: int = 3,
    scores: Scores | None = None,
    words: Wording = ENGLISH,
) -> list[Explanation]:
    """Explanations of pairs, in the given order, with up to so many paths each.

    ``scores`` are those of all the users, where they have been made already; ``words`` what the
    sentences are said in.
    """
    if not len(users):
        return []
    u, v = users.astype(np.int64), items.astype(np.int64)
    every = _scores(ranker, u, scores)
    encoders = _encoder_parts(ranker, u, v)
    s, ranks, bare_ranks = _places(u, v, every, encoders)
    parts = ranker.parts(u, v, s)
    encoder, logic = parts.fused
    by_action = attribute(ranker, u, v, parts, encoders, every)
    by_rule, together = ByRule(ranker, u, v, parts, paths, words), Together(ranker, u, v, by_action)
    rows = zip(
        u.tolist(),
        v.tolist(),
        (encoder + logic).tolist(),
        encoder.tolist(),
        logic.tolist(),
        parts.logit.tolist(),
        [parts.prior] * len(u),
        parts.popularity.tolist(),
        parts.q.tolist(),
        parts.p.tolist(),
        ranks.tolist(),
        bare_ranks.tolist(),
        by_action,
        [by_rule] * len(u),
        [together] * len(u),
        range(len(u)),
        [words] * len(u),
        strict=True,
    )
    return [Explanation(ranker, *row) for row in rows]


def _scores(
    ranker: Ranker, users: NDArray[np.int64], scores: Scores | None
) -> dict[int, tuple[Scores, int]]:
    """For each user the scores of all items, and the user's row in them."""
    distinct = np.unique(users)
    parts = [scores] if scores is not None else [ranker.scores(b) for b in blocks(distinct, BLOCK)]
    return {int(u): (part, row) for part in parts for row, u in enumerate(part.users)}


def _encoder_parts(
    ranker: Ranker, users: NDArray[np.int64], items: NDArray[np.int64]
) -> dict[int, EncoderParts | None]:
    """For each user the encoder's scores of that user's pairs as sums over interactions."""
    if ranker.fusion.kind == "sum":  # q is no sum of anything
        return dict.fromkeys(np.unique(users).tolist())
    return {
        user: attribute_user(
            ranker.encoder,
            ranker.graph,
            user,
            items[users == user],
            ranker.walk,
            ranker.fusion.own,
        )
        for user in np.unique(users).tolist()
    }


def _places(
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    every: Mapping[int, tuple[Scores, int]],
    encoders: Mapping[int, EncoderParts | None],
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The encoder's scores of the pairs; the ranks of the items by S, and by them alone."""
    s = np.empty(len(users))
    ranks, bare = np.empty((2, len(users)), dtype=np.int64)
    for user, parts in encoders.items():
        rows = np.flatnonzero(users == user)
        scores, row = every[user]
        s[rows] = scores.encoder[row, items[rows]]
        if parts is not None:  # the same in double precision
            s[rows] = parts.appeal + parts.actions.sum(axis=0)
        ranks[rows], bare[rows] = scores.ranks(np.full(len(rows), row), items[rows])
    return s, ranks, bare
