"""Shared array functions against the simplest implementation of their docstrings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loger.errors import LogerError
from loger.graph import checked_ids, gather, pair_keys

slices = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=8)


@given(slices, st.sampled_from([np.int32, np.int64]))
def test_gathered_places_are_those_of_the_slices_one_after_another(made, dtype):
    starts, sizes = (np.array([x[k] for x in made], dtype=dtype) for k in (0, 1))
    owners, places = gather(starts, sizes)
    wanted = [(k, at) for k, (start, n) in enumerate(made) for at in range(start, start + n)]
    assert list(zip(owners.tolist(), places.tolist(), strict=True)) == wanted
    assert owners.dtype == places.dtype == np.int64


@given(st.sets(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 99))))
def test_pair_keys_are_distinct_and_sort_by_user_and_item(pairs):
    users, items = (np.array([p[k] for p in sorted(pairs)], dtype=np.int32) for k in (0, 1))
    keys = pair_keys(users, items, 100)
    assert (np.diff(keys) > 0).all()
    assert (keys // 100).tolist() == users.tolist()
    assert (keys % 100).tolist() == items.tolist()


@pytest.mark.parametrize("ids", [[3], [-1], [0, 2**40], np.array([2**63], dtype=np.uint64)])
def test_a_number_out_of_range_is_named(ids):
    with pytest.raises(LogerError, match=r"item numbers must be from 0 to 2, got -?\d+"):
        checked_ids(ids, 3, "item")


@pytest.mark.parametrize("ids", [0.5, [1.0], "a", [[1]], [True], None])
def test_what_is_not_a_list_of_integers_is_refused(ids):
    with pytest.raises(LogerError, match="item numbers must be a list of integers, got"):
        checked_ids(ids, 3, "item")


def test_one_number_or_none_at_all_are_lists_too():
    assert checked_ids(2, 3, "item").tolist() == [2]
    assert checked_ids([], 0, "item").tolist() == []
