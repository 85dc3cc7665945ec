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
    """Settings of the logic model and of EM; validation chose the defaults."""

    feature: Feature = "logwalk"
    """How path strengths become evidence: `logwalk`, `walk`, `count`, `multiset` or `set` (the
    paper)."""
    walk: Walk = WALK
    """How a path's strength falls with degrees and, if times are known, with age."""
    popularity: bool = True
    """Whether an item's popularity contributes to its score."""
    likelihood: Literal["listwise", "pseudo"] = "listwise"
    """`listwise` ranks held-out interactions among candidates; `pseudo` is the paper's."""
    fusion: FusionKind = "logit"
    """S = logit p + w_enc·s (`logit`), q + α·p as in the paper (`sum`), or p alone (`logic`)."""
    alpha: float = 0.3
    """α of the paper."""
    negatives: float = 1.0
    """Unobserved items per held-out one that p and q are calibrated against. q + α·p depends on it:
    against one item, q is near 1 for all of a user's best items."""
    max_encoder_share: float | None = None
    """Maximum share of an item's lead that the encoder may contribute, on average over the
    recommendations of development users; 0 uses rules only, 1 sets no limit. None chooses the
    smallest share that costs no accuracy (``listwise`` and ``logit`` only)."""
    teacher: float | None = None
    """Weight of the encoder's own ranking when labels are few, in users with one label each (a user
    with m labels counts √m; ``listwise`` only). 0 switches teaching off; None chooses the weight
    that makes left-out labels most likely (docs/adr/0015)."""
    many_labels: int = 300
    """From this many users with labels on, the encoder doesn't teach, and settings are compared on
    users whose labels aren't used for learning. Below it, cross-validation chooses."""
    additive: bool = True
    """Whether the encoder's part is a plain sum over a user's interactions, so that an
    interaction's contribution is what its removal costs (docs/adr/0018; ``listwise`` and ``logit``
    only, and only for encoders with such sums)."""
    saturation: float = 3.0
    """Scale of a rule in log(1 + strength / scale), in median strengths; the larger, the more
    ``logwalk`` resembles a plain sum (``listwise`` only)."""
    l2: float = 1e-3
    """L2 penalty on the weights."""
    rounds: int = 0
    """Maximum number of EM rounds. The paper makes 4, 2 and 3; none has improved our results
    (docs/adr/0014)."""
    early_stop: bool = True
    """Whether to undo a round that doesn't improve both the bound and NDCG on development users,
    and to stop there."""
    hidden: int = 50
    """Size of H per user: this many items of highest q, and as many uniform ones."""
    max_hidden: int = 10
    """Maximum number of a user's pairs in H⁺."""
    tau: float = 0.9
    """τ: hidden pairs with p ≥ τ enter H⁺; 0.5 in the paper."""
    rate: float = 1e-5
    """Step size of gradient ascent."""
    steps: int = 0
    """Number of gradient steps, as in the paper; 0 solves to the optimum."""
    fit_users: int = 6000
    """Number of users whose held-out interactions the listwise likelihood uses."""
    dev_users: int = 4000
    """Number of other users on whom rounds and settings are compared."""
    pseudo_users: int = 4000
    """Number of users whose pairs the pseudo-likelihood uses."""
    rule_candidates: int = 40
    """Candidates per rule in the listwise likelihood."""
    main_candidates: int = 100
    """Candidates from the encoder and from each rule over other users or derived relations."""
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
    """What people took soon after something; validation chooses all settings but ``facts``."""

    facts: int = 600
    """Maximum number of facts per item, strongest first, fewer for large catalogues; 0 switches the
    relation off."""
    window: int = 50
    """W: the largest distance between two interactions of a user, in places."""
    distance: float = 0.25
    """δ: pairs that are d places apart count d^-δ."""
    popularity: float = 0.3
    """β: items that often follow anything are discounted by that frequency to the power β."""
    shrink: float = 300.0
    """Shrinks items that rarely lead anywhere: strengths are divided by out_i + shrink."""
    recency: float = 1.0
    """ρ: a user's interaction counts (1 + later ones)^-ρ in rules over this relation."""


@dataclass(frozen=True, slots=True)
class GoesWithConfig:
    """What a user's items predict together; validation chooses all settings but ``facts``."""

    facts: int = 300
    """Maximum number of facts per item, strongest first, fewer for large catalogues; 0 switches the
    relation off."""
    factors: int = 0
    """d: number of factors per item; 0 uses a regression instead of factors."""
    l2: float = 300.0
    """λ of the regression, or of the factors."""
    unobserved: float = 0.03
    """α₀ of the factors: the weight of unobserved pairs."""
    recency: float = 0.5
    """ρ, as in ``followed_by``; 0 if the data has no times."""
    popularity: float = 0.0
    """β: facts that lead to v are divided by (interactions of v)^β."""


@dataclass(frozen=True, slots=True)
class DerivedConfig:
    """Relations that the fit derives from interactions."""

    followed_by: FollowedByConfig = field(default_factory=FollowedByConfig)
    goes_with: GoesWithConfig = field(default_factory=GoesWithConfig)
    tune: bool = True
    """Whether validation chooses their settings."""
    users: int = 1000
    """Number of users on whom settings are compared."""

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
