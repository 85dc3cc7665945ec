"""The events of a server: stored on disk, followed by every worker, and merged into bundles.

A worker rebuilds nothing. What a user did takes effect through a view of that user
(``Served.person``); changes to items and facts wait for a new bundle, which another process makes.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from loger.engine.files import claim
from loger.errors import BUSY_EXIT, BusyError, LogerError
from loger.updates.events import DAY, Answer, Appended, Event, EventStore, events_path
from loger.updates.feedback import LETTERS, variant_of
from loger.updates.pending import Pending
from loger.web.config import ServeConfig
from loger.web.folding import folded_seq
from loger.web.metrics import Metrics
from loger.web.problems import ProblemError
from loger.web.schemas import Staleness
from loger.web.served import Served
from loger.web.service import Service

log = logging.getLogger("loger.web")
POLL_INTERVAL_S = 0.2
"""Seconds between checks for events that other workers stored."""
CLEANUP_TURNS = 1_500
"""Checks between two cleanups of lists that nobody saw: five minutes."""
FOLD_DELAY_S = 2.0
"""Seconds until events on items and facts are merged, so that several are merged at once."""
MIN_IDLE_RATIO = 10.0
"""How many times as long as a merge took the pause after it is: merging takes a tenth of a core."""
MEASURED = 100
"""Users to evaluate on before a merge."""
MAX_NEW = 100_000
"""Unknown names that one address may bring to a worker in a day."""
MAX_CLIENTS = 10_000
"""Addresses that are counted at a time."""
NICE = 5
"""How much lower the priority of a merge is than a worker's."""


class Events:
    """Stores the events of a server and keeps its services up to date with them."""

    def __init__(self, config: ServeConfig, services: Sequence[Service], metrics: Metrics) -> None:
        self.config, self.services, self.metrics = config, services, metrics
        self.path = Path(config.events_file) if config.events_file else events_path(config.bundle)
        self._store: EventStore | None = None
        self._opening, self._end = threading.Lock(), threading.Event()
        self._answers: deque[Answer] = deque(maxlen=100_000)
        self._lost = False
        self._new = Allowance()
        self.problem: str | None = None
        """Why events can't be followed; None if they can."""
        self._folders = [_Folder(service, self) for service in services]
        self.follow()

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def store(self, make: bool = False) -> EventStore | None:
        """The store, once there is one."""
        with self._opening:
            if self._store is None and self.config.events and (make or self.path.exists()):
                self._store = EventStore(self.path)
                for service in self.services:  # the store keeps what a bundle doesn't hold yet
                    held = service.served.holds(self._store.id)
                    self._store.folded_into(service.folder, held)
            return self._store

    def append(self, events: Sequence[Event], client: str = "") -> Appended:
        """Store events. When this returns, they are on disk and this worker knows them."""
        if not self.config.events:
            raise ProblemError(403, "this server accepts no events; it runs with events=false")
        served = self.services[0].served
        self._new.admit(client, _new_names(events, served))
        for behaviour in {e.body["behaviour"] for e in events if "behaviour" in e.body}:
            served.check_behaviour(behaviour)
        try:
            store = self.store(make=True)
            assert store is not None
            appended = store.append(events)
        except LogerError as error:
            raise ProblemError(503, f"can't store events at the moment: {error}") from error
        for event in events:
            id_ = event.body.get("recommendation_id")
            variant = "" if id_ is None else LETTERS[variant_of(id_)]
            self.metrics.events.labels(event.kind, variant).inc()
        self.try_to_follow()
        return appended

    def note(self, answer: Answer) -> None:
        """Store a list soon; a kill can lose the lists of the last half second."""
        if self.config.events:
            self._answers.append(answer)

    def flush(self) -> None:
        """Write the lists to disk that were recommended."""
        answers = [self._answers.popleft() for _ in range(len(self._answers))]
        answers = [a for a in answers if a[2] is None or self._is_there(a[2])]
        if answers and (store := self.store(make=True)) is not None:
            store.log_answers(answers)

    def _is_there(self, user: str) -> bool:
        """Whether a user who got a list hasn't been forgotten since."""
        return any(service.served.has_user(user) for service in self.services)

    def _write_down(self, turn: int) -> None:
        """Flush and clean up now and then; a full disk stops nothing else."""
        try:
            if turn % 3 == 0:
                self.flush()
            if turn % CLEANUP_TURNS == 0 and (store := self.store()) is not None:
                store.drop_unseen(time.time())
        except LogerError as error:
            if not self._lost:
                log.warning("can't store lists: %s", error)
            self._lost = True

    # ── following ───────────────────────────────────────────────────────────────────────

    def follow(self) -> None:
        """Let all services know the new events of the store."""
        store = self.store()
        if store is not None:
            for service in self.services:
                service.follow(store)

    def _watch(self) -> None:
        turns = 0
        while not self._end.wait(POLL_INTERVAL_S):
            turns += 1
            self.try_to_follow()
            self._write_down(turns)

    def try_to_follow(self) -> None:
        """Like ``follow``, but errors go to ``problem``."""
        try:
            self.follow()
            self.problem = None
        except Exception as error:  # it may be fixed by the next time
            if self.problem is None:
                log.warning("can't read new events: %s", error)
            self.problem = str(error)[:500]

    def _fold(self) -> None:
        while not self._end.wait(1.0):
            for folder in self._folders:
                try:
                    if folder.tend(time.monotonic(), self.config.merge_interval):
                        folder.problem = None
                except Exception as error:  # health reports it until a merge succeeds
                    folder.problem = f"events were not merged into {folder.bundle}: {error}"[:500]
                    log.warning("%s", folder.problem)

    def start(self) -> None:
        """Start the threads that follow and merge events."""
        if not self.config.events:
            return
        threading.Thread(target=self._watch, name="loger-events", daemon=True).start()
        if self.config.merge_interval > 0:
            threading.Thread(target=self._fold, name="loger-fold", daemon=True).start()

    @property
    def not_folded(self) -> str | None:
        """Why events couldn't be merged into a bundle; None if all is well."""
        return next((f.problem for f in self._folders if f.problem is not None), None)

    @property
    def stopping(self) -> bool:
        """Whether the server is stopping."""
        return self._end.is_set()

    def stop(self) -> None:
        """Stop both threads and write the last lists to disk."""
        self._end.set()
        for folder in self._folders:
            folder.stop()
        try:
            self.flush()
        except LogerError as error:
            log.warning("the last lists were not stored: %s", error)

    # ── how far ─────────────────────────────────────────────────────────────────────────

    def staleness(self, service: Service, now: float) -> Staleness:
        """How far a service is behind the events."""
        served, store = service.served, self.store()
        pending = served.pending
        since = now if pending is None or pending.since is None else pending.since
        return Staleness(
            bundle_age=max(0.0, now - served.stamp[2] / 1e9),  # the manifest's time of change
            events=0 if store is None else store.last,
            applied=0 if pending is None else pending.seq,
            not_folded=0 if pending is None else pending.events,
            oldest_not_folded=max(0.0, now - since),
        )


class _Folder:
    """Merges events into one bundle, in another process. Workers needn't agree on who does it: the
    second one finds that the bundle is claimed, or a newer bundle to load."""

    def __init__(self, service: Service, events: Events) -> None:
        self.service, self.events, self.bundle = service, events, service.folder
        self._rest_until = 0.0
        self._since: tuple[Pending | None, float] = (None, 0.0)
        """When the first waiting event was seen, by a clock that nobody can set."""
        self._child: subprocess.Popen[str] | None = None
        self.problem: str | None = None
        """Why the last merge failed; None if it didn't."""

    def tend(self, now: float, every: float) -> bool:
        """Merge if it is time, and return whether that was done."""
        served, store = self.service.served, self.events.store()
        if served.pending is None or store is None or now < self._rest_until:
            return False
        if not self._is_due(served.pending, now, every):
            return False
        real = self.bundle.resolve()
        try:
            with claim(real.with_name(f"{real.name}.fold"), "fold"):
                if folded_seq(real, store.id) <= served.holds(store.id):
                    self._run()
        except BusyError:  # another worker merges, or somebody updates
            self._rest_until = now + FOLD_DELAY_S
            return False
        finally:
            took = time.monotonic() - now
            pause = max(FOLD_DELAY_S, MIN_IDLE_RATIO * took)
            self._rest_until = max(self._rest_until, now + took + pause)
        self.service.refresh()
        return True

    def _is_due(self, pending: Pending, now: float, every: float) -> bool:
        """Whether to merge now: soon if events have no effect until then, else after ``every``
        seconds."""
        if pending.since is None:
            return False
        if self._since[0] is not pending:
            self._since = pending, now
        waited = now - self._since[1]
        return waited >= every or (pending.waiting > 0 and waited >= FOLD_DELAY_S)

    def _run(self) -> None:
        command = [sys.executable, "-m", "loger", "update", str(self.bundle)]
        command += ["--events", str(self.events.path), "--eval-users", str(MEASURED), "--json"]
        self._child = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, self._child.pid, NICE)  # requests come first
        _, output = self._child.communicate()
        if self.events.stopping:
            return
        if self._child.returncode:
            why = output.strip()[-500:] or f"it exited with {self._child.returncode}"
            busy = self._child.returncode == BUSY_EXIT
            raise BusyError(why) if busy else LogerError(why)
        for line in output.splitlines():
            log.warning("while merging events into %s: %s", self.bundle, line)

    def stop(self) -> None:
        """Stop a running merge; the next one starts again."""
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(5)


class Allowance:
    """Limits the new names that each client brings in a day."""

    def __init__(self) -> None:
        self._since, self._brought = time.monotonic(), Counter[str]()

    def admit(self, client: str, names: int) -> None:
        """Count some names, or refuse them if there are too many."""
        now = time.monotonic()
        if now - self._since > DAY or len(self._brought) > MAX_CLIENTS:
            self._since, self._brought = now, Counter()
        if self._brought[client] + names > MAX_NEW:
            raise ProblemError(
                429,
                f"more than {MAX_NEW:,} new names from one address in a day; "
                "add whole catalogues with loger update",
            )
        self._brought[client] += names


def _new_names(events: Sequence[Event], served: Served) -> int:
    """The number of names in some events that the model doesn't know."""
    named = set[str]()
    for event in events:
        named |= {event.body[key] for key in ("user", "item", "head", "tail") if key in event.body}
        named |= {tail for tails in (event.body.get("facts") or {}).values() for tail in tails}
    return sum(not served.has_name(name) for name in named)
