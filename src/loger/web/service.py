"""The bundles that are served, who gets which, and how a newer one replaces one while requests go
on.

A server maps a private copy of each bundle, because a mapped file that is overwritten or cut in
place takes the process down (SIGBUS). All workers map the same copy, so its memory is shared.
"""

from __future__ import annotations

import gc
import logging
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
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
"""After failures the wait for the next look doubles, up to this many times the usual one."""


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
        if config.scratch is not None:
            self.scratch = Path(config.scratch)
        else:  # what is mapped stays mapped when its file is removed
            self.scratch, remove = claimed_folder()
            finalize(self, remove)
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
        """Serve a new bundle, together with the events that it does not hold yet."""
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
        """Load the bundle if it has changed, and return whether it had.

        A bundle that cannot be loaded is an error, and the old one stays in service.
        """
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
        """Let health and metrics report whether the newest bundle is served."""
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
    """Keep what stays out of garbage collection: looking through a bundle, PyTorch and the rest
    takes 150 ms or more, in the middle of requests."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


# ── private copies ──────────────────────────────────────────────────────────────────────


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


# ── several bundles ─────────────────────────────────────────────────────────────────────


class Variant(NamedTuple):
    """One of the bundles, as somebody got it."""

    number: int
    service: Service
    propensity: float
    """How likely it was to be this one."""

    @property
    def served(self) -> Served:
        """What it serves now."""
        return self.service.served

    @property
    def name(self) -> str:
        """A letter, in the order of the command line."""
        return LETTERS[self.number]


class Variants:
    """All bundles of a server; masks are of all of them."""

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        self.traffic = Traffic(tuple(config.traffic))
        self.services: Sequence[Service] = [
            Service(_own(config, number), metrics) for number in range(1 + len(config.others))
        ]
        for service in self.services:
            service.masks = self.services[0].masks

    def of(self, who: Who) -> Variant:
        """The variant that somebody gets: by name, or for a new user by the history."""
        return self.of_name(who.user if who.user is not None else "\n".join(who.history or ()))

    def of_name(self, name: str) -> Variant:
        """The variant that a user gets."""
        number = self.traffic.variant(name)
        return Variant(number, self.services[number], self.traffic.shares[number])

    @property
    def problem(self) -> str | None:
        """Why the newest of some bundle is not served; None if all are."""
        return next((s.problem for s in self.services if s.problem is not None), None)


def _own(config: ServeConfig, number: int) -> ServeConfig:
    """The settings of one bundle; each keeps its private copies in a folder of its own."""
    if number == 0:
        return config
    scratch = config.scratch
    if scratch is not None:
        folder = Path(scratch).with_name(f"{Path(scratch).name}-{LETTERS[number]}")
        folder.mkdir(exist_ok=True)
        scratch = str(folder)
    return replace(config, bundle=config.others[number - 1], scratch=scratch)
