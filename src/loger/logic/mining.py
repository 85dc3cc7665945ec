"""Rule mining: every rule the types allow, measured on the training graph, the best kept.

Support and lift are of evidence, not of memory: a grounding is a simple path, so a pair does
not count for a rule just because it was observed (METHOD L2, L3, and 3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isnan, log, nan
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loger.engine import Engine, LocalEngine
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.grounding import ground, reach_sizes
from loger.rules import MAX_HOPS, Rule, RuleSet, candidates, make_rule

FEW = 2000
"""Observed pairs below which rules may have less support and lift than METHOD 3 asks for."""
JOINED = "kept though its lift is low, as few rules pass"
MIN_LIFT = 1e-9
"""Lift is taken to be at least this in scores, whose logarithm it is."""
SAMPLE_PAIRS = 75_000
"""Support is counted on so many observed pairs (drawn by the seed), or on all if there are fewer;
support counted on a part is scaled up."""


@dataclass(frozen=True, slots=True)
class MiningConfig:
    """Which rules to keep; the defaults are those of METHOD 3, and ``everywhere``."""

    max_hops: int = MAX_HOPS
    """Maximum number of hops in a rule."""
    min_hops: int = 1
    """Minimum number of hops; 3 in the preset `paper`."""
    min_support: int | None = None
    """Keep a rule only if it reaches at least this many observed pairs. None means 50, or with
    fewer than 2,000 pairs one in 40, but at least 2."""
    support_share: float = 1e-4
    """Keep a rule only if it reaches at least this share of the observed pairs."""
    min_lift: float | None = None
    """Keep a rule only if it finds observed pairs this many times better than chance. None means 2,
    or 1 with fewer than 2,000 pairs."""
    everywhere: float = 0.9
    """Keep a rule whatever its lift if it reaches this share of all pairs (docs/adr/0009)."""
    min_rules: int = 7
    """If fewer rules have enough lift, the best of the others are kept too, up to this number.
    Their weights decide what they contribute."""
    max_rules: int = 50
    """Maximum number of rules; the best by support · log(lift) are kept."""
    sample_users: int = 1000
    """Measure what a rule reaches on this many random users, or on all if there are fewer."""
    seed: int = 0
    FORMER: ClassVar[Mapping[str, Any]] = {"sample_pairs": SAMPLE_PAIRS}

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
    """Observed pairs that the rule reaches; an estimate where there are very many pairs."""
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
    pairs: int
    """Observed pairs, of which each support is a part."""

    def story(self) -> str:
        """How many rules were tried and kept, why the others went, and what would keep most of
        them; one sentence."""
        dropped = Counter(m.why for m in self.measures if not m.kept)
        joined = sum(m.why == JOINED for m in self.measures)
        n = len(self.measures)
        text = f"{n} rule{'s' * (n != 1)} tried, {len(self.rules)} kept"
        text += f" ({joined} in spite of a low lift, as so few pass)" if joined else ""
        if not dropped:
            return text
        reasons = ", ".join(f"{n} {why}" for why, n in dropped.most_common())
        first = dropped.most_common(1)[0][0]
        remedies = {
            "support": "--set mining.min_support=1",
            "lift": "--set mining.min_lift=0",
            "not": f"--set mining.max_rules={len(self.measures)}",
        }
        remedy = remedies.get(first.split()[0])
        hint = f"; {remedy} keeps more" if remedy else ""
        return f"{text}; dropped: {reasons}{hint}"

    def summary(self) -> str:
        """What was kept and what was dropped for which reason, in a few lines."""
        reasons = Counter(m.why for m in self.measures)
        lines = [f"{len(self.measures)} candidate rules, {len(self.rules)} kept"]
        lines += [f"  {n:4d}  {why}" for why, n in sorted(reasons.items(), key=lambda x: -x[1])]
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """Every rule that was tried, by its relations, as plain values."""
        rows = [
            {
                "relations": list(m.rule.relations),
                "support": m.support,
                "reached": m.reached,
                "precision": m.precision if m.reached else None,
                "lift": m.lift if m.reached else None,
                "kept": m.kept,
                "why": m.why,
            }
            for m in self.measures
        ]
        return {"sampled_users": self.sampled_users, "pairs": self.pairs, "measures": rows}

    @classmethod
    def of_record(cls, graph: KnowledgeGraph, record: Mapping[str, Any]) -> Mined:
        """What ``record`` took apart."""
        measures = tuple(
            Measure(
                make_rule(graph, row["relations"]),
                int(row["support"]),
                int(row["reached"]),
                nan if row["precision"] is None else float(row["precision"]),
                nan if row["lift"] is None else float(row["lift"]),
                bool(row["kept"]),
                str(row["why"]),
            )
            for row in record["measures"]
        )
        kept = RuleSet(tuple(m.rule for m in measures if m.kept))
        return cls(kept, measures, int(record["sampled_users"]), int(record["pairs"]))


def mine(
    graph: KnowledgeGraph, config: MiningConfig | None = None, engine: Engine | None = None
) -> Mined:
    """Measure all candidate rules on the graph's own interactions and keep the best."""
    config = config or MiningConfig()
    heads, relations, tails = graph.triples()
    users, items = (x[relations == INTERACTION] for x in (heads, tails - graph.n_users))
    if not len(users):
        raise LogerError("the graph has no interactions, so there are no rules to mine")
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
    pairs = _sampled_pairs(users, items, config)
    measures = _measured(graph, rules, *pairs, len(users), sample, least, engine or LocalEngine())
    decided = _decided(measures, least, len(sample) * graph.n_items, config)
    kept = RuleSet(tuple(m.rule for m in decided if m.kept))
    return Mined(kept, decided, len(sample), len(users))


def _measured(
    graph: KnowledgeGraph,
    rules: RuleSet,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    pairs: int,
    sample: NDArray[np.int64],
    least: float,
    engine: Engine,
) -> list[Measure]:
    """Support of all rules on observed pairs, which stand for so many ``pairs``; of those that
    have enough of it, precision and lift on the sampled users."""
    fired = ground(graph, rules, users, items, engine=engine).count_matrix > 0
    scale = pairs / len(users)
    support = np.rint(scale * np.asarray(fired.sum(axis=0)).ravel()).astype(np.int64)
    # Rules that may only count against items are good if they reach what nobody takes.
    able = np.flatnonzero((support >= least) | [rule.negative for rule in rules])
    reached = np.zeros(len(rules), dtype=np.int64)
    reached[able] = reach_sizes(graph, rules.chosen(able), sample, engine=engine).sum(axis=0)
    sampled = np.isin(users, sample)
    hits = scale * np.asarray(fired[sampled].sum(axis=0)).ravel()
    precision = np.divide(hits, reached, out=np.full(len(rules), np.nan), where=reached > 0)
    lift = precision / (scale * sampled.sum() / (len(sample) * graph.n_items))
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
        if not why and not m.rule.negative and _by_lift(m, pairs, config):
            why = "" if room else f"not among the best {config.max_rules}"
            room -= not why
        decided.append(replace(m, kept=not why, why=why or "kept"))
    passed = config.max_rules - room
    missing = min(config.min_rules, config.max_rules) - passed
    for k, m in enumerate(decided):
        if missing > 0 and m.why.startswith("lift below"):
            decided[k], missing = replace(m, kept=True, why=JOINED), missing - 1
    return tuple(decided)


def _fault(measure: Measure, least: float, pairs: int, config: MiningConfig) -> str:
    """What a rule lacks, or nothing."""
    if measure.rule.negative:
        return "" if measure.reached >= least else f"reaches fewer than {least:g} pairs"
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


def _sampled_pairs(
    users: NDArray[np.int32], items: NDArray[np.int32], config: MiningConfig
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The observed pairs on which support is counted, in their order."""
    if len(users) <= SAMPLE_PAIRS:
        return users, items
    rng = np.random.default_rng([config.seed, 0x5A2E])
    some = np.sort(rng.choice(len(users), size=SAMPLE_PAIRS, replace=False))
    return users[some], items[some]
