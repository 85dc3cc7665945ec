"""The bundle in use, and its exchange for a newer one while requests go on."""

from __future__ import annotations

import gc
import logging
import shutil
import threading
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

from loger.errors import LogerError
from loger.rules.wording import LANGUAGES, Wording, best_language, wording_of
from loger.store import bundle
from loger.updates.events.store import EventStore
from loger.web.config import ServeConfig
from loger.web.copies import clear_others, private_copy, scratch_prefix
from loger.web.folding import pending_of
from loger.web.masks import Masks
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
        self._following = threading.Lock()
        self._store: EventStore | None = None
        self.scratch = Path(config.scratch or mkdtemp(prefix=scratch_prefix()))
        if config.scratch is None:  # what is mapped stays mapped when its file is removed
            finalize(self, shutil.rmtree, self.scratch, ignore_errors=True)
        self.masks = Masks(Path(config.masks) if config.masks else self.scratch / ".masks")
        self._words = {name: wording_of(name, config.wording) for name in LANGUAGES}
        self.problem: str | None = None
        """Why the newest bundle is not served; None if it is."""
        self.served = self._load()

    def _load(self) -> Served:
        stamp = bundle.stamp(self.folder)
        copy = private_copy(self.folder.resolve(), self.scratch)
        try:
            new = Served(copy, stamp)
            new.warm()
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)  # perhaps copied while it was written
            raise
        clear_others(copy)
        self.metrics.loaded.set(new.loaded)
        return new

    def _take(self, new: Served) -> None:
        """Exchange what is served; the new one has the events that its bundle does not hold."""
        if self._store is not None:
            _catch_up(new, self._store)
        with self._following:  # nothing may be followed into the old one from here on
            if self._store is not None:
                _catch_up(new, self._store)
            self.served = new

    def follow(self, store: EventStore) -> None:
        """Take in the events that are new."""
        with self._following:
            self._store = store
            _catch_up(self.served, store)

    def words(self, accepted: str) -> Wording:
        """The words of the best language of an Accept-Language header."""
        return self._words[best_language(accepted)]

    def refresh(self) -> bool:
        """Load the bundle if it has changed; whether it had. A bad one is an error, and what
        was served before goes on being served."""
        with self._lock:
            try:
                if bundle.stamp(self.folder) == self.served.stamp:
                    self._tell(None)
                    return False
                self._take(self._load())
            except Exception as error:
                self.metrics.reloads.labels("failed").inc()
                self._tell(error)
                if isinstance(error, LogerError):
                    raise
                raise LogerError(f"{self.folder} cannot be loaded ({error!r:.200})") from error
            self._tell(None)
            self.metrics.reloads.labels("loaded").inc()
            _settle()
            log.info("now serving %s, %s", self.folder, self.served.fingerprint)
            return True

    def _tell(self, error: Exception | None) -> None:
        """Let health and metrics say whether the newest bundle is served."""
        plain = isinstance(error, LogerError)
        self.problem = None if error is None else (str(error) if plain else repr(error))[:500]
        self.metrics.tell_degraded(str(self.folder), error is not None)

    def watch(self) -> None:
        """Look for a newer bundle now and then, until ``stop``."""
        failures = 0
        while not self._end.wait(self.config.watch * min(2**failures, LONGEST_WAIT)):
            try:
                self.refresh()
                failures = 0
            except Exception as error:  # whatever it is, the next look may find it repaired
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


def _catch_up(served: Served, store: EventStore) -> None:
    if served.pending is None:
        pending = pending_of(served.model, served.holds(store.id))
        pending.add(store.after(pending.seq))
        served.pending = pending
    else:
        served.pending.add(store.after(served.pending.seq))


def _settle() -> None:
    """Keep what is here to stay out of garbage collection: to look through a bundle, PyTorch and
    the rest takes 150 ms or more, in the midst of requests."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
