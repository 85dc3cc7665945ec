"""What EM and a fit come to, and the same as plain values and arrays: what a bundle stores, and a
stage of a fit."""

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

Arrays = Mapping[str, NDArray[np.generic]]
MAX_RULES = 5_000
"""The most rules of a bundle; tables of compiled rules grow with their square."""
LARGEST = 1e15
"""The largest weight, in absolute value: sums of such weights are finite in single precision."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of EM came to."""

    number: int
    bound_before: float
    bound: float
    """The objective of the M-step, with the weights it began and ended with."""
    hidden: int
    """How many pairs the encoder proposed."""
    selected: int
    """Size of H⁺ of the E-step before."""
    ndcg: float
    recall: float
    """On the development users; NaN if there are none."""
    least_gain: float | None = None
    """The lower end of the 95% interval, paired over development users, by which NDCG rose since
    the round before; None of the first round."""

    def improves_on(self, other: Round) -> bool:
        """Whether both the bound and NDCG are higher than in the round before, or NDCG by more than
        its interval, whatever the bound: that is over other hidden pairs than before."""
        higher = self.bound > other.bound and self.ndcg > other.ndcg
        return higher or (self.least_gain is not None and self.least_gain > 0)


@dataclass(frozen=True, eq=False)
class FittedLogic:
    """The logic model, how it stands beside the encoder, and how it came about."""

    logic: Logic
    fusion: Fusion
    trace: tuple[Round, ...] = ()

    def without_idle_rules(self) -> FittedLogic:
        """The same model less the rules of weight 0, of which one stays if all are."""
        logic = self.logic
        kept = np.flatnonzero(logic.weights)
        kept = kept if len(kept) else np.zeros(1, dtype=np.int64)
        scales = None if logic.scales is None else logic.scales[kept]
        fewer = replace(
            logic, rules=logic.rules.chosen(kept), weights=logic.weights[kept], scales=scales
        )
        return replace(self, logic=fewer)


class MStep(NamedTuple):
    """What an M-step came to."""

    fitted: FittedLogic
    bound_before: float
    """The objective with the weights it began with …"""
    bound: float
    """… and with those it found."""


def kept_rounds(trace: tuple[Round, ...], early_stop: bool) -> int:
    """How many rounds of a trace the model is of."""
    taken_back = early_stop and len(trace) > 1 and not trace[-1].improves_on(trace[-2])
    return len(trace) - 1 - taken_back


@dataclass(frozen=True, slots=True)
class Measured:
    """How good the lists of a fit were on interactions that it did not know."""

    ndcg: float
    """NDCG@10, the mean over users."""
    recall: float
    """Recall@10, the mean over users."""
    users: int
    """Those who were asked: all with held-out interactions, or some if there are very many."""
    interactions: int
    """How many of their interactions were held out."""

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> Measured:
        """The figures as a bundle stores them, checked: a bundle may come from anyone."""
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
    """What a fit comes to."""

    ranker: Ranker
    config: LOGERConfig
    """The settings that were given, and those that the fit chose."""
    trace: tuple[Round, ...]
    tried: list[Tried]
    mined: Mined
    """Every rule that was tried, with its measures."""
    reasoner: PathReasoner | None = None
    """φ, where lists are explained by it."""
    updates: Updates | None = None
    """What came after the fit; None where nothing did."""
    record: Mapping[str, Any] | None = None
    """How it was fitted, as ``loger fit`` notes it in the bundle."""
    catalogue: Catalogue = NOTHING
    """What is known of items beside the graph: values to filter by, pictures."""
    measured: Measured | None = None
    """How good it was on held-out interactions, before it learned from them too if it is for use;
    None where none were held out."""


# ── stored ──────────────────────────────────────────────────────────────────────────────


def logic_parts(fitted: FittedLogic) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
    """What was fitted, as values that JSON keeps to the last bit, and as arrays: rules as relation
    numbers, -1 after the end of each, and what belongs to them."""
    logic, fusion = fitted.logic, fitted.fusion
    if len(logic.rules) > MAX_RULES:
        raise LogerError(f"a bundle holds up to {MAX_RULES:,} rules, got {len(logic.rules):,}")
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
    """What ``logic_parts`` took apart, of a graph and an encoder that it fits. Whatever is stored
    is checked: a bundle may come from anyone."""
    table = arrays["rules"]
    if table.ndim != 2 or table.dtype != np.int64 or not 1 <= len(table) <= MAX_RULES:
        raise LogerError(
            f"the rule table must have 1 to {MAX_RULES:,} rows, got {table.dtype} {table.shape}"
        )
    rows = [[int(r) for r in row if r >= 0] for row in table[:, : MAX_HOPS + 1]]
    rules = RuleSet(tuple(make_rule(graph, row) for row in rows))
    compiled(graph, rules)  # refuses a rule that is there twice
    weights, scales = _of_each(arrays, "weights", len(rules)), None
    if uses_strength(config.feature):
        scales = _of_each(arrays, "scales", len(rules))
        if not bool((scales > 0).all()):
            raise LogerError("rule scales must be above 0")
    prior, popularity, weight = (
        _finite(values[name], name) for name in ("prior", "popularity", "encoder_weight")
    )
    walk = config.active_walk
    logic = Logic(rules, weights, config.feature, walk, scales, prior, popularity)
    if "expected" in arrays:
        logic = replace(logic, expected=_of_each(arrays, "expected", graph.n_items))
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
    """φ as its state has it, among the encoder's vectors as they are now."""
    from loger.reasoner.walker import Reasoner  # imports PyTorch

    tables = vectors(ranker.encoder, whole(ranker.graph))
    walker = Reasoner(config.reasoner).load_state(whole(ranker.logic_graph), *tables, state)
    return PathReasoner(walker, config.search)


def mined_on(mined: Mined, graph: KnowledgeGraph) -> Mined:
    """Rules that were tried on another graph of the same relations, which may be numbered anew."""
    rules = {m.rule.names: m.rule for m in mined.measures}
    moved = dict(zip(rules, named_rules(graph, rules), strict=True))
    measures = tuple(replace(m, rule=moved[m.rule.names]) for m in mined.measures)
    kept = RuleSet(tuple(m.rule for m in measures if m.kept))
    return replace(mined, rules=kept, measures=measures)


def _own(encoder: Encoder, own: Any) -> Own | None:
    """What items' own parts count beside the encoder's sums, if it has any."""
    if own is None:
        return None
    if not has_sums(encoder) or len(own) != 2:
        raise LogerError("the bundle has item biases, but its encoder has none")
    for value in own:
        _finite(value, "own")
    return float(own[0]), float(own[1])


def _of_each(arrays: Arrays, name: str, n: int) -> NDArray[np.float64]:
    """An array with a finite number for each of n rules, or items."""
    array = arrays[name]
    if array.dtype != np.float64 or array.shape != (n,):
        raise LogerError(f"{name} must be {n} numbers, got {array.dtype} {array.shape}")
    values = np.array(array, dtype=np.float64)
    if not bool((np.abs(values) <= LARGEST).all()):  # nor is NaN
        raise LogerError(f"{name} must be finite and at most {LARGEST:g}")
    return values


def _finite(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not abs(value) <= LARGEST:
        raise LogerError(f"{name} must be a finite number up to {LARGEST:g}, got {value!r:.50}")
    number: float = value
    return number
