"""Rule mining: every rule the types allow, measured on the training graph, the best kept.

Support and lift are of evidence, not of memory: a grounding is a simple path, so a pair does
not count for a rule just because it was observed (METHOD L2, L3, and 3).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from loger.engine import Engine, LocalEngine
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.grounding import ground, reach_sizes
from loger.rules import LONGEST, Rule, RuleSet, candidates


@dataclass(frozen=True, slots=True)
class MiningConfig:
    """What makes a rule worth keeping; the defaults are METHOD 3's."""

    longest: int = LONGEST
    """The most hops of a rule."""
    shortest: int = 1
    """The fewest hops; 3 in the preset `paper`."""
    least_support: int = 50
    """Keep a rule only if it reaches so many observed pairs …"""
    support_share: float = 1e-4
    """… and so large a share of them."""
    least_lift: float = 2.0
    """Keep a rule only if it finds observed pairs so many times better than chance."""
    most: int = 50
    """Keep at most so many, the best by support · log(lift)."""
    sample_users: int = 2000
    """Measure what a rule reaches on so many users (drawn by the seed), or on all if fewer;
    support is always counted on all."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Measure:
    """How good a rule is, and whether and why it was kept."""

    rule: Rule
    support: int
    """Observed pairs that the rule reaches."""
    reached: int
    """Pairs of the sampled users that it reaches."""
    precision: float
    """The share of reached pairs that are observed, on the sampled users."""
    lift: float
    """Precision over the share of all pairs that are observed."""
    score: float
    """support · log(lift), what rules are ranked by."""
    kept: bool
    why: str


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
    engine = engine or LocalEngine()
    heads, relations, tails = graph.triples()
    users, items = (x[relations == INTERACTION] for x in (heads, tails - graph.n_users))
    if not len(users):
        raise LogerError("the graph has no interactions to mine rules from")
    rules = candidates(graph, config.longest, config.shortest)
    fired = ground(graph, rules, users, items, engine=engine).count_matrix > 0
    support = np.asarray(fired.sum(axis=0)).ravel()
    # A rule that is dropped for its support need not be measured further.
    least = max(config.least_support, config.support_share * len(users))
    able = np.flatnonzero(support >= least)
    sample = _sample(graph.n_users, config)
    reached, hits = np.zeros(len(rules), dtype=np.int64), np.zeros(len(rules), dtype=np.int64)
    reached[able] = reach_sizes(graph, rules.chosen(able), sample, engine=engine).sum(axis=0)
    hits[:] = np.asarray(fired[np.isin(users, sample)].sum(axis=0)).ravel()
    density = np.isin(users, sample).sum() / (len(sample) * graph.n_items)
    precision = hits / np.maximum(reached, 1)
    lift = precision / density if density else np.zeros(len(rules))
    score = support * np.log(np.maximum(lift, 1e-9))
    order = np.lexsort((np.arange(len(rules)), -score))
    order = np.concatenate([order[np.isin(order, able)], order[~np.isin(order, able)]])
    good = [k for k in order if support[k] >= least and lift[k] >= config.least_lift]
    kept = set(good[: config.most])
    measures = []
    for k in order:
        why = (
            "kept"
            if k in kept
            else f"support below {least:g}"
            if support[k] < least
            else f"lift below {config.least_lift:g}"
            if lift[k] < config.least_lift
            else f"not among the best {config.most}"
        )
        measures.append(
            Measure(
                rules[k], int(support[k]), int(reached[k]), float(precision[k]), float(lift[k]),
                float(score[k]) if support[k] >= least else 0.0, k in kept, why,
            )
        )  # fmt: skip
    return Mined(rules.chosen(good[: config.most]), tuple(measures), len(sample))


def _sample(n_users: int, config: MiningConfig) -> np.ndarray:
    """The users on which reach is measured, ascending."""
    if n_users <= config.sample_users:
        return np.arange(n_users)
    rng = np.random.default_rng([config.seed, 0x4D1E])
    return np.sort(rng.choice(n_users, size=config.sample_users, replace=False))
