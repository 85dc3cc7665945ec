"""Pools: the candidates among which the listwise M-step makes held-out interactions stand out.

A user's candidates are the best items by each rule, and more by the encoder and by rules over other
users, which find most hits. Items that the user has are left out. The likelihood over all items
would be nearly the same: what is missing are items that nothing supports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.encoder.folding import score_users
from loger.engine import Engine, LocalEngine
from loger.engine.topk import top_k
from loger.graph import KnowledgeGraph, history, pair_keys
from loger.graph.arrays import Doubles
from loger.grounding import Groundings, Walk, concat, reach_best, reweighed, take
from loger.logic.mln import hit_weights
from loger.ranking.ranker import Ranker, blocks
from loger.rules import RuleSet

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK = 64
"""Users whose candidates are gathered, or whose items are scored, at a time."""
RULE_CANDIDATES = 40
"""Candidates of a user by each rule."""
MAIN_CANDIDATES = 100
"""Candidates by each encoder and by each rule over other users or a derived relation."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Candidates of some users, one row each, in the order of users."""

    found: Groundings  # of the rows
    starts: NDArray[np.int64]  # [users + 1]: where each user's rows begin
    hits: NDArray[np.int64]  # rows that are held-out interactions
    encoder: NDArray[np.float32]  # [rows]: the encoder's scores, as the model uses them
    rules: RuleSet
    walk: Walk | None  # of the strengths in ``found``
    beliefs: NDArray[np.float32] | None = None
    """[rows]: the encoder's own scores, by which it teaches, if it does."""
    taught: Pool | None = None
    """Candidates of users who need no labels, if the encoder teaches the rules."""
    teacher: float = 0.0
    """The weight of the encoder's ranking of ``taught``, in users with one hit."""
    sequence: NDArray[np.float32] | None = None
    """[rows]: the sequence encoder's scores, if its weight is still to be learned."""

    @property
    def hit_weights(self) -> Doubles:
        """What each hit counts in the likelihood."""
        return hit_weights(self.starts, self.hits)

    def with_rules(self, rules: RuleSet) -> Pool:
        """The same candidates with some of the rules, which must be in the same order."""
        if rules == self.rules:
            return self
        places = {rule: place for place, rule in enumerate(self.rules)}
        found = self.found.of_rules(np.array([places[rule] for rule in rules]))
        taught = self.taught and self.taught.with_rules(rules)
        return replace(self, found=found, rules=rules, taught=taught)

    def of_hits(self) -> Pool:
        """The candidates of users with a hit: the others don't affect the likelihood."""
        users = np.zeros(len(self.starts) - 1, dtype=bool)
        users[np.searchsorted(self.starts, self.hits, side="right") - 1] = True
        if users.all() or not len(self.hits):
            return self
        sizes = np.diff(self.starts)
        rows = np.repeat(users, sizes)
        return replace(
            self,
            found=take(self.found, np.flatnonzero(rows)),
            starts=np.concatenate([[0], np.cumsum(sizes[users])]),
            hits=np.cumsum(rows)[self.hits] - 1,
            encoder=self.encoder[rows],
            beliefs=None if self.beliefs is None else self.beliefs[rows],
            sequence=None if self.sequence is None else self.sequence[rows],
        )

    def with_own(self, beside: NDArray[np.floating]) -> Pool:
        """The same candidates with items' own parts [items] added to the encoder's sums, also for
        users whom the encoder teaches."""
        encoder = self.encoder + beside[self.found.items]
        return replace(self, encoder=encoder, taught=self.taught and self.taught.with_own(beside))

    def with_share(self, m: float) -> Pool:
        """The same candidates, scored by both encoders: e = (1 − m)·s + m·z."""
        if self.sequence is None:
            return self
        return replace(self, encoder=(1 - m) * self.encoder + m * self.sequence, sequence=None)

    def scored(self, ranker: Ranker, engine: Engine) -> Pool:
        """The same candidates, scored with the ranker's encoder and walk."""
        found, walk = self.found, ranker.logic.walk
        if walk != self.walk and walk is not None:
            walks = self.walk or Walk.uniform(0.0), walk
            found = reweighed(ranker.logic_graph, self.rules, found, walks, engine)
        scores = pair_scores(ranker, found.users, found.items, engine).astype(np.float32)
        beliefs = None
        if self.beliefs is not None:
            itself = replace(ranker, fusion=replace(ranker.fusion, own=None))
            beliefs = pair_scores(itself, found.users, found.items, engine).astype(np.float32)
        taught = self.taught and self.taught.scored(ranker, engine)
        return replace(self, found=found, encoder=scores, walk=walk, beliefs=beliefs, taught=taught)


def gather(
    ranker: Ranker,
    users: NDArray[np.int64],
    held_out: csr_array,
    engine: Engine,
    *,
    beliefs: bool = False,
) -> Pool:
    """The candidates of users by the ranker's rules, whatever their weights, and by its encoder.

    Args:
        ranker: the rules and the encoder.
        users: whose candidates to gather, ascending.
        held_out: the interactions to learn from, users × items.
        engine: where the work runs.
        beliefs: whether to keep the encoder's own scores as well.
    """
    shared = (ranker, held_out, beliefs)
    parts = list(engine.map("gathering candidates", _gather, blocks(users, BLOCK), shared))
    ends = np.cumsum([0, *(len(p.found) for p in parts)])
    walk = ranker.logic.walk
    return Pool(
        concat([p.found for p in parts], len(ranker.logic.rules), walk is not None),
        np.concatenate([[0], *(p.starts[1:] + at for p, at in zip(parts, ends, strict=False))]),
        np.concatenate([p.hits + at for p, at in zip(parts, ends, strict=False)]),
        np.concatenate([p.encoder for p in parts]),
        ranker.logic.rules,
        walk,
        _joined([p.beliefs for p in parts]),
        sequence=_joined([p.sequence for p in parts]),
    )


def _joined(parts: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """The parts as one array; None if there are none."""
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there else None


def _gather(shared: tuple[Ranker, csr_array, bool], users: NDArray[np.int64]) -> Pool:
    ranker, held_out, beliefs = shared
    rules, walk, owned = ranker.logic.rules, ranker.logic.walk, history(ranker.graph, users)
    believed = score_users(ranker.encoder, ranker.graph, users, ranker.walk)
    by_encoder, _ = top_k(believed.copy(), MAIN_CANDIDATES, owned)
    s = believed if ranker.fusion.own is None else ranker.encoder_scores(users)
    z = None
    if ranker.sequence is not None:
        z = ranker.sequence.score(ranker.graph, users)
        by_sequence, _ = top_k(z.copy(), MAIN_CANDIDATES, owned)
        by_encoder = np.hstack([by_encoder, by_sequence])
    main = [rule.derived or (len(rule) == 3 and rule.types[2] == "user") for rule in rules]
    most = np.where(main, MAIN_CANDIDATES, RULE_CANDIDATES)
    strength = walk or Walk.uniform(0.0)  # without a walk, the items with the most paths
    found = reach_best(
        ranker.logic_graph, rules, users, strength, most, by_encoder, engine=LocalEngine(1)
    )
    rows = np.searchsorted(users, found.users)
    return Pool(
        found if walk is not None else replace(found, strengths=None),
        np.searchsorted(rows, np.arange(len(users) + 1)),
        np.flatnonzero(np.asarray(held_out[found.users, found.items])),
        s[rows, found.items],
        rules,
        walk,
        believed[rows, found.items] if beliefs else None,
        sequence=None if z is None else z[rows, found.items],
    )


def pair_scores(
    ranker: Ranker, users: NDArray[np.integer], items: NDArray[np.integer], engine: Engine
) -> Doubles:
    """The encoder's scores of pairs, as the model uses them."""
    out = np.empty(len(users))
    distinct, place = np.unique(users, return_inverse=True)
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(len(distinct) + 1))
    spans = [
        (distinct[lo : lo + BLOCK], place[rows] - lo, items[rows])
        for lo in range(0, len(distinct), BLOCK)
        for rows in (order[ends[lo] : ends[min(lo + BLOCK, len(distinct))]],)
    ]
    scored = engine.map("scoring pairs", _pair_scores, spans, ranker)
    out[order] = np.concatenate([np.empty(0), *scored])
    return out


def _pair_scores(ranker: Ranker, block: Sequence[NDArray[np.integer]]) -> NDArray[np.float32]:
    users, rows, items = block
    scores: NDArray[np.float32] = ranker.encoder_scores(users)[rows, items]
    return scores


def uniform_items(
    graph: KnowledgeGraph, users: NDArray[np.integer], n: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """n items per user, drawn uniformly, and whose they are; -1 for an item the user has."""
    owners = np.repeat(users, n).astype(np.int64)
    items = rng.integers(graph.n_items, size=len(owners))
    edges, heads = graph.interactions
    have = pair_keys(heads, graph.tails[edges] - graph.n_users, graph.n_items)  # ascending
    keys = pair_keys(owners, items, graph.n_items)
    at = np.minimum(np.searchsorted(have, keys), max(len(have) - 1, 0))
    items[have[at] == keys] = -1
    return owners.astype(np.int32), items.astype(np.int32)
