"""Pools: the candidates among which the listwise M-step makes held-out interactions stand out.

Of each user the best items by every single rule, and more of the encoder's and of the rules over
other users, which find most; nothing the user has. The likelihood over all items would be the same
but for items that nothing speaks for.
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
from loger.logic.config import PoolConfig
from loger.logic.mln import hit_weights
from loger.ranking.ranker import Ranker, blocks
from loger.rules import RuleSet

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK = 64
"""Users whose candidates are gathered, or whose items are scored, at a time."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Candidates of some users, by user."""

    found: Groundings
    starts: NDArray[np.int64]  # [users + 1]
    hits: NDArray[np.int64]  # rows that are held-out interactions
    encoder: NDArray[np.float32]  # [rows]: the encoder's scores, as the ranker has them
    rules: RuleSet
    walk: Walk | None  # what strengths are of
    beliefs: NDArray[np.float32] | None = None
    """[rows]: the encoder's own scores, by which it teaches, where it does."""
    taught: Pool | None = None
    """Candidates of users who need no labels, if the encoder is to teach the rules."""
    teacher: float = 0.0
    """What it expects of them counts as much as the hits of so many users."""
    sequence: NDArray[np.float32] | None = None
    """[rows]: the sequence encoder's scores, where it has a weight of its own yet to learn."""

    @property
    def hit_weights(self) -> Doubles:
        """What each hit counts in the likelihood."""
        return hit_weights(self.starts, self.hits)

    def with_rules(self, rules: RuleSet) -> Pool:
        """The same candidates with some of the rules, in the same order."""
        if rules == self.rules:
            return self
        places = {rule: place for place, rule in enumerate(self.rules)}
        found = self.found.of_rules(np.array([places[rule] for rule in rules]))
        taught = self.taught and self.taught.with_rules(rules)
        return replace(self, found=found, rules=rules, taught=taught)

    def of_hits(self) -> Pool:
        """The users who have a hit, and their candidates: others do not matter to a likelihood."""
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
        """The same candidates, what items have beside the encoder's sums [items] added to these:
        of users with labels and of those that the encoder teaches by."""
        encoder = self.encoder + beside[self.found.items]
        return replace(self, encoder=encoder, taught=self.taught and self.taught.with_own(beside))

    def with_share(self, m: float) -> Pool:
        """The same candidates by e = (1 − m)·s + m·z."""
        if self.sequence is None:
            return self
        return replace(self, encoder=(1 - m) * self.encoder + m * self.sequence, sequence=None)

    def scored(self, ranker: Ranker, engine: Engine) -> Pool:
        """The same candidates by the encoder and the walk that the ranker has."""
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


# ── pools ───────────────────────────────────────────────────────────────────────────────


def gather(
    ranker: Ranker,
    users: NDArray[np.int64],
    held_out: csr_array,
    config: PoolConfig,
    engine: Engine,
) -> Pool:
    """The candidates of users, ascending, by the ranker's rules, whatever they weigh, and by its
    encoder. ``held_out`` is users × items."""
    shared = (ranker, held_out, config)
    parts = list(engine.map("gathering candidates", _gather, blocks(users, BLOCK), shared))
    ends = np.cumsum([0, *(len(p.found) for p in parts)])
    return Pool(
        concat([p.found for p in parts], len(ranker.logic.rules), config.walk is not None),
        np.concatenate([[0], *(p.starts[1:] + at for p, at in zip(parts, ends, strict=False))]),
        np.concatenate([p.hits + at for p, at in zip(parts, ends, strict=False)]),
        np.concatenate([p.encoder for p in parts]),
        ranker.logic.rules,
        config.walk,
        _joined([p.beliefs for p in parts]),
        sequence=_joined([p.sequence for p in parts]),
    )


def _joined(parts: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """The parts in a row; None if there are none."""
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there else None


def _gather(shared: tuple[Ranker, csr_array, PoolConfig], users: NDArray[np.int64]) -> Pool:
    ranker, held_out, config = shared
    rules = ranker.logic.rules
    believed = score_users(ranker.encoder, ranker.graph, users, ranker.walk)
    by_encoder, _ = top_k(believed.copy(), config.main, history(ranker.graph, users))
    s = believed if ranker.fusion.own is None else ranker.encoder_scores(users)
    z = None
    if ranker.sequence is not None:
        z = ranker.sequence.score(ranker.graph, users)
        by_sequence, _ = top_k(z.copy(), config.main, history(ranker.graph, users))
        by_encoder = np.hstack([by_encoder, by_sequence])
    main = [rule.derived or (len(rule) == 3 and rule.types[2] == "user") for rule in rules]
    most = np.where(main, config.main, config.per_rule)
    walk = config.walk or Walk.uniform(0.0)
    found = reach_best(
        ranker.logic_graph, rules, users, walk, most, by_encoder, engine=LocalEngine(1)
    )
    rows = np.searchsorted(users, found.users)
    return Pool(
        found if config.walk is not None else replace(found, strengths=None),
        np.searchsorted(rows, np.arange(len(users) + 1)),
        np.flatnonzero(np.asarray(held_out[found.users, found.items])),
        s[rows, found.items],
        rules,
        config.walk,
        believed[rows, found.items] if config.beliefs else None,
        sequence=None if z is None else z[rows, found.items],
    )


# ── pairs ───────────────────────────────────────────────────────────────────────────────


def pair_scores(
    ranker: Ranker, users: NDArray[np.integer], items: NDArray[np.integer], engine: Engine
) -> Doubles:
    """The encoder's scores of pairs."""
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
    """For each user n items drawn uniformly; -1 where the user has it in the graph."""
    owners = np.repeat(users, n).astype(np.int64)
    items = rng.integers(graph.n_items, size=len(owners))
    edges, heads = graph.interactions
    have = pair_keys(heads, graph.tails[edges] - graph.n_users, graph.n_items)  # ascending
    keys = pair_keys(owners, items, graph.n_items)
    at = np.minimum(np.searchsorted(have, keys), max(len(have) - 1, 0))
    items[have[at] == keys] = -1
    return owners.astype(np.int32), items.astype(np.int32)
