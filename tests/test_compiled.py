"""Compiled functions are kept on disk, and thrown away when what they call has changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from loger.engine import kernels as compiled

CALLEE = """from pkg.compiled import kernel


@kernel(inline="{inline}")
def callee(x):
    return x + {number}
"""
CALLER = """from pkg.callee import callee
from pkg.compiled import kernel


@kernel
def caller(x):
    return callee(x)
"""
ELSEWHERE = """from pkg.compiled import kernel


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


def run(folder: Path) -> tuple[int, int]:
    """What the caller gives, and how many of its versions came from disk."""
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=folder, capture_output=True, text=True, check=True
    )
    value, hits = done.stdout.split()
    return int(value), int(hits)


def test_a_caller_is_kept_until_the_file_of_what_it_calls_is_edited(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    shutil.copy(compiled.__file__, package)
    (package / "caller.py").write_text(CALLER)
    for inline in ("never", "always"):
        (package / "callee.py").write_text(CALLEE.format(inline=inline, number=1))
        assert run(tmp_path) == (2, 0)
        assert run(tmp_path) == (2, 1)
        (package / "callee.py").write_text(CALLEE.format(inline=inline, number=5))
        assert run(tmp_path) == (6, 0)
        assert run(tmp_path) == (6, 1)
        (package / "elsewhere.py").write_text(ELSEWHERE)
        assert run(tmp_path) == (6, 1)


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
    asked = [sys.executable, "-c", RUN]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["20", "0"]
    told = [line for line in done.stderr.splitlines() if line.startswith("compiling")]
    assert told == ["compiling caller"]


def test_the_log_tells_what_is_compiled_and_only_that(tmp_path: Path) -> None:
    package_in(tmp_path)
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        told.append([line for line in done.stderr.splitlines() if line.startswith("compiling")])
    assert sorted(told[0]) == ["compiling callee", "compiling caller"]
    assert told[1] == []


def test_every_compiled_function_of_loger_is_kept_this_way() -> None:
    root = Path(compiled.__file__).parent
    for file in root.rglob("*.py"):
        if file.name != "compiled.py":
            assert "njit" not in file.read_text(encoding="utf-8"), file


READY = """
import sys
from pkg.caller import caller
ready = lambda: "numba.misc.cffiimpl" in sys.modules
print(caller(1), ready(), caller(1.5), ready())
"""


def test_what_is_kept_is_called_without_making_numba_ready_to_compile(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    shutil.copy(compiled.__file__, package)
    (package / "caller.py").write_text(CALLER)
    (package / "callee.py").write_text(CALLEE.format(inline="never", number=1))
    assert run(tmp_path) == (2, 0)  # compiled for integers and kept
    asked = [sys.executable, "-c", READY]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
    # From disk first; for another type it is compiled all the same.
    assert done.stdout.split() == ["2", "False", "2.5", "True"]
