"""Recommendations from scores: exact, without training items, ties broken by item ID."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from loger import recommender
from loger.engine.topk import top_k
from loger.errors import LogerError
from loger.recommender import pair_matrix, ranked


def slow_top_k(scores, masked, k):
    """By sorting all (score, item) that may be recommended."""
    out = []
    for row, of_user in enumerate(scores.tolist()):
        gone = {item for r, item in zip(*masked, strict=True) if r == row}
        free = [i for i, s in enumerate(of_user) if i not in gone and s != -np.inf]
        best = sorted(free, key=lambda i: (-of_user[i], i))[:k]
        out.append(best + [-1] * (k - len(best)))
    return out


class Fixed:
    """Gives scores that were made beforehand."""

    name = "fixed"

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def fit(self, split, *, progress=None):
        return self

    def score(self, users):
        return self.scores[np.asarray(users)]


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 4),
    items=st.integers(1, 400),
    k=st.integers(1, 30),
    ties=st.sampled_from([0, 1, 3, 1000]),
    masked=st.sampled_from([0, 0.1, 0.9, 1.0]),
)
def test_top_k_equals_sorting_everything(seed, rows, items, k, ties, masked):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-ties, ties + 1, size=(rows, items)).astype(np.float32) / 7
    scores[rng.random(scores.shape) < 0.05] = rng.choice([-np.inf, np.inf, -0.0, 0.0])
    gone = np.nonzero(rng.random(scores.shape) < masked)
    expected = slow_top_k(scores, gone, k)
    assert top_k(scores, k, gone)[0].tolist() == expected


def test_descending_scores_in_one_group_are_all_found():
    scores = np.zeros((1, 5000), dtype=np.float32)
    scores[0, 100:140] = np.arange(40, 0, -1)
    assert top_k(scores, 40)[0][0].tolist() == list(range(100, 140))


def test_a_score_that_is_not_a_number_is_refused():
    scores = np.array([[0.0, np.nan]], dtype=np.float32)
    with pytest.raises(LogerError, match="column 1 of row 0"):
        top_k(scores, 1)
    with pytest.raises(LogerError, match="at least 1"):
        top_k(scores, 0)


def test_lists_do_not_depend_on_the_size_of_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    model = Fixed(rng.integers(0, 9, size=(50, 30)).astype(np.float32))
    drawn = [(rng.random((50, 30)) < share).astype(np.float32) for share in (0.3, 0.5)]
    known, among = map(sp.csr_array, drawn)
    users = rng.permutation(50)[:33]
    whole = ranked(model, users, known, 10, candidates=among)
    monkeypatch.setattr(recommender, "BLOCK_BYTES", 30 * 16 * 4)
    assert (ranked(model, users, known, 10, candidates=among) == whole).all()
    listed = pair_matrix(np.repeat(users, 10)[whole.ravel() >= 0], whole[whole >= 0], (50, 30))
    assert (listed.multiply(among) - listed).nnz == 0
    assert listed.multiply(known).nnz == 0


def test_scores_of_a_wrong_shape_are_refused_by_name():
    with pytest.raises(LogerError, match="fixed returned scores of shape"):
        ranked(Fixed(np.zeros((4, 5), dtype=np.float32)), [0, 1], pair_matrix([], [], (4, 6)), 3)
