"""Faithfulness of reasons: one report for any recommender that shows paths, and a control."""

from loger.evaluation.faithfulness.actions import (
    Acts,
    Contributions,
    LogerActions,
    NamedReason,
    RandomReasons,
    by_actions,
)
from loger.evaluation.faithfulness.measuring import (
    Probes,
    faithfulness_report,
    loger_probes,
    permuted,
)
from loger.evaluation.faithfulness.paths import RandomPaths, planted_cases
from loger.evaluation.faithfulness.report import FaithfulnessConfig, FaithfulnessReport, Mean

__all__ = [
    "Acts",
    "Contributions",
    "FaithfulnessConfig",
    "FaithfulnessReport",
    "LogerActions",
    "Mean",
    "NamedReason",
    "Probes",
    "RandomPaths",
    "RandomReasons",
    "by_actions",
    "faithfulness_report",
    "loger_probes",
    "permuted",
    "planted_cases",
]
