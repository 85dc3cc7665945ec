import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from threadpoolctl import threadpool_info, threadpool_limits

from loger.engine import LocalEngine
from loger.engine.topk import STRETCH, places, top_k
from loger.errors import LogerError

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


@given(arrays(np.float32, st.integers(1, 300), elements=FEW), st.data())
def test_places_are_those_in_a_full_stable_sort_of_what_is_not_known(row, data):
    some = st.lists(st.integers(0, len(row) - 1), unique=True)
    columns, known = data.draw(some), data.draw(some)
    found = places(row, np.array(columns, dtype=np.int64), np.array(known, dtype=np.int64))
    for column, place in zip(columns, found, strict=True):
        left = [j for j in range(len(row)) if j == column or j not in known]
        order = sorted(left, key=lambda j: (-row[j], j))
        assert place == 1 + order.index(column)


def test_places_in_a_row_of_many_stretches():
    row = np.random.default_rng(0).integers(50, size=300 * STRETCH + 7).astype(np.float32)
    columns = np.array([0, STRETCH - 1, STRETCH, 200 * STRETCH + 5, len(row) - 1])
    order = np.argsort(-row, kind="stable")
    expected = [1 + int(np.flatnonzero(order == j)[0]) for j in columns]
    assert places(row, columns, np.empty(0, dtype=np.int64)).tolist() == expected


def test_known_items_are_left_out_first():
    scores = np.array([[3, 2, 1], [1, 2, 3]], dtype=np.float32)
    items, _ = top_k(scores, 2, (np.array([0, 1, 1]), np.array([0, 2, 1])))
    assert items.tolist() == [[1, 2], [0, -1]]


def test_a_score_that_is_no_number_is_an_error():
    with pytest.raises(LogerError, match="column 1 of row 0 is not a number"):
        top_k(np.array([[1.0, np.nan]], dtype=np.float32), 1)
    late = np.zeros((2, 200), dtype=np.float32)
    late[1, 170] = np.nan
    with pytest.raises(LogerError, match="column 170 of row 1 is not a number"):
        top_k(late, 1)
    with pytest.raises(LogerError, match="at least 1"):
        top_k(np.array([[1.0]], dtype=np.float32), 0)


def test_each_worker_computes_its_product_on_one_core():
    def noted(shared, block):
        threads = [row["num_threads"] for row in threadpool_info() if row["user_api"] == "blas"]
        return threading.get_ident(), threads

    with threadpool_limits(2):
        seen = list(LocalEngine(2).map("noting", noted, list(range(6)), None))
        after = [row["num_threads"] for row in threadpool_info() if row["user_api"] == "blas"]
    assert {thread for thread, _ in seen} - {threading.get_ident()}
    assert all(1 in threads for _, threads in seen)
    assert set(after) == {2}
