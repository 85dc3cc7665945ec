"""Exact groundings of rules: counts, strengths, and the paths themselves."""

from loger.grounding.api import (
    Groundings,
    concat,
    ground,
    logits,
    near_items,
    reach,
    reach_best,
    reach_sizes,
    reweighed,
    take,
)
from loger.grounding.layout import Walk
from loger.grounding.listing import nth_paths, paths, strongest_paths
from loger.grounding.reaching import COUNT, LOGWALK, MULTISET, SET, WALK, Formula

__all__ = [
    "COUNT",
    "LOGWALK",
    "MULTISET",
    "SET",
    "WALK",
    "Formula",
    "Groundings",
    "Walk",
    "concat",
    "ground",
    "logits",
    "near_items",
    "nth_paths",
    "paths",
    "reach",
    "reach_best",
    "reach_sizes",
    "reweighed",
    "strongest_paths",
    "take",
]
