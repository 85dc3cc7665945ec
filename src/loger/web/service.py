"""The bundle in use, and its exchange for a newer one while requests go on."""

from __future__ import annotations

import gc
import logging
import threading
from pathlib import Path

from loger import bundle
from loger.errors import LogerError
from loger.web.config import ServeConfig
from loger.web.metrics import Metrics
from loger.web.served import Served

log = logging.getLogger("loger.web")
LONGEST_WAIT = 32
"""After failures the next look comes later, up to so many times the usual wait."""


class Service:
    """Holds what is served. A request takes ``served`` once and keeps it to its end, so a reload
    loses nothing."""

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        self.config, self.metrics = config, metrics
        self.folder = Path(config.bundle)
        self._lock = threading.Lock()
        self._end = threading.Event()
        self.served = self._load()

    def _load(self) -> Served:
        new = Served(self.folder)
        new.warm()
        self.metrics.loaded.set(new.loaded)
        return new

    def refresh(self) -> bool:
        """Load the bundle if it has changed; whether it had. A bad one is an error, and what
        was served before goes on being served."""
        with self._lock:
            try:
                if bundle.stamp(self.folder) == self.served.stamp:
                    return False
                self.served = self._load()
            except (LogerError, OSError):
                self.metrics.reloads.labels("failed").inc()
                raise
            self.metrics.reloads.labels("loaded").inc()
            _settle()
            log.info("now serving %s, %s", self.folder, self.served.fingerprint)
            return True

    def watch(self) -> None:
        """Look for a newer bundle now and then, until ``stop``."""
        failures = 0
        while not self._end.wait(self.config.watch * min(2**failures, LONGEST_WAIT)):
            try:
                self.refresh()
                failures = 0
            except (LogerError, OSError) as error:
                failures += 1
                log.warning("cannot load the new bundle, still serving the old one: %s", error)

    def start(self) -> None:
        """Begin to watch, if so configured."""
        _settle()
        if self.config.watch > 0:
            threading.Thread(target=self.watch, name="loger-watch", daemon=True).start()

    def stop(self) -> None:
        """End the watch."""
        self._end.set()


def _settle() -> None:
    """Keep what is here to stay out of garbage collection: to look through a bundle, PyTorch and
    the rest takes 150 ms or more, in the midst of requests."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
