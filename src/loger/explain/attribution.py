"""Explanations: the parts that a score is made of, read off the computation itself (METHOD 7).

    S = embedding + logic,    logit p = prior + popularity + Σ_l w_l φ_l

With the default fusion, logic is logit p; with the paper's, embedding is q and logic α·p. A rule's
part is w_l φ_l, and a path's part of it is its share of the rule's strength (of the count, where
the feature is of counts): all parts add up, and none is made up afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from loger.em import EMConfig, FittedLogic
from loger.encoder.folding import score_users
from loger.encoder.protocol import Encoder
from loger.evaluation.recommender import ExplainedItem
from loger.graph import KnowledgeGraph, Path, history
from loger.grounding import Groundings, strongest_paths
from loger.rules import Rule
from loger.rules.sentences import path_sentence
from loger.topk import top_k

NO_PATH = "no rule leads here: this comes from the embedding and popularity alone"
NO_WEIGHT = "rules that weigh nothing lead here: this comes from the embedding and popularity alone"


class _Config(Protocol):
    @property
    def em(self) -> EMConfig: ...


class Fitted(Protocol):
    """What an explanation is read off: a fitted LOGER."""

    graph_: KnowledgeGraph
    logic_graph_: KnowledgeGraph
    encoder_: Encoder
    learned_: FittedLogic

    @property
    def config_(self) -> _Config:
        """The settings it was fitted with."""
        ...

    def score(self, users: Any) -> NDArray[np.float32]:
        """S of all items for users by number."""
        ...


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


@dataclass(frozen=True)
class Explanation:
    """Why an item has its score for a user; the parts add up to it."""

    graph: KnowledgeGraph
    user: int
    item: int
    score: float
    """S, in double precision."""
    embedding: float
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
        whole = rules + abs(self.embedding) + abs(self.popularity)
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
        """The record for machines, names for numbers; ``SCHEMA`` describes it."""
        words, item = self.graph.vocabulary, self.item + self.graph.n_users
        sentences = self.sentences(verbs)
        return {
            "user": words.names[self.user],
            "item": words.names[item],
            "label": words.labels[item],
            "score": self.score,
            "rank": self.rank,
            "rank_without_logic": self.rank_without_logic,
            "embedding": self.embedding,
            "logic": self.logic,
            "logit": self.logit,
            "prior": self.prior,
            "popularity": self.popularity,
            "p": self.p,
            "q": self.q,
            "logic_share": self.logic_share,
            "because": self._because(sentences),
            "rules": [
                {
                    **_words(part.rule),
                    "relations": list(part.rule.names),
                    "weight": part.weight,
                    "paths": part.paths,
                    "contribution": part.contribution,
                }
                for part in self.rules
            ],
            "paths": [
                {
                    "rule": _words(part.rule)["rule"],
                    "contribution": part.contribution,
                    "share": part.share,
                    "sentence": sentence,
                    "entities": [self._entity(e) for e in part.path.entities],
                    "relations": [self.graph.relation_name(r) for r in part.path.relations],
                }
                for part, sentence in zip(self.paths, sentences, strict=True)
            ],
        }

    def _entity(self, entity: int) -> dict[str, str]:
        words = self.graph.vocabulary
        return {
            "name": words.names[entity],
            "label": words.labels[entity],
            "type": words.type_of(entity),
        }

    def __str__(self) -> str:
        words = self.graph.vocabulary
        label = words.labels[self.item + self.graph.n_users]
        lines = [f"{label} for {words.labels[self.user]}: {self.score:.3f}, rank {self.rank}"]
        lines += [f"  {self.embedding:+.3f}  embedding"]
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


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of all items for some users, distinct and ascending."""

    users: NDArray[np.int64]
    whole: NDArray[np.float32]
    """S; [users, items]."""
    encoder: NDArray[np.float32]
    """What of it the encoder says, s; [users, items]."""

    @classmethod
    def of(cls, model: Fitted, users: NDArray[np.int64], *, observed: bool = True) -> Scores:
        """S (METHOD 6) and s. Without ``observed`` those of users' own items say nothing."""
        settings, graph = model.config_.em, model.graph_
        s = score_users(model.encoder_, graph, users, settings.walk.recency)
        whole = model.learned_.scores(
            settings, model.encoder_, graph, users, model.logic_graph_, observed=observed, s=s
        )
        return cls(users, whole, s)

    def best(
        self, graph: KnowledgeGraph, k: int, among: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best items and their scores, as ``LOGER.top`` gives them."""
        scores = self.whole.copy()
        if among is not None:
            scores[:, ~among] = -np.inf
        return top_k(scores, k, history(graph, self.users))


def explain(
    model: Fitted,
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    paths: int = 3,
    scores: Scores | None = None,
) -> list[Explanation]:
    """Explanations of pairs, in the given order, with up to so many paths each.

    ``scores`` are those of all the users, where they are known already.
    """
    if not len(users):
        return []
    return _Explainer(model, users.astype(np.int64), items.astype(np.int64), paths, scores).all()


class _Explainer:
    """Explains a batch of pairs together, so that each step is one pass over all of them."""

    def __init__(
        self,
        model: Fitted,
        users: NDArray[np.int64],
        items: NDArray[np.int64],
        paths: int,
        scores: Scores | None,
    ) -> None:
        self.model, self.users, self.items, self.most = model, users, items, paths
        self.scores = scores
        self.logic, self.graph = model.learned_.logic, model.logic_graph_

    @cached_property
    def found(self) -> Groundings:
        return self.logic.ground(self.graph, self.users, self.items)

    def all(self) -> list[Explanation]:
        parts = self.logic.contributions(self.found)
        sums = np.asarray(parts.sum(axis=1)).ravel()
        unit = self.logic.popularity * np.log1p(self.graph.popularity[self.items])
        logit = sums + self.logic.prior + unit
        s, ranks, bare = self.places()
        embedding, logic_part = self.fused(s, logit)
        q, p = self.model.learned_.calibration(s), expit(logit)
        chains = self.chains(parts.data)
        told = []
        for i in range(len(self.users)):
            lo, hi = self.found.indptr[i], self.found.indptr[i + 1]
            order = lo + np.argsort(-np.abs(parts.data[lo:hi]), kind="stable")
            told.append(
                Explanation(
                    self.model.graph_,
                    int(self.users[i]),
                    int(self.items[i]),
                    float(embedding[i] + logic_part[i]),
                    float(embedding[i]),
                    float(logic_part[i]),
                    float(logit[i]),
                    self.logic.prior,
                    float(unit[i]),
                    float(q[i]),
                    float(p[i]),
                    int(ranks[i]),
                    int(bare[i]),
                    tuple(self.rule_part(c, parts.data) for c in order),
                    tuple(chains[i]),
                )
            )
        return told

    def rule_part(self, cell: int, contributions: NDArray[np.float64]) -> RulePart:
        rule = int(self.found.rules[cell])
        return RulePart(
            self.logic.rules[rule],
            float(self.logic.weights[rule]),
            int(self.found.counts[cell]),
            float(contributions[cell]),
        )

    def fused(
        self, s: NDArray[np.float64], logit: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The two parts of S, in double precision."""
        settings, learned = self.model.config_.em, self.model.learned_
        if settings.fusion == "sum":
            return learned.calibration(s), settings.alpha * expit(logit)
        if settings.fusion == "logic":
            return np.zeros(len(s)), logit
        return learned.encoder_weight * s, logit

    def places(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """The encoder's scores of the pairs; the ranks of the items by S and by them alone."""
        model = self.model
        s = np.empty(len(self.users))
        ranks, bare = np.empty((2, len(self.users)), dtype=np.int64)
        distinct, place = np.unique(self.users, return_inverse=True)
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(len(distinct) + 1))
        for lo in range(0, len(distinct), 64):
            own = distinct[lo : lo + 64]
            rows = order[ends[lo] : ends[min(lo + 64, len(distinct))]]
            scores = self.scores or Scores.of(model, own)
            at, mine = np.searchsorted(scores.users, self.users[rows]), self.items[rows]
            s[rows] = scores.encoder[at, mine]
            known = history(model.graph_, scores.users)
            ranks[rows] = _ranks(scores.whole, known, at, mine)
            bare[rows] = _ranks(scores.encoder, known, at, mine)
        return s, ranks, bare

    def chains(self, contributions: NDArray[np.float64]) -> list[list[PathPart]]:
        """The strongest path of each rule, rules by contribution; then the next of each."""
        found, n = self.found, self.most
        if n < 1:
            return [[] for _ in range(len(found))]
        pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
        useful = np.flatnonzero(contributions > 0)
        nodes, strengths = strongest_paths(
            self.graph,
            self.logic.rules,
            found.rules[useful],
            self.users[pair[useful]],
            self.items[pair[useful]],
            n,
            self.logic.walk,
        )
        total = found.counts if found.strengths is None else found.strengths
        shares = strengths / np.maximum(total[useful], 1e-300)[:, None]
        worth = shares * contributions[useful][:, None]
        rows = np.repeat(pair[useful], n)
        place = np.tile(np.arange(n), len(useful))
        order = np.lexsort((-np.repeat(contributions[useful], n), place, rows))
        order = order[worth.ravel()[order] > 0]
        out: list[list[PathPart]] = [[] for _ in range(len(found))]
        for k in order.tolist():
            cell, which = divmod(k, n)
            chain = out[int(rows[k])]
            if len(chain) == n:
                continue
            rule = self.logic.rules[int(found.rules[useful[cell]])]
            inner = nodes[cell, which][: len(rule) - 1].tolist()
            i = int(rows[k])
            ends = int(self.users[i]), int(self.items[i]) + self.graph.n_users
            path = Path((ends[0], *inner, ends[1]), rule.relations)
            chain.append(
                PathPart(path, rule, float(worth[cell, which]), float(shares[cell, which]))
            )
        return out


def _ranks(
    scores: NDArray[np.float32],
    known: tuple[NDArray[np.int64], NDArray[np.int64]],
    rows: NDArray[np.int64],
    items: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Places from 1 of items among those not known; ties go to the lower number."""
    mine = scores[rows, items]
    free = scores.copy()
    free[known] = -np.inf
    out = np.empty(len(rows), dtype=np.int64)
    for k, (row, item, value) in enumerate(zip(rows, items, mine, strict=True)):
        above = np.count_nonzero(free[row] > value)
        tied = np.count_nonzero(free[row, :item] == value)
        out[k] = 1 + above + tied
    return out


SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Explanation of a recommended item",
    "type": "object",
    "additionalProperties": False,
    "required": [
        "user", "item", "label", "score", "rank", "rank_without_logic", "embedding", "logic",
        "logit", "prior", "popularity", "p", "q", "logic_share", "because", "rules", "paths",
    ],
    "properties": {
        **{name: {"type": "string"} for name in ("user", "item", "label", "because")},
        **{
            name: {"type": "number"}
            for name in (
                "score", "embedding", "logic", "logit", "prior", "popularity", "p", "q",
                "logic_share",
            )
        },
        **{name: {"type": "integer", "minimum": 1} for name in ("rank", "rank_without_logic")},
        "rules": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [
                    "rule", "sentence", "relations", "weight", "paths", "contribution",
                ],
                "properties": {
                    "rule": {"type": "string"},
                    "sentence": {"type": "string"},
                    "relations": {"type": "array", "items": {"type": "string"}},
                    "weight": {"type": "number"},
                    "paths": {"type": "integer", "minimum": 1},
                    "contribution": {"type": "number"},
                },
            },
        },
        "paths": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [
                    "rule", "contribution", "share", "sentence", "entities", "relations",
                ],
                "properties": {
                    "rule": {"type": "string"},
                    "contribution": {"type": "number"},
                    "share": {"type": "number", "minimum": 0, "maximum": 1.000001},
                    "sentence": {"type": "string"},
                    "entities": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name", "label", "type"],
                            "properties": {
                                name: {"type": "string"} for name in ("name", "label", "type")
                            },
                        },
                    },
                    "relations": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}  # fmt: skip
"""JSON schema of ``Explanation.as_dict``."""
