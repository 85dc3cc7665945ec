"""Folding events into a bundle: one removal, one update, and the number up to which it holds them.

The bundle is replaced in one step, and how far it holds the events is in its manifest: killed at
any moment, it holds each event once or not yet.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from loger.engine.files import claim, read_manifest
from loger.graph import whole
from loger.model import LOGER
from loger.store.bundle import MODEL
from loger.updates.events import EventStore
from loger.updates.pending import Pending

KEEP_DAYS = 30.0
"""How long a store keeps events that all its bundles hold, and with them their keys."""
log = logging.getLogger("loger.updates.events")


class Folded(NamedTuple):
    """What a fold did."""

    model: LOGER | None
    """The new model; None if there was nothing to fold."""
    seq: int
    """The last event that the bundle holds, or that changes nothing in it."""
    refused: list[str]
    """Facts that the model cannot take in, and why."""


def folded_seq(bundle: Path | str, store: str) -> int:
    """The last event of a store that a bundle holds, by its manifest; 0 if none."""
    updates = read_manifest(bundle, MODEL).about.get("updates") or {}
    return int(updates.get("folded", {}).get(store, 0))


def pending_of(model: LOGER, seq: int = 0) -> Pending:
    """An empty ``Pending`` for a model, for the events after a number."""
    return Pending(whole(model.graph_), seq, model.lowest_positive)


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
    """Fold the events of a file into a bundle, in place unless a target is named."""
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
    changes, refused = pending.fold(store.id)
    for why in refused:
        log.warning("a fact was not taken in: %s", why)
    model = model.fold(changes, when, measure)
    model.save(place)
    return Folded(model, pending.seq, refused)
