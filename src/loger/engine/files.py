"""Files and folders that are written whole or not at all, and the manifest that vouches for them.

New content is written to a temporary name, flushed to disk, and renamed into place: a kill, an
error or a full disk at any moment leaves what was there before. A writer holds a claim on the
place, so two writers cannot mix, and the next one clears what a killed one left. A folder has a
manifest with its kind, its format, the version of loger that wrote it, and the SHA-256 of every
file and of itself. A damaged or incomplete folder, or one of another format, is refused.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from loger import __version__
from loger.errors import BusyError, DataError, LogerError

MANIFEST = "manifest.json"
HASHING = 2
"""Files whose checksums are computed at the same time."""
PART, OLD = ".part", ".old"
"""Endings of the temporary names of what is being written, and of what is being replaced."""
PATIENCE = 10.0
"""Seconds that a writer waits for another to finish before it gives up."""
MAX_MANIFEST = 4 * 2**20
"""Bytes of a manifest. The largest we know of has 60 kB; parsed, one may take 25 times its size."""
_PARTS = {"kind": str, "format": int, "loger": str, "files": dict, "about": dict, "sha256": str}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of folder that loger writes."""

    name: str
    noun: str
    """What messages call it, such as "model bundle"."""
    format: int
    """Raised whenever a reader of the old format would misread the new one, or the other way."""
    remedy: str
    """What to do with one that cannot be read, such as "fit again"."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder says of itself."""

    kind: str
    format: int
    loger: str
    """The version of loger that wrote it."""
    files: Mapping[str, str]
    """File name → SHA-256."""
    about: Mapping[str, Any]


# ── writing ─────────────────────────────────────────────────────────────────────────────


@contextmanager
def atomic_file(path: Path | str) -> Iterator[Path]:
    """A path to write to; what is written there replaces the file when the block succeeds.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_file(Path(folder, "list.txt")) as part:
    ...         size = part.write_text("mug")
    ...     Path(folder, "list.txt").read_text()
    'mug'
    """
    path = Path(path).resolve()  # a link stays a link
    with _naming_target(path), claim(path, wait=PATIENCE):
        part = _beside(path)
        try:
            part.open("xb").close()
            mode = part.stat().st_mode
            yield part
            part.chmod(mode)  # safetensors makes its files private, whatever the umask
            _flush(part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        _flush(path.parent)


def write_text(path: Path | str, text: str) -> None:
    """Write a text file (UTF-8) whole or not at all."""
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def atomic_folder(folder: Path | str, kind: Kind, about: Mapping[str, Any]) -> Iterator[Path]:
    """A folder to write to, which gets a manifest and is put in place when the block succeeds.

    Only an empty folder or one of the same kind is replaced. Files in it that loger did not write
    are kept.
    """
    folder = Path(folder).resolve()
    check_target(folder, kind, replace=True)
    with _naming_target(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with claim(folder, wait=PATIENCE):
            check_target(folder, kind, replace=True)  # again, now that nobody else can change it
            part = _beside(folder)
            try:
                part.mkdir()
                yield part
                files = list(part.iterdir())
                text = manifest_text(files, kind, about)
                (part / MANIFEST).write_text(text, encoding="utf-8")
                _flush(part / MANIFEST)
                mode = (part / MANIFEST).stat().st_mode
                for file in files:
                    file.chmod(mode)  # safetensors makes its files private, whatever the umask
                    _flush(file)
                _carry_over(folder, part)
                _flush(part)
                _put_in_place(part, folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)


def check_target(folder: Path | str, kind: Kind, *, replace: bool) -> None:
    """Refuse to write where other data would be lost or, without ``replace``, to overwrite."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise DataError("this is a file, not a folder", path=folder, remedy="pass a folder")
    if folder.is_mount():
        what = "the folder is a mount point, which can't be replaced in one step"
        raise DataError(what, path=folder, remedy="choose a folder inside it")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if kind_of(folder) != kind.name:
        what = f"the folder is not empty and not a {kind.noun}"
        raise DataError(what, path=folder, remedy="choose a new folder")
    if not replace:
        raise DataError(
            f"the folder already contains a {kind.noun}",
            path=folder,
            remedy="choose a new folder, or pass --force",
        )


_CANNOT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")  # as libraries written in Rust put it


@contextmanager
def _naming_target(path: Path) -> Iterator[None]:
    """Re-raise write errors of any library as DataError naming the path."""
    try:
        yield
    except LogerError:
        raise
    except BaseException as error:  # a panic of a library in Rust isn't an Exception
        found = _OS_ERROR.search(str(error))
        code = error.errno if isinstance(error, OSError) else None
        code = int(found[1]) if code is None and found else code
        if code not in _CANNOT:
            raise
        raise DataError(
            f"can't write here ({os.strerror(code or 0)}); the old version is unchanged",
            path=path,
            remedy="free some space or write elsewhere",
        ) from error


def _beside(path: Path, ending: str = PART) -> Path:
    """A new name in the same folder, so that a rename does not copy."""
    return path.with_name(f".{path.name}.{os.getpid()}-{token_hex(4)}{ending}")


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _carry_over(old: Path, new: Path) -> None:
    """Copy files that loger did not write from a folder that is about to be replaced."""
    if not old.is_dir():
        return
    files = _loads(old).get("files")
    ours = {MANIFEST, *(files if isinstance(files, dict) else ())}
    for entry in old.iterdir():
        target = new / entry.name
        if entry.name in ours or target.exists():
            continue
        if entry.is_dir():
            shutil.copytree(entry, target, symlinks=True)
        else:
            shutil.copy2(entry, target, follow_symlinks=False)
        for copied in (target, *target.rglob("*")):
            if not copied.is_symlink():
                _flush(copied)


def _put_in_place(new: Path, place: Path) -> None:
    """Rename a folder into place and remove what was there."""
    try:
        new.rename(place)  # where there is nothing yet, or an empty folder
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(new, place):
            # After a kill between these two renames, the next writer puts the old folder back.
            old = _beside(place, OLD)
            place.rename(old)
            try:
                new.rename(place)
            except OSError:
                old.rename(place)
                raise
            shutil.rmtree(old, ignore_errors=True)
    _flush(place.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system or the file system can't.

    Python doesn't offer this Linux call. With two renames, readers would briefly find no folder, or
    after a kill for a long time, and readers without write access couldn't put the old one back.
    """
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    if sys.platform != "linux":
        return False
    swap = getattr(ctypes.CDLL(None), "renameat2", None)
    if swap is None:
        return False
    return bool(swap(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


# ── claims ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def claim(path: Path, what: str = "save", wait: float = 0.0) -> Iterator[None]:
    """The right to write to a path while the block runs; another writer is an error.

    ``what`` names the work in the message to other writers ("another fit is writing here"). If the
    path is claimed, this waits up to ``wait`` seconds. A thread that holds a claim may claim again.
    What a killed writer left is removed, and a folder that it was about to replace is put back.

    A claim is a lock on the file ``.NAME.lock`` next to the path. The system releases it when the
    process ends, however it ends, so nobody has to remove it by hand after a kill.
    """
    from filelock import FileLock, Timeout  # imported here, because readers don't need it

    path = path.resolve()
    if not path.parent.is_dir():
        raise DataError("there is no such folder", path=path.parent, remedy="create it first")
    place = path.with_name(f".{path.name}.lock")
    lock = FileLock(place, is_singleton=True)  # of this thread: it may take a lock again
    if lock.is_locked:
        yield
        return
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        raise _refusal(place, path) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        yield  # the file system has no locks: there the last writer wins
        return
    try:
        with suppress(OSError):  # on a full disk the lock holds, but can't say who holds it
            place.write_text(f"{os.getpid()} {what}")
        _clear_leftovers(path)
        yield
    finally:
        place.unlink(missing_ok=True)  # while the lock is held: waiting writers make a new file
        lock.release()


_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


def _refusal(lock: Path, path: Path) -> BusyError:
    """The error for a claimed path, which says who is writing."""
    pid = what = began = ""
    with suppress(OSError):  # it has just ended
        pid, _, what = lock.read_text(encoding="ascii", errors="replace")[:100].partition(" ")
        began = time.strftime(", since %Y-%m-%d %H:%M:%S", time.localtime(lock.stat().st_mtime))
    return BusyError(
        f"another {what or 'process'} is writing here (process {pid or 'unknown'}{began})",
        path=path,
        remedy="wait until it finishes, or write elsewhere",
    )


def _clear_leftovers(path: Path) -> None:
    """Remove what killed writers of a path left next to it. A folder that one of them had moved
    away but not replaced is put back."""
    left = re.compile(rf"\.{re.escape(path.name)}\.\d+-[0-9a-f]+({PART}|{OLD})")  # see _beside
    for entry in [e for e in os.scandir(path.parent) if left.fullmatch(e.name)]:
        if entry.name.endswith(OLD) and not path.exists():
            Path(entry.path).rename(path)
        elif entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)


# ── manifests ───────────────────────────────────────────────────────────────────────────


_State = tuple[int, int, int, int]
_begun: dict[Path, tuple[_State, Future[str]]] = {}
"""Checksums computed in the background, each of one state of a file, for ``checksum``."""


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    state, begun = _begun.pop(path.resolve(), (None, None))
    if begun is None or state != _state(path):  # written or replaced since
        return _sha256(path)
    return begun.result()


def begin_checksums(folder: Path | str) -> None:
    """Start computing the checksums of a folder's files in threads, while the command imports its
    modules."""
    pool = ThreadPoolExecutor(HASHING)
    for path in sorted(Path(folder).glob("*.safetensors")):
        with suppress(OSError):  # opening the folder will report what is wrong
            _begun[path.resolve()] = _state(path), pool.submit(_sha256, path)
    pool.shutdown(wait=False)


def _state(path: Path) -> _State:
    """What changes when a file is written or replaced."""
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def kind_of(folder: Path | str) -> str | None:
    """The kind in a folder's manifest, whatever its format and state; None if loger did not write
    it."""
    kind = _loads(Path(folder)).get("kind")
    return kind if isinstance(kind, str) else None


def read_manifest(folder: Path | str, kind: Kind) -> Manifest:
    """The manifest of a folder; an error unless it has this kind and format and is intact."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        what = f"not a {kind.noun}: it has no {MANIFEST}" if folder.is_dir() else "no such folder"
        raise DataError(what, path=folder, remedy=f"pass the folder of a {kind.noun}")
    if path.stat().st_size > MAX_MANIFEST:
        what = f"damaged: larger than {MAX_MANIFEST // 2**20} MB"
        raise DataError(what, path=path, remedy=kind.remedy)
    parts = _loads(folder)
    if "kind" not in parts:
        raise DataError("damaged: not a manifest", path=path, remedy=kind.remedy)
    if parts["kind"] != kind.name:
        what = f"not a {kind.noun}: its kind is {parts['kind']!r}"
        raise DataError(what, path=path, remedy=f"pass the folder of a {kind.noun}")
    if parts.get("format") != kind.format:
        writer, format = parts.get("loger", "(an older version)"), parts.get("format", 1)
        raise DataError(
            f"written by loger {writer} in format {format}; this is loger {__version__}, "
            f"which reads format {kind.format}",
            path=path,
            remedy=kind.remedy,
        )
    digest = parts.pop("sha256", None)
    files = parts.get("files")
    # A name with a folder in it would lead out of the folder.
    inside = isinstance(files, dict) and all(Path(name).name == name for name in files)
    typed = {k for k, v in parts.items() if isinstance(v, _PARTS.get(k, ()))}
    if not inside or typed != _PARTS.keys() - {"sha256"} or digest != manifest_digest(parts):
        raise DataError("damaged or changed", path=path, remedy=kind.remedy)
    return Manifest(**parts)


def check_files(folder: Path, manifest: Manifest, kind: Kind) -> None:
    """Refuse a folder in which a file is missing or has changed."""
    paths = [folder / name for name in manifest.files]
    for path in paths:
        if not path.is_file():
            raise DataError(f"missing from the {kind.noun}", path=path, remedy=kind.remedy)
    with ThreadPoolExecutor(HASHING) as pool:
        found = list(pool.map(checksum, paths))
    for path, digest in zip(paths, found, strict=True):
        if digest != manifest.files[path.name]:
            raise DataError(
                "damaged or changed: its checksum doesn't match the manifest",
                path=path,
                remedy=f"copy the {kind.noun} again, or {kind.remedy}",
            )


def manifest_text(files: Sequence[Path], kind: Kind, about: Mapping[str, Any]) -> str:
    """The manifest of a folder with these files, as text."""
    digests = {file.name: checksum(file) for file in sorted(files)}
    parts = asdict(Manifest(kind.name, kind.format, __version__, digests, dict(about)))
    parts = json.loads(json.dumps(parts))  # as it will be read: tuples are lists
    text = json.dumps({**parts, "sha256": manifest_digest(parts)}, ensure_ascii=False, indent=2)
    return text + "\n"


def manifest_digest(parts: Mapping[str, Any]) -> str:
    """The checksum of a manifest's content, whatever its layout."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _loads(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, unchecked; empty if there is none or it isn't JSON."""
    try:
        if (folder / MANIFEST).stat().st_size > MAX_MANIFEST:
            return {}
        parts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return parts if isinstance(parts, dict) else {}
