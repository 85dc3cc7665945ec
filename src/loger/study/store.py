"""A study as one SQLite file: tasks, in the order raters get them, and answers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from unicodedata import category, normalize

from loger.engine.files import atomic_file
from loger.errors import BusyError, DataError, LogerError

SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE answer (
  rater TEXT NOT NULL, task INTEGER NOT NULL REFERENCES task, ranks TEXT NOT NULL,
  at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (rater, task)
);
CREATE TABLE rater (name TEXT PRIMARY KEY, token TEXT NOT NULL);
"""
KIND = "loger study 2"
LONGEST_NAME = 80
RESTORE = "restore it from a copy"


class AnswerError(LogerError):
    """A name or an answer that the study does not take."""


@dataclass(frozen=True, slots=True)
class Task:
    """One question: a user's history beside the paths of several methods, in this order."""

    user: str
    history: tuple[str, ...]
    """Paths of the user's own interactions, as sentences."""
    shown: tuple[tuple[str, tuple[str, ...]], ...]
    """Methods and their paths as sentences; raters see letters for the methods."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods in the order in which they are shown."""
        return tuple(name for name, _ in self.shown)


class Study:
    """A study in a file."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(
                "there is no such file", path=self.path, remedy="make a study with loger study make"
            )
        try:
            with self._open() as db:
                kind = db.execute("SELECT value FROM about WHERE key = 'kind'").fetchone()
        except DataError as error:
            raise DataError(
                f"not a study ({error})", path=self.path, remedy="give a file of loger study make"
            ) from None
        if kind is None or kind[0] != KIND:
            raise DataError(
                "not a study of this version", path=self.path, value=kind, remedy="make it again"
            )

    @classmethod
    def create(cls, path: Path | str, tasks: Sequence[Task], title: str = "") -> Study:
        """Write a new study; an existing file is not touched."""
        path = Path(path)
        if path.exists():
            raise DataError("exists", path=path, remedy="give a new file")
        if not tasks:
            raise LogerError("a study needs at least one task")
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [(k, json.dumps(_plain(task))) for k, task in enumerate(tasks)]
        about = [("kind", KIND), ("title", title)]
        try:
            with atomic_file(path) as part, closing(sqlite3.connect(part)) as db, db:
                db.executescript(SCHEMA)
                db.executemany("INSERT INTO about VALUES (?, ?)", about)
                db.executemany("INSERT INTO task VALUES (?, ?)", rows)
        except sqlite3.OperationalError as error:
            remedy = "free some space, or write elsewhere"
            raise DataError(f"cannot be written ({error})", path=path, remedy=remedy) from error
        return cls(path)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for each use, so that threads and processes may share a file."""
        db = sqlite3.connect(self.path, timeout=10)
        try:
            with db:
                yield db
        except sqlite3.OperationalError as error:
            # The low byte is the kind of error, the rest its variety.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if kind not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise self._damaged(error) from None
            raise BusyError("is in use by another process; try again", path=self.path) from None
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._damaged(error) from None
        finally:
            db.close()

    @property
    def title(self) -> str:
        """What the study is about."""
        with self._open() as db:
            row = db.execute("SELECT value FROM about WHERE key = 'title'").fetchone()
        return str(row[0]) if row else ""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks."""
        with self._open() as db:
            rows = db.execute("SELECT id, content FROM task ORDER BY id").fetchall()
        with self._parsing():
            assert [at for at, _ in rows] == list(range(len(rows))), "tasks are missing"
            return tuple(_task(json.loads(text)) for _, text in rows)

    def _damaged(self, why: Exception) -> DataError:
        """On one line, whatever the file has in its names."""
        return DataError(f"is damaged ({why!r:.200})", path=self.path, remedy=RESTORE)

    @contextmanager
    def _parsing(self) -> Iterator[None]:
        try:
            yield
        except (AssertionError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise self._damaged(error) from None

    def begin(self, rater: str) -> str:
        """A secret by which a rater of a new name is known from now on; a name that has begun or
        has answered before is refused."""
        name, token = _checked_name(rater), token_urlsafe(12)
        try:
            with self._open() as db:
                db.execute("BEGIN IMMEDIATE")
                row = db.execute("SELECT 1 FROM answer WHERE rater = ?", (name,)).fetchone()
                if row is not None:
                    raise AnswerError(f"{name!r} has answered already")
                db.execute("INSERT INTO rater VALUES (?, ?)", (name, _kept_token(token)))
        except sqlite3.IntegrityError:
            raise AnswerError(f"{name!r} has begun already") from None
        return token

    def knows(self, rater: str, token: str) -> bool:
        """Whether a token is the one that a rater got."""
        with self._open() as db:
            name = rater_name(rater)
            row = db.execute("SELECT token FROM rater WHERE name = ?", (name,)).fetchone()
        return row is not None and row[0] == _kept_token(token)

    def next_for(self, rater: str) -> int | None:
        """The first task that a rater has not answered; None if all are."""
        with self._open() as db:
            row = db.execute(
                "SELECT id FROM task WHERE id NOT IN (SELECT task FROM answer WHERE rater = ?) "
                "ORDER BY id LIMIT 1",
                (rater_name(rater),),
            ).fetchone()
        with self._parsing():
            return None if row is None else int(row[0])

    def answer(self, rater: str, task: int, ranks: Iterable[int]) -> None:
        """Keep the ranks that a rater gave, in the order shown; a second answer is refused."""
        self.answer_all([(rater, task, ranks)])

    def answer_all(self, answers: Iterable[tuple[str, int, Iterable[int]]]) -> None:
        """Keep several answers, or none if one of them is refused."""
        tasks = self.tasks
        rows = [(rater_name(who), at, _checked(tasks, who, at, x)) for who, at, x in answers]
        try:
            with self._open() as db:
                db.executemany("INSERT INTO answer (rater, task, ranks) VALUES (?, ?, ?)", rows)
        except sqlite3.IntegrityError:
            who = ", ".join(sorted({f"{rater!r} on task {at}" for rater, at, _ in rows})[:3])
            raise AnswerError(f"already answered: {who}") from None

    def answers(self) -> list[tuple[str, int, dict[str, float]]]:
        """All answers: rater, task, ranks by method."""
        with self._open() as db:
            rows = db.execute(
                "SELECT rater, task, ranks FROM answer ORDER BY rater, task"
            ).fetchall()
        with self._parsing():
            return [(str(rater), int(task), _ranks(ranks)) for rater, task, ranks in rows]


def rater_name(text: str) -> str:
    """A rater's name as it counts: however it is typed, one person is one rater.

    >>> rater_name(" Ann\u200b  Lee ") == rater_name("ann lee")
    True
    """
    seen = normalize("NFKC", text)
    seen = "".join(c for c in seen if category(c)[0] != "C" or c.isspace())
    return " ".join(seen.casefold().split())


def _checked_name(rater: str) -> str:
    name = rater_name(rater)
    if not 0 < len(name) <= LONGEST_NAME:
        raise AnswerError(f"a rater's name has 1 to {LONGEST_NAME} characters, got {rater!r}")
    return name


def _kept_token(token: str) -> str:
    """What a study keeps of a token: who reads the file cannot answer for others."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def _ranks(text: str) -> dict[str, float]:
    ranks = json.loads(text)
    assert isinstance(ranks, dict)
    return {str(method): float(rank) for method, rank in ranks.items()}


def _checked(tasks: Sequence[Task], rater: str, at: int, ranks: Iterable[int]) -> str:
    """An answer as it is kept: ranks by method."""
    places = list(ranks)
    _checked_name(rater)
    if not 0 <= at < len(tasks):
        raise AnswerError(f"tasks are 0 … {len(tasks) - 1}, got {at}")
    n = len(tasks[at].shown)
    if sorted(places) != list(range(1, n + 1)):
        raise AnswerError(f"give each rank from 1 to {n} once, got {places}")
    return json.dumps(dict(zip(tasks[at].methods, places, strict=True)))


def _plain(task: Task) -> dict[str, object]:
    return {"user": task.user, "history": task.history, "shown": task.shown}


def _task(content: Mapping[str, object]) -> Task:
    shown, history = content["shown"], content["history"]
    assert isinstance(shown, list)
    return Task(
        str(content["user"]),
        _texts(history),
        tuple((str(name), _texts(paths)) for name, paths in shown),
    )


def _texts(values: object) -> tuple[str, ...]:
    assert isinstance(values, list) and all(isinstance(text, str) for text in values)
    return tuple(values)
