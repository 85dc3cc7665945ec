"""What the score of a new item lacks, expected by what the model gives known items.

Of an item that nobody has taken, rules over interactions know nothing, whatever its facts: beside
known items it would come last. What they would say is expected from what the encoder says by facts
alone. Of known items both are known: S, what rules over facts give (L₀), and what the encoder would
give if they were new (s₀). Gain and shift are those for which an item's chance to be taken before
all others that the user does not have is, on average, what it is by the whole model,

    σ(L₀ + gain · w_enc · s₀ + shift − log Z) ≈ σ(S − log Z),   Z = Σ exp S over these others,

by the cross-entropy over some users and known items; also over items that a user has, each scored
as if it were not there, for a new item may be as close to a user as what is in the history. Then
new items have gain · s + shift for s. Known items and the rules are left as they are. As people
take a new item, gain and shift fade with the share of its vector that is expected of facts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loger.encoder.folding import score_unowned
from loger.encoder.protocol import AdditiveEncoder, Encoder
from loger.graph import INTERACTION, KnowledgeGraph, history, whole
from loger.graph.arrays import expit
from loger.logic.mln import Logic
from loger.ranking.ranker import Ranker
from loger.rules import RuleSet

Doubles = NDArray[np.float64]
USERS, TAKEN, PAIRS, BLOCK = 100, 10_000, 1_000_000, 16
"""Users from whom is learned, at most, their interactions, and pairs of them with known items; and
users at a time."""
STEPS = 30
"""Newton's, at most: usually there are five."""


def with_newcomers(ranker: Ranker, known_items: int) -> Ranker:
    """The ranker whose new items, those after the ``known_items`` first, have scores to be
    expected; the same ranker where its encoder's scores are no sums or expect nothing."""
    encoder, fusion = ranker.encoder, ranker.fusion
    if fusion.kind != "logit" or fusion.own is None or fusion.encoder_weight <= 0:
        return ranker
    as_new = encoder.as_new() if isinstance(encoder, AdditiveEncoder) else None
    if as_new is None:
        return ranker
    assert isinstance(encoder, AdditiveEncoder)
    users = _some_users(whole(ranker.graph))
    items = _evenly(np.arange(known_items), PAIRS // max(len(users), 1))
    by_facts = without_interactions(ranker.logic, whole(ranker.logic_graph))
    pairs = [np.empty((3, 0))]
    for block in np.array_split(users, -(-len(users) // BLOCK)) if len(users) else []:
        seen = _seen(ranker, as_new, by_facts, block, items)
        pairs.append(np.stack(seen).reshape(3, -1))
    s0, offset, target = np.concatenate(pairs, axis=1)
    gain, shift = fitted_scale(fusion.encoder_weight * s0, offset, target)
    share = encoder.fact_shares()
    gains = 1 + share * np.float32(gain - 1)
    shifts = share * np.float32(shift / fusion.encoder_weight)
    return replace(ranker, encoder=encoder.with_gains(gains, shifts))


def _some_users(graph: KnowledgeGraph) -> NDArray[np.int64]:
    """Some of those who have interactions, as many as do not have too many together."""
    sizes = np.bincount(graph.interactions[1], minlength=graph.n_users)
    users = _evenly(np.flatnonzero(sizes), USERS)
    return users[np.cumsum(sizes[users]) <= TAKEN]


def _seen(
    ranker: Ranker,
    as_new: Encoder,
    by_facts: Logic,
    users: NDArray[np.int64],
    items: NDArray[np.int64],
) -> tuple[Doubles, Doubles, Doubles]:
    """s₀, L₀ − log Z and the chance by the whole model, of users and known items."""
    encoder, fusion, graph = ranker.encoder, ranker.fusion, ranker.logic_graph
    assert fusion.own is not None
    about = ranker.graph, users, ranker.walk, fusion.own
    s = score_unowned(encoder, *about).astype(np.float64)
    whole_scores = ranker.logic.logits(graph, users) + fusion.encoder_weight * s
    others = whole_scores.copy()
    others[history(ranker.graph, users)] = -np.inf
    highest = others.max(axis=1, keepdims=True)
    log_z = highest + np.log(np.exp(others - highest).sum(axis=1, keepdims=True))
    s0 = score_unowned(as_new, *about)[:, items].astype(np.float64)
    if len(by_facts.rules):
        l0 = by_facts.logits(graph, users)[:, items].astype(np.float64)
    else:
        l0 = np.full(s0.shape, by_facts.prior)
    return s0, l0 - log_z, expit(whole_scores[:, items] - log_z)


def without_interactions(logic: Logic, graph: KnowledgeGraph) -> Logic:
    """The logic of items that nobody has: rules whose last hop is a fact that needs nobody, such as
    a brand, not what is known from single interactions or derived from them; no popularity."""
    half = len(graph.relations)
    kinds = graph.edge_relations() % half
    if graph.origins is not None:
        kinds = kinds[graph.origins < 0]
    given = np.bincount(kinds, minlength=half) > 0
    given &= np.array([not r.derived for r in graph.relations])
    given[INTERACTION] = False
    kept = [k for k, rule in enumerate(logic.rules) if given[rule.relations[-1] % half]]
    return replace(
        logic,
        rules=RuleSet(tuple(logic.rules[k] for k in kept)),
        weights=logic.weights[kept],
        scales=None if logic.scales is None else logic.scales[kept],
        popularity=0.0,
    )


def fitted_scale(x: Doubles, offset: Doubles, target: Doubles) -> tuple[float, float]:
    """The gain and shift for which σ(offset + gain · x + shift) has the least cross-entropy to the
    targets, and a small penalty for being far from 1 and 0; by Newton's method."""
    design = np.stack([x, np.ones_like(x)])
    start = np.array([1.0, 0.0])
    scale = start.copy()
    for _ in range(STEPS):
        p = expit(scale @ design + offset)
        slope = design @ (target - p) - (scale - start)
        curve = (design * (p * (1 - p))) @ design.T + np.eye(2)
        step = np.linalg.solve(curve, slope)
        scale += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-6:
            break
    return float(scale[0]), float(scale[1])


def _evenly(values: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of the values, at equal distances."""
    return values[:: max(1, -(-len(values) // max(most, 1)))]
