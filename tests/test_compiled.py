"""Compiled functions are cached on disk, and recompiled when a function they call has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from loger.engine import kernels as compiled

CALLEE = """from pkg.kernels import kernel


@kernel(inline="{inline}")
def callee(x):
    return x + {number}
"""
CALLER = """from pkg.callee import callee
from pkg.kernels import kernel


@kernel
def caller(x):
    return callee(x)
"""
ELSEWHERE = """from pkg.kernels import kernel


@kernel
def unrelated(x):
    return x
"""
RUN = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
from pkg.caller import caller
print(caller(1), sum(caller.stats.cache_hits.values()))
"""


def python(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a process says that calls the caller; kernels are kept in ``folder/cache``."""
    return subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")} | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def run(folder: Path, **environment: str) -> tuple[int, int]:
    """What the caller gives, and how many of its versions came from disk."""
    value, hits = python(folder, **environment).stdout.split()
    return int(value), int(hits)


def compiled_in(folder: Path) -> list[str]:
    """The kernels that a process compiles, by its log."""
    said = python(folder).stderr.splitlines()
    return sorted(line for line in said if line.startswith("compiling"))


def test_a_caller_is_kept_until_the_file_of_what_it_calls_is_edited(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    shutil.copy(compiled.__file__, package)
    (package / "caller.py").write_text(CALLER)
    for inline in ("never", "always"):
        (package / "callee.py").write_text(CALLEE.format(inline=inline, number=1))
        assert run(tmp_path) == (2, 0)
        # Of another size, or within a second Python itself would take the old bytecode.
        (package / "callee.py").write_text(CALLEE.format(inline=inline, number=50))
        assert run(tmp_path) == (51, 0)
        (package / "elsewhere.py").write_text(ELSEWHERE)
        assert run(tmp_path) == (51, 1)


def package_in(folder: Path) -> Path:
    """A package of a kernel that calls another."""
    package = folder / "pkg"
    package.mkdir()
    shutil.copy(compiled.__file__, package)
    (package / "caller.py").write_text(CALLER)
    (package / "callee.py").write_text(CALLEE.format(inline="never", number=1))
    return package


def test_a_caller_that_is_compiled_finds_what_it_calls_on_disk(tmp_path: Path) -> None:
    package = package_in(tmp_path)
    assert run(tmp_path) == (2, 0)
    (package / "caller.py").write_text(CALLER.replace("callee(x)", "10 * callee(x)"))
    assert compiled_in(tmp_path) == ["compiling caller"]
    assert run(tmp_path) == (20, 1)


def test_the_log_tells_what_is_compiled_and_only_that(tmp_path: Path) -> None:
    package_in(tmp_path)
    assert compiled_in(tmp_path) == ["compiling callee", "compiling caller"]
    assert compiled_in(tmp_path) == []


def test_kernels_of_another_processor_are_not_used(tmp_path: Path) -> None:
    package_in(tmp_path)
    assert run(tmp_path) == (2, 0)
    assert run(tmp_path, NUMBA_CPU_NAME="generic") == (2, 0)
    assert run(tmp_path) == (2, 1)


WAYS_IN = ("open to all", "a link", "somebody else's", "in a folder open to all")


@pytest.mark.parametrize("how", WAYS_IN)
def test_what_others_can_write_to_is_not_used(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    kept = compiled._root.__wrapped__()
    assert kept == tmp_path / "cache" / compiled.FOLDER
    assert kept.stat().st_mode & 0o777 == 0o700
    if how == "open to all":
        kept.chmod(0o777)
    elif how == "in a folder open to all":
        kept.parent.chmod(0o777)
    elif how == "a link":
        kept.rename(tmp_path / "elsewhere")
        kept.symlink_to(tmp_path / "elsewhere")
    elif os.geteuid() == 0:
        os.chown(kept, 12345, -1)
    else:
        pytest.skip("only root can give a folder to somebody else")
    other = compiled._root.__wrapped__()
    assert not other.is_relative_to(tmp_path) and other.stat().st_mode & 0o777 == 0o700


def test_kernels_are_compiled_without_a_folder_of_ones_own_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package_in(tmp_path)
    kept = tmp_path / "cache" / compiled.FOLDER
    kept.mkdir(parents=True)
    kept.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert run(tmp_path) == (2, 0)
    assert not any(kept.iterdir())
    assert not list(tmp_path.glob(f"{compiled.FOLDER}-*"))  # the temporary one is gone


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_kernels_that_somebody_else_wrote_are_compiled_again(tmp_path: Path) -> None:
    package_in(tmp_path)
    assert run(tmp_path) == (2, 0)
    kept = next((tmp_path / "cache" / compiled.FOLDER).rglob("*.nbi"))
    os.chown(kept, 12345, -1)
    assert run(tmp_path) == (2, 0)
    assert run(tmp_path) == (2, 1)


def test_where_nobody_may_write_kernels_are_compiled_all_the_same(tmp_path: Path) -> None:
    package_in(tmp_path)
    (tmp_path / "cache").write_text("a file, so that no folder can be made in it")
    assert run(tmp_path) == (2, 0)


def test_kernels_on_a_read_only_disk_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(compiled, "TemporaryFile", refused)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    kept = tmp_path / compiled.FOLDER
    kept.mkdir(mode=0o700)
    (kept / "one").write_text("kept")
    copy = compiled._root.__wrapped__()
    assert copy != kept
    assert (copy / "one").read_text() == "kept"
    assert os.environ["NUMBA_CACHE_DIR"] == str(copy.parent)  # for workers


def test_what_nobody_has_used_for_long_is_removed(tmp_path: Path) -> None:
    package = package_in(tmp_path)
    assert run(tmp_path) == (2, 0)
    kept = tmp_path / "cache" / compiled.FOLDER
    first = set(kept.iterdir())
    for folder in first:
        os.utime(folder, (0, 0))
    assert run(tmp_path) == (2, 1)  # in use again
    for folder in first:
        assert folder.stat().st_mtime > 0
        os.utime(folder, (0, 0))
    (package / "callee.py").write_text(CALLEE.format(inline="never", number=50))
    assert run(tmp_path) == (51, 0)
    assert len(first & set(kept.iterdir())) == 1  # that of kernels.py, which has not changed


def test_every_compiled_function_of_loger_is_kept_this_way() -> None:
    root = Path(compiled.__file__).parents[1]
    for file in root.rglob("*.py"):
        if file.name != "kernels.py":
            assert "njit" not in file.read_text(encoding="utf-8"), file
