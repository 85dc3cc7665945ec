"""``from_tables``: the data set of a shop's own tables in one call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from loger.data import Dataset
from loger.errors import DataError, LogerError
from loger.rules.sentences import action_sentence
from loger.tables.mapping import TableMapping
from loger.tables.table import from_tables

pd = pytest.importorskip("pandas")

PLAYS = {
    "listener": [k // 4 for k in range(32)],
    "track": [(k * 7) % 12 for k in range(32)],
    "played_at": [f"2024-05-{k % 28 + 1:02d}" for k in range(32)],
}
TRACKS = {
    "id": list(range(12)),
    "title": [f"Song <{k}>" for k in range(12)],
    "artist": [f"A{k % 3}" for k in range(12)],
}


def content(dataset: Dataset) -> tuple:
    interactions = dataset.interactions
    return (
        dataset.vocabulary.names,
        dataset.vocabulary.labels,
        [r.name for r in dataset.relations],
        [column.tolist() for column in vars(dataset.facts).values() if column is not None],
        interactions.users.tolist(),
        interactions.items.tolist(),
        None if interactions.times is None else interactions.times.tolist(),
    )


def test_frames_of_polars_and_pandas_and_files_give_the_same(tmp_path: Path) -> None:
    for name, table in (("plays", PLAYS), ("tracks", TRACKS)):
        pl.DataFrame(table).write_csv(tmp_path / f"{name}.csv")
    made = [
        from_tables(pl.DataFrame(PLAYS), items=pl.DataFrame(TRACKS), user="listener"),
        from_tables(pd.DataFrame(PLAYS), items=pd.DataFrame(TRACKS), user="listener"),
        from_tables(tmp_path / "plays.csv", items=str(tmp_path / "tracks.csv"), user="listener"),
    ]
    assert content(made[0]) == content(made[1]) == content(made[2])
    names = [r.name for r in made[0].relations]
    assert "has_artist" in names
    assert made[0].interactions.times is not None
    assert made[0].vocabulary.names[made[0].n_users] == "0"  # integers are names as they stand


def test_the_mapping_prints_a_line_for_every_column() -> None:
    dataset = from_tables(pl.DataFrame(PLAYS), items=pl.DataFrame(TRACKS), user="listener")
    lines = [line.split() for line in str(dataset.mapping).splitlines()]
    assert lines[0] == ["table", "column", "becomes", "relation", "why"]
    assert [line[:3] for line in lines[1:]] == [
        ["interactions", "listener", "user"],
        ["interactions", "track", "item"],
        ["interactions", "played_at", "time"],
        ["items", "id", "id"],
        ["items", "title", "label"],
        ["items", "artist", "entity"],
    ]


def test_an_edited_mapping_is_followed() -> None:
    tables = pl.DataFrame(PLAYS), pl.DataFrame(TRACKS)
    mapping: Any = from_tables(*tables, user="listener").mapping
    artist = replace(mapping.items.columns[0], relation="sung_by")
    edited = replace(mapping, items=replace(mapping.items, columns=(artist,)), name="songs")
    dataset = from_tables(*tables, mapping=edited)
    assert dataset.name == "songs"
    assert dataset.mapping is edited
    assert [r.name for r in dataset.relations] == ["played", "sung_by"]


def test_a_mapping_is_edited_by_column_saved_and_given_back_as_a_file(tmp_path: Path) -> None:
    tables = pl.DataFrame(PLAYS), pl.DataFrame(TRACKS)
    mapping: Any = from_tables(*tables).mapping
    edited = mapping.with_column("artist", relation="sung_by")
    assert "sung_by" in str(edited)
    assert "<td>sung_by</td>" in edited._repr_html_()
    edited.save(tmp_path / "songs.toml")
    again = from_tables(*tables, mapping=tmp_path / "songs.toml")
    assert content(again) == content(from_tables(*tables, mapping=edited))
    assert [r.name for r in again.relations] == ["played", "sung_by"]
    for wrong, match in (
        ({"column": "artits"}, "did you mean 'artist'"),
        ({"column": "artist", "taek": "list"}, "did you mean 'take'"),
        ({"column": "artist", "take": "lable"}, "did you mean 'label'"),
    ):
        column = wrong.pop("column")
        with pytest.raises(LogerError, match=match):
            mapping.with_column(column, **wrong)


def test_a_column_can_be_taken_as_the_label() -> None:
    tables = pl.DataFrame(PLAYS), pl.DataFrame(TRACKS)
    mapping: Any = from_tables(*tables).mapping
    dataset = from_tables(*tables, mapping=mapping.with_column("artist", take="label"))
    assert dataset.vocabulary.labels[dataset.n_users] == "A0"
    assert len(dataset.facts) == 0


def test_what_cannot_be_guessed_is_told_with_the_columns_and_what_to_do() -> None:
    plays = pl.DataFrame(PLAYS).rename({"listener": "ear"})
    with pytest.raises(DataError, match=r"names the user; the columns are .*ear.*user='COLUMN'"):
        from_tables(plays, items=pl.DataFrame(TRACKS))
    with pytest.raises(DataError, match="a table must be a file or a data frame, got 'NoneType'"):
        from_tables(None)


def test_what_a_table_lacks_is_said_and_an_index_with_a_name_is_a_column() -> None:
    plays, tracks = pd.DataFrame(PLAYS), pd.DataFrame(TRACKS)
    with pytest.raises(
        DataError, match=r"no column of the items \(title, artist\) has the same IDs"
    ):
        from_tables(plays, tracks.drop(columns="id"), user="listener")
    with pytest.raises(DataError, match="the table of interactions is empty"):
        from_tables(plays.head(0), tracks)
    indexed = from_tables(plays.set_index("listener"), tracks, user="listener")
    assert content(indexed) == content(from_tables(plays, tracks, user="listener"))


def test_what_users_are_interested_in_is_said_so_and_a_mapping_sets_any_verb() -> None:
    people = {
        "listener": list(range(8)),
        "interests": ["jazz|film", "jazz", "film", "film|opera", "opera", "jazz", "film", "opera"],
        "town": ["Ulm", "Bonn"] * 4,
    }
    tables: dict[str, Any] = {
        "items": pl.DataFrame(TRACKS),
        "users": pl.DataFrame(people),
        "user": "listener",
    }
    dataset = from_tables(pl.DataFrame(PLAYS), **tables)
    assert isinstance(dataset.mapping, TableMapping)
    mapping = dataset.mapping.with_column("town", relation="lives_in")
    tables.pop("user")
    graph = from_tables(pl.DataFrame(PLAYS), **tables, mapping=mapping).graph(np.arange(1))
    said = {
        action_sentence(graph, relation, entity)
        for relation, name in enumerate(r.name for r in graph.relations)
        if name in ("interested_in", "lives_in")
        for entity in graph.neighbours(0, relation).tolist()
    }
    assert said == {"you are interested in jazz", "you are interested in film", "you live in Ulm"}
