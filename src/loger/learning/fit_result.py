"""What a fit comes to: the one object that is saved, loaded, updated and served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loger.config import LOGERConfig
from loger.data.update_log import Updates
from loger.explain.reasoned import PathReasoner
from loger.graph.catalogue import NOTHING, Catalogue
from loger.learning.derived_config import Tried
from loger.learning.fitted import Round
from loger.logic.mining import Mined
from loger.ranking.ranker import Ranker


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
