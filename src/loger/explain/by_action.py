"""What each of a user's actions contributes to an item, read off the computation (METHOD 11).

    S(u, v) = mean item + appeal(v) + Σ_a c_a(u, v)

a runs over the user's interactions and the facts about the user. c_a collects all paths that begin
with a and, if an encoder's score is a sum over interactions, a's part of that sum. Everything is
compared with the mean item, whose score is the mean over all items that the user doesn't have. S
minus that mean is the item's *lead*, and shares are shares of the lead.

The rules' contribution to the mean item is subtracted from the actions, in proportion to what each
action's paths contribute to all items (``given_to_all``). So an action that supports everything is
no reason for one item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import EncoderParts
from loger.graph import Graph
from loger.graph.arrays import Doubles, expit
from loger.grounding.actions import by_first_hop, given_to_all
from loger.ranking.ranker import Parts, Ranker, Scores

Encoders = tuple[EncoderParts | None, EncoderParts | None]
"""The parts of a user's pairs by TransE and by the sequence encoder; None if an encoder is missing
or can't be split by action."""
ENOUGH, MAX_SHOWN = 0.8, 5
"""Reasons are shown until they carry this share of what all actions contribute; and at most so
many."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """S of one pair as a sum over the user's edges."""

    mean: float
    """The mean score of all items that the user does not have."""
    appeal: float
    """What the item has for every user, compared with the mean item."""
    opaque: float | None
    """The encoder's part, compared with the mean item, if it can't be split by action; else
    None."""
    rules: Doubles  # [the user's edges]: by the paths that begin with each, minus mean_rules
    mean_rules: Doubles  # [the user's edges]: the same for the mean item
    encoder: Doubles  # [the user's edges]
    sequence: Doubles  # [the user's edges]: by what people went on to
    cells: NDArray[np.int64]
    """Rows (edge, place of the rule, number of paths), one for each edge and rule with paths."""
    worth: Doubles
    """What each cell contributes."""
    strengths: Doubles
    """The total strength of each cell's paths."""

    @cached_property
    def actions(self) -> Doubles:
        """c_a of each of the user's edges."""
        return self.rules + self.encoder + self.sequence

    @cached_property
    def confidences(self) -> Doubles:
        """The confidence of each of the user's edges; see ``confidences``."""
        return confidences(self.actions, self.opaque or 0.0)

    @property
    def lead(self) -> float:
        """S minus the mean item's score."""
        return self.appeal + float(self.actions.sum()) + (self.opaque or 0.0)


def confidences(given: Doubles, opaque: float = 0.0) -> Doubles:
    """How likely each action is the cause, if the user takes the item for a single reason.

    S is the logarithm of a rate, up to a constant per user. Alone, action a multiplies the rate by
    e^c_a, so it adds e^c_a − 1 to the 1 of the item's own appeal. Competing causes are likely in
    proportion to what they add: (e^c_a − 1) / (1 + Σ_b (e^c_b − 1)). An action that counts against
    the item adds nothing.

    >>> confidences(np.log([3.0, 2.0, 0.5]))
    array([0.5 , 0.25, 0.  ])
    """
    speaks = np.maximum(np.append(given, opaque), 0.0)
    most = speaks.max()
    by_itself = np.exp(-most)  # divide everything by e^most, which could overflow
    added = np.exp(speaks - most) - by_itself
    out: Doubles = added[:-1] / (by_itself + added.sum())
    return out


@dataclass(frozen=True, slots=True)
class _Scale:
    """How logits and encoder scores become parts of S, for one user's pairs."""

    rules: Doubles  # [pairs]: factor of the rules' logits
    base: Doubles  # [pairs]: the logic's part without any rule
    mean_base: float
    encoder: float  # factor of the encoder's scores
    opaque: Doubles | None  # [pairs]: the encoder's part, if it is not a sum
    mean_opaque: float


def attribute(
    ranker: Ranker,
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    parts: Parts,
    encoders: Mapping[int, Encoders],
    scores: Mapping[int, tuple[Scores, int]],
) -> list[Attribution]:
    """What each action contributes, for pairs in the given order.

    ``encoders`` holds each user's parts of the encoders' scores; ``scores`` holds the scores of all
    items and the user's row in them.
    """
    out: list[Attribution | None] = [None] * len(users)
    cells, worth, strengths, starts = _cells(ranker, users, items, parts)
    mean_base = _mean_base(ranker)
    for user in np.unique(users).tolist():
        rows = np.flatnonzero(users == user)
        encoder, (every, row) = encoders[user], scores[user]
        scale = _scale(ranker, parts, rows, encoder[0], every, row, mean_base)
        mean, for_all = every.mean(row), _given_to_all(ranker, user)
        for k, i in enumerate(rows.tolist()):
            own = slice(starts[i], starts[i + 1])
            by_hop = cells[own], worth[own], strengths[own]
            out[i] = _attribution(for_all, mean, scale, encoder, k, *by_hop)
    return [a for a in out if a is not None]


def _given_to_all(ranker: Ranker, user: int) -> Doubles:
    """How to divide the rules' contribution to the mean item among a user's edges. The shares add
    up to 1, or are all 0 if the rules contribute nothing."""
    logic = ranker.logic
    scales = 1.0 if logic.scales is None else logic.scales
    worth = np.abs(logic.weights) / scales
    given = given_to_all(ranker.logic_graph, logic.rules, user, worth, logic.walk)
    if ranker.logic_graph is ranker.graph:
        out = given
    else:
        out = np.zeros(len(_facts_of(ranker.graph, user)))
        out[_edges(ranker, user)] = given
    total = float(out.sum())
    return out / total if total > 0 else out


def _facts_of(graph: Graph, user: int) -> NDArray[np.int64]:
    """The facts in a user's row, each encoded as one number."""
    relations, tails = graph.rows.facts(user)
    return relations * graph.n_entities + tails


def _edges(ranker: Ranker, user: int) -> NDArray[np.int64]:
    """The places in the graph of a user's edges in the logic graph, which may be a sample."""
    known, sample = (_facts_of(graph, user) for graph in (ranker.graph, ranker.logic_graph))
    order = np.argsort(known, kind="stable")
    return order[np.searchsorted(known, sample, sorter=order)]


def _cells(
    ranker: Ranker, users: NDArray[np.int64], items: NDArray[np.int64], parts: Parts
) -> tuple[NDArray[np.int64], Doubles, Doubles, NDArray[np.int64]]:
    """For all pairs: the cells (edge, rule, paths), what they add to the logit, and their
    strengths; and where each pair's cells begin."""
    found, contributions = parts.groundings, parts.rules
    pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
    useful = np.flatnonzero(contributions)
    pair, places = pair[useful], found.rules[useful]
    logic = ranker.logic
    hops = by_first_hop(
        ranker.logic_graph, logic.rules, places, users[pair], items[pair], logic.walk
    )
    cell = np.repeat(np.arange(len(useful)), np.diff(hops.starts))
    # Divide by the cell's own sum, so that shares add up to 1 whatever the order of addition.
    total = np.add.reduceat(hops.strengths, hops.starts[:-1]) if len(useful) else np.empty(0)
    worth = contributions[useful][cell] * hops.strengths / total[cell]
    edges = hops.edges
    if ranker.logic_graph is not ranker.graph:
        owners = users[pair][cell]
        edges = edges.copy()
        for user in np.unique(owners).tolist():
            own = owners == user
            edges[own] = _edges(ranker, user)[edges[own]]
    rows = np.stack([edges, places[cell].astype(np.int64), hops.counts], axis=1)
    return rows, worth, hops.strengths, np.searchsorted(pair[cell], np.arange(len(users) + 1))


def _scale(
    ranker: Ranker,
    parts: Parts,
    rows: NDArray[np.int64],
    encoder: EncoderParts | None,
    every: Scores,
    row: int,
    mean_base: float,
) -> _Scale:
    """The scale of one user's pairs (``rows``); ``row`` is the user's row in the scores."""
    fusion = ranker.fusion
    unit = parts.prior + parts.popularity[rows]
    opaque, mean_opaque = None, 0.0
    if encoder is None and fusion.uses_encoder:
        opaque = parts.fused[0][rows]
        mean_opaque = every.mean_encoder(row, fusion)
    weight = fusion.encoder_weight if encoder is not None and fusion.uses_encoder else 0.0
    if fusion.kind != "sum":
        return _Scale(np.ones(len(rows)), unit, mean_base, weight, opaque, mean_opaque)
    # S = q + α·σ(logit) is not a sum over rules. Divide what they gain together,
    # α·(σ(logit) − σ(unit)), in proportion to their parts of the logit, so that everything adds up.
    base = fusion.alpha * expit(unit)
    of_rules = parts.logit[rows] - unit
    gained = fusion.alpha * parts.p[rows] - base
    factor = np.divide(gained, of_rules, out=np.zeros(len(rows)), where=of_rules != 0)
    return _Scale(factor, base, mean_base, weight, opaque, mean_opaque)


def _mean_base(ranker: Ranker) -> float:
    """The logic's part of the mean item's score without any rule; the same for all users."""
    unit, fusion = ranker.logic.unit(ranker.logic_graph), ranker.fusion
    return float((fusion.alpha * expit(unit)).mean() if fusion.kind == "sum" else unit.mean())


def _attribution(
    for_all: Doubles,
    mean: float,
    scale: _Scale,
    encoders: Encoders,
    k: int,
    cells: NDArray[np.int64],
    worth: Doubles,
    strengths: Doubles,
) -> Attribution:
    """The attribution of the user's k-th pair."""
    worth = worth * scale.rules[k]
    appeal = scale.base[k] - scale.mean_base
    of_encoders = np.zeros((2, len(for_all)))
    mean_encoder = scale.mean_opaque
    for row, encoder in zip(of_encoders, encoders, strict=True):
        if encoder is not None and scale.encoder:
            n = len(encoder.mean_actions)
            row[:n] = scale.encoder * (encoder.actions[:, k] - encoder.mean_actions)
            appeal += scale.encoder * (encoder.appeal[k] - encoder.mean_appeal)
            given = encoder.mean_appeal + float(encoder.mean_actions.sum())
            mean_encoder += scale.encoder * given
    # The mean item is not an item, so no rule can be grounded for it: the rules' part is what
    # remains of its score.
    mean_rules = mean - scale.mean_base - mean_encoder
    by_edge = mean_rules * for_all
    if not for_all.any():
        appeal -= mean_rules  # rounding, and what none of this user's actions contributes
    of_rules = -by_edge
    np.add.at(of_rules, cells[:, 0], worth)
    opaque = None if scale.opaque is None else float(scale.opaque[k] - scale.mean_opaque)
    return Attribution(
        mean,
        float(appeal),
        opaque,
        of_rules,
        by_edge,
        of_encoders[0],
        of_encoders[1],
        cells,
        worth,
        strengths,
    )
