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
from loger.grounding.listing import count_paths, nth_paths, paths, sample_paths, strongest_paths
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
    "count_paths",
    "ground",
    "logits",
    "near_items",
    "nth_paths",
    "paths",
    "reach",
    "reach_best",
    "reach_sizes",
    "reweighed",
    "sample_paths",
    "strongest_paths",
    "take",
]
