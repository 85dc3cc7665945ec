"""Explanations: the parts that a score is made of, read off the computation itself (METHOD 7).

    S = encoder + logic,    logit p = prior + popularity + Σ_l w_l φ_l

With the default fusion, logic is logit p; with the paper's, encoder is q and logic α·p. A rule's
part is w_l φ_l, and a path's part of it is its share of the rule's strength (of the count, where
the feature is of counts): all parts add up, and none is made up afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.evaluation.recommender import ExplainedItem
from loger.explain.schema import (
    ExplanationRecord,
    PathRecord,
    RuleRecord,
    entity_record,
    record,
)
from loger.graph import Graph, Path
from loger.grounding import strongest_paths
from loger.ranker import Parts, Ranker, Scores, blocks
from loger.rules import Rule
from loger.rules.sentences import path_sentence

NO_PATH = "no rule leads here: this comes from the encoder and popularity alone"
NO_WEIGHT = "rules that weigh nothing lead here: this comes from the encoder and popularity alone"
BLOCK = 64
"""Users whose items are ranked at a time, to place those that are explained."""


@dataclass(frozen=True, slots=True)
class RulePart:
    """What a rule adds to logit p of a pair."""

    rule: Rule
    weight: float
    paths: int
    """n_l: how many paths fire."""
    contribution: float
    """w_l φ_l."""


@dataclass(frozen=True, slots=True)
class PathPart:
    """What one path adds to logit p of a pair."""

    path: Path
    rule: Rule
    contribution: float
    share: float
    """Its share of the rule's contribution."""
    graph: Graph = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The path as a sentence."""
        return path_sentence(self.graph, self.path)


@dataclass(frozen=True)
class Explanation:
    """Why an item has its score for a user; the parts add up to it."""

    graph: Graph
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
    rules: tuple[RulePart, ...]
    """All rules that fire, the largest contribution first."""
    paths: tuple[PathPart, ...]
    """First the strongest path of each rule, the rule of largest contribution first; then the
    next strongest of each."""

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

    def sentences(self, verbs: Mapping[str, str] | None = None) -> list[str]:
        """Each path in plain English; ``verbs`` says what a relation's head does to its tail."""
        return [path_sentence(self.graph, part.path, verbs) for part in self.paths]

    def because(self, verbs: Mapping[str, str] | None = None) -> str:
        """The first reason as a sentence, or that there is none."""
        return self._because(self.sentences(verbs))

    def explained(self) -> ExplainedItem:
        """The record as any recommender with reasons gives it."""
        paths, weights = (
            tuple(part.path for part in self.paths),
            tuple(part.contribution for part in self.paths),
        )
        return ExplainedItem(self.item, self.score, paths, weights)

    def as_dict(self, verbs: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The record for machines, names for numbers: a ``schema.ExplanationRecord``."""
        words, item = self.graph.vocabulary, self.item + self.graph.n_users
        sentences = self.sentences(verbs)
        return record(
            ExplanationRecord,
            self,
            user=words.names[self.user],
            item=words.names[item],
            label=words.labels[item],
            because=self._because(sentences),
            rules=[
                record(RuleRecord, part, **_words(part.rule), relations=list(part.rule.names))
                for part in self.rules
            ],
            paths=[
                record(
                    PathRecord,
                    part,
                    rule=_words(part.rule)["rule"],
                    sentence=sentence,
                    entities=[entity_record(words, e) for e in part.path.entities],
                    relations=[self.graph.relation_name(r) for r in part.path.relations],
                )
                for part, sentence in zip(self.paths, sentences, strict=True)
            ],
        )

    def __str__(self) -> str:
        words = self.graph.vocabulary
        label = words.labels[self.item + self.graph.n_users]
        lines = [f"{label} for {words.labels[self.user]}: {self.score:.3f}, rank {self.rank}"]
        lines += [f"  {self.encoder:+.3f}  encoder"]
        lines += [f"  {self.prior:+.3f}  prior", f"  {self.popularity:+.3f}  popularity"]
        lines += [
            f"  {part.contribution:+.3f}  {part.rule.sentence()} ({part.paths:,} paths)"
            for part in self.rules
        ]
        sentences = self.sentences()
        lines += ["  " + line for line in (self._because(sentences), *sentences[1:])]
        return "\n".join(lines)

    def _because(self, sentences: list[str]) -> str:
        if sentences:
            return f"because {sentences[0]}"
        return NO_WEIGHT if self.rules else NO_PATH


@lru_cache(maxsize=1024)
def _words(rule: Rule) -> dict[str, str]:
    """A rule as machines and as people read it; said again for every item of every list."""
    return {"rule": str(rule), "sentence": rule.sentence()}


def explain(
    ranker: Ranker,
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    paths: int = 3,
    scores: Scores | None = None,
) -> list[Explanation]:
    """Explanations of pairs, in the given order, with up to so many paths each.

    ``scores`` are those of all the users, where they have been made already.
    """
    if not len(users):
        return []
    u, v = users.astype(np.int64), items.astype(np.int64)
    s, ranks, bare_ranks = _places(ranker, u, v, scores)
    parts = ranker.parts(u, v, s)
    encoder, logic = parts.fused
    shown = _strongest(ranker, u, v, parts, paths)
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
        _rule_parts(ranker, parts),
        map(tuple, shown),
        strict=True,
    )
    return [Explanation(ranker.graph, *row) for row in rows]


def _places(
    ranker: Ranker, users: NDArray[np.int64], items: NDArray[np.int64], scores: Scores | None
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The encoder's scores of the pairs; the ranks of the items by S, and by them alone."""
    s = np.empty(len(users))
    ranks, bare = np.empty((2, len(users)), dtype=np.int64)
    for block in blocks(np.unique(users), BLOCK):
        rows = np.flatnonzero((users >= block[0]) & (users <= block[-1]))
        own = scores or ranker.scores(block)
        at = np.searchsorted(own.users, users[rows])
        s[rows] = own.encoder[at, items[rows]]
        ranks[rows], bare[rows] = own.ranks(at, items[rows])
    return s, ranks, bare


def _rule_parts(ranker: Ranker, parts: Parts) -> list[tuple[RulePart, ...]]:
    """For each pair the rules that fire, the largest contribution first."""
    found, worth, logic = parts.groundings, parts.rules.data, ranker.logic
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


def _strongest(
    ranker: Ranker, users: NDArray[np.int64], items: NDArray[np.int64], parts: Parts, n: int
) -> list[list[PathPart]]:
    """Up to n paths of each pair: the strongest of each rule, rules by contribution; then the
    next of each."""
    found, contributions = parts.groundings, parts.rules.data
    out: list[list[PathPart]] = [[] for _ in range(len(found))]
    if n < 1:
        return out
    pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
    useful = np.flatnonzero(contributions > 0)
    pair, rules = pair[useful], found.rules[useful]
    nodes, strengths = strongest_paths(
        ranker.logic_graph,
        ranker.logic.rules,
        rules,
        users[pair],
        items[pair],
        n,
        ranker.logic.walk,
    )
    total = found.counts if found.strengths is None else found.strengths
    shares = strengths / np.maximum(total[useful], 1e-300)[:, None]
    worth = shares * contributions[useful][:, None]
    rows, place = np.repeat(pair, n), np.tile(np.arange(n), len(useful))
    order = np.lexsort((-np.repeat(contributions[useful], n), place, rows))
    first_item = ranker.graph.n_users
    for k in order[worth.ravel()[order] > 0].tolist():
        cell, which = divmod(k, n)
        i = int(rows[k])
        if len(out[i]) == n:
            continue
        rule = ranker.logic.rules[int(rules[cell])]
        inner = nodes[cell, which][: len(rule) - 1].tolist()
        path = Path((int(users[i]), *inner, int(items[i]) + first_item), rule.relations)
        share = float(shares[cell, which])
        out[i].append(PathPart(path, rule, float(worth[cell, which]), share, ranker.graph))
    return out
