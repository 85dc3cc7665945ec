"""How faithful reasons are: one report for any recommender that shows paths, and a control."""

from loger.faithfulness.control import RandomPaths
from loger.faithfulness.deletion import actions_of
from loger.faithfulness.measuring import Probes, faithfulness_report, planted_cases
from loger.faithfulness.probing import loger_probes, permuted
from loger.faithfulness.report import FaithfulnessConfig, FaithfulnessReport, Mean

__all__ = [
    "FaithfulnessConfig",
    "FaithfulnessReport",
    "Mean",
    "Probes",
    "RandomPaths",
    "actions_of",
    "faithfulness_report",
    "loger_probes",
    "permuted",
    "planted_cases",
]
