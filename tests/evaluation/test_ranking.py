"""Ranking measures against slow implementations and against trec_eval."""

from __future__ import annotations

import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from loger.errors import LogerError
from loger.metrics import ranking


@st.composite
def lists(draw):
    """(recommended [users, k] with short lists, relevant sets, items)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_items = draw(st.integers(1, 25))
    users, k = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    recommended = np.full((users, k), -1, dtype=np.int32)
    for row in recommended:
        length = rng.integers(0, min(k, n_items) + 1)
        row[:length] = rng.permutation(n_items)[:length]
    relevant = [
        set(rng.permutation(n_items)[: rng.integers(1, n_items + 1)].tolist()) for _ in range(users)
    ]
    return recommended, relevant, n_items


def measured(recommended, relevant):
    rows = [row for row, of in enumerate(relevant) for _ in of]
    items = [item for of in relevant for item in of]
    hits = ranking.hits(recommended, rows, items)
    n = [len(of) for of in relevant]
    return {
        "precision": ranking.precision(hits),
        "recall": ranking.recall(hits, n),
        "hit_rate": ranking.hit_rate(hits),
        "ndcg": ranking.ndcg(hits, n),
        "ndcg_retrieved": ranking.ndcg_retrieved(hits),
    }


def slow(row, relevant):
    k = len(row)
    found = [item in relevant for item in row if item >= 0]
    gain = sum(1 / math.log2(rank + 2) for rank, hit in enumerate(found) if hit)
    ideal = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(relevant))))
    of_found = sum(1 / math.log2(rank + 2) for rank in range(sum(found)))
    return {
        "precision": sum(found) / k,
        "recall": sum(found) / len(relevant),
        "hit_rate": float(any(found)),
        "ndcg": gain / ideal,
        "ndcg_retrieved": gain / of_found if of_found else 0.0,
    }


@given(lists())
def test_measures_equal_their_slow_twins(case):
    recommended, relevant, _ = case
    fast = measured(recommended, relevant)
    for row, of in enumerate(relevant):
        for metric, value in slow(recommended[row].tolist(), of).items():
            assert fast[metric][row] == pytest.approx(value, abs=1e-12), metric


@given(lists())
def test_measures_lie_between_0_and_1_and_the_authors_ndcg_is_never_lower(case):
    recommended, relevant, _ = case
    fast = measured(recommended, relevant)
    for values in fast.values():
        assert values.dtype == np.float64
        assert ((values >= 0) & (values <= 1 + 1e-12)).all()
    assert (fast["ndcg_retrieved"] >= fast["ndcg"] - 1e-12).all()


def test_measures_agree_with_trec_eval():
    rng = np.random.default_rng(3)
    recommended = np.array([rng.permutation(60)[:10] for _ in range(200)])
    recommended[:20, 6:] = -1  # short lists
    relevant = [set(rng.permutation(60)[: rng.integers(1, 25)].tolist()) for _ in range(200)]
    judged = {f"{u}": {f"{i}": 1 for i in of} for u, of in enumerate(relevant)}
    run = {
        f"{u}": {f"{i}": 10.0 - rank for rank, i in enumerate(row) if i >= 0}
        for u, row in enumerate(recommended.tolist())
    }
    asked = {"P.10", "recall.10", "success.10", "ndcg_cut.10"}
    theirs = pytrec_eval.RelevanceEvaluator(judged, asked).evaluate(run)
    ours = measured(recommended, relevant)
    for metric, name in (
        ("precision", "P_10"),
        ("recall", "recall_10"),
        ("hit_rate", "success_10"),
        ("ndcg", "ndcg_cut_10"),
    ):
        np.testing.assert_allclose(ours[metric], [theirs[f"{u}"][name] for u in range(200)])


@given(lists(), st.integers(0, 10**6))
def test_novelty_and_coverage_equal_their_slow_twins(case, seed):
    recommended, _, n_items = case
    popularity = np.random.default_rng(seed).integers(0, 9, size=n_items)
    novelty = ranking.novelty(recommended, popularity, n_users=9)
    for row, value in zip(recommended.tolist(), novelty, strict=True):
        bits = [-math.log2(max(int(popularity[i]), 1) / 9) for i in row if i >= 0]
        assert value == pytest.approx(sum(bits) / len(bits) if bits else 0.0)
    seen = {i for row in recommended.tolist() for i in row if i >= 0}
    assert ranking.coverage(recommended, n_items) == len(seen) / n_items


def test_there_may_be_nobody_and_nothing():
    nobody = ranking.hits(np.empty((0, 3), dtype=np.int32), [], [])
    assert nobody.shape == (0, 3)
    nothing = ranking.hits(np.array([[0, -1]]), [], [])
    assert nothing.tolist() == [[False, False]]


def test_numbers_of_rows_and_items_may_be_of_any_width():
    lists = np.arange(600).reshape(100, 6)
    found = ranking.hits(lists, np.array([3, 99], np.int8), np.array([20, 599], np.int16))
    assert np.argwhere(found).tolist() == [[3, 2], [99, 5]]


def test_a_user_with_nothing_to_find_is_refused():
    with pytest.raises(LogerError, match="row 1 has no relevant items"):
        ranking.recall(np.zeros((2, 3), dtype=bool), [1, 0])
