"""Settings of the logic model, of EM and of the derived relations; quick to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from loger.engine.settings import ANY
from loger.grounding import Walk
from loger.logic.mln import Feature, uses_strength
from loger.rules import RuleSet

FusionKind = Literal["logit", "sum", "logic"]
WALK = Walk(first=0.0, item=0.25, user=0.5, fact=0.5, arrive=0.5)
"""Exponents that validation chose on the Amazon sets (docs/research/results.md)."""


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
    max_hidden: int = 10
    """Maximum number of a user's pairs in H⁺."""
    tau: float = 0.9
    """τ: hidden pairs with p ≥ τ enter H⁺; 0.5 in the paper."""
    steps: int = 0
    """Number of gradient steps per M-step, as in the paper; 0 solves to the optimum."""
    seed: int = 0
    FORMER: ClassVar[Mapping[str, Any]] = dict.fromkeys(
        ("taught_users", "fit_pairs", "screen_users", "fit_users", "dev_users", "pseudo_users",
         "rule_candidates", "main_candidates", "hidden", "rate"), ANY,
    )  # fmt: skip
    RENAMED: ClassVar[Mapping[str, str]] = {"opacity": "max_encoder_share"}

    @property
    def active_walk(self) -> Walk | None:
        """The walk, if the feature needs it."""
        return self.walk if uses_strength(self.feature) else None


Tried = tuple[str, Any, float]
"""A setting, a value that the fit tried, and NDCG on development users. If few users have labels,
the number is instead how often the value is best when the users are resampled (0 to 1)."""


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
    FORMER: ClassVar[Mapping[str, Any]] = {"users": ANY}

    @classmethod
    def none(cls) -> DerivedConfig:
        """No derived relations."""
        return cls(FollowedByConfig(facts=0), GoesWithConfig(facts=0))

    def used_by(self, rules: RuleSet) -> DerivedConfig:
        """The settings with those relations switched off that no rule uses."""
        names = {rule.names[-1] for rule in rules if rule.derived}
        kept = {n: getattr(self, n) for n in ("followed_by", "goes_with")}
        for name, config in kept.items():
            if not any(used.startswith(name) for used in names):
                kept[name] = replace(config, facts=0)
        return replace(self, **kept)
