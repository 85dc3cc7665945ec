"""Files and folders are written completely or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from loger.engine import files
from loger.engine.files import (
    MANIFEST,
    Kind,
    atomic_file,
    atomic_folder,
    begin_checksums,
    check_files,
    claim,
    read_manifest,
    write_text,
)
from loger.errors import DataError

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
    with pytest.raises(DataError, match="No space left"):
        pack(tmp_path / "box", "new")
    assert unpack(tmp_path / "box") == ["old"]


def test_what_others_put_into_a_folder_is_carried_over(tmp_path: Path, monkeypatch) -> None:
    pack(tmp_path / "box", "old", "older")
    (tmp_path / "box" / "notes.txt").write_text("mine")
    (tmp_path / "box" / "more").mkdir()
    (tmp_path / "box" / "more" / "1.txt").write_text("mine too")
    on_disk, fsync = set[int](), os.fsync

    def noted(handle: int) -> None:
        on_disk.add(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    pack(tmp_path / "box", "new")
    assert names(tmp_path / "box") == {"0.txt", "notes.txt", "more", MANIFEST}
    copied = [p for p in (tmp_path / "box").rglob("*") if p.name in ("notes.txt", "more", "1.txt")]
    assert len(copied) == 3 and {p.stat().st_ino for p in copied} <= on_disk
    assert (tmp_path / "box" / "more" / "1.txt").read_text() == "mine too"
    assert unpack(tmp_path / "box") == ["new"]


def test_a_folder_with_an_odd_manifest_is_replaced(tmp_path: Path) -> None:
    for odd in (5, "0.txt", None):
        pack(tmp_path / "box", "old")
        manifest = json.loads((tmp_path / "box" / MANIFEST).read_text())
        (tmp_path / "box" / MANIFEST).write_text(json.dumps({**manifest, "files": odd}))
        pack(tmp_path / "box", "new")
        assert unpack(tmp_path / "box") == ["new"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_text("")
    with pytest.raises(
        DataError, match="photos: the folder is not empty and not a box of words; choose a new"
    ):
        pack(tmp_path / "photos", "new")
    with pytest.raises(DataError, match="this is a file, not a folder; pass a folder"):
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


HOLDS = """
import sys, time
from pathlib import Path
from loger.engine.files import claim
with claim(Path(sys.argv[1]), "fit"):
    print("claimed", flush=True)
    time.sleep(60)
"""


@contextmanager
def another_fit(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has claimed a path."""
    command = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_writer_is_told_who_writes_and_since_when(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    pack(tmp_path / "box", "old")
    with another_fit(tmp_path / "box") as other:
        told = rf"box: another fit is writing here \(process {other.pid}, since 20\d\d-.*\); wait"
        with pytest.raises(DataError, match=told):
            pack(tmp_path / "box", "new")
        assert unpack(tmp_path / "box") == ["old"]
    pack(tmp_path / "box", "new")  # a kill ends the claim, though its file is still there
    assert unpack(tmp_path / "box") == ["new"]
    assert names(tmp_path) == {"box"}


def test_a_claim_may_be_claimed_again_by_its_own_thread_only(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    with claim(tmp_path / "box", "fit"):
        pack(tmp_path / "box", "mine")
        with ThreadPoolExecutor(1) as pool, pytest.raises(DataError, match="another fit"):
            pool.submit(pack, tmp_path / "box", "theirs").result()
    assert unpack(tmp_path / "box") == ["mine"]


def test_what_a_killed_writer_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    pack(tmp_path / "box", "old")
    (tmp_path / ".box.99-abc.part").mkdir()
    (tmp_path / ".box.99-abc.part" / "0.txt").write_text("half")
    (tmp_path / ".list.txt.99-abc.part").write_text("half")
    (tmp_path / ".box.csv.99-abc.part").write_text("of one who writes box.csv at this moment")
    pack(tmp_path / "box", "new")
    write_text(tmp_path / "list.txt", "new")
    assert names(tmp_path) == {"box", "list.txt", ".box.csv.99-abc.part"}


def test_a_folder_that_a_killed_writer_moved_away_is_put_back(tmp_path: Path) -> None:
    pack(tmp_path / "box", "old")
    (tmp_path / "box").rename(tmp_path / ".box.99-abc.old")  # as where folders cannot be exchanged
    with claim(tmp_path / "box"):
        assert unpack(tmp_path / "box") == ["old"]
    assert names(tmp_path) == {"box"}


FULL = """
import resource, sys
from pathlib import Path
import numpy as np, polars as pl
from safetensors.numpy import save_file
from loger.errors import DataError
from loger.engine.files import Kind, atomic_folder
box, how = Kind("box", "box of words", 3, "pack again"), sys.argv[2]
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
values = np.random.default_rng(0).random(5000)
try:
    with atomic_folder(Path(sys.argv[1]), box, {}) as part:
        if how == "safetensors":
            save_file({"x": values}, part / "0.txt")
        elif how == "parquet":
            pl.DataFrame({"x": values}).write_parquet(part / "0.txt")
        elif how == "stream":
            pl.LazyFrame({"x": values}).sink_parquet(part / "0.txt")
        elif how == "csv":
            pl.DataFrame({"x": values}).write_csv(part / "0.txt")
        elif how == "panic":
            raise pl.exceptions.PanicException("called unwrap on File too large (os error 27)")
        else:
            (part / "0.txt").write_bytes(values.tobytes())
except DataError as error:
    print(error)
"""


@pytest.mark.parametrize("library", ["safetensors", "parquet", "stream", "csv", "panic", "python"])
def test_a_full_disk_leaves_the_old_folder_and_is_one_line(tmp_path: Path, library: str) -> None:
    pack(tmp_path / "box", "old")
    command = [sys.executable, "-c", FULL, str(tmp_path / "box"), library]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    message = "box: can't write here (File too large); the old version is unchanged"
    assert message in done.stdout and not done.stderr
    assert unpack(tmp_path / "box") == ["old"]
    assert names(tmp_path) == {"box"}


def test_a_folder_that_may_not_be_written_is_one_line(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataError, match=r"list.txt: can't write here \(Permission denied\)"):
        write_text(tmp_path / "list.txt", "new")


def test_checksums_begun_ahead_are_those_that_the_check_sees(tmp_path):
    with atomic_folder(tmp_path / "one", BOX, {}) as part:
        (part / "a.safetensors").write_bytes(b"first")
        (part / "b.safetensors").write_bytes(b"second")
    manifest = read_manifest(tmp_path / "one", BOX)
    begin_checksums(tmp_path / "one")
    check_files(tmp_path / "one", manifest, BOX)
    (tmp_path / "one" / "b.safetensors").write_bytes(b"changed")
    begin_checksums(tmp_path / "one")
    with pytest.raises(DataError, match=r"b\.safetensors.*damaged or changed"):
        check_files(tmp_path / "one", manifest, BOX)
    begin_checksums(tmp_path / "one")
    (tmp_path / "one" / "b.safetensors").write_bytes(b"second")  # after its checksum was begun
    check_files(tmp_path / "one", manifest, BOX)
    begin_checksums(tmp_path / "nowhere")


def test_a_folder_that_is_a_mount_point_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "is_mount", lambda self: self.name == "volume")
    (tmp_path / "volume").mkdir()
    kind = Kind("x", "folder of x", 1, "make it again")
    with pytest.raises(
        DataError, match="is a mount point, which can't be replaced in one step; choose a fo"
    ):
        files.check_target(tmp_path / "volume", kind, replace=True)
    files.check_target(tmp_path / "volume" / "inside", kind, replace=True)
