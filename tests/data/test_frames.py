"""Data frames give the same data set as the same tables in files, and the same errors."""

from datetime import datetime

import numpy as np
import polars as pl
import pytest

from loger.data import Dataset, from_frames, load
from loger.errors import DataError

EVENTS = {"Customer ID": ["ann", "ann", "bob"], "product": [1, 2, 2], "stars": [5.0, 3.0, 4.5]}
FACTS = {"source": [1, 2, 2], "rel": ["has_brand"] * 3, "target": ["Acme", "Best", "Best"]}
ITEMS = {"id": [3, 2], "title": ["Third", None]}


def test_items_with_columns_but_no_triples_are_told_to_go_through_from_tables() -> None:
    plays = pl.DataFrame({"user": ["a", "b"], "item": ["i", "j"]})
    tracks = pl.DataFrame({"id": ["i", "j"], "artist": ["x", "x"]})
    with pytest.raises(DataError, match=r"\(artist\), and there are no triples; loger.from_tables"):
        from_frames(plays, items=tracks)
    assert from_frames(plays, items=tracks.drop("artist")).n_items == 2


def content(dataset: Dataset) -> tuple:
    """All that is in a data set, but for whether notes count lines or rows."""
    rows = np.arange(len(dataset.interactions))
    events = dataset.interactions
    return (
        dataset.graph(rows).fingerprint,
        dataset.vocabulary.labels,
        None if events.ratings is None else events.ratings.tolist(),
        None if events.times is None else events.times.tolist(),
        [
            (n.what.replace(".csv", " frame"), n.count, n.example.split(", line")[0])
            for n in dataset.notes
        ],
    )


def pandas_frame(data: dict) -> object:
    return pytest.importorskip("pandas").DataFrame(data)


both = pytest.mark.parametrize("frame", [pl.DataFrame, pl.LazyFrame, pandas_frame])


@both
def test_frames_read_like_files_of_the_same_tables(frame, tmp_path):
    time = ["2024-05-01", "2024-05-02", "2024-05-03"]
    tables = {
        "interactions": EVENTS | {"time": time, "shop": ["x"] * 3},
        "triples": FACTS,
        "items": ITEMS,
    }
    for stem, data in tables.items():
        pl.DataFrame(data).write_csv(tmp_path / f"{stem}.csv")
    first, second, third = (frame(data) for data in tables.values())
    dataset = from_frames(first, second, items=third)
    assert dataset.name == "frames"
    assert content(dataset) == content(load(tmp_path))
    assert {n.what for n in dataset.notes} >= {"columns of interactions frame that are ignored"}


@both
def test_columns_of_dates_are_seconds(frame):
    times = [datetime(1970, 1, 1), datetime(1970, 1, 2)]
    dataset = from_frames(frame({"user": ["a", "b"], "item": ["x", "y"], "date": times}))
    assert dataset.interactions.times.tolist() == [0, 86400]


def test_settings_of_readers_hold_for_frames():
    dataset = from_frames(pl.DataFrame(EVENTS), min_rating=4, interaction="like", name="shop")
    assert (dataset.name, dataset.relations[0].name, len(dataset.interactions)) == (
        "shop",
        "like",
        2,
    )


def test_a_column_called_line_does_no_harm():
    dataset = from_frames(pl.DataFrame({"line": ["x"], "user": ["a"], "item": ["b"]}))
    assert [(n.what, n.example) for n in dataset.notes] == [
        ("columns of interactions frame that are ignored", "line_")
    ]


REFUSED = {
    "unknown columns": (
        {"who": ["ann"], "what": ["mug"]},
        ["interactions frame: there is no column user, only who, what", "name the columns"],
    ),
    "missing user": (
        {"user": [1, None], "item": [1, 2]},
        ["interactions frame:2: user is empty", "fill"],
    ),
    "empty user": ({"user": ["a", ""], "item": [1, 2]}, ["interactions frame:2: user is empty"]),
    "nothing but missing items": (
        {"user": ["a", "b"], "item": [None, None]},
        ["interactions frame:1: item is empty"],
    ),
    "bad rating": (
        {"user": ["a", "b"], "item": [1, 2], "rating": ["5", "five"]},
        ["interactions frame:2: rating should be a finite number, got 'five'"],
    ),
    "missing rating": (
        {"user": ["a", "b"], "item": [1, 2], "rating": [5, None]},
        ["interactions frame:2: rating should be a finite number"],
    ),
    "bad time": (
        {"user": ["a", "b"], "item": [1, 2], "time": ["2024-05-01", "soon"]},
        ["interactions frame:2: time should be a day", "'soon'"],
    ),
    "missing time": (
        {"user": ["a", "b"], "item": [1, 2], "time": [datetime(2024, 5, 1), None]},
        ["interactions frame:2: time is empty"],
    ),
    "ids that are fractions": (
        {"user": [1.5, 2], "item": [1, 2]},
        ["interactions frame:1: column user should hold text or whole numbers", "1.5"],
    ),
    "lists": (
        {"user": ["a"], "item": ["b"], "rating": [[1, 2]]},
        ["interactions frame:1: column rating should hold numbers"],
    ),
    "no rows": ({"user": [], "item": []}, ["interactions frame: the table has no rows"]),
}


@pytest.mark.parametrize("frame", [pl.DataFrame, pandas_frame])
@pytest.mark.parametrize("kind", REFUSED)
def test_bad_frames_are_refused_with_frame_row_and_value(kind, frame):
    data, words = REFUSED[kind]
    with pytest.raises(DataError) as caught:
        from_frames(frame(data))
    assert [word for word in words if word not in str(caught.value)] == []
    assert caught.value.remedy


def test_bad_triples_are_named():
    facts = pl.DataFrame({"head": ["x", "x"], "relation": ["r", None], "tail": ["t", "u"]})
    with pytest.raises(DataError, match=r"^triples frame:2: relation is empty"):
        from_frames(pl.DataFrame(EVENTS), facts)


def test_pandas_columns_that_cannot_be_read_are_named():
    pandas = pytest.importorskip("pandas")
    mixed = pandas.DataFrame({"user": ["a", "b"], "item": [1, 2], "t": [datetime(2024, 5, 1), 7]})
    with pytest.raises(DataError, match=r"^interactions frame: column t mixes values"):
        from_frames(mixed)
    twice = pandas.DataFrame([["a", "b", "c"]], columns=["user", "item", "user"])
    with pytest.raises(DataError, match=r"^interactions frame: two columns.*'user'"):
        from_frames(twice)


def test_files_and_frames_each_have_their_door(tmp_path):
    with pytest.raises(DataError, match=r"got 'DataFrame'; for data frames, use .*from_frames"):
        load(pl.DataFrame(EVENTS))
    with pytest.raises(DataError, match="got 'int'; pass the path"):
        load(7)
    with pytest.raises(DataError, match=r"got 'str'; .*loger\.data\.load"):
        from_frames("interactions.csv")
    with pytest.raises(DataError, match="interactions are missing"):
        from_frames(None)
