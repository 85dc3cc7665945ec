"""Files and folders are written whole or not at all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from loger import files
from loger.errors import DataError
from loger.files import (
    MANIFEST,
    Kind,
    atomic_file,
    atomic_folder,
    check_files,
    read_manifest,
    write_text,
)

BOX = Kind("box", "box of words", 3, "pack again")


def pack(folder: Path, *words: str) -> None:
    with atomic_folder(folder, BOX, {"n": len(words)}) as part:
        for k, word in enumerate(words):
            (part / f"{k}.txt").write_text(word)


def unpack(folder: Path) -> list[str]:
    manifest = read_manifest(folder, BOX)
    check_files(folder, manifest, BOX)
    assert manifest.about == {"n": len(manifest.files)}
    return [(folder / name).read_text() for name in sorted(manifest.files)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_files_have_the_mode_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with atomic_file(tmp_path / "one.safetensors") as part:
            save_file({"x": np.zeros(3)}, part)
        with atomic_folder(tmp_path / "box", BOX, {}) as part:
            save_file({"x": np.zeros(3)}, part / "two.safetensors")
    finally:
        os.umask(before)
    written = [tmp_path / "one.safetensors", *(tmp_path / "box").iterdir()]
    assert [path.stat().st_mode & 0o777 for path in written] == [0o666 & ~umask] * 3
    assert (tmp_path / "box").stat().st_mode & 0o777 == 0o777 & ~umask


def test_an_error_while_a_file_is_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_text(tmp_path / "list.txt", "old")
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "list.txt") as part:
        part.write_text("ne")
        raise ZeroDivisionError
    assert (tmp_path / "list.txt").read_text() == "old"
    assert names(tmp_path) == {"list.txt"}


def test_a_link_to_a_file_or_folder_stays_a_link(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    pack(tmp_path / "a", "old")
    (tmp_path / "b.txt").symlink_to("a.txt")
    (tmp_path / "b").symlink_to("a")
    write_text(tmp_path / "b.txt", "new")
    pack(tmp_path / "b", "new")
    assert (tmp_path / "b.txt").is_symlink()
    assert (tmp_path / "b").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "new"
    assert unpack(tmp_path / "a") == ["new"]


@pytest.mark.parametrize("one_step", [True, False], ids=["exchange", "two renames"])
def test_a_folder_is_replaced_by_another(tmp_path: Path, one_step, monkeypatch) -> None:
    if not one_step:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    pack(tmp_path / "box", "old", "older")
    pack(tmp_path / "box", "new")
    assert unpack(tmp_path / "box") == ["new"]
    assert names(tmp_path) == {"box"}
    assert names(tmp_path / "box") == {"0.txt", MANIFEST}


def test_an_error_while_a_folder_is_written_leaves_the_old_one(tmp_path: Path) -> None:
    pack(tmp_path / "box", "old")
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "box", BOX, {}) as part:
        (part / "0.txt").write_text("new")
        assert unpack(tmp_path / "box") == ["old"]
        raise ZeroDivisionError
    assert unpack(tmp_path / "box") == ["old"]
    assert names(tmp_path) == {"box"}


def test_a_rename_that_fails_leaves_the_old_folder(tmp_path: Path, monkeypatch) -> None:
    pack(tmp_path / "box", "old")
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.name.endswith(".part") and target.name == "box" and moved:
            moved.clear()
            raise OSError(28, "no space left")
        if path.name == "box":
            moved.append(1)
        return rename(path, target)

    moved = list[int]()
    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no space left"):
        pack(tmp_path / "box", "new")
    assert unpack(tmp_path / "box") == ["old"]


def test_what_others_put_into_a_folder_is_carried_over(tmp_path: Path) -> None:
    pack(tmp_path / "box", "old", "older")
    (tmp_path / "box" / "notes.txt").write_text("mine")
    (tmp_path / "box" / "more").mkdir()
    (tmp_path / "box" / "more" / "1.txt").write_text("mine too")
    pack(tmp_path / "box", "new")
    assert names(tmp_path / "box") == {"0.txt", "notes.txt", "more", MANIFEST}
    assert (tmp_path / "box" / "more" / "1.txt").read_text() == "mine too"
    assert unpack(tmp_path / "box") == ["new"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_text("")
    with pytest.raises(DataError, match="photos: is not empty and not a box of words; give a new"):
        pack(tmp_path / "photos", "new")
    with pytest.raises(DataError, match="is a file; give a folder"):
        pack(tmp_path / "photos" / "1.jpg", "new")
    with (
        pytest.raises(DataError, match="not a jar"),
        atomic_folder(tmp_path / "photos", Kind("jar", "jar", 1, ""), {}),
    ):
        raise AssertionError("must be refused before anything is written")


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    pack(tmp_path / "box", "new")
    assert unpack(tmp_path / "box") == ["new"]


def test_writers_at_the_same_time_leave_one_whole_folder(tmp_path: Path) -> None:
    pack(tmp_path / "box", "first")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: pack(tmp_path / "box", *[str(k)] * 5), range(40)))
    words = unpack(tmp_path / "box")
    assert len(words) == 5
    assert len(set(words)) == 1
    assert names(tmp_path) == {"box"}
