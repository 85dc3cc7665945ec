"""The results of EM and of a fit, and how bundles and checkpoints store them: plain values and
arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.config import LOGERConfig
from loger.data.update_log import Updates
from loger.encoder.calibration import Calibration
from loger.encoder.folding import has_sums, vectors
from loger.encoder.protocol import Encoder, Own
from loger.engine.saved import Arrays
from loger.errors import LogerError
from loger.explain.reasoned import PathReasoner
from loger.graph import KnowledgeGraph, whole
from loger.graph.catalogue import NOTHING, Catalogue
from loger.grounding.plans import compiled
from loger.logic.config import EMConfig, Tried
from loger.logic.mining import Mined
from loger.logic.mln import Logic, uses_strength
from loger.ranking.ranker import Fusion, Ranker
from loger.rules import MAX_HOPS, RuleSet, make_rule, named_rules

MAX_RULES = 5_000
"""The most rules in a bundle; tables of compiled rules grow with the square."""
LARGEST = 1e15
"""The largest absolute weight: sums of such weights are finite in single precision."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of EM."""

    number: int
    bound_before: float
    bound: float
    """The objective of the M-step, at the weights it started and ended with."""
    hidden: int
    """Size of H."""
    selected: int
    """Size of H⁺."""
    ndcg: float
    recall: float
    """On the development users; NaN if there are none."""
    least_gain: float | None = None
    """The lower end of the 95% interval of the gain in NDCG over the round before, paired over
    development users; None for round 0."""

    def improves_on(self, other: Round) -> bool:
        """Whether the bound and NDCG are both higher than in the round before, or NDCG is higher by
        more than its interval. Then the bound doesn't matter, which is over other hidden pairs."""
        higher = self.bound > other.bound and self.ndcg > other.ndcg
        return higher or (self.least_gain is not None and self.least_gain > 0)


@dataclass(frozen=True, eq=False)
class FittedLogic:
    """The logic model, how it is combined with the encoder, and the rounds that led to it."""

    logic: Logic
    fusion: Fusion
    trace: tuple[Round, ...] = ()

    def without_idle_rules(self) -> FittedLogic:
        """The same model without rules of weight 0; if all have weight 0, the first stays."""
        logic = self.logic
        kept = np.flatnonzero(logic.weights)
        kept = kept if len(kept) else np.zeros(1, dtype=np.int64)
        scales = None if logic.scales is None else logic.scales[kept]
        fewer = replace(
            logic, rules=logic.rules.chosen(kept), weights=logic.weights[kept], scales=scales
        )
        return replace(self, logic=fewer)


class MStep(NamedTuple):
    """The result of an M-step."""

    fitted: FittedLogic
    bound_before: float
    """The objective at the weights it started with …"""
    bound: float
    """… and at those it found."""


def kept_rounds(trace: tuple[Round, ...], early_stop: bool) -> int:
    """How many rounds of a trace the model has made: a last round that was undone doesn't count."""
    taken_back = early_stop and len(trace) > 1 and not trace[-1].improves_on(trace[-2])
    return len(trace) - 1 - taken_back


@dataclass(frozen=True, slots=True)
class Measured:
    """How good a fit's recommendations were on interactions that it didn't know."""

    ndcg: float
    """NDCG@10, the mean over users."""
    recall: float
    """Recall@10, the mean over users."""
    users: int
    """Number of users: all with held-out interactions, or some if there are very many."""
    interactions: int
    """Number of their held-out interactions."""

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> Measured:
        """The figures from a bundle, checked because a bundle may come from anyone."""
        for name, value in figures.items():
            _finite(value, name)
        return cls(**figures)

    def __str__(self) -> str:
        return (
            f"NDCG@10 {self.ndcg:.4f}, Recall@10 {self.recall:.4f} "
            f"on {self.interactions:,} held-out interactions of {self.users:,} users"
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a fit."""

    ranker: Ranker
    config: LOGERConfig
    """The settings, including those that the fit chose."""
    trace: tuple[Round, ...]
    tried: list[Tried]
    mined: Mined
    """Every rule that was tried, with its measures."""
    reasoner: PathReasoner | None = None
    """φ, if recommendations are explained by it."""
    updates: Updates | None = None
    """Updates after the fit, if any."""
    record: Mapping[str, Any] | None = None
    """How ``loger fit`` made the model, if it did."""
    catalogue: Catalogue = NOTHING
    """What is known about items besides the graph: values to filter by, pictures."""
    measured: Measured | None = None
    """How good the model was on held-out interactions, before it learned from these too if it is
    for use; None if none were held out."""


# ── storage ─────────────────────────────────────────────────────────────────────────────


def logic_parts(fitted: FittedLogic) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
    """A fitted logic as values that JSON keeps to the last bit, and as arrays.

    Rules are rows of relation numbers, filled up with -1.
    """
    logic, fusion = fitted.logic, fitted.fusion
    if len(logic.rules) > MAX_RULES:
        raise LogerError(
            f"a bundle holds up to {MAX_RULES:,} rules, got {len(logic.rules):,}; lower "
            "mining.max_rules and fit again"
        )
    values = {
        "prior": logic.prior,
        "popularity": logic.popularity,
        "encoder_weight": fusion.encoder_weight,
        "own": None if fusion.own is None else list(fusion.own),
        "sequence": fusion.sequence,
        "calibration": asdict(fusion.calibration),
        "trace": [asdict(row) for row in fitted.trace],
    }
    longest = max(len(rule) for rule in logic.rules)
    relations = np.full((len(logic.rules), longest), -1, dtype=np.int64)
    for row, rule in zip(relations, logic.rules, strict=True):
        row[: len(rule)] = rule.relations
    arrays: dict[str, NDArray[np.generic]] = {"rules": relations, "weights": logic.weights}
    if logic.scales is not None:
        arrays["scales"] = logic.scales
    if logic.expected is not None:
        arrays["expected"] = logic.expected
    return values, arrays


def logic_of(
    graph: KnowledgeGraph,
    encoder: Encoder,
    config: EMConfig,
    values: Mapping[str, Any],
    arrays: Arrays,
) -> FittedLogic:
    """The fitted logic from what ``logic_parts`` returned, for the same graph and encoder.

    Everything is checked, because a bundle may come from anyone.
    """
    table = arrays["rules"]
    if table.ndim != 2 or table.dtype != np.int64 or not 1 <= len(table) <= MAX_RULES:
        raise LogerError(
            f"the rule table must have 1 to {MAX_RULES:,} rows, got {table.dtype} {table.shape}"
        )
    rows = [[int(r) for r in row if r >= 0] for row in table[:, : MAX_HOPS + 1]]
    rules = RuleSet(tuple(make_rule(graph, row) for row in rows))
    compiled(graph, rules)  # raises an error if a rule is repeated
    weights, scales = _checked_array(arrays, "weights", len(rules)), None
    if uses_strength(config.feature):
        scales = _checked_array(arrays, "scales", len(rules))
        if not bool((scales > 0).all()):
            raise LogerError("rule scales must be above 0")
    prior, popularity, weight = (
        _finite(values[name], name) for name in ("prior", "popularity", "encoder_weight")
    )
    walk = config.active_walk
    logic = Logic(rules, weights, config.feature, walk, scales, prior, popularity)
    if "expected" in arrays:
        logic = replace(logic, expected=_checked_array(arrays, "expected", graph.n_items))
    calibration = Calibration(**values["calibration"])
    _finite(calibration.slope, "slope")
    _finite(calibration.intercept, "intercept")
    own = _own(encoder, values["own"])
    share = _finite(values.get("sequence", 0.0), "sequence")  # older bundles have none
    if not 0 <= share <= 1:
        raise LogerError(f"sequence must be a share in [0, 1], got {share!r}")
    fusion = Fusion(config.fusion, weight, calibration, config.alpha, own, share)
    return FittedLogic(logic, fusion, tuple(Round(**row) for row in values["trace"]))


def reasoner_of(ranker: Ranker, config: LOGERConfig, state: Arrays) -> PathReasoner:
    """φ from its state, with the encoder's present vectors."""
    from loger.reasoner.walker import Reasoner  # imports PyTorch

    tables = vectors(ranker.encoder, whole(ranker.graph))
    walker = Reasoner(config.reasoner).load_state(whole(ranker.logic_graph), *tables, state)
    return PathReasoner(walker, config.search)


def mined_on(mined: Mined, graph: KnowledgeGraph) -> Mined:
    """The mined rules on another graph, in which the same relations may have other numbers."""
    rules = {m.rule.names: m.rule for m in mined.measures}
    moved = dict(zip(rules, named_rules(graph, rules), strict=True))
    measures = tuple(replace(m, rule=moved[m.rule.names]) for m in mined.measures)
    kept = RuleSet(tuple(m.rule for m in measures if m.kept))
    return replace(mined, rules=kept, measures=measures)


def _own(encoder: Encoder, own: Any) -> Own | None:
    """The weights of items' own parts from a bundle, if it has any."""
    if own is None:
        return None
    if not has_sums(encoder) or len(own) != 2:
        raise LogerError("the bundle has weights for item biases, but its encoder has none")
    for value in own:
        _finite(value, "own")
    return float(own[0]), float(own[1])


def _checked_array(arrays: Arrays, name: str, n: int) -> NDArray[np.float64]:
    """An array of n finite numbers, one for each rule or item."""
    array = arrays[name]
    if array.dtype != np.float64 or array.shape != (n,):
        raise LogerError(f"{name} must be {n} numbers, got {array.dtype} {array.shape}")
    values = np.array(array, dtype=np.float64)
    if not bool((np.abs(values) <= LARGEST).all()):  # NaN fails too
        raise LogerError(f"{name} must be finite and at most {LARGEST:g}")
    return values


def _finite(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not abs(value) <= LARGEST:
        raise LogerError(f"{name} must be a finite number up to {LARGEST:g}, got {value!r:.50}")
    number: float = value
    return number
