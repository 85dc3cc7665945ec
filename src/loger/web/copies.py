"""Private copies of the bundle that is served: whatever happens to the files of the original, the
pages that the server has mapped stay.

To overwrite or cut a mapped file in place would take the process down (SIGBUS). All workers of a
server map one copy, so their memory stays shared.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir

from loger.engine.files import MANIFEST, read_manifest
from loger.store import bundle
from loger.store.bundle import MODEL

PREFIX = "loger-serve-"


def scratch_prefix() -> str:
    """How the name of a server's temporary folder begins: with the process it belongs to."""
    return f"{PREFIX}{os.getpid()}-"


def clear_abandoned() -> None:
    """Remove temporary folders of servers that were killed."""
    for folder in Path(gettempdir()).glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)


def private_copy(folder: Path, scratch: Path) -> Path:
    """A copy of a bundle in a folder of ours, made once for all workers; not yet checked."""
    manifest = read_manifest(folder, MODEL)
    place = scratch / bundle.fingerprint(folder)
    if place.is_dir():
        return place
    part = scratch / f".{token_hex(8)}"
    part.mkdir()
    try:
        for name in (*manifest.files, MANIFEST):
            shutil.copyfile(folder / name, part / name)
        part.rename(place)
    except OSError:
        if not place.is_dir():  # another worker was faster
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def clear_others(place: Path) -> None:
    """Remove older copies; whoever has mapped one keeps its pages."""
    for other in place.parent.iterdir():
        if other != place and not other.name.startswith("."):
            shutil.rmtree(other, ignore_errors=True)
