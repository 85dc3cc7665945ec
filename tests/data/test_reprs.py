"""Data sets and splits describe themselves in one line, and as tables in notebooks."""

from __future__ import annotations

import re

import polars as pl
import pytest

from loger.data import from_frames, split
from loger.data.dataset import as_name
from loger.errors import LogerError

EVIL = "<script>alert('x')</script>"


@pytest.fixture
def dataset():
    interactions = pl.DataFrame(
        {"user": ["a"] * 10 + ["b"] * 10, "item": [f"i{k}" for k in range(10)] * 2}
    )
    facts = pl.DataFrame(
        {"head": ["i0", "i1", "i1"], "relation": [EVIL, EVIL, "in"], "tail": ["x", "x", "y"]}
    )
    return from_frames(interactions, facts, name=f"shop {EVIL}")


def rows(html: str) -> list[list[str]]:
    return [re.findall(r"<t[dh]>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


def test_a_data_set_shows_its_entities_relations_and_notes(dataset):
    html = dataset._repr_html_()
    found = rows(html)
    assert ["user", "2"] in found
    assert ["item", "10"] in found
    assert ["interacted", "user → item", "20"] in found
    assert [row[-1] for row in found if "script" in row[0] and len(row) == 3] == ["2"]
    assert all(f"<li>{note.what}" in html for note in dataset.notes)
    assert dataset.notes


def test_a_split_shows_the_size_and_users_of_each_part(dataset):
    parts = split(dataset, "random", test=0.2, validation=0.1)
    assert rows(parts._repr_html_()) == [
        ["part", "interactions", "share", "users"],
        ["train", "14", "70%", "2"],
        ["validation", "2", "10%", "2"],
        ["test", "4", "20%", "2"],
    ]
    assert repr(parts).endswith("14 train, 2 validation, 4 test)")


def test_names_are_escaped(dataset):
    for html in (dataset._repr_html_(), split(dataset)._repr_html_()):
        assert "<script" not in html
        assert "&lt;script&gt;" in html


@pytest.mark.parametrize("value", [True, 1.0, None, ["a"], b"a"])
def test_what_is_neither_text_nor_integer_is_not_a_name(value):
    with pytest.raises(LogerError, match="must be text or integers, got"):
        as_name(value)
