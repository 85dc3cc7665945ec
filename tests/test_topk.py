import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransE, TransEConfig, top_items
from loger.errors import LogerError
from loger.topk import top_k

FEW = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0])  # many ties
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 300))


@given(SHAPES.flatmap(lambda s: arrays(np.float32, s, elements=FEW)), st.integers(1, 20))
def test_lists_are_those_of_a_full_stable_sort(scores, k):
    items, values = top_k(scores.copy(), k)
    for row, found, value in zip(scores, items, values, strict=True):
        order = [j for j in np.argsort(-row, kind="stable") if row[j] > -np.inf][:k]
        assert found.tolist() == order + [-1] * (k - len(order))
        assert value[: len(order)].tolist() == row[order].tolist()


def test_random_rows_longer_than_any_buffer():
    scores = np.random.default_rng(0).standard_normal((3, 20_000)).astype(np.float32)
    scores[1] = np.sort(scores[1])  # every column beats all before it
    items, _ = top_k(scores.copy(), 50)
    assert (items == np.argsort(-scores, kind="stable", axis=1)[:, :50]).all()


def test_known_items_are_left_out_first():
    scores = np.array([[3, 2, 1], [1, 2, 3]], dtype=np.float32)
    items, _ = top_k(scores, 2, (np.array([0, 1, 1]), np.array([0, 2, 1])))
    assert items.tolist() == [[1, 2], [0, -1]]


def test_a_score_that_is_no_number_is_an_error():
    with pytest.raises(LogerError, match="column 1 of row 0 is not a number"):
        top_k(np.array([[1.0, np.nan]], dtype=np.float32), 1)
    with pytest.raises(LogerError, match="at least 1"):
        top_k(np.array([[1.0]], dtype=np.float32), 0)


def test_top_items_of_an_encoder_equal_brute_force_and_leave_training_items_out():
    parts = split(shop(seed=2, users=100, items=80).dataset)
    encoder = TransE(TransEConfig(dimension=16, epochs=1)).fit(parts.graph)
    users = np.array([5, 3, 99, 3])
    items, values = top_items(encoder, parts.graph, users, 7)
    scores = encoder.score_items(users)
    train_users, train_items = parts.pairs("train")
    for row, u in enumerate(users):
        scores[row, train_items[train_users == u]] = -np.inf
    order = np.argsort(-scores, kind="stable", axis=1)[:, :7]
    assert (items == order).all()
    assert (values == np.take_along_axis(scores, order, axis=1)).all()
