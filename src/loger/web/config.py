"""How a server is set up; light to import, so that the command line can ask for it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

LOOPBACK = ("127.0.0.1", "localhost", "::1")
VARIABLE = "LOGER_SERVE"
"""The environment variable by which ``loger serve`` hands its settings to worker processes."""


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
    """Requests that a process works on at a time; others wait."""
    api_key: str | None = None
    """If set, every request to the API but for health must carry it."""
    watch: float = 2.0
    """Seconds between checks whether the bundle has changed; 0: only when asked."""
    max_body: int = 64 * 1024
    """Bytes of a request's body."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    def to_json(self) -> str:
        """The settings for ``VARIABLE``."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServeConfig:
        """The settings that ``to_json`` wrote."""
        return cls(**json.loads(text))
