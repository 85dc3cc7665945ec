"""Rule mining: every rule the types allow, measured on the training graph, the best kept.

Support and lift are of evidence, not of memory: a grounding is a simple path, so a pair does
not count for a rule just because it was observed (METHOD L2, L3, and 3).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import isnan, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.engine import Engine, LocalEngine
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.grounding import ground, reach_sizes
from loger.rules import MAX_HOPS, Rule, RuleSet, candidates

FEW = 2000
"""Observed pairs below which rules may have less support and lift than METHOD 3 asks for."""
MIN_LIFT = 1e-9
"""Lift is taken to be at least this in scores, whose logarithm it is."""


@dataclass(frozen=True, slots=True)
class MiningConfig:
    """What makes a rule worth keeping; the defaults are METHOD 3's, and ``everywhere``."""

    max_hops: int = MAX_HOPS
    """The most hops of a rule."""
    min_hops: int = 1
    """The fewest hops; 3 in the preset `paper`."""
    min_support: int | None = None
    """Keep a rule only if it reaches so many observed pairs (None: 50; of fewer than 2,000 pairs
    one in 40, but 2) …"""
    support_share: float = 1e-4
    """… and so large a share of them."""
    min_lift: float | None = None
    """Keep a rule only if it finds observed pairs so many times better than chance (None: 2; with
    fewer than 2,000 pairs 1) …"""
    everywhere: float = 0.9
    """… or reaches so large a share of all pairs that lift says nothing of it (docs/adr/0009)."""
    max_rules: int = 50
    """Of those that lift speaks for keep at most so many, the best by support · log(lift)."""
    sample_users: int = 2000
    """Measure what a rule reaches on so many users (drawn by the seed), or on all if fewer;
    support is always counted on all."""
    seed: int = 0

    def for_pairs(self, n: int) -> MiningConfig:
        """The settings with the support and lift that n observed pairs call for, where none are
        given."""
        support = self.min_support
        if support is None:
            support = 50 if n >= FEW else max(2, n // 40)
        lift = self.min_lift
        if lift is None:
            lift = 2.0 if n >= FEW else 1.0
        return replace(self, min_support=support, min_lift=lift)

    def lowered(self, n: int) -> str:
        """What n pairs lower the bar to, as a sentence; empty if they are enough."""
        config = self.for_pairs(n)
        if config == self.for_pairs(FEW):
            return ""
        needed = f"support {config.min_support}, lift {config.min_lift:g}"
        return f"{n:,} training pairs are few, so rules need less: {needed}"


@dataclass(frozen=True, slots=True)
class Measure:
    """How good a rule is, and whether and why it was kept.

    What a rule reaches is measured only if its support suffices, and on a sample of users
    if there are many: ``reached`` is 0 and ``precision`` and ``lift`` are NaN where it was
    not measured, or where the rule reaches nothing from the users sampled.
    """

    rule: Rule
    support: int
    """Observed pairs that the rule reaches."""
    reached: int
    """Pairs of the sampled users that it reaches."""
    precision: float
    """The share of reached pairs that are observed, on the sampled users."""
    lift: float
    """Precision over the share of all pairs that are observed."""
    kept: bool = False
    why: str = ""

    @property
    def score(self) -> float:
        """support · log(lift), what rules are ranked by; 0 where lift is not known."""
        return 0.0 if isnan(self.lift) else self.support * log(max(self.lift, MIN_LIFT))

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values; what was not measured is None."""
        known = self.reached > 0
        return {
            "relations": list(self.rule.names),
            "types": list(self.rule.types),
            "sentence": self.rule.sentence(),
            "support": self.support,
            "reached": self.reached,
            "precision": self.precision if known else None,
            "lift": self.lift if known else None,
            "score": self.score,
            "kept": self.kept,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Mined:
    """The rules kept, best first, and the measures of every candidate."""

    rules: RuleSet
    measures: tuple[Measure, ...]
    sampled_users: int

    def summary(self) -> str:
        """What was kept and what was dropped for which reason, in a few lines."""
        reasons = Counter(m.why for m in self.measures)
        lines = [f"{len(self.measures)} candidate rules, {len(self.rules)} kept"]
        lines += [f"  {n:4d}  {why}" for why, n in sorted(reasons.items(), key=lambda x: -x[1])]
        return "\n".join(lines)


def mine(
    graph: KnowledgeGraph, config: MiningConfig | None = None, engine: Engine | None = None
) -> Mined:
    """Measure all candidate rules on the graph's own interactions and keep the best."""
    config = config or MiningConfig()
    heads, relations, tails = graph.triples()
    users, items = (x[relations == INTERACTION] for x in (heads, tails - graph.n_users))
    if not len(users):
        raise LogerError("the graph has no interactions to mine rules from")
    config = config.for_pairs(len(users))
    assert config.min_support is not None
    least = max(config.min_support, config.support_share * len(users))
    sample = _sample(graph.n_users, config)
    if not np.isin(users, sample).any():
        raise LogerError(
            f"none of the {len(sample)} users sampled, of {graph.n_users}, has an interaction; "
            f"raise sample_users"
        )
    rules = candidates(graph, config.max_hops, config.min_hops)
    measures = _measured(graph, rules, users, items, sample, least, engine or LocalEngine())
    decided = _decided(measures, least, len(sample) * graph.n_items, config)
    return Mined(RuleSet(tuple(m.rule for m in decided if m.kept)), decided, len(sample))


def _measured(
    graph: KnowledgeGraph,
    rules: RuleSet,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    sample: NDArray[np.int64],
    least: float,
    engine: Engine,
) -> list[Measure]:
    """Support of all rules on all observed pairs; of those that have enough of it, precision
    and lift on the sampled users."""
    fired = ground(graph, rules, users, items, engine=engine).count_matrix > 0
    support = np.asarray(fired.sum(axis=0)).ravel()
    able = np.flatnonzero(support >= least)
    reached = np.zeros(len(rules), dtype=np.int64)
    reached[able] = reach_sizes(graph, rules.chosen(able), sample, engine=engine).sum(axis=0)
    sampled = np.isin(users, sample)
    hits = np.asarray(fired[sampled].sum(axis=0)).ravel()
    precision = np.divide(hits, reached, out=np.full(len(rules), np.nan), where=reached > 0)
    lift = precision / (sampled.sum() / (len(sample) * graph.n_items))
    columns = (support.tolist(), reached.tolist(), precision.tolist(), lift.tolist())
    return [Measure(*row) for row in zip(rules, *columns, strict=True)]


def _decided(
    measures: list[Measure], least: float, pairs: int, config: MiningConfig
) -> tuple[Measure, ...]:
    """The measures with what became of each rule of those that could reach so many pairs, and
    why; those with enough support first, best first, ties in the order of candidates."""
    ranked = sorted(measures, key=lambda m: (m.support < least, -m.score, -m.support))
    decided, room = list[Measure](), config.max_rules
    for m in ranked:
        why = _fault(m, least, pairs, config)
        if not why and _by_lift(m, pairs, config):
            why = "" if room else f"not among the best {config.max_rules}"
            room -= not why
        decided.append(replace(m, kept=not why, why=why or "kept"))
    return tuple(decided)


def _fault(measure: Measure, least: float, pairs: int, config: MiningConfig) -> str:
    """What a rule lacks, or nothing."""
    if measure.support < least:
        return f"support below {least:g}"
    if isnan(measure.lift):
        return "reaches nothing from the users sampled"
    assert config.min_lift is not None
    if _by_lift(measure, pairs, config) and measure.lift < config.min_lift:
        return f"lift below {config.min_lift:g}"
    return ""


def _by_lift(measure: Measure, pairs: int, config: MiningConfig) -> bool:
    """Whether lift can tell a rule from chance: what reaches nearly all pairs, it cannot."""
    return measure.reached < config.everywhere * pairs


def _sample(n_users: int, config: MiningConfig) -> NDArray[np.int64]:
    """The users on which reach is measured, ascending."""
    if n_users <= config.sample_users:
        return np.arange(n_users)
    rng = np.random.default_rng([config.seed, 0x4D1E])
    return np.sort(rng.choice(n_users, size=config.sample_users, replace=False))
