"""Rule mining: measure every rule that the types allow on the training graph and keep the best.

A grounding is a simple path, so a pair doesn't support a rule just because it was observed
(METHOD L2, L3 and 3).
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
from loger.engine.settings import ANY
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.grounding import ground, reach_sizes
from loger.rules import MAX_HOPS, Rule, RuleSet, candidates, make_rule

FEW = 2000
"""With fewer observed pairs than this, rules need less support and lift than METHOD 3 asks for."""
SUPPORT_SHARE = 1e-4
"""A rule must reach at least this share of the observed pairs (METHOD 3)."""
EVERYWHERE = 0.9
"""A rule that reaches this share of all pairs is kept whatever its lift (docs/adr/0009)."""
SAMPLE_USERS = 1000
"""What a rule reaches is measured on this many random users, or on all if there are fewer."""
SAMPLE_PAIRS = 75_000
"""Support is counted on this many random observed pairs and scaled up, or on all if there are
fewer."""
MIN_LIFT = 1e-9
"""A rule's score is a logarithm of its lift, which counts as at least this."""
KEPT_DESPITE_LIFT = "kept though its lift is low, because few rules pass"


@dataclass(frozen=True, slots=True)
class MiningConfig:
    """Which rules to keep; the defaults are those of METHOD 3."""

    max_hops: int = MAX_HOPS
    """Maximum number of hops in a rule."""
    min_hops: int = 1
    """Minimum number of hops; 3 in the preset `paper`."""
    min_support: int | None = None
    """Keep a rule only if it reaches at least this many observed pairs. None means 50, or with
    fewer than 2,000 pairs one in 40, but at least 2."""
    min_lift: float | None = None
    """Keep a rule only if it finds observed pairs this many times better than chance. None means 2,
    or 1 with fewer than 2,000 pairs."""
    min_rules: int = 7
    """If fewer rules have enough lift, the best of the others are kept too, up to this number.
    Their weights decide what they contribute."""
    max_rules: int = 50
    """Maximum number of rules; the best by support · log(lift) are kept."""
    seed: int = 0
    FORMER: ClassVar[Mapping[str, Any]] = dict.fromkeys(
        ("sample_pairs", "sample_users", "support_share", "everywhere"), ANY
    )

    def for_pairs(self, n: int) -> MiningConfig:
        """The settings with the defaults of support and lift filled in for n observed pairs."""
        support, lift = (50, 2.0) if n >= FEW else (max(2, n // 40), 1.0)
        return replace(
            self,
            min_support=support if self.min_support is None else self.min_support,
            min_lift=lift if self.min_lift is None else self.min_lift,
        )

    def lowered(self, n: int) -> str:
        """A sentence that says what n pairs lower the bar to; empty if they don't lower it."""
        config = self.for_pairs(n)
        if config == self.for_pairs(FEW):
            return ""
        needed = f"support ({config.min_support}) and lift ({config.min_lift:g})"
        return f"with only {n:,} training pairs, loger lowers the required {needed}"


@dataclass(frozen=True, slots=True)
class Measure:
    """How good a rule is, and whether and why it was kept.

    loger measures what a rule reaches only if its support suffices. If that wasn't measured, or if
    the rule reaches nothing from the sampled users, ``reached`` is 0, and ``precision`` and
    ``lift`` are NaN.
    """

    rule: Rule
    support: int
    """Number of observed pairs that the rule reaches; an estimate if there are very many pairs."""
    reached: int
    """Number of pairs that it reaches from the sampled users."""
    precision: float
    """The share of the reached pairs that are observed."""
    lift: float
    """Precision divided by the share of all pairs that are observed."""
    kept: bool = False
    why: str = ""

    @property
    def score(self) -> float:
        """support · log(lift), by which rules are ranked; 0 if the lift isn't known."""
        return 0.0 if isnan(self.lift) else self.support * log(max(self.lift, MIN_LIFT))

    def as_dict(self) -> dict[str, Any]:
        """The measures by name, as JSON can hold them; None for what wasn't measured."""
        rule = {"relations": list(self.rule.names), "types": list(self.rule.types)}
        return {**rule, "sentence": self.rule.sentence(), **self.figures(), "score": self.score}

    def figures(self) -> dict[str, Any]:
        """What was measured and decided, without the rule."""
        known = self.reached > 0
        return {
            "support": self.support,
            "reached": self.reached,
            "precision": self.precision if known else None,
            "lift": self.lift if known else None,
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
    """Number of observed pairs."""

    def story(self) -> str:
        """One sentence: how many rules were tried and kept, why the others were dropped, and which
        setting would keep most of them."""
        dropped = Counter(m.why for m in self.measures if not m.kept)
        despite = sum(m.why == KEPT_DESPITE_LIFT for m in self.measures)
        n = len(self.measures)
        text = f"{n} rule{'s' * (n != 1)} tried, {len(self.rules)} kept"
        text += f" ({despite} despite a low lift, because few pass)" if despite else ""
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
        """How many rules were kept and dropped for which reason, a line for each."""
        reasons = Counter(m.why for m in self.measures)
        lines = [f"{len(self.measures)} candidate rules, {len(self.rules)} kept"]
        lines += [f"  {n:4d}  {why}" for why, n in sorted(reasons.items(), key=lambda x: -x[1])]
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """Every candidate, with its relations by number, as JSON can hold it."""
        rows = [{"relations": list(m.rule.relations), **m.figures()} for m in self.measures]
        return {"sampled_users": self.sampled_users, "pairs": self.pairs, "measures": rows}

    @classmethod
    def of_record(cls, graph: KnowledgeGraph, record: Mapping[str, Any]) -> Mined:
        """What ``record`` returned, on the graph that it came from."""
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
    """Measure all candidate rules on a graph's interactions and keep the best.

    Args:
        graph: the training graph.
        config: which rules to try and to keep.
        engine: where the work runs.
    """
    config = config or MiningConfig()
    heads, relations, tails = graph.triples()
    users, items = (x[relations == INTERACTION] for x in (heads, tails - graph.n_users))
    if not len(users):
        raise LogerError(
            "the graph has no interactions, so there are no rules to mine; add interactions"
        )
    config = config.for_pairs(len(users))
    assert config.min_support is not None
    least = max(config.min_support, SUPPORT_SHARE * len(users))
    sample = _sampled(graph.n_users, SAMPLE_USERS, [config.seed, 0x4D1E])
    if not np.isin(users, sample).any():
        raise LogerError(
            f"none of {len(sample)} users sampled from {graph.n_users} has an interaction; leave "
            "out users without interactions"
        )
    rules = candidates(graph, config.max_hops, config.min_hops)
    some = _sampled(len(users), SAMPLE_PAIRS, [config.seed, 0x5A2E])
    pairs = users[some], items[some]
    measures = _measured(graph, rules, *pairs, len(users), sample, least, engine or LocalEngine())
    decided = _decided(measures, least, len(sample) * graph.n_items, config)
    kept = RuleSet(tuple(m.rule for m in decided if m.kept))
    return Mined(kept, decided, len(sample), len(users))


def _sampled(n: int, most: int, seed: list[int]) -> NDArray[np.int64]:
    """At most ``most`` random numbers below n, ascending."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size=most, replace=False))


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
    """Support of all rules on observed pairs, scaled up to ``pairs``, and for rules with enough
    support the precision and lift on the sampled users."""
    fired = ground(graph, rules, users, items, engine=engine).count_matrix > 0
    scale = pairs / len(users)
    support = np.rint(scale * np.asarray(fired.sum(axis=0)).ravel()).astype(np.int64)
    # A rule of dislikes can only count against items, so it's good if it reaches what nobody takes.
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
    """The measures with the decision on each rule; rules with enough support first, then by score,
    ties in the order of candidates. ``pairs`` is how many pairs the sampled users could reach."""
    ranked = sorted(measures, key=lambda m: (m.support < least, -m.score, -m.support))
    decided, room, low_lift = list[Measure](), config.max_rules, list[int]()
    assert config.min_lift is not None
    for place, m in enumerate(ranked):
        why = ""
        # A rule that reaches nearly all pairs cannot beat chance, so its lift says nothing.
        by_lift = not m.rule.negative and m.reached < EVERYWHERE * pairs
        if m.rule.negative:
            why = "" if m.reached >= least else f"reaches fewer than {least:g} pairs"
        elif m.support < least:
            why = f"support below {least:g}"
        elif isnan(m.lift):
            why = "reaches nothing from the sampled users"
        elif by_lift and m.lift < config.min_lift:
            why = f"lift below {config.min_lift:g}"
            low_lift.append(place)
        elif by_lift:
            why = "" if room else f"not among the best {config.max_rules}"
            room -= not why
        decided.append(replace(m, kept=not why, why=why or "kept"))
    missing = min(config.min_rules, config.max_rules) - (config.max_rules - room)
    for place in low_lift[: max(missing, 0)]:
        decided[place] = replace(decided[place], kept=True, why=KEPT_DESPITE_LIFT)
    return tuple(decided)
