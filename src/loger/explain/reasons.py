"""Reasons: what each of a user's actions gives an item, read off the computation (METHOD 11).

    S(u, v) = mean item + appeal(v) + Σ_a c_a(u, v)

a runs over the user's interactions and the facts about the user. c_a gathers all paths that begin
with a and, where the encoder's score is a sum over interactions, a's part of that. Everything is
measured against the mean item, the mean score of all items that the user does not have: S less
that is the item's *lead*, and shares are shares of the lead.

What the rules give the mean item is taken off in proportion: an action's part of the rules is its
part of what they give this item beyond the mean one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from loger.encoder.folding import EncoderParts
from loger.graph import Graph, Path
from loger.grounding.actions import by_first_hop, strongest_through
from loger.ranker import Parts, Ranker, Scores
from loger.rules import Rule
from loger.rules.sentences import action_sentence, evidence_sentence, path_sentence

if TYPE_CHECKING:
    from loger.graph.rows import Rows

Doubles = NDArray[np.float64]
EVIDENCE_PATHS = 3
"""The strongest paths that are looked up of an action and a rule."""
SMALL = 0.05
"""Evidence that carries less of its reason than this is not put into words."""
CLOSE = "close to it by what people take and what is known of it, no single path"


@dataclass(frozen=True, slots=True)
class PathPart:
    """What one path adds to a score."""

    path: Path
    rule: Rule
    contribution: float
    share: float
    """Its share of what the rule gives; in a reason, of what the rule gives by that action."""
    graph: Graph = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The path as a sentence."""
        return path_sentence(self.graph, self.path)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an action gives by one rule."""

    rule: Rule
    contribution: float
    n: int
    """How many paths of the rule begin with the action."""
    paths: tuple[PathPart, ...]
    """The strongest of them."""
    text: str
    """How the action leads to the item; "it" is the action's entity, "this" the item."""


@dataclass(frozen=True, slots=True)
class Reason:
    """An action of the user, or a fact about the user, and what it gives the item."""

    action: str
    """Such as "you bought ink"."""
    relation: int
    entity: int
    total: float
    """c_a: what it gives in all."""
    share: float
    """Of the item's lead."""
    encoder: float
    """What of it the encoder gives."""
    evidence: tuple[Evidence, ...]
    """By rule, the largest contribution first."""

    @property
    def text(self) -> str:
        """The reason as a sentence, with its share of the lead."""
        told = self.evidence_text
        return f"{self.action} ({self.share:.0%})" + (f": {told}" if told else "")

    @property
    def evidence_text(self) -> str:
        """What speaks for it, the weightiest first, what hardly counts left out."""
        least = SMALL * abs(self.total)
        parts = [(e.contribution, e.text) for e in self.evidence if e.contribution >= least]
        if self.encoder >= least and self.encoder > 0:
            parts.append((self.encoder, CLOSE))
        return "; ".join(text for _, text in sorted(parts, key=lambda part: -part[0]))

    @property
    def paths(self) -> tuple[PathPart, ...]:
        """The strongest paths that begin with it, the largest contribution first."""
        every = [part for evidence in self.evidence for part in evidence.paths]
        return tuple(sorted(every, key=lambda part: -part.contribution))


@dataclass(frozen=True, eq=False)
class Attribution:
    """S of one pair as a sum, by the user's edges."""

    mean: float
    """The mean score of all items that the user does not have."""
    appeal: float
    """What the item has whoever asks, beyond the mean item."""
    opaque: float | None
    """What the encoder gives beyond the mean item, where no action of it can be named; None where
    all of it is among the actions."""
    rules: Doubles  # [the user's edges]: by the paths that begin with each
    encoder: Doubles  # [the user's edges]
    cells: NDArray[np.int64]
    """Rows (edge, place of the rule, paths), one for each first hop and rule that has paths."""
    worth: Doubles
    """What each of the cells gives."""
    strengths: Doubles
    """The strengths of the paths of each cell, added up."""

    @property
    def actions(self) -> Doubles:
        """c_a of each of the user's edges."""
        return self.rules + self.encoder

    @property
    def lead(self) -> float:
        """S less that of the mean item."""
        return self.appeal + float(self.actions.sum()) + (self.opaque or 0.0)


@dataclass(frozen=True, slots=True)
class _Scale:
    """How logits and encoder scores become parts of S, for the pairs of one user."""

    rules: Doubles  # [pairs]: factor of the rules' logits
    base: Doubles  # [pairs]: what the logic gives without any rule
    mean_base: float
    encoder: float  # factor of the encoder's scores
    opaque: Doubles | None  # [pairs]: the encoder's part, where it is not a sum
    mean_opaque: float


def attribute(
    ranker: Ranker,
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    parts: Parts,
    encoders: Mapping[int, EncoderParts | None],
    scores: Mapping[int, tuple[Scores, int]],
) -> list[Attribution]:
    """What each action gives, of pairs in the given order.

    ``encoders`` has for each user the parts of the encoder's scores of that user's pairs,
    ``scores`` the scores of all items and the user's row in them.
    """
    out: list[Attribution | None] = [None] * len(users)
    cells, worth, strengths, starts = _cells(ranker, users, items, parts)
    for user in np.unique(users).tolist():
        rows = np.flatnonzero(users == user)
        encoder, (every, row) = encoders[user], scores[user]
        scale = _scale(ranker, parts, rows, encoder, every, row)
        mean, n_edges = every.mean(row), _row(ranker.graph, user)[1]
        for k, i in enumerate(rows.tolist()):
            own = slice(starts[i], starts[i + 1])
            by_hop = cells[own], worth[own], strengths[own]
            out[i] = _attribution(n_edges, mean, scale, encoder, k, *by_hop)
    return [a for a in out if a is not None]


def _cells(
    ranker: Ranker, users: NDArray[np.int64], items: NDArray[np.int64], parts: Parts
) -> tuple[NDArray[np.int64], Doubles, Doubles, NDArray[np.int64]]:
    """(edge, rule, paths), what it adds to the logit and its strength, for all pairs; and where
    those of each pair begin."""
    found, contributions = parts.groundings, parts.rules.data
    pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
    useful = np.flatnonzero(contributions)
    pair, places = pair[useful], found.rules[useful]
    logic = ranker.logic
    hops = by_first_hop(
        ranker.logic_graph, logic.rules, places, users[pair], items[pair], logic.walk
    )
    cell = np.repeat(np.arange(len(useful)), np.diff(hops.starts))
    # Shares of the cell's own sum, so that they add up to 1 whatever the order of adding.
    total = np.add.reduceat(hops.strengths, hops.starts[:-1]) if len(useful) else np.empty(0)
    worth = contributions[useful][cell] * hops.strengths / total[cell]
    rows = np.stack([hops.edges, places[cell].astype(np.int64), hops.counts], axis=1)
    return rows, worth, hops.strengths, np.searchsorted(pair[cell], np.arange(len(users) + 1))


def _scale(
    ranker: Ranker,
    parts: Parts,
    rows: NDArray[np.int64],
    encoder: EncoderParts | None,
    every: Scores,
    row: int,
) -> _Scale:
    fusion = ranker.fusion
    unit = parts.prior + parts.popularity[rows]
    mean_unit = ranker.logic.unit(ranker.logic_graph)
    opaque, mean_opaque = None, 0.0
    if encoder is None and fusion.uses_encoder:
        opaque = parts.fused[0][rows]
        mean_opaque = every.mean_encoder(row, fusion)
    weight = fusion.encoder_weight if encoder is not None and fusion.uses_encoder else 0.0
    if fusion.kind != "sum":
        return _Scale(
            np.ones(len(rows)), unit, float(mean_unit.mean()), weight, opaque, mean_opaque
        )
    base = fusion.alpha * expit(unit)
    of_rules = parts.logit[rows] - unit
    gained = fusion.alpha * parts.p[rows] - base
    factor = np.divide(gained, of_rules, out=np.zeros(len(rows)), where=of_rules != 0)
    mean_base = float((fusion.alpha * expit(mean_unit)).mean())
    return _Scale(factor, base, mean_base, weight, opaque, mean_opaque)


def _attribution(
    n_edges: int,
    mean: float,
    scale: _Scale,
    encoder: EncoderParts | None,
    k: int,
    cells: NDArray[np.int64],
    worth: Doubles,
    strengths: Doubles,
) -> Attribution:
    """The attribution of the user's k-th pair."""
    worth = worth * scale.rules[k]
    appeal = scale.base[k] - scale.mean_base
    of_encoder = np.zeros(n_edges)
    mean_encoder = scale.mean_opaque
    if encoder is not None and scale.encoder:
        n = len(encoder.mean_actions)
        of_encoder[:n] = scale.encoder * (encoder.actions[:, k] - encoder.mean_actions)
        appeal += scale.encoder * (encoder.appeal[k] - encoder.mean_appeal)
        mean_encoder = scale.encoder * (encoder.mean_appeal + float(encoder.mean_actions.sum()))
    # What the rules give the mean item is what nothing else does.
    mean_rules = mean - scale.mean_base - mean_encoder
    given = float(worth.sum())
    beyond = max(0.0, 1 - mean_rules / given) if given > 0 else 0.0 if mean_rules > 0 else 1.0
    appeal += given - mean_rules - beyond * given
    worth = beyond * worth
    of_rules = np.zeros(n_edges)
    np.add.at(of_rules, cells[:, 0], worth)
    opaque = None if scale.opaque is None else float(scale.opaque[k] - scale.mean_opaque)
    return Attribution(mean, float(appeal), opaque, of_rules, of_encoder, cells, worth, strengths)


def _row(graph: Graph, user: int) -> tuple[int, int]:
    """Where a user's edges begin, and how many there are."""
    rows: Rows = graph.rows
    lo, hi = rows.segment_starts[rows.row_segments[user : user + 2]]
    return int(lo), int(hi - lo)


def reasons(
    ranker: Ranker,
    user: int,
    item: int,
    parts: Attribution,
    edges: Sequence[int],
    verbs: Mapping[str, str] | None = None,
) -> Iterator[Reason]:
    """The reasons that some of the user's edges are, by their places in the user's row."""
    graph, rules, lead = ranker.graph, ranker.logic.rules, parts.lead
    first, _ = _row(graph, user)
    tails, kinds = graph.rows.tails, graph.rows.segment_relations
    chosen = np.flatnonzero(np.isin(parts.cells[:, 0], edges))
    entities = tails[first + parts.cells[chosen, 0]]
    nodes, strengths = strongest_through(
        ranker.logic_graph,
        rules,
        parts.cells[chosen, 1],
        np.full(len(chosen), user),
        np.full(len(chosen), item),
        entities,
        EVIDENCE_PATHS,
        ranker.logic.walk,
    )
    of_edge: dict[int, list[Evidence]] = {edge: [] for edge in edges}
    for cell, inner, strength in zip(chosen.tolist(), nodes, strengths, strict=True):
        edge, place, n = parts.cells[cell].tolist()
        shares = strength / parts.strengths[cell]
        worth = float(parts.worth[cell])
        evidence = _evidence(ranker, user, item, rules[place], n, worth, inner, shares, verbs)
        of_edge[edge].append(evidence)
    for edge in edges:
        segment = np.searchsorted(graph.rows.segment_starts, first + edge, side="right") - 1
        relation, entity = int(kinds[segment]), int(tails[first + edge])
        total = float(parts.actions[edge])
        yield Reason(
            action_sentence(graph, relation, entity, verbs),
            relation,
            entity,
            total,
            total / lead if lead else 0.0,
            float(parts.encoder[edge]),
            tuple(sorted(of_edge[edge], key=lambda e: -e.contribution)),
        )


def _evidence(
    ranker: Ranker,
    user: int,
    item: int,
    rule: Rule,
    n: int,
    worth: float,
    nodes: NDArray[np.int32],
    shares: Doubles,
    verbs: Mapping[str, str] | None,
) -> Evidence:
    graph, last = ranker.graph, item + ranker.graph.n_users
    paths = tuple(
        PathPart(
            Path((user, *inner[: len(rule) - 1].tolist(), last), rule.relations),
            rule,
            float(share) * worth,
            float(share),
            graph,
        )
        for inner, share in zip(nodes, shares, strict=True)
        if share > 0
    )
    others = [part.path.entities[-2] for part in paths[1:]]
    text = evidence_sentence(graph, paths[0].path, n, others, verbs)
    return Evidence(rule, worth, n, paths, text)
