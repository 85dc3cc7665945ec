"""What EM comes to: the logic model beside the encoder, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loger.config import LOGERConfig
from loger.data.update_log import Updates
from loger.explain.reasoned import PathReasoner
from loger.graph.catalogue import NOTHING, Catalogue
from loger.logic.config import Tried
from loger.logic.mining import Mined
from loger.logic.mln import Logic
from loger.ranking.ranker import Fusion, Ranker


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

    def improves_on(self, other: Round) -> bool:
        """Whether both the bound and NDCG are higher than in another round."""
        return self.bound > other.bound and self.ndcg > other.ndcg


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


def kept_rounds(trace: tuple[Round, ...], early_stop: bool) -> int:
    """How many rounds of a trace the model is of."""
    taken_back = early_stop and len(trace) > 1 and not trace[-1].improves_on(trace[-2])
    return len(trace) - 1 - taken_back


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
