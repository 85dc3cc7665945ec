"""Bundles come back as they were, or are refused with a reason."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from loger.bundle import (
    MANIFEST,
    Bundle,
    check_target,
    fingerprint,
    is_bundle,
    read,
    stamp,
    write,
)
from loger.errors import DataError


@pytest.fixture
def folder(tmp_path):
    arrays = {"one": {"a": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2], dtype=np.uint16)}}
    tables = {"names": pl.DataFrame({"name": ["ä", "b"]})}
    write(tmp_path / "bundle", "test", Bundle({"seed": 3}, arrays, tables))
    return tmp_path / "bundle"


def test_a_bundle_comes_back_as_it_was(folder):
    found = read(folder, "test")
    assert found.about["seed"] == 3
    assert found.arrays["one"]["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.arrays["one"]["b"].dtype == np.uint16
    assert found.tables["names"]["name"].to_list() == ["ä", "b"]


def test_arrays_are_mapped_and_cannot_be_written_to(folder):
    a = read(folder, "test").arrays["one"]["a"]
    with pytest.raises(ValueError, match="read-only"):
        a[0, 0] = 7


def test_writing_twice_gives_equal_bytes(folder, tmp_path):
    found = read(folder, "test")
    about = {"seed": found.about["seed"]}
    write(tmp_path / "again", "test", Bundle(about, found.arrays, found.tables))
    for file in folder.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def spoil_bytes(folder):
    path = folder / "one.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def change(folder, **values):
    about = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**about, **values}))


SPOILT = {
    "damaged": (spoil_bytes, "damaged or changed"),
    "a file gone": (lambda f: (f / "names.parquet").unlink(), "is missing"),
    "no manifest": (lambda f: (f / MANIFEST).unlink(), "not a bundle"),
    "broken manifest": (lambda f: (f / MANIFEST).write_text("{"), "not a manifest"),
    "another kind": (lambda f: change(f, kind="other"), "is of kind 'other', not 'test'"),
    "another version": (lambda f: change(f, version=99), "format version 99"),
    "a way out": (lambda f: change(f, files={"../x.parquet": "0"}), "outside the bundle"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_bundle_is_refused_with_the_file_and_a_reason(folder, case):
    spoil, reason = SPOILT[case]
    spoil(folder)
    with pytest.raises(DataError, match=reason) as caught:
        read(folder, "test")
    assert str(folder) in str(caught.value)


def test_whether_a_folder_is_a_bundle_depends_on_its_manifest_alone(folder, tmp_path):
    assert is_bundle(folder, "test")
    assert not is_bundle(folder, "other")
    (folder / "names.parquet").unlink()  # damaged, and still a bundle
    change(folder, version=99)  # of another format, and still a bundle
    assert is_bundle(folder, "test")
    for content in ("{", "[]", "null", '"test"'):
        (folder / MANIFEST).write_text(content)
        assert not is_bundle(folder, "test")
    (folder / MANIFEST).write_bytes(b"\xff\xfe")
    assert not is_bundle(folder, "test")
    (folder / MANIFEST).unlink()
    assert not is_bundle(folder, "test")
    assert not is_bundle(tmp_path / "nowhere", "test")


def test_a_bundle_goes_into_a_new_or_empty_folder_or_replaces_a_bundle(folder, tmp_path):
    check_target(tmp_path / "new", kind="test")
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty", kind="test")
    check_target(folder, replace=True, kind="test")
    with pytest.raises(DataError, match="holds a bundle"):
        check_target(folder, kind="test")
    with pytest.raises(DataError, match="not empty and not a bundle"):
        check_target(folder, replace=True, kind="other")
    with pytest.raises(DataError, match="is a file"):
        check_target(folder / MANIFEST, replace=True, kind="test")


def test_a_stamp_and_a_fingerprint_tell_a_rewritten_bundle_from_the_old(folder, tmp_path):
    before, was = stamp(folder), fingerprint(folder)
    assert (stamp(folder), fingerprint(folder)) == (before, was)
    change(folder, seed=4)
    assert stamp(folder) != before
    assert fingerprint(folder) != was
    with pytest.raises(DataError, match="no such folder"):
        stamp(tmp_path / "nowhere")
