"""What LOGER can be asked beyond its reasons: scores without facts, parts, other weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from loger.data.demo import Demo
from loger.evaluation.faithfulness.actions import LogerActions
from loger.evaluation.faithfulness.measuring import Probes, weights_of
from loger.evaluation.faithfulness.scenes import Ids
from loger.explain.attribution import explain
from loger.graph import Path, whole
from loger.metrics.faithfulness import Edge
from loger.model import LOGER
from loger.ranking.ranker import Ranker


def loger_probes(model: LOGER, demo: Demo | None = None, seed: int = 0) -> Probes:
    """All probes of a fitted LOGER; ``demo`` if it was fitted on planted data.

    Scores anew are those of the same encoder and weights on the graph without the facts: users
    are folded in anew, paths counted anew. ``seed`` permutes the rule weights.
    """

    ranker = model.ranker_

    def decompose(user: int, items: Sequence[int]) -> list[tuple[ArrayLike, float]]:
        records = explain(ranker, np.full(len(items), user), np.array(items, dtype=np.int64), 1)
        return [
            ([r.prior, r.popularity, *(part.contribution for part in r.rules)], r.logit)
            for r in records
        ]

    def paths(users: Ids, items: Ids, n: int) -> list[tuple[Path, ...]]:
        return [record.explained().paths for record in explain(ranker, users, items, n)]

    return Probes(
        weights=weights_of(model),
        rescore=partial(_rescore, ranker),
        acts=LogerActions(ranker),
        decompose=decompose,
        permuted=permuted(model, seed),
        explain=paths,
        demo=demo,
        graph=whole(ranker.graph),
    )


def _rescore(ranker: Ranker, user: int, removed: Sequence[Edge]) -> ArrayLike:
    return np.asarray(ranker.without(removed).scores([user]).total[0])


def permuted(model: LOGER, seed: int = 0) -> LOGER:
    """The same model with its rule weights in another order."""
    order = np.random.default_rng([seed, 0x9E53]).permutation(len(model.weights_))
    return model.with_ranker(model.ranker_.with_weights(model.weights_[order]))
