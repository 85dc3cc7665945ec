"""Collective EASE^R against a slow implementation of its formula."""

from __future__ import annotations

import numpy as np
import pytest

from loger.baselines import EASE, CollectiveEASE
from loger.baselines.ease import fact_rows
from loger.data import split
from loger.data.demo import shop
from loger.errors import LogerError
from loger.graph import INTERACTION
from loger.recommender import part_matrix

PARTS = split(shop(users=60, items=90).dataset)
GRAPH = PARTS.graph
USERS = np.arange(PARTS.dataset.n_users)


def slow_facts() -> list[list[int]]:
    """For each (relation, entity) the items that share it, if two of them do."""
    first, n = GRAPH.n_users, GRAPH.n_items
    out = []
    for relation in range(2 * len(GRAPH.relations)):
        if relation == GRAPH.inverse(INTERACTION):
            continue
        for entity in range(GRAPH.n_entities):
            items = [i for i in range(n) if GRAPH.has(first + i, relation, entity)]
            if items and first <= entity < first + n:
                items.append(entity - first)
            if len(items) > 1:
                out.append(sorted(items))
    return out


def test_fact_rows_are_the_items_that_share_a_fact():
    rows = fact_rows(GRAPH)
    got = [sorted(row.nonzero()[0].tolist()) for row in rows.toarray()]
    assert sorted(got) == sorted(slow_facts())
    assert (rows.data == 1).all()
    assert len(got) > 20


def test_collective_ease_equals_its_formula():
    x = part_matrix(PARTS, "train").toarray().astype(np.float64)
    gram = x.T @ x + 20 * np.eye(x.shape[1])
    for items in slow_facts():
        for i in items:
            for j in items:
                gram[i, j] += 0.7**2 * len(items) ** -0.8
    inverse = np.linalg.inv(gram)
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    slow = x @ weights / np.maximum(x.sum(axis=0), 1) ** 0.2
    model = CollectiveEASE(weight=0.7, discount=0.4, l2=20, popularity=0.2).fit(PARTS)
    np.testing.assert_allclose(model.score(USERS), slow, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("recency", [0.0, 0.8])
def test_facts_that_weigh_nothing_leave_ease(recency):
    alone = EASE(l2=20, recency=recency, popularity=0.1).fit(PARTS).score(USERS)
    model = CollectiveEASE(weight=0.0, l2=20, recency=recency, popularity=0.1).fit(PARTS)
    np.testing.assert_allclose(model.score(USERS), alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("setting", [{"l2": 0.0}, {"weight": -1.0}, {"recency": -1.0}])
def test_settings_without_sense_are_refused(setting):
    with pytest.raises(LogerError, match="must be"):
        CollectiveEASE(**setting)
