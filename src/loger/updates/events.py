"""The events of a server, stored in one SQLite file.

The file is in WAL mode with ``synchronous=FULL``: a transaction is on disk when it ends, and a
killed process leaves all of it or nothing. SQLite admits one writer at a time and numbers events
inside the transaction, so a reader who follows the numbers misses none.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, NamedTuple, get_args
from zlib import compress, decompress

from loger.data.dataset import unit_of_epoch
from loger.errors import DataError, LogerError

Kind = Literal["interaction", "dislike", "item", "user", "fact", "delete", "impression", "click"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, by name.

    An ``interaction`` has user, item and optionally time, rating, strength and a behaviour that is
    not the interaction itself, such as viewed; a ``dislike`` has user and item; an ``item`` and a
    ``user`` have that name and optionally a label and facts, as relation → names; a ``fact`` has
    head, relation and tail and optionally head_type and tail_type; a ``delete`` has a user, an
    item, both (their interaction) or head, relation and tail; an ``impression`` has a
    recommendation_id and optionally the items that were seen, a ``click`` a recommendation_id and
    an item.
    """

    kind: Kind
    body: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    """Events that repeat a key are ignored."""
    at: float = 0.0
    """When it was received, in seconds since 1970."""
    seq: int = 0
    """Its place in the store, from 1."""

    @property
    def when(self) -> int:
        """When it happened, in seconds since 1970; by default, when it was received."""
        time = self.body.get("time")
        return int(self.at) if time is None else int(time) // unit_of_epoch(int(time))[1]


SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS event (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB UNIQUE, at REAL NOT NULL,
  kind TEXT NOT NULL, user TEXT, body TEXT
);
CREATE INDEX IF NOT EXISTS event_user ON event (user) WHERE user IS NOT NULL;
CREATE TABLE IF NOT EXISTS bundle (path TEXT PRIMARY KEY, folded INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS event_answer ON event (json_extract(body, '$.recommendation_id'))
  WHERE kind IN ('impression', 'click');
CREATE TABLE IF NOT EXISTS answer (
  id TEXT PRIMARY KEY, at REAL NOT NULL, user TEXT, variant TEXT NOT NULL, body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS answer_at ON answer (at);
"""
KIND = "loger events 1"
PATIENCE = 10.0
"""Seconds to wait for another writer."""
BATCH = 5_000
"""Events that are read at a time."""
FORGOTTEN = "forgotten"
"""The kind of an event that only has its number and key left."""
DAY = 86_400
UNSEEN = 3_600.0
"""Seconds after which a list without an impression or click is deleted."""
LATE = 60.0
"""Seconds after which a list is on disk, if it ever will be."""
Answer = tuple[str, float, str | None, str, str]
"""A list: ID, when, user, variant, and the rest as JSON."""


class Appended(NamedTuple):
    """What happened to some events."""

    stored: int
    duplicates: int
    """Events whose key was already there."""
    last: int
    """The number of the last event of the store."""


def events_path(bundle: Path | str) -> Path:
    """The default file for the events of a bundle."""
    path = Path(bundle)
    return path.with_name(f"{path.name}.events.sqlite")


class EventStore:
    """The events in a file. Threads and processes can share it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        if not self.path.parent.is_dir():
            raise DataError("there is no such folder", path=self.path.parent, remedy="create it")
        with self._naming_file():
            self._db = sqlite3.connect(
                self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        self.id: str = self._one("SELECT value FROM about WHERE key = 'id'")
        kind = self._one("SELECT value FROM about WHERE key = 'kind'")
        if kind != KIND:
            what = f"the file contains {kind!r}, not {KIND!r}"
            raise DataError(what, path=self.path, remedy="choose another file")

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        tables = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if tables and ("event",) not in tables:
            raise DataError(
                "the file isn't an event store", path=self.path, remedy="choose another"
            )
        with self._writing():
            for statement in SCHEMA.split(";\n"):
                self._db.execute(statement)
            self._db.executemany(
                "INSERT OR IGNORE INTO about VALUES (?, ?)", [("kind", KIND), ("id", token_hex(8))]
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def append(self, events: Sequence[Event]) -> Appended:
        """Store all of the events or none. When this returns, they are on disk."""
        rows = [
            (_digest(e.key), e.at, e.kind, _user(e), json.dumps(e.body, ensure_ascii=False))
            for e in events
        ]
        with self._lock, self._naming_file(), self._writing():
            before = self._db.total_changes
            self._db.executemany(
                "INSERT INTO event (key, at, kind, user, body) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (key) DO NOTHING",
                rows,
            )
            stored = self._db.total_changes - before
            last = self._db.execute("SELECT MAX(seq) FROM event").fetchone()[0]
        return Appended(stored, len(rows) - stored, last or 0)

    def log_answers(self, answers: Iterable[Answer]) -> None:
        """Store lists that were recommended."""
        rows = [(*answer[:4], compress(answer[4].encode(), 1)) for answer in answers]
        with self._lock, self._naming_file(), self._writing():
            self._db.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?, ?, ?, ?)", rows)

    def drop_unseen(self, now: float) -> None:
        """Delete lists without an impression or click. Afterwards, SQLite's log of writes contains
        nothing that was deleted, unless somebody is reading."""
        with self._lock, self._naming_file():
            with self._writing():
                self._db.execute(
                    "DELETE FROM answer WHERE at < ? AND NOT EXISTS (SELECT 1 FROM event "
                    "WHERE kind IN ('impression', 'click') "
                    "AND json_extract(body, '$.recommendation_id') = answer.id)",
                    (now - UNSEEN,),
                )
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def folded_into(self, bundle: Path | str, seq: int) -> None:
        """Record the last event that a bundle holds."""
        with self._lock, self._naming_file(), self._writing():
            self._db.execute(
                "INSERT INTO bundle VALUES (?, ?) "
                "ON CONFLICT (path) DO UPDATE SET folded = excluded.folded",
                (str(Path(bundle).resolve()), seq),
            )

    def clean(self, keep_days: float, now: float) -> None:
        """Forget deleted users whom no bundle holds any longer, and delete events that all bundles
        hold and that are older than ``keep_days``."""
        done = self._folded_everywhere()
        with self._lock, self._naming_file(), self._writing():
            self._forget(done, now)
            old = now - keep_days * DAY
            self._db.execute("DELETE FROM event WHERE seq <= ? AND at < ?", (done, old))
            self._db.execute("DELETE FROM answer WHERE at < ?", (old,))
        self.drop_unseen(now)

    def _folded_everywhere(self) -> int:
        rows = self._all("SELECT path, folded FROM bundle")
        there = [int(seq) for path, seq in rows if Path(path).is_dir()]
        return min(there, default=0)

    def _forget(self, done: int, now: float) -> None:
        """Leave nothing of deleted users but the numbers and keys of their events. Their lists go,
        with impressions and clicks, and so do other people's facts that name them."""
        deleted = self._db.execute(
            "SELECT user, MAX(seq), MAX(at) FROM event WHERE kind = 'delete' AND seq <= ? "
            "AND user IS NOT NULL AND json_extract(body, '$.user') IS NOT NULL "
            "AND json_extract(body, '$.item') IS NULL GROUP BY user",
            (done,),
        ).fetchall()
        wipe = f"UPDATE event SET kind = '{FORGOTTEN}', user = NULL, body = NULL WHERE "
        for user, seq, at in deleted:
            self._db.execute(wipe + "seq <= ? AND user = ?", (seq, user))
            self._db.execute("DELETE FROM answer WHERE user = ? AND at <= ?", (user, at))
        self._db.execute(
            f"{wipe} kind IN ('impression', 'click') AND at < ? AND NOT EXISTS (SELECT 1 FROM "
            "answer WHERE id = json_extract(event.body, '$.recommendation_id'))",
            (now - LATE,),
        )
        self._forget_mentions({user: seq for user, seq, _ in deleted})

    def _forget_mentions(self, deleted: Mapping[str, int]) -> None:
        """Remove names from the facts in events, for each name up to a number."""
        rows = self._db.execute(
            "SELECT seq, body FROM event WHERE seq <= ? "
            "AND kind IN ('user', 'item', 'fact', 'delete')",
            (max(deleted.values(), default=0),),
        ).fetchall()
        for seq, text in rows:
            gone = {user for user, last in deleted.items() if seq <= last}
            body = json.loads(text)
            facts = body.get("facts") or {}
            left = {r: [t for t in tails if t not in gone] for r, tails in facts.items()}
            if gone & {body.get("head"), body.get("tail")}:
                self._db.execute(
                    "UPDATE event SET kind = ?, user = NULL, body = NULL WHERE seq = ?",
                    (FORGOTTEN, seq),
                )
            elif left != facts:
                body = json.dumps({**body, "facts": left}, ensure_ascii=False)
                self._db.execute("UPDATE event SET body = ? WHERE seq = ?", (body, seq))

    # ── reading ─────────────────────────────────────────────────────────────────────────

    @property
    def last(self) -> int:
        """The number of the last event; 0 if there are none."""
        return int(self._one("SELECT COALESCE(MAX(seq), 0) FROM event"))

    def after(self, seq: int, upto: int | None = None) -> Iterator[Event]:
        """The events after a number, in order, without those of forgotten users."""
        end = self.last if upto is None else upto
        while seq < end:
            rows = self._all(
                "SELECT seq, at, kind, body FROM event WHERE seq > ? AND seq <= ? "
                "ORDER BY seq LIMIT ?",
                (seq, end, BATCH),
            )
            for number, at, kind, body in rows:
                if kind != FORGOTTEN:
                    yield Event(kind, json.loads(body), at=at, seq=number)
            seq = rows[-1][0] if len(rows) == BATCH else end

    def answers(self) -> list[tuple[str, float, str | None, str, dict[str, Any]]]:
        """The lists that were recommended: ID, when, user, variant, and the rest."""
        rows = self._all("SELECT id, at, user, variant, body FROM answer ORDER BY at, id")
        return [(*row[:4], json.loads(decompress(row[4]))) for row in rows]

    def _all(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._naming_file():
            return self._db.execute(sql, values).fetchall()

    def _one(self, sql: str) -> Any:
        return self._all(sql)[0][0]

    # ── the file ────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction, which is on disk when the block ends."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # on a full disk, SQLite may have rolled it back already
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        """Re-raise errors of SQLite as errors that name the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise LogerError(
                f"{self.path} can't be used ({error}); check that the folder is writable and the "
                "disk isn't full, or choose another file with --set events_file=FILE"
            ) from None
        except sqlite3.DatabaseError as error:
            what = f"the file isn't an event store, or is damaged ({error})"
            raise DataError(what, path=self.path, remedy="restore it from a backup") from None


def _digest(key: str | None) -> bytes | None:
    """The digest of a key, which may contain the name of somebody who wants to be forgotten."""
    return None if key is None else blake2b(key.encode("utf-8", "replace"), digest_size=16).digest()


def _user(event: Event) -> str | None:
    user = event.body.get("user")
    if user is None and event.kind in ("fact", "delete"):
        for end in ("head", "tail"):
            if event.body.get(f"{end}_type") == "user":
                user = event.body[end]
    return None if user is None else str(user)
