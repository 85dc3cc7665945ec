"""Settings of the relations that a fit makes from the interactions; see ``derived``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from loger.rules import RuleSet

Tried = tuple[str, Any, float]
"""A setting, a value that was tried, and NDCG on validation users; where few of these have labels,
how often it is best for those left out if they are drawn again and again, as a share of 1."""


@dataclass(frozen=True, slots=True)
class FollowedByConfig:
    """What soon followed what; the settings but the first are chosen on validation."""

    facts: int = 600
    """The most facts of an item, the strongest, fewer where items are many; 0: the relation is not
    made."""
    window: int = 50
    """W: how many places apart two interactions of a user may be."""
    distance: float = 0.25
    """δ: those d places apart count d^-δ."""
    popularity: float = 0.3
    """β: what often follows anything is divided by that^β."""
    shrink: float = 300.0
    """What rarely leads anywhere leads nowhere: out_i + shrink divides."""
    recency: float = 1.0
    """ρ: a user's interaction counts (1 + later ones)^-ρ for rules over the relation."""


@dataclass(frozen=True, slots=True)
class GoesWithConfig:
    """What the items one has foretell; the settings but the first are chosen on validation."""

    facts: int = 300
    """The most facts of an item, the strongest, fewer where items are many; 0: the relation is not
    made."""
    factors: int = 0
    """d: factors of an item that the weights are made of; 0: they are those of a regression."""
    l2: float = 300.0
    """λ of the regression, or of the factors."""
    unobserved: float = 0.03
    """α₀ of the factors: what a pair that nobody has counts."""
    recency: float = 0.5
    """ρ, as of ``followed_by``; 0 where data have no times."""
    popularity: float = 0.0
    """β: facts that lead to v are divided by (interactions of v)^β."""


@dataclass(frozen=True, slots=True)
class DerivedConfig:
    """Relations that the fit makes from the interactions it knows."""

    followed_by: FollowedByConfig = field(default_factory=FollowedByConfig)
    goes_with: GoesWithConfig = field(default_factory=GoesWithConfig)
    tune: bool = True
    """Whether validation chooses their settings."""
    users: int = 1000
    """Users on whom these are compared."""

    @classmethod
    def none(cls) -> DerivedConfig:
        """No derived relations."""
        return cls(FollowedByConfig(facts=0), GoesWithConfig(facts=0))

    def used_by(self, rules: RuleSet) -> DerivedConfig:
        """The settings less the relations that no rule leads over."""
        names = {rule.names[-1] for rule in rules if rule.derived}
        kept = {n: getattr(self, n) for n in ("followed_by", "goes_with")}
        for name, config in kept.items():
            if not any(used.startswith(name) for used in names):
                kept[name] = replace(config, facts=0)
        return replace(self, **kept)
