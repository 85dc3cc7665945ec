"""The settings of a server. The command line imports this module, so it imports little itself."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from fcntl import LOCK_EX, LOCK_NB, flock
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

from loger.errors import LogerError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEY_VARIABLE = "LOGER_API_KEY"
RESERVED = "loger.reserved"
"""Marks the scope of a request whose connection may only ask for health."""
ACCESS = "loger.access"
"""Where a request's scope holds what its key allows."""
VARIABLE = "LOGER_SERVE"
"""The environment variable through which worker processes get their settings."""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """All settings of a server."""

    bundle: str
    """The folder that holds the model."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    """Processes; they share the mapped arrays of the bundle."""
    threads: int = 4
    """Requests that a process answers at a time; others wait."""
    api_key: str | None = None
    """If set, all requests to the API except health must send it, or a key made from it."""
    watch: float = 2.0
    """Seconds between checks whether the bundle has changed; 0 for checks on request only."""
    max_body: int = 64 * 1024
    """Bytes of a request's body."""
    masks: str | None = None
    """A folder for uploaded masks, NAME.txt with one item per line; None keeps them as long as the
    server runs."""
    others: tuple[str, ...] = ()
    """More bundles to serve next to the first."""
    traffic: tuple[float, ...] = (1.0,)
    """The share of users that each bundle gets; the shares add up to 1."""
    events: bool = True
    """Whether to store events, and lists for them to refer to."""
    events_file: str | None = None
    """The file for events; None for BUNDLE.events.sqlite next to the bundle."""
    merge_interval: float = 300.0
    """Merge events into the bundle at least this often, in seconds; 0: never. Events on items and
    facts take effect only then, so they are merged within seconds."""
    wording: str | None = None
    """A TOML file with your own wording."""
    images: str | None = None
    """The folder with the pictures that the table of items names; None shows none."""
    scratch: str | None = None
    """A temporary folder that all workers share; without one, a process makes its own."""
    lane: bool = False
    """Whether each worker has a second process for expensive requests."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    def with_absolute_paths(self) -> ServeConfig:
        """The same settings for a process with another working directory."""
        names = ("bundle", "masks", "events_file", "wording", "images")
        given = {name: path for name in names if (path := getattr(self, name)) is not None}
        paths: Any = {name: str(Path(path).absolute()) for name, path in given.items()}
        return replace(self, **paths)

    def to_json(self) -> str:
        """The settings for ``VARIABLE``."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServeConfig:
        """The settings that ``to_json`` wrote."""
        return cls(**json.loads(text))


def check_key(host: str, key: str | None, no_auth: bool) -> None:
    """Refuse an empty key, and a server open to other machines without ``--no-auth``."""
    if os.environ.get(KEY_VARIABLE, "-").strip() == "" or (key is not None and not key.strip()):
        raise LogerError(f"the API key is empty; set {KEY_VARIABLE} to a key, or unset it")
    if key is None and host not in LOOPBACK and not no_auth:
        raise LogerError(
            f"--host {host} lets other machines connect; set a key with --api-key or "
            f"{KEY_VARIABLE}, or pass --no-auth"
        )


def check_installed() -> None:
    """Refuse to serve if a package is missing. Only workers import these packages."""
    for name in ("fastapi", "httptools", "prometheus_client", "uvicorn"):
        if find_spec(name) is None:
            raise LogerError(
                f"serving needs {name}, which isn't installed; run "
                "pip install '.[serve]' in the clone"
            )


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket bound to an address, or an error if it is in use; port 0 takes any free port."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise LogerError(
            f"can't listen on {host}:{port} ({error.strerror}); choose another --port or --host"
        ) from None
    return bound


# ── temporary folders ───────────────────────────────────────────────────────────────────


PREFIX, LOCK = "loger-serve-", ".lock"
"""How temporary folders of servers are named, and the file in each that its server locks."""


def claimed_folder() -> tuple[Path, Callable[[], None]]:
    """A temporary folder of this process, and what removes it.

    A lock that the process holds on a file in it shows to others that it is in use. The system
    releases it when the process ends, and it holds across containers that share the place of
    temporary folders, where a process id means nothing.
    """
    folder = Path(mkdtemp(prefix=PREFIX))
    held = (folder / f"{LOCK}.new").open("w")
    flock(held, LOCK_EX)
    (folder / f"{LOCK}.new").rename(folder / LOCK)  # nobody finds it before it is locked

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        held.close()

    return folder, remove


def clear_abandoned() -> None:
    """Remove temporary folders of servers that were killed."""
    for lock in Path(gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError), lock.open() as file:  # held by another, or just removed
            flock(file, LOCK_EX | LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
