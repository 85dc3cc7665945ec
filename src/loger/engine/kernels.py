"""Kernels: functions that numba compiles and keeps on disk until they, or what they call, change.

numba looks for changes only in the file of the function that it kept: a caller would go on with an
old copy of what it calls in another file. So a kernel is kept in a folder that is named after the
contents of its own file and of the files of all kernels that it can call, numba's version and the
processor. A change gives another name, hence another folder, and folders that nobody has used for a
month are removed.

What is kept is machine code, so the folder belongs to this user alone. Whenever a kernel really is
compiled, the log ``loger.kernels`` says so.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from threading import Lock
from types import ModuleType
from typing import Any

from llvmlite.binding import get_host_cpu_name
from numba import __version__ as numba_version
from numba import config, njit
from numba.core import event

UNUSED_DAYS = 30
"""Kernels are removed that nobody has used for so long."""
FOLDER = "loger-kernels"

log = logging.getLogger("loger.kernels")
_decorating = Lock()
_kernels: dict[Callable[..., Any], Path] = {}
"""The functions of all kernels that were imported, and where each is kept."""


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function, without the GIL, and keep it on disk; options are those of ``njit``.

    Constants that a kernel reads from elsewhere are compiled in: keep them in a file of kernels.
    """
    if function is None:
        return lambda of: kernel(of, **options)
    sources = _sources(function)
    folder = _kernels[function] = _folder(sources)
    # numba reads this setting while it decorates. Other people's functions are kept elsewhere.
    with _decorating:
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            compiled = njit(nogil=True, cache=True, **options)(function)
        finally:
            config.CACHE_DIR = before
    compiled.sources = sources
    return compiled


@contextmanager
def compiling_alone() -> Iterator[None]:
    """Of the processes on a machine that has no compiled kernels yet, let one compile them while
    the others wait: kernels are kept on disk, so that they are compiled once."""
    from filelock import FileLock  # only workers of a cluster need it

    folders = set(_kernels.values())
    if folders:
        with FileLock(_root() / "compiling.lock"):  # whoever still compiles is waited for
            if not any(any(folder.glob("*/*.nbi")) for folder in folders):
                yield
                return
    yield


def _sources(function: Callable[..., Any]) -> frozenset[str]:
    """The file of a function, and those of all kernels that its module has imported."""
    known, package = list(function.__globals__.values()), function.__module__.partition(".")[0]
    for module in [x for x in known if isinstance(x, ModuleType)]:
        known += vars(module).values() if module.__name__.startswith(package + ".") else []
    files = (x.sources for x in known if isinstance(getattr(x, "sources", None), frozenset))
    return frozenset({function.__code__.co_filename}).union(*files)


# ── the folder ──────────────────────────────────────────────────────────────────────────


@cache
def _folder(sources: frozenset[str]) -> Path:
    """Where kernels of these files are kept."""
    # The processor's features are not in the name: numba compares them itself.
    about = f"{numba_version} {config.CPU_NAME or get_host_cpu_name()}".encode()
    texts = sorted(Path(file).read_bytes() for file in sources)
    folder = _root() / sha256(b"\0".join([about, *texts])).hexdigest()[:20]
    if folder.is_dir() and not all(_is_ours(path) for path in (folder, *folder.rglob("*"))):
        shutil.rmtree(folder)  # others could write here once
    if folder.is_dir():
        os.utime(folder)  # it is in use
    else:
        folder.mkdir(exist_ok=True)
        _remove_unused(folder.parent)
    return folder


@cache
def _root() -> Path:
    """The folder for all kernels, which only this user can write to; a temporary one otherwise.

    It lies in ``NUMBA_CACHE_DIR`` if that is set, and else where the system keeps caches.
    """
    place = config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    with suppress(OSError, RuntimeError):  # nobody may write there; there is no home
        folder = Path(place).expanduser() / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(folder) and not any(_is_open(parent) for parent in folder.parents):
            with suppress(OSError), TemporaryFile(dir=folder):
                return folder
            return _temporary(copy_of=folder)  # the disk is read-only
    return _temporary()


def _is_private(folder: Path) -> bool:
    """Whether only this user can write to a folder: loger runs what lies there."""
    mode = folder.lstat().st_mode
    return stat.S_ISDIR(mode) and _is_ours(folder) and not mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_ours(path: Path) -> bool:
    """Whether a file or folder belongs to this user."""
    return path.lstat().st_uid == os.geteuid()


def _is_open(folder: Path) -> bool:
    """Whether anyone could put another folder in the place of one in this folder."""
    mode = folder.resolve().stat().st_mode
    return bool(mode & stat.S_IWOTH and not mode & stat.S_ISVTX)


def _temporary(copy_of: Path | None = None) -> Path:
    """A folder for the time of this process and of those that it starts."""
    place = Path(mkdtemp(prefix=f"{FOLDER}-"))  # of mode 0700
    folder, process = place / FOLDER, os.getpid()
    if copy_of is None:
        folder.mkdir(mode=0o700)
    else:
        shutil.copytree(copy_of, folder)

    def remove() -> None:
        if os.getpid() == process:  # not in a forked child
            shutil.rmtree(place, ignore_errors=True)

    atexit.register(remove)
    os.environ["NUMBA_CACHE_DIR"] = str(place)  # for workers
    return folder


def _remove_unused(root: Path) -> None:
    """Remove kernels that nobody has used for long: of other versions, mostly."""
    since = time.time() - UNUSED_DAYS * 86_400
    for folder in root.iterdir():
        with suppress(OSError):  # another process removes it, too
            if folder.stat().st_mtime < since:
                shutil.rmtree(folder)


# ── the log ─────────────────────────────────────────────────────────────────────────────


class _Report(event.Listener):  # type: ignore[misc]
    """Logs the kernels that numba compiles; those it finds on disk are no such event."""

    def on_start(self, event: event.Event) -> None:
        """Name the kernel."""
        function = event.data["dispatcher"].py_func
        if function in _kernels:
            log.info("compiling %s", function.__qualname__)

    def on_end(self, event: event.Event) -> None:
        """Nothing more to say."""


event.register("numba:compile", _Report())


def _nothing() -> None:
    """Do nothing. The first kernel that is called makes numba ready for all others."""


nothing = kernel(_nothing)
