"""What LOGER can be asked beyond its reasons: scores without facts, parts, other weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from loger.data.demo import Demo
from loger.evaluation.faithfulness.measuring import Probes, weights_of
from loger.evaluation.metrics.faithfulness import Edge
from loger.explain.attribution import explain
from loger.graph import KnowledgeGraph, Path
from loger.model import LOGER


def loger_probes(model: LOGER, demo: Demo | None = None, seed: int = 0) -> Probes:
    """All probes of a fitted LOGER; ``demo`` if it was fitted on planted data.

    Scores anew are those of the same encoder and weights on the graph without the facts: users
    are folded in anew, paths counted anew. ``seed`` permutes the rule weights.
    """

    def rescore(user: int, removed: Sequence[Edge]) -> ArrayLike:
        graph = _without(model.graph_, removed)
        same = model.logic_graph_ is model.graph_
        logic_graph = graph if same else _without(model.logic_graph_, removed)
        asked = np.array([user], dtype=np.int64)
        settings = model.config_.em
        scores = model.learned_.scores(settings, model.encoder_, graph, asked, logic_graph)
        return np.asarray(scores[0])

    def decompose(user: int, items: Sequence[int]) -> list[tuple[ArrayLike, float]]:
        records = explain(model, np.full(len(items), user), np.array(items, dtype=np.int64), 1)
        return [
            ([r.prior, r.popularity, *(part.contribution for part in r.rules)], r.logit)
            for r in records
        ]

    def paths(user: int, item: int, n: int) -> Sequence[Path]:
        (record,) = explain(model, np.array([user]), np.array([item]), n)
        return record.explained().paths

    return Probes(
        weights=weights_of(model),
        rescore=rescore,
        decompose=decompose,
        permuted=permuted(model, seed),
        explain=paths,
        demo=demo,
    )


def permuted(model: LOGER, seed: int = 0) -> LOGER:
    """The same model with its rule weights in another order."""
    other = copy.copy(model)
    order = np.random.default_rng([seed, 0x9E53]).permutation(len(model.weights_))
    logic = replace(model.logic_, weights=model.weights_[order])
    other.learned_ = replace(model.learned_, logic=logic)
    return other


def _without(graph: KnowledgeGraph, facts: Sequence[Edge]) -> KnowledgeGraph:
    """The graph less those of some facts that it has."""
    there = [fact for fact in facts if graph.has(*fact)]
    return graph.without(*zip(*there, strict=True)) if there else graph
