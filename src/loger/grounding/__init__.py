"""Exact groundings of rules: counts, strengths, and the paths themselves."""

from loger.grounding.api import (
    Groundings,
    Walk,
    concat,
    count_paths,
    ground,
    logits,
    near_items,
    paths,
    reach,
    reach_sizes,
    sample_paths,
    strongest_paths,
    take,
)

__all__ = [
    "Groundings",
    "Walk",
    "concat",
    "count_paths",
    "ground",
    "logits",
    "near_items",
    "paths",
    "reach",
    "reach_sizes",
    "sample_paths",
    "strongest_paths",
    "take",
]
