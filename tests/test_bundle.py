"""Bundles load as they were saved, or are refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from loger import __version__
from loger.engine import files
from loger.engine.files import MANIFEST, Kind, check_target, kind_of
from loger.engine.settings import from_names
from loger.errors import DataError
from loger.store.bundle import (
    MODEL,
    fingerprint,
    mapped,
    read,
    stamp,
    text_array,
    texts_of,
    write,
)

OTHER = Kind("jar", "jar", 1, "fill it again")
ARRAYS = {
    "one": {"a": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2], dtype=np.uint16)},
    "names": {"names": text_array(["ä", "b", ""])},
}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "bundle", MODEL, {"seed": 3}, ARRAYS)
    return tmp_path / "bundle"


def test_a_bundle_comes_back_as_it_was(folder):
    found = read(folder, MODEL)
    assert found.about == {"seed": 3}
    assert found.arrays["one"]["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.arrays["one"]["b"].dtype == np.uint16
    assert texts_of(found.arrays["names"]["names"]) == ["ä", "b", ""]


def test_arrays_are_mapped_and_cannot_be_written_to(folder):
    a = read(folder, MODEL).arrays["one"]["a"]
    with pytest.raises(ValueError, match="read-only"):
        a[0, 0] = 7


def test_arrays_of_a_bundle_that_was_replaced_stay_as_they_were(folder):
    a = read(folder, MODEL).arrays["one"]["a"]
    write(folder, MODEL, {"seed": 4}, {"one": {"a": np.zeros((2, 3))}})
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read(folder, MODEL).arrays["one"]["a"].sum() == 0


def test_writing_twice_gives_equal_bytes(folder, tmp_path):
    found = read(folder, MODEL)
    write(tmp_path / "again", MODEL, found.about, found.arrays)
    assert len(list(folder.iterdir())) == len(list((tmp_path / "again").iterdir())) > 1
    for file in folder.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def spoil_bytes(folder):
    path = folder / "one.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def change(folder, **values):
    """The manifest with other content, signed as if loger had written it."""
    parts = json.loads((folder / MANIFEST).read_text()) | values
    del parts["sha256"]
    (folder / MANIFEST).write_text(json.dumps({**parts, "sha256": files.manifest_digest(parts)}))


def edit(folder, old, new):
    text = (folder / MANIFEST).read_text()
    assert old in text
    (folder / MANIFEST).write_text(text.replace(old, new))


SPOILT = {
    "damaged": (spoil_bytes, "one.safetensors: damaged or changed.*copy the model bundle again"),
    "a file gone": (
        lambda f: (f / "names.safetensors").unlink(),
        "names.safetensors: missing from the",
    ),
    "no manifest": (lambda f: (f / MANIFEST).unlink(), "not a model bundle: it has no manifest"),
    "broken manifest": (lambda f: (f / MANIFEST).write_text("{"), "damaged: not a manifest"),
    "edited manifest": (lambda f: edit(f, '"seed": 3', '"seed": 4'), "json: damaged or changed"),
    "no list of files": (lambda f: change(f, files=None), "json: damaged or changed"),
    "another kind": (lambda f: change(f, kind="other"), "not a model bundle: its kind is 'other'"),
    "a later format": (
        lambda f: change(f, format=99, loger="9.9"),
        "written by loger 9.9 in format 99; this is loger .*, which reads format 4; fit again",
    ),
    "the first format": (
        lambda f: (f / MANIFEST).write_text('{"kind": "loger", "version": 1, "files": {}}'),
        r"written by loger \(an older version\) in format 1; this is loger .*; fit again",
    ),
    "a way out": (lambda f: change(f, files={"../x.safetensors": "0"}), "json: damaged or changed"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_bundle_is_refused_with_the_file_and_a_reason(folder, case):
    spoil, reason = SPOILT[case]
    spoil(folder)
    with pytest.raises(DataError, match=reason) as caught:
        read(folder, MODEL)
    assert str(folder) in str(caught.value)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DataError, match="nothing: no such folder; pass the folder of a model bund"):
        read(tmp_path / "nothing", MODEL)


def test_whether_a_folder_is_a_bundle_depends_on_its_manifest_alone(folder, tmp_path):
    assert kind_of(folder) == MODEL.name
    assert kind_of(folder) != OTHER.name
    (folder / "names.safetensors").unlink()  # damaged, and still a bundle
    change(folder, format=99)  # of another format, and still a bundle
    assert kind_of(folder) == MODEL.name
    for content in ("{", "[]", "null", '"loger"'):
        (folder / MANIFEST).write_text(content)
        assert kind_of(folder) != MODEL.name
    (folder / MANIFEST).write_bytes(b"\xff\xfe")
    assert kind_of(folder) != MODEL.name
    (folder / MANIFEST).unlink()
    assert kind_of(folder) != MODEL.name
    assert kind_of(tmp_path / "nowhere") != MODEL.name


def test_a_bundle_goes_into_a_new_or_empty_folder_or_replaces_a_bundle(folder, tmp_path):
    check_target(tmp_path / "new", MODEL, replace=False)
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty", MODEL, replace=False)
    check_target(folder, MODEL, replace=True)
    with pytest.raises(DataError, match="already contains a model bundle; choose a new folder"):
        check_target(folder, MODEL, replace=False)
    with pytest.raises(DataError, match="not empty and not a jar"):
        check_target(folder, OTHER, replace=True)
    with pytest.raises(DataError, match="is a file"):
        check_target(folder / MANIFEST, MODEL, replace=True)


def test_a_stamp_and_a_fingerprint_tell_a_rewritten_bundle_from_the_old(folder, tmp_path):
    before, was = stamp(folder), fingerprint(folder)
    assert (stamp(folder), fingerprint(folder)) == (before, was)
    change(folder, about={})
    assert stamp(folder) != before
    assert fingerprint(folder) != was
    with pytest.raises(DataError, match="no such folder"):
        stamp(tmp_path / "nowhere")


@dataclass(frozen=True)
class Oven:
    heat: float = 1.5
    mode: Literal["top", "bottom"] = "top"
    racks: Sequence[int] = (1, 2)


@dataclass(frozen=True)
class Kitchen:
    oven: Oven = field(default_factory=Oven)
    seats: int | None = None


def test_settings_come_back_from_a_manifest_as_they_were():
    kept = json.loads(json.dumps(asdict(Kitchen(Oven(2.0, "bottom", (3,)), 4))))
    assert from_names(Kitchen, kept) == Kitchen(Oven(2.0, "bottom", (3,)), 4)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seeats": 3}, "unknown setting 'kitchen.seeats'; did you mean 'kitchen.seats'?"),
        ({"oven": {**asdict(Oven()), "glow": 1}}, "unknown setting 'kitchen.oven.glow'"),
        ({"oven": {**asdict(Oven()), "mode": "side"}}, "unknown value of kitchen.oven.mode 'side'"),
        ({"oven": 3}, "kitchen.oven must be a table of settings, got 3"),
        ({"seats": "four"}, "kitchen.seats must be int or none, got 'four'"),
    ],
)
def test_a_setting_that_this_version_does_not_know_is_told_with_both_versions(folder, change, what):
    bundle = read(folder, MODEL)
    with pytest.raises(DataError) as caught, bundle.parsing():
        from_names(Kitchen, {**asdict(Kitchen()), **change}, "kitchen")
    versions = f"(fitted by loger {bundle.loger}, this is {__version__}); fit again"
    for part in (str(folder / MANIFEST), what, versions):
        assert part in str(caught.value)


def arrays_file(path: Path, header: str, size: int) -> Path:
    """A safetensors file with a header as it is given, and so many bytes behind it."""
    text = header.encode().ljust(-(-len(header) // 8) * 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    return path


def placed(name: str, low: int, high: int) -> str:
    return f'"{name}":{{"dtype":"I64","shape":[{(high - low) // 8}],"data_offsets":[{low},{high}]}}'


FORGED = {
    "overlap": ([placed("a", 0, 64), placed("b", 0, 64)], 64, "b doesn't begin where"),
    "partly": ([placed("a", 0, 32), placed("b", 24, 64)], 64, "b doesn't begin where"),
    "hole": ([placed("a", 0, 32), placed("b", 40, 64)], 64, "b doesn't begin where"),
    "late": ([placed("a", 8, 64)], 64, "a doesn't begin where"),
    "twice": ([placed("a", 0, 32), placed("a", 32, 64)], 64, "a name appears twice"),
    "rest": ([placed("a", 0, 32)], 64, "its last 32 bytes belong to no array"),
    "beyond": ([placed("a", 0, 72)], 64, "a doesn't begin where"),
}


@pytest.mark.parametrize("case", FORGED)
def test_arrays_that_overlap_or_leave_holes_are_refused(tmp_path, case):
    entries, size, reason = FORGED[case]
    path = arrays_file(tmp_path / "x.safetensors", "{" + ",".join(entries) + "}", size)
    with pytest.raises(DataError, match=reason):
        mapped(path)


def test_arrays_side_by_side_are_read_in_any_order(tmp_path):
    header = "{" + ",".join([placed("b", 32, 64), placed("none", 32, 32), placed("a", 0, 32)]) + "}"
    found = mapped(arrays_file(tmp_path / "x.safetensors", header, 64))
    assert {name: len(array) for name, array in found.items()} == {"b": 4, "none": 0, "a": 4}
