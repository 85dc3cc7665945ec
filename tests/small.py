"""A small EM problem whose encoder is a table of scores: quick and easy to check by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np

from graphs import build, random_triples, vocabulary
from loger.engine import LocalEngine
from loger.graph import KnowledgeGraph, history
from loger.learning.em import EM
from loger.logic.config import EMConfig
from loger.rules import RuleSet, candidates


class Table:
    """An encoder that knows its scores by heart; training on hidden pairs raises theirs."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores.astype(np.float32)
        self.fits: list[Any] = []

    def fit(self, graph, *, hidden=None, warm=False, checkpoint=None, progress=None):
        self.fits.append((graph, hidden, warm))
        if hidden is not None:
            self.scores = self.scores.copy()
            self.scores[hidden.users, hidden.items] += hidden.weights
        return self

    def score_items(self, users) -> np.ndarray:
        return self.scores[np.asarray(users)]

    def state(self) -> dict[str, np.ndarray]:
        return {"scores": self.scores.copy()}

    def load_state(self, graph: KnowledgeGraph, state: Mapping[str, np.ndarray]):
        self.scores = state["scores"].copy()
        return self


def small_graph() -> KnowledgeGraph:
    names = vocabulary(30, 25, 3, 4)
    return build(names, random_triples(names, np.random.default_rng(0), 0.08))


def some_rules(graph: KnowledgeGraph, n: int = 6) -> RuleSet:
    """A few rules of two and three hops, among them one over other users."""
    whole = candidates(graph)
    crowd = whole.index(("purchase", "purchase⁻¹", "purchase"))
    return whole.chosen([crowd, *np.linspace(1, len(whole) - 1, n - 1).astype(int)])


def held_out_pairs(graph: KnowledgeGraph, each: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """For each user but the last ones a few items that it does not have."""
    rng = np.random.default_rng(5)
    users, items = [], []
    for user in range(graph.n_users - 4):
        own = set(history(graph, np.array([user]))[1].tolist())
        free = [v for v in range(graph.n_items) if v not in own]
        chosen = rng.permutation(free)[:each]
        users += [user] * len(chosen)
        items += chosen.tolist()
    return np.array(users, dtype=np.int32), np.array(items, dtype=np.int32)


def table(graph: KnowledgeGraph) -> Table:
    """Scores that lean towards what is held out."""
    scores = np.random.default_rng(3).normal(size=(graph.n_users, graph.n_items))
    scores[held_out_pairs(graph)] += 0.7
    return Table(scores)


def problem(
    encoder: Table | None = None,
    rules: RuleSet | None = None,
    fit_users: int = 20,
    dev_users: int = 10,
    **settings: Any,
) -> EM:
    graph = small_graph()
    own = {"tau": 0.5, "teacher": 0.0, **settings}
    own = {"many_labels": 0 if own["teacher"] == 0 else 300, **own}
    with mock.patch.multiple(
        "loger.learning.problem", FIT_USERS=fit_users, DEV_USERS=dev_users
    ):  # which a problem reads when it is made
        return EM(
            graph,
            encoder or table(graph),
            rules or some_rules(graph),
            held_out_pairs(graph),
            EMConfig(**own),
            engine=LocalEngine(1),
        )


def calibration_error(probabilities, labels, bins=15):
    """Expected calibration error: mean |share observed − mean q| over bins of equal size by q."""
    parts = np.array_split(np.argsort(probabilities, kind="stable"), bins)
    gaps = [abs(float((labels[b] - probabilities[b]).sum())) for b in parts if len(b)]
    return float(np.sum(gaps) / len(labels))
