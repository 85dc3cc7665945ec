"""Diversity, popularity and calibration of recommendations against plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from loger.data.demo import shop
from loger.metrics.ranking import (
    calibration,
    diversity,
    item_kinds,
    popularity_lift,
    reciprocal_rank,
)

USERS, ITEMS, K = 30, 25, 5
COLUMNS = ("heads", "relations", "tails", "sources")


@pytest.fixture(scope="module")
def seen():
    rng = np.random.default_rng(1)
    return sp.csr_array((rng.random((USERS, ITEMS)) < 0.2).astype(np.float32))


@pytest.fixture(scope="module")
def lists():
    rng = np.random.default_rng(2)
    out = np.array([rng.permutation(ITEMS)[:K] for _ in range(USERS)], dtype=np.int32)
    out[3, 2:], out[4, 1:], out[5] = -1, -1, -1
    return out


def test_diversity_is_one_less_the_mean_cosine_of_two_items(lists, seen):
    dense, expected = seen.toarray(), []
    for own in lists:
        own, alike = own[own >= 0], []
        for a in range(len(own)):
            for b in range(a + 1, len(own)):
                x, y = dense[:, own[a]], dense[:, own[b]]
                below = np.sqrt(max(x.sum(), 1) * max(y.sum(), 1))
                alike.append(float(x @ y) / below)
        expected.append(1 - np.mean(alike) if alike else 0.0)
    assert diversity(lists, seen) == pytest.approx(np.array(expected))


def test_popularity_lift_is_a_ratio_of_means(lists, seen):
    popularity = np.asarray(seen.sum(axis=0)).ravel().astype(np.int64)
    got = popularity_lift(lists, seen, popularity)
    for u, own in enumerate(lists):
        history, own = seen.indices[seen.indptr[u] : seen.indptr[u + 1]], own[own >= 0]
        after = popularity[own].mean() if len(own) else 0.0
        assert got[u] == pytest.approx(after / popularity[history].mean())


def test_a_list_of_ones_own_items_is_calibrated_and_one_of_other_kinds_is_not():
    kinds = sp.csr_array(np.repeat(np.eye(2), 2, axis=0))  # items 0, 1 of one kind, 2, 3 of another
    own = sp.csr_array(np.array([[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]], dtype=np.float32))
    lists = np.array([[1, -1], [1, 3], [2, 3]])
    assert calibration(lists, own, kinds) == pytest.approx([1.0, 1.0, 0.0])


def test_kinds_are_told_by_the_relation_of_fewest_tails_or_by_popularity():
    data = shop(seed=1, users=60, items=80).dataset
    popularity = np.bincount(data.interactions.items, minlength=data.n_items)
    kinds = item_kinds(data, popularity)
    assert np.asarray(kinds.sum(axis=1)).ravel() == pytest.approx(np.ones(data.n_items))
    facts = data.facts
    features = {  # the only relation that tells of half the items, or more
        int(t) for r, t in zip(facts.relations, facts.tails, strict=True)
        if data.relations[r].name == "has_feature"
    }  # fmt: skip
    assert kinds.shape[1] in (len(features), len(features) + 1)
    none = replace(facts, **{c: getattr(facts, c)[:0] for c in COLUMNS})
    thirds = item_kinds(replace(data, facts=none), popularity)
    assert thirds.shape[1] == 3
    head = np.flatnonzero(thirds[:, [0]].toarray().ravel())
    assert popularity[head].min() >= np.delete(popularity, head).max()


def test_the_reciprocal_rank_is_of_the_first_hit():
    hits = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)
    assert reciprocal_rank(hits).tolist() == [0.5, 0.0, 1.0]
