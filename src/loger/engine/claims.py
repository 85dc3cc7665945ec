"""Claims: who is writing a file or folder, so that a second writer is told and not let in.

A claim is a lock on the file ``.NAME.lock`` beside what is written. The system releases it when
the process ends, however it ends, so a kill leaves nothing to clear away by hand.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loger.errors import BusyError, DataError

try:
    import fcntl
except ModuleNotFoundError:  # Windows has no such locks: there the last writer wins
    fcntl = None  # type: ignore[assignment]

PART, OLD = ".part", ".old"
"""How the names end of what is being written, and of what is being replaced."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
_held: dict[Path, int] = {}
"""What this process has claimed, and by which thread."""


@contextmanager
def claim(path: Path, what: str = "save", wait: float = 0.0) -> Iterator[None]:
    """The right to write to a path, for as long as the block runs; another writer is an error.

    ``what`` is what others are told ("another fit is writing here"). One who is refused tries
    again for ``wait`` seconds. A thread that has a claim may claim again. What a killed writer
    left is removed, and a folder that it was about to replace is put back.
    """
    path = path.resolve()
    if _held.get(path) == threading.get_ident():
        yield
        return
    if not path.parent.is_dir():
        raise DataError("there is no such folder", path=path.parent, remedy="create it first")
    lock = path.with_name(f".{path.name}.lock")
    handle = _locked(lock, path, wait)
    try:
        if handle is not None:
            _held[path] = threading.get_ident()
            with suppress(OSError):  # on a full disk the lock holds, though it cannot say whose
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()} {what}".encode())
            clear_leftovers(path)
        yield
    finally:
        if handle is not None:
            _held.pop(path, None)
            lock.unlink(missing_ok=True)  # before it is released: see _is_at
            os.close(handle)


def _locked(lock: Path, path: Path, wait: float) -> int | None:
    """An open handle of the lock file, locked; None where the file system has no locks."""
    until = time.monotonic() + wait
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is None:
                return _closed(handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < until:
                _closed(handle)
                time.sleep(0.02)
                continue
            raise _refusal(handle, path) from None
        except OSError as error:
            _closed(handle)
            if error.errno in _NO_LOCKS:
                return None
            raise
        if _is_at(handle, lock):
            return handle
        _closed(handle)


def _closed(handle: int) -> None:
    os.close(handle)


def _is_at(handle: int, lock: Path) -> bool:
    """Whether the locked file is still the one of that name: its last owner may have removed it
    between our opening and our locking it."""
    try:
        return os.path.samestat(os.fstat(handle), lock.stat())
    except FileNotFoundError:
        return False


def _refusal(handle: int, path: Path) -> BusyError:
    """Says who is writing, and closes the handle."""
    try:
        text = os.pread(handle, 100, 0).decode("ascii", "replace")
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(os.fstat(handle).st_mtime))
    finally:
        os.close(handle)
    pid, _, what = text.partition(" ")
    return BusyError(
        f"another {what or 'process'} is writing here (process {pid or 'unknown'}, since {began})",
        path=path,
        remedy="wait until it has ended, or write elsewhere",
    )


def clear_leftovers(path: Path) -> None:
    """Remove what killed writers of a path left beside it; a folder that one had moved away and
    not yet replaced is put back."""
    for entry in list(os.scandir(path.parent)):
        if not entry.name.startswith(f".{path.name}."):
            continue
        if entry.name.endswith(OLD) and not path.exists():
            Path(entry.path).rename(path)
        elif entry.name.endswith((PART, OLD)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)
