"""Merging events into a bundle: one removal, one update, and the number of the last event.

The bundle is replaced in one step, and its manifest has the number of the last event that it holds.
So after a kill at any moment, the bundle holds each event once or not yet.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

from loger.engine.files import claim, read_manifest
from loger.errors import LogerError
from loger.graph import whole
from loger.graph.growth import Learned
from loger.model import LOGER
from loger.store.bundle import MODEL
from loger.updates.apply import unlearned_types
from loger.updates.events import Event, EventStore
from loger.updates.pending import NEW_RELATIONS, Pending, Refused

KEEP_DAYS = 30.0
"""How long a store keeps events that all its bundles hold, and their keys."""
MAX_ATTEMPTS = 200
"""Merges that are tried to find the events that can't be merged."""
_ODD_EVENTS = (LogerError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError,
               ValueError)  # fmt: skip
"""What an event may raise that no check foresaw, as opposed to a full disk or memory."""
log = logging.getLogger("loger.updates.events")


class Folded(NamedTuple):
    """What a merge did."""

    model: LOGER | None
    """The new model; None if there was nothing to merge."""
    seq: int
    """The last event that the bundle holds, or that changes nothing in it."""
    refused: list[Refused]
    """Events that can't be merged, and why."""


def folded_seq(bundle: Path | str, store: str) -> int:
    """The number of the last event of a store that a bundle holds; 0 if none."""
    updates = read_manifest(bundle, MODEL).about.get("updates") or {}
    return int(updates.get("folded", {}).get(store, 0))


def pending_of(model: LOGER, seq: int = 0) -> Pending:
    """An empty ``Pending`` for the events that a model doesn't hold, those after a number."""
    graph = whole(model.graph_)
    learned = Learned.all_of(graph) if model.updates_ is None else model.updates_.learned
    new = sum(not r.derived for r in graph.relations) - learned.relations
    room = 0 if model.reasoner_ is not None else max(0, NEW_RELATIONS - new)
    unlearned = unlearned_types(graph, learned)
    return Pending(graph, seq, model.lowest_positive, room=room, unlearned=unlearned)


def fold(
    bundle: Path,
    events: Path,
    target: Path | None = None,
    *,
    now: float,
    when: str,
    measure: int = 0,
    keep_days: float = KEEP_DAYS,
) -> Folded:
    """Merge the events of a file into a bundle, in place unless a target is given."""
    place, store = target or bundle, EventStore(events)
    try:
        with claim(place, "update"):
            since = folded_seq(bundle, store.id)
            done = _fold(bundle, place, store, since, when, measure)
        store.folded_into(place, done.seq)
        store.clean(keep_days, now)
    finally:
        store.close()
    return done


def _fold(
    bundle: Path, place: Path, store: EventStore, since: int, when: str, measure: int
) -> Folded:
    if store.last <= since:
        return Folded(None, since, [])
    model = LOGER.load(bundle)
    pending = pending_of(model, since)
    pending.add(store.after(since))
    if not pending.events:
        return Folded(None, pending.seq, [])
    taking = _Taking(store.id, when, measure)
    try:
        model = taking.fold(model, pending)
    except _ODD_EVENTS:
        model = taking.one_by_one(model, list(store.after(since, pending.seq)))
    first = {refused.why: refused.seq for refused in reversed(taking.refused)}
    for why, n in Counter(refused.why for refused in taking.refused).items():
        log.warning("%d facts or events skipped, the first in event %d: %s", n, first[why], why)
    model.save(place)
    return Folded(model, pending.seq, taking.refused)


def forget(model: LOGER, events: Path, users: Sequence[str], now: float) -> list[str]:
    """Store in a file of events that users are to be forgotten, so that no earlier event brings
    them back, and return those of them that the model knows."""
    users = [normalize("NFC", user) for user in users]
    store = EventStore(events)
    try:
        held = 0 if model.updates_ is None else model.updates_.folded.get(store.id, 0)
        pending = pending_of(model, held)
        pending.add(store.after(held))
        words = whole(model.graph_).vocabulary
        known = [user for user in users if user in words.ids("user")]
        for user in users:
            if user not in known and user not in pending.people:
                words.id("user", user)  # raises an error with the closest name
        store.append([Event("delete", {"user": user}, at=now) for user in users])
    finally:
        store.close()
    return known


class _Taking:
    """Merges events into a model and collects those that can't be merged."""

    def __init__(self, store: str, when: str, measure: int) -> None:
        self.store, self.when, self.measure = store, when, measure
        self.refused, self.attempts = list[Refused](), 0

    def fold(self, model: LOGER, pending: Pending) -> LOGER:
        """All at once."""
        changes, refused = pending.fold(self.store)
        model = model.fold(changes, self.when, self.measure)
        self.refused += refused
        return model

    def one_by_one(self, model: LOGER, events: Sequence[Event]) -> LOGER:
        """By halves, until the events are found that keep the others from being merged."""
        self.attempts += 1
        pending = pending_of(model, events[0].seq - 1)
        pending.add(events)
        try:
            return self.fold(model, pending)
        except _ODD_EVENTS as error:
            if self.attempts > MAX_ATTEMPTS:
                raise
            if len(events) > 1:
                half = len(events) // 2
                for part in (events[:half], events[half:]):
                    model = self.one_by_one(model, part)
                return model
            why = f"merging raised {type(error).__name__}"
            self.refused.append(Refused(events[0].seq, f"{events[0].kind} event", why))
            log.debug("event %d: %s", events[0].seq, error)
            return self.fold(model, pending_of(model, events[0].seq))
