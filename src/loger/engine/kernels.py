"""Kernels: functions that numba compiles and caches on disk until they, or what they call, change.

numba checks only the file of the cached function for changes, so a caller would keep an old copy of
what it calls in another file. A kernel is therefore cached in a folder named after the contents of
its own file and of the files of all kernels that it can call, numba's version and the processor. A
change leads to a new folder; folders that were not used for a month are removed.

The cache is machine code, so the folder belongs to this user alone. Whenever a kernel is really
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
"""Kernels that were not used for this long are removed."""
FOLDER = "loger-kernels"

log = logging.getLogger("loger.kernels")
_decorating = Lock()
_kernels: dict[Callable[..., Any], Path] = {}
"""The functions of all imported kernels, and where each is cached."""


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function that releases the GIL, and cache it on disk; options are ``njit``'s.

    Constants from other files are compiled in, so keep them in a file that has kernels.
    """
    if function is None:
        return lambda of: kernel(of, **options)
    sources = _sources(function)
    folder = _kernels[function] = _folder(sources)
    # numba reads this setting while it decorates. Functions of other packages are cached elsewhere.
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
    """On a machine without compiled kernels, let one process compile them while others wait for its
    cache."""
    from filelock import FileLock  # only workers of a cluster need it

    folders = set(_kernels.values())
    if folders:
        with FileLock(_root() / "compiling.lock"):  # waits for a process that still compiles
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
    """Where the kernels of these files are cached."""
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
    """The folder of all kernels, which only this user can write to, or else a temporary one.

    It lies in ``NUMBA_CACHE_DIR`` if that is set, and else where the system keeps caches.
    """
    place = config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    with suppress(OSError, RuntimeError):  # no permission to write, or no home folder
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
    """A folder that lives as long as this process and is shared with those that it starts."""
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
    """Remove kernels that were not used for long, mostly those of other versions."""
    since = time.time() - UNUSED_DAYS * 86_400
    for folder in root.iterdir():
        with suppress(OSError):  # another process removes it, too
            if folder.stat().st_mtime < since:
                shutil.rmtree(folder)


# ── the log ─────────────────────────────────────────────────────────────────────────────


class _Report(event.Listener):  # type: ignore[misc]
    """Logs the kernels that numba compiles, but not those it finds on disk."""

    def on_start(self, event: event.Event) -> None:
        """Name the kernel."""
        function = event.data["dispatcher"].py_func
        if function in _kernels:
            log.info("compiling %s", function.__qualname__)

    def on_end(self, event: event.Event) -> None:
        """Required by numba; nothing to log."""


event.register("numba:compile", _Report())


def _nothing() -> None:
    """Do nothing. Calling any first kernel initializes numba for all others."""


nothing = kernel(_nothing)
