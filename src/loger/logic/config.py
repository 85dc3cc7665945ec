"""Settings of the logic model, of EM and of the derived relations; light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from loger.grounding import Walk
from loger.logic.mln import Feature, uses_strength
from loger.rules import RuleSet

FusionKind = Literal["logit", "sum", "logic"]
WALK = Walk(first=0.0, item=0.25, user=0.5, fact=0.5, arrive=0.5)
"""Exponents that validation chose on the Amazon sets (docs/research/results.md)."""


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Whom a held-out interaction competes with."""

    walk: Walk | None
    """What strengths are of; None: candidates are the items of most paths."""
    per_rule: int
    """Candidates by each rule, …"""
    main: int
    """… and by the encoder and by each rule over other users or derived relations."""
    beliefs: bool = False
    """Whether the encoder's own scores are kept beside those that the ranker has."""


@dataclass(frozen=True, slots=True)
class EMConfig:
    """Settings of the logic model and of EM; the defaults are those that validation chose."""

    feature: Feature = "logwalk"
    walk: Walk = WALK
    """How a path's strength falls with degrees and, where times are known, age."""
    popularity: bool = True
    """Whether the item's popularity is a second unit clause."""
    likelihood: Literal["listwise", "pseudo"] = "listwise"
    fusion: FusionKind = "logit"
    """S = logit p + w_enc·s (``logit``), q + α·p as in the paper (``sum``), or p alone."""
    alpha: float = 0.3
    """α of the paper."""
    negatives: float = 1.0
    """Unobserved items for each held-out one that p and q are calibrated against. q + α·p depends
    on it: against one, q is near 1 for all of a user's best items."""
    max_encoder_share: float | None = None
    """The most of an item's lead that the encoder may carry, on average over the lists of
    development users; 0 is the purely logical model, 1 sets no limit; None: the least that costs
    nothing that can be told from chance (``listwise`` and ``logit`` only)."""
    teacher: float | None = None
    """What the encoder expects counts as much as so many users with one label each (one with m
    counts √m): it teaches the rules where labels are few (``listwise`` only); 0: it does not; None:
    as much as makes users with labels who are left out most likely (docs/adr/0015)."""
    many_labels: int = 300
    """From so many users with labels on the encoder does not teach, and settings are compared on
    users of whom nothing is learned; with fewer all teach, and those left out of folds choose."""
    additive: bool = True
    """Whether the encoder's part is a plain sum over a user's interactions, not divided by the
    length of the sum, so that what an interaction gives is what its removal costs (docs/adr/0018;
    ``listwise`` and ``logit`` only, and encoders that have such sums)."""
    saturation: float = 3.0
    """In log(1 + strength / scale), the scale of a rule in median strengths: the larger, the more
    ``logwalk`` is a plain sum too (``listwise`` only)."""
    l2: float = 1e-3
    rounds: int = 0
    """The most rounds of EM; the paper has 4, 2 and 3, but none has yet been worth its time
    (docs/adr/0014)."""
    early_stop: bool = True
    """Whether a round that does not raise both the bound and NDCG on the development users is
    taken back, and is the last."""
    hidden: int = 50
    """Size of H per user: so many items of highest q, and as many uniform ones."""
    max_hidden: int = 10
    """The most pairs of a user in H⁺."""
    tau: float = 0.9
    """τ: a hidden pair with p ≥ τ is selected into H⁺; 0.5 in the paper."""
    rate: float = 1e-5
    steps: int = 0
    """Steps of gradient ascent at that rate, as published; 0 solves to the optimum."""
    fit_users: int = 6000
    """Users whose held-out interactions the listwise likelihood is of …"""
    dev_users: int = 4000
    """… and others on whom rounds and settings are compared."""
    pseudo_users: int = 4000
    """Users whose pairs the pseudo-likelihood is of, standing for all: it has few weights to learn
    and a hundred pairs of each user."""
    rule_candidates: int = 40
    """Each rule's best items are candidates in the listwise likelihood, …"""
    main_candidates: int = 100
    """… and so many of the encoder and of rules over other users."""
    seed: int = 0
    FORMER: ClassVar[Mapping[str, Any]] = {
        "taught_users": 200, "fit_pairs": 50_000, "screen_users": 1500,
    }  # fmt: skip
    RENAMED: ClassVar[Mapping[str, str]] = {"opacity": "max_encoder_share"}

    @property
    def active_walk(self) -> Walk | None:
        """The walk, if the feature needs it."""
        return self.walk if uses_strength(self.feature) else None

    @property
    def pools(self) -> PoolConfig:
        """How candidates are gathered."""
        return PoolConfig(self.active_walk, self.rule_candidates, self.main_candidates)


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
