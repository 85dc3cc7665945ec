"""Whether the arrays of a graph are those of a graph, before compiled code follows them.

Compiled code does not look whether a place exists. So a graph that comes from disk is checked
once, no matter who wrote it: every offset leads into its array, every relation and entity exists
and is of the type that the relation asks for, every row is sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError
from loger.graph._check_kernels import bad_pair, bad_segment
from loger.graph.vocabulary import INTERACTION, Relation, Vocabulary

TYPES = {
    "row_segments": np.int64,
    "segment_relations": np.uint16,
    "segment_starts": np.int64,
    "tails": np.int32,
    "pair_tails": np.int32,
    "pair_relations": np.uint16,
    "origins": np.int32,
    "times": np.int64,
    "weights": np.float32,
    "support": np.int32,
    "strengths": np.float64,
}
OPTIONAL = {"origins", "times", "weights", "support", "strengths"}
CELLS = 256
"""The most cells of tables by relation (degrees, prefixes of rules) for each edge and entity."""
LATEST = 2**62
"""No time is later, so that one later still can be made."""
STRONGEST = 2.0**64
"""No interaction is stronger, so that powers and sums are finite."""
MAX_RELATIONS = 32_767
"""Of base relations: with their inverses they are numbered by 16 bits."""


def _check_relations(vocabulary: Vocabulary, relations: Sequence[Relation]) -> None:
    """Refuse relations of types that do not exist, or whose first is not the interaction."""
    if not 1 <= len(relations) <= MAX_RELATIONS:
        raise LogerError(
            f"a graph must have 1 to {MAX_RELATIONS:,} relations, got {len(relations):,}"
        )
    types = set(vocabulary.types)
    for relation in relations:
        if {relation.head_type, relation.tail_type} - types:
            raise LogerError(f"{relation} uses an unknown entity type; choose from {sorted(types)}")
    first = relations[INTERACTION]
    if (first.head_type, first.tail_type) != ("user", "item"):
        raise LogerError(f"relation 0 must lead from user to item, got {first}")
    given = [not relation.derived for relation in relations]
    kinds = {(r.head_type, r.tail_type) for r in relations if r.derived}
    if not all(given[: sum(given)]) or kinds - {("item", "item")}:
        raise LogerError("derived relations must lead from item to item and come last")


def check_arrays(
    vocabulary: Vocabulary, relations: Sequence[Relation], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Refuse arrays that are not those of a graph with these entities and relations."""
    _check_types(arrays)
    _check_relations(vocabulary, relations)
    check_size(vocabulary, relations, len(arrays["tails"]))
    rows, starts = arrays["row_segments"], arrays["segment_starts"]
    n, edges = len(vocabulary), len(arrays["tails"])
    _check_offsets("row_segments", rows, n + 1, len(arrays["segment_relations"]))
    _check_offsets("segment_starts", starts, len(arrays["segment_relations"]) + 1, edges)
    for name in ("pair_tails", "pair_relations", "origins", "weights", "support"):
        if name in arrays and len(arrays[name]) != edges:
            raise LogerError(f"{name} must have one value for each edge, got {len(arrays[name]):,}")
    spans = _type_spans(vocabulary, relations)
    order = (arrays["segment_relations"], starts, arrays["tails"])
    if (bad := bad_segment(spans, rows, *order)) >= 0:
        raise LogerError(f"the facts of entity {bad} aren't sorted or have the wrong types")
    pairs = arrays["pair_tails"], arrays["pair_relations"]
    if (bad := bad_pair(spans, starts[rows], *pairs)) >= 0:
        raise LogerError(f"the pairs of entity {bad} aren't sorted or have the wrong types")
    if "origins" in arrays and edges:
        low, high = int(arrays["origins"].min()), int(arrays["origins"].max())
        if low < -1 or high >= n:
            raise LogerError(f"origins must be from -1 to {n - 1}, got {low} to {high}")
    if "weights" in arrays:
        weights = arrays["weights"]
        if not bool(((weights > 0) & np.isfinite(weights)).all()):
            raise LogerError("weights must be finite and above 0")
    wanted = int(starts[rows[len(vocabulary.span("user"))]])
    for name in ("times", "strengths"):
        if name in arrays and len(arrays[name]) != wanted:
            raise LogerError(f"{name} must have {wanted:,} values, got {len(arrays[name]):,}")
    if "strengths" in arrays:
        strengths = arrays["strengths"]
        if not bool(((strengths >= 0) & (strengths <= STRONGEST)).all()):
            raise LogerError("strengths must be finite and at least 0")
    if "times" in arrays and int(arrays["times"].max(initial=0)) > LATEST:
        raise LogerError(f"times must be below {LATEST:,}")


def check_size(vocabulary: Vocabulary, relations: Sequence[Relation], edges: int) -> None:
    """Refuse so many relations for so few facts that tables by relation would fill the memory."""
    spans = _type_spans(vocabulary, relations)
    cells = int((spans[:, 1] - spans[:, 0]).sum()) + (2 * len(relations)) ** 2
    if cells > CELLS * (edges + len(vocabulary)) + 2**20:
        raise LogerError(
            f"{len(relations):,} relations are too many for {len(vocabulary):,} entities and "
            f"{edges // 2:,} facts"
        )
    if not len(vocabulary.span("user")) or not len(vocabulary.span("item")):
        raise LogerError("a graph needs at least one user and one item")


def _check_types(arrays: Mapping[str, NDArray[Any]]) -> None:
    missing, more = TYPES.keys() - OPTIONAL - arrays.keys(), arrays.keys() - TYPES.keys()
    if missing or more:
        raise LogerError(f"a graph must have the arrays {', '.join(TYPES)}, got {sorted(arrays)}")
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype != TYPES[name]:
            wanted = np.dtype(TYPES[name])
            raise LogerError(
                f"{name} must be a list of {wanted}, got {array.dtype} of shape {array.shape}"
            )


def _check_offsets(name: str, offsets: NDArray[np.int64], size: int, end: int) -> None:
    fits = len(offsets) == size and offsets[0] == 0 and offsets[-1] == end
    if not fits or bool((offsets[1:] < offsets[:-1]).any()):
        raise LogerError(f"{name} must have {size:,} values that increase from 0 to {end:,}")


def _type_spans(vocabulary: Vocabulary, relations: Sequence[Relation]) -> NDArray[np.int64]:
    """For each relation, then each inverse: heads from, to, tails from, to; [2 · relations, 4]."""
    both = [(r.head_type, r.tail_type) for r in relations]
    both += [(tail, head) for head, tail in both]
    spans = [[vocabulary.span(t) for t in pair] for pair in both]
    return np.array(
        [[e for s in pair for e in (s.start, s.stop)] for pair in spans], dtype=np.int64
    )
