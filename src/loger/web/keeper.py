"""Keeps a slow lane beside the workers: started when one of them is up, and again if it dies."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

from loger.web.lane import up_mark

log = logging.getLogger("loger.web")
LOOK = 0.2
"""Seconds between looks whether a worker is up."""
LONGEST_WAIT = 60.0
"""Seconds after which a lane that dies again and again is started again."""
STEADY = 60.0
"""A lane that lived for so many seconds has not died again and again."""


class Keeper:
    """Starts the lane of a server, and ends it with the server.

    The lane watches its standard input, which closes with this process: not even a SIGKILL leaves
    it behind.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._end, self._lock = threading.Event(), threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="loger-lane", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the lane; one that does not end soon is killed."""
        with self._lock:
            self._end.set()
            child = self._child
        if child is not None:
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(3)
            except subprocess.TimeoutExpired:
                child.kill()
        self._thread.join(3)

    def _keep(self) -> None:
        while not Path(up_mark(self.place)).exists():
            if self._end.wait(LOOK):
                return
        wait = 1.0
        while (child := self._start()) is not None:
            begun = time.monotonic()
            status = child.wait()
            Path(self.place).unlink(missing_ok=True)
            if self._end.is_set():
                return
            _forget_numbers(child.pid)
            wait = 1.0 if time.monotonic() - begun > STEADY else min(2 * wait, LONGEST_WAIT)
            log.warning("the slow lane ended (%s); the next is started in %.0f s", status, wait)
            self._end.wait(wait)

    def _start(self) -> subprocess.Popen[bytes] | None:
        """A new lane; None once the server ends."""
        with self._lock:
            if self._end.is_set():
                return None
            command = [sys.executable, "-m", "loger.web.lane"]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE)
            return self._child


def _forget_numbers(pid: int) -> None:
    """Take what a lane that died said of its bundle out of the metrics; what it counted stays."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]
