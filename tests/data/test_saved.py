"""Our own format loads completely, or is refused with the name of the faulty file."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from loger.data import load
from loger.data.dataset import Dataset, Facts, Interactions, Note
from loger.data.demo import shop
from loger.engine.files import MANIFEST
from loger.errors import DataError
from loger.graph import Relation, Vocabulary
from loger.store.bundle import MODEL, write

FILES = ["entities.parquet", "relations.parquet", "facts.parquet", "interactions.parquet", MANIFEST]


@pytest.fixture(scope="module")
def made() -> Dataset:
    notes = (Note("things mended", 3, "ann “mug”"), Note("others", 1))
    return replace(shop(users=60, items=100).dataset, name="Ann's shop ⁻¹", notes=notes)


@pytest.fixture
def folder(made, tmp_path):
    made.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_everything_comes_back(made, folder):
    again = load(folder)
    assert (again.name, again.notes, again.relations) == (made.name, made.notes, made.relations)
    for x, y in ((made.facts, again.facts), (made.interactions, again.interactions)):
        for field in x.__dataclass_fields__:
            a, b = getattr(x, field), getattr(y, field)
            assert (a is None) == (b is None)
            assert np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)
    words, same = made.vocabulary, again.vocabulary
    assert (words.types, words.names, words.labels) == (same.types, same.names, same.labels)
    assert words.offsets.tolist() == same.offsets.tolist()


def test_types_without_entities_come_back(tmp_path):
    none = np.zeros(0, dtype=np.int32)
    Dataset(
        "new",
        Vocabulary({"user": ["ann"], "item": [], "brand": [], "word": ["w"]}),
        (Relation("purchase", "user", "item"), Relation("has_brand", "item", "brand")),
        Facts(none, none, none, none),
        Interactions(none, none),
    ).save(tmp_path / "new")
    again = load(tmp_path / "new")
    assert again.vocabulary.types == ("user", "item", "brand", "word")
    assert again.graph(none).n_triples == 0


def test_saving_again_replaces_what_was_there(made, folder):
    shop(seed=1, users=60, items=100).dataset.save(folder)
    assert load(folder).name != made.name


@pytest.mark.parametrize("file", FILES[:-1])
def test_a_missing_file_is_named(folder, file):
    (folder / file).unlink()
    with pytest.raises(DataError, match=rf"{file}: missing from the saved data set; load the orig"):
        load(folder)


def test_an_error_while_saving_leaves_what_was_saved_before(made, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.DataFrame, "write_parquet", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            shop(seed=1, users=60, items=100).dataset.save(folder)
    assert load(folder).name == made.name


def test_tables_without_a_manifest_are_not_taken_for_the_plain_format(folder):
    (folder / MANIFEST).unlink()
    with pytest.raises(DataError, match=f"not a saved data set: it has no {MANIFEST}"):
        load(folder)


def test_a_model_bundle_is_not_a_data_set(tmp_path):
    write(tmp_path / "bundle", MODEL, {}, {})
    with pytest.raises(DataError, match="not a saved data set: its kind is 'loger'"):
        load(tmp_path / "bundle")


def test_a_manifest_of_something_else_does_not_hide_the_plain_format(tmp_path):
    (tmp_path / "interactions.csv").write_text("user,item\nann,mug\n")
    (tmp_path / MANIFEST).write_text('{"name": "my web app"}')
    assert len(load(tmp_path).interactions) == 1


@pytest.mark.parametrize("file", FILES[:-1])
@pytest.mark.parametrize("damage", ["cut", "emptied", "a bit", "another file"])
def test_a_damaged_file_is_named(folder, file, damage):
    raw = bytearray((folder / file).read_bytes())
    if damage == "a bit":
        raw[len(raw) // 2] ^= 4
    other = (folder / "relations.parquet").read_bytes() + b" "
    new = {"cut": raw[: len(raw) // 2], "emptied": b"", "a bit": raw, "another file": other}
    (folder / file).write_bytes(bytes(new[damage]))
    with pytest.raises(DataError, match=rf"{file}: damaged or changed: .* save it again"):
        load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1, "name": "x"}', "\x00"])
def test_a_damaged_manifest_is_named(folder, text):
    (folder / MANIFEST).write_text(text)
    with pytest.raises(DataError, match=rf"{MANIFEST}: .*save it again"):
        load(folder)


def test_another_format_is_refused_with_both_versions(folder):
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format": 7, "loger": "9.9"}))
    with pytest.raises(DataError, match=r"by loger 9.9 in format 7; this is loger .* format 2"):
        load(folder)


@pytest.mark.parametrize(
    ("table", "column", "value", "message"),
    [
        ("facts", "heads", 10**6, r"facts.parquet: row 5: head must be from 0 to \d+, got 1000000"),
        ("facts", "tails", -1, r"facts.parquet: row 5: tail must be from 0 to \d+, got -1"),
        ("facts", "relations", 0, r"facts.parquet: row 5: relation must be from 1 to 7, got 0"),
        ("facts", "relations", 8, r"facts.parquet: row 5: relation must be from 1 to 7, got 8"),
        ("facts", "sources", -2, r"facts.parquet: row 5: source must be from -1 to \d+, got -2"),
        ("interactions", "users", 60, r"row 5: user must be from 0 to 59, got 60"),
        ("interactions", "items", 100, r"row 5: item must be from 0 to 99, got 100"),
        ("interactions", "parts", 3, r"row 5: part must be from 0 to 2, got 3"),
    ],
)
def test_numbers_of_nothing_are_refused(made, tmp_path, table, column, value, message):
    part = getattr(made, table)
    values = getattr(part, column)
    values = np.zeros(len(part), dtype=np.int8) if values is None else values.copy()
    values[5] = value
    replace(made, **{table: replace(part, **{column: values})}).save(tmp_path / "bad")
    with pytest.raises(DataError, match=message):
        load(tmp_path / "bad")
