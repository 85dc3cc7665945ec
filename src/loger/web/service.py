"""The bundles of a server: who gets which, and how a newer one takes over while requests go on.

A server maps a private copy of each bundle, because a process that maps a file is killed (SIGBUS)
if somebody cuts the file. All workers map the same copy, so they share its memory.
"""

from __future__ import annotations

import gc
import logging
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple
from weakref import finalize

from loger.engine.files import MANIFEST, read_manifest
from loger.errors import LogerError
from loger.rules.wording import LANGUAGES, Wording, best_language, wording_of
from loger.store import bundle
from loger.store.bundle import MODEL
from loger.updates.events import EventStore
from loger.updates.feedback import LETTERS, Traffic
from loger.web.config import ServeConfig, claimed_folder
from loger.web.folding import pending_of
from loger.web.masks import Masks
from loger.web.metrics import Metrics
from loger.web.schemas import Who
from loger.web.served import Served

log = logging.getLogger("loger.web")
LONGEST_WAIT = 32
"""After failures the time to the next check doubles, up to this many times the usual one."""


class Service:
    """One bundle that is served. A request reads ``served`` once and uses it to its end, so reloads
    don't disturb it."""

    def __init__(self, config: ServeConfig, metrics: Metrics, number: int = 0) -> None:
        self.config, self.metrics = config, metrics
        self.folder = Path((config.bundle, *config.others)[number])
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._following = threading.Lock()
        self._store: EventStore | None = None
        if config.scratch is None:  # mapped memory stays valid when its file is removed
            self.scratch, remove = claimed_folder()
            finalize(self, remove)
        else:  # each bundle has a folder of its own for copies
            self.scratch = Path(config.scratch) / LETTERS[number]
            self.scratch.mkdir(exist_ok=True)
        self.problem: str | None = None
        """Why the newest bundle isn't served; None if it is."""
        self.served = self._load()

    def _load(self) -> Served:
        stamp = bundle.stamp(self.folder)
        copy = private_copy(self.folder.resolve(), self.scratch)
        try:
            new = Served(copy, stamp)
            new.warm()
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)  # it may be incomplete
            raise
        clear_others(copy)
        self.metrics.loaded.set(new.loaded)
        return new

    def _take(self, new: Served) -> None:
        """Serve a new bundle, with the events that it doesn't hold yet."""
        if self._store is not None:
            _catch_up(new, self._store)
        with self._following:  # from here on, the old one gets no more events
            if self._store is not None:
                _catch_up(new, self._store)
            self.served = new

    def follow(self, store: EventStore) -> None:
        """Read the new events of a store."""
        with self._following:
            self._store = store
            _catch_up(self.served, store)

    def refresh(self) -> bool:
        """Load the bundle if it has changed, and return whether it had. If it can't be loaded, that
        is an error, and the old one stays in service."""
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
                raise LogerError(f"{self.folder} can't be loaded ({error!r:.200})") from error
            self._tell(None)
            self.metrics.reloads.labels("loaded").inc()
            _settle()
            log.info("now serving %s, %s", self.folder, self.served.fingerprint)
            return True

    def _tell(self, error: Exception | None) -> None:
        """Report to health and metrics whether the newest bundle is served."""
        plain = isinstance(error, LogerError)
        self.problem = None if error is None else (str(error) if plain else repr(error))[:500]
        self.metrics.tell_degraded(str(self.folder), error is not None)

    def watch(self) -> None:
        """Check for a newer bundle now and then, until ``stop``."""
        failures = 0
        while not self._end.wait(self.config.watch * min(2**failures, LONGEST_WAIT)):
            try:
                self.refresh()
                failures = 0
            except Exception as error:  # it may be fixed by the next check
                failures += 1
                log.warning("can't load the new bundle, so the old one stays in use: %s", error)

    def start(self) -> None:
        """Start to watch, if that is configured."""
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
    """Exclude the bundle and all modules from garbage collection, which would take 150 ms or more
    in the middle of requests."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


# ── private copies ──────────────────────────────────────────────────────────────────────


def private_copy(folder: Path, scratch: Path) -> Path:
    """An unchecked copy of a bundle in our temporary folder, made once for all workers."""
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
    """Remove older copies; processes that map one keep its pages."""
    for other in place.parent.iterdir():
        if other != place and not other.name.startswith("."):
            shutil.rmtree(other, ignore_errors=True)


# ── several bundles ─────────────────────────────────────────────────────────────────────


class Variant(NamedTuple):
    """The bundle that somebody gets."""

    number: int
    service: Service
    propensity: float
    """The probability that it is this one."""

    @property
    def served(self) -> Served:
        """The model that it serves now."""
        return self.service.served

    @property
    def name(self) -> str:
        """A letter, in the order of the command line."""
        return LETTERS[self.number]


class Variants:
    """All bundles of a server, and the masks and words that they share."""

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        self.config, self.traffic = config, Traffic(tuple(config.traffic))
        self.services: Sequence[Service] = [
            Service(config, metrics, number) for number in range(1 + len(config.others))
        ]
        masks = Path(config.masks) if config.masks else self.services[0].scratch / ".masks"
        self.masks = Masks(masks)
        self._words = {name: wording_of(name, config.wording) for name in LANGUAGES}

    def of(self, who: Who) -> Variant:
        """The variant that somebody gets: by name, or a new user by their history."""
        name = who.user if who.user is not None else "\n".join(who.history or ())
        number = self.traffic.variant(name)
        return Variant(number, self.services[number], self.traffic.shares[number])

    def words(self, accepted: str) -> Wording:
        """The words of the best language of an Accept-Language header."""
        return self._words[best_language(accepted)]

    @property
    def problem(self) -> str | None:
        """Why some bundle's newest version isn't served; None if all are."""
        return next((s.problem for s in self.services if s.problem is not None), None)
