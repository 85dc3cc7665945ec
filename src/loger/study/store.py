"""A study in one SQLite file: tasks in the order in which raters get them, and answers; and its
results: average ranks, a Friedman test, agreement.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from unicodedata import category, normalize

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2, rankdata

from loger.engine.files import atomic_file
from loger.errors import BusyError, DataError, LogerError
from loger.metrics.report import resampled_means

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
RESTORE = "restore it from a backup"


class AnswerError(LogerError):
    """A name or an answer that the study refuses."""


@dataclass(frozen=True, slots=True)
class Task:
    """One question: a user's history and the paths of several methods, in this order."""

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
                "no such file", path=self.path, remedy="create a study with loger study make"
            )
        try:
            with self._open() as db:
                kind = db.execute("SELECT value FROM about WHERE key = 'kind'").fetchone()
        except DataError as error:
            raise DataError(
                f"not a study ({error})",
                path=self.path,
                remedy="choose a file written by loger study make",
            ) from None
        if kind is None or kind[0] != KIND:
            raise DataError(
                "the study comes from another version of loger",
                path=self.path,
                remedy="run loger study make again",
            )

    @classmethod
    def create(cls, path: Path | str, tasks: Sequence[Task], title: str = "") -> Study:
        """Write a new study. An existing file is refused."""
        path = Path(path)
        if path.exists():
            raise DataError("the file already exists", path=path, remedy="choose a new file")
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
            remedy = "free some space or write elsewhere"
            raise DataError(f"can't write here ({error})", path=path, remedy=remedy) from error
        return cls(path)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A new connection for each use, so that threads and processes can share the file."""
        db = sqlite3.connect(self.path, timeout=10)
        try:
            with db:
                yield db
        except sqlite3.OperationalError as error:
            # The low byte is the kind of error; the others make it more specific.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if kind not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise self._damaged(error) from None
            raise BusyError(
                "another process is using the file; try again", path=self.path
            ) from None
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._damaged(error) from None
        finally:
            db.close()

    @property
    def title(self) -> str:
        """The title of the study."""
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
        """An error on one line, whatever the file contains."""
        return DataError(f"the study is damaged ({why!r:.200})", path=self.path, remedy=RESTORE)

    @contextmanager
    def _parsing(self) -> Iterator[None]:
        try:
            yield
        except (AssertionError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise self._damaged(error) from None

    def begin(self, rater: str) -> str:
        """Register a new rater and return their secret token. A name that is in use is refused."""
        name, token = _checked_name(rater), token_urlsafe(12)
        try:
            with self._open() as db:
                db.execute("BEGIN IMMEDIATE")
                row = db.execute("SELECT 1 FROM answer WHERE rater = ?", (name,)).fetchone()
                if row is not None:
                    raise AnswerError(f"{name!r} has already answered")
                db.execute("INSERT INTO rater VALUES (?, ?)", (name, _kept_token(token)))
        except sqlite3.IntegrityError:
            raise AnswerError(f"{name!r} has already begun") from None
        return token

    def knows(self, rater: str, token: str) -> bool:
        """Whether a token belongs to a rater."""
        with self._open() as db:
            name = rater_name(rater)
            row = db.execute("SELECT token FROM rater WHERE name = ?", (name,)).fetchone()
        return row is not None and row[0] == _kept_token(token)

    def next_for(self, rater: str) -> int | None:
        """The first task that a rater hasn't answered; None if there is none left."""
        with self._open() as db:
            row = db.execute(
                "SELECT id FROM task WHERE id NOT IN (SELECT task FROM answer WHERE rater = ?) "
                "ORDER BY id LIMIT 1",
                (rater_name(rater),),
            ).fetchone()
        with self._parsing():
            return None if row is None else int(row[0])

    def answer(self, rater: str, task: int, ranks: Iterable[int]) -> None:
        """Store the ranks that a rater gave, in the order shown. A second answer is refused."""
        self.answer_all([(rater, task, ranks)])

    def answer_all(self, answers: Iterable[tuple[str, int, Iterable[int]]]) -> None:
        """Store several answers, or none if one of them is refused."""
        tasks = self.tasks
        rows = [(rater_name(who), at, _checked(tasks, who, at, x)) for who, at, x in answers]
        try:
            with self._open() as db:
                db.executemany("INSERT INTO answer (rater, task, ranks) VALUES (?, ?, ?)", rows)
        except sqlite3.IntegrityError:
            who = ", ".join(sorted({f"{rater!r} on task {at}" for rater, at, _ in rows})[:3])
            raise AnswerError(f"there is already an answer from {who}") from None

    def answers(self) -> list[tuple[str, int, dict[str, float]]]:
        """All answers: rater, task, ranks by method."""
        with self._open() as db:
            rows = db.execute(
                "SELECT rater, task, ranks FROM answer ORDER BY rater, task"
            ).fetchall()
        with self._parsing():
            return [(str(rater), int(task), _ranks(ranks)) for rater, task, ranks in rows]


def rater_name(text: str) -> str:
    """A rater's name in a standard form, so that one person is one rater however they type it.

    >>> rater_name(" Ann\u200b  Lee ") == rater_name("ann lee")
    True
    """
    seen = normalize("NFKC", text)
    seen = "".join(c for c in seen if category(c)[0] != "C" or c.isspace())
    return " ".join(seen.casefold().split())


def _checked_name(rater: str) -> str:
    name = rater_name(rater)
    if not 0 < len(name) <= LONGEST_NAME:
        raise AnswerError(f"a rater's name must have 1 to {LONGEST_NAME} characters, got {rater!r}")
    return name


def _kept_token(token: str) -> str:
    """The digest of a token, so that nobody who reads the file can answer for others."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def _ranks(text: str) -> dict[str, float]:
    ranks = json.loads(text)
    assert isinstance(ranks, dict)
    return {str(method): float(rank) for method, rank in ranks.items()}


def _checked(tasks: Sequence[Task], rater: str, at: int, ranks: Iterable[int]) -> str:
    """An answer as it is stored: ranks by method."""
    places = list(ranks)
    _checked_name(rater)
    if not 0 <= at < len(tasks):
        raise AnswerError(f"tasks are numbered 0 to {len(tasks) - 1}, got {at}")
    n = len(tasks[at].shown)
    if sorted(places) != list(range(1, n + 1)):
        raise AnswerError(f"give each rank from 1 to {n} exactly once, got {places}")
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


SIMULATED = "simulated "
"""How the names of simulated raters begin."""
Ranks = Mapping[str, float]
"""The rank of each method by one rater in one task; 1 is the best."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a study."""

    methods: tuple[str, ...]
    average: tuple[float, ...]
    """Average rank of each method; 1 is best."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Bootstrap intervals over raters."""
    first: tuple[float, ...]
    """How often each method is ranked first."""
    friedman: float
    """χ² of the Friedman test of the raters' average ranks."""
    p: float
    agreement: float
    """Kendall's W of a task's raters, averaged over tasks with at least two: 0 is chance, 1 is full
    agreement, NaN means there is no such task."""
    raters: int
    tasks: int
    answers: int

    def as_dict(self) -> dict[str, Any]:
        """The results as plain values, with None for NaN."""
        plain = asdict(self)
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in plain.items()}


def friedman(ranks: ArrayLike) -> tuple[float, float]:
    """χ² and p of the Friedman test; rows are blocks, columns treatments, ties allowed.

    χ² = 12 Σ_j (R̄_j − (k+1)/2)² n / (k(k+1)), divided by 1 − Σ (t³ − t) / (n k (k² − 1)).
    """
    table = _ranked(ranks)
    n, k = table.shape
    if n < 1 or k < 2:
        raise LogerError(
            f"a Friedman test needs at least two methods and one answer, got {k} and {n}"
        )
    spread = float(((table.mean(axis=0) - (k + 1) / 2) ** 2).sum())
    untied = 1 - sum(_ties(row) for row in table) / (n * k * (k * k - 1))
    if untied <= 0:  # every block ties all methods
        return 0.0, 1.0
    value = 12 * n * spread / (k * (k + 1)) / untied
    return value, float(chi2.sf(value, k - 1))


def kendall_w(ranks: ArrayLike) -> float:
    """Kendall's W: the agreement of raters (rows) on an order (columns), from 0 to 1.

    W = χ² / (n (k − 1)), with the ties taken into account as in ``friedman``.
    """
    table = np.asarray(ranks, dtype=np.float64)
    value, _ = friedman(table)
    return float(value / (table.shape[0] * (table.shape[1] - 1)))


def results(
    answers: Sequence[tuple[str, int, Ranks]], seed: int = 0, samples: int = 2000
) -> Results:
    """The results of answers (rater, task, ranks). The test uses each rater's average ranks: the
    answers of one person aren't independent."""
    if not answers:
        raise LogerError("nobody has answered yet; run loger study serve and open its address")
    methods = tuple(sorted(answers[0][2]))
    table = np.array([[ranks[m] for m in methods] for _, _, ranks in answers], dtype=np.float64)
    raters = np.array([rater for rater, _, _ in answers])
    tasks = np.array([task for _, task, _ in answers])
    means = np.stack([table[raters == rater].mean(axis=0) for rater in np.unique(raters)])
    drawn = resampled_means(means, samples, seed)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    value, p = friedman(means)
    shared = [table[tasks == task] for task in np.unique(tasks)]
    agreed = [kendall_w(rows) for rows in shared if len(rows) > 1]
    return Results(
        methods,
        average=tuple(means.mean(axis=0).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        first=tuple((table == 1).mean(axis=0).tolist()),
        friedman=value,
        p=p,
        agreement=float(np.mean(agreed)) if agreed else float("nan"),
        raters=len(means),
        tasks=len(shared),
        answers=len(answers),
    )


def _ranked(ranks: ArrayLike) -> NDArray[np.float64]:
    """Ranks within each row, ties averaged."""
    return np.asarray(rankdata(np.atleast_2d(np.asarray(ranks, dtype=np.float64)), axis=1))


def _ties(row: NDArray[np.float64]) -> float:
    """Σ t³ − t over groups of t equal ranks."""
    _, counts = np.unique(row, return_counts=True)
    return float((counts.astype(np.float64) ** 3 - counts).sum())


# ── simulated raters ────────────────────────────────────────────────────────────────────


def simulate(study: Study, raters: int, quality: Mapping[str, float], seed: int = 0) -> None:
    """Let simulated raters answer all tasks of a study, unless people have answered some."""
    people = {rater for rater, _, _ in study.answers() if not rater.startswith(SIMULATED)}
    if people:
        raise LogerError(
            f"{study.path} has answers from {len(people)} people; use a study without answers"
        )
    study.answer_all(simulated_answers(study.tasks, raters, quality, seed))


def simulated_answers(
    tasks: Sequence[Task], raters: int, quality: Mapping[str, float], seed: int = 0
) -> list[tuple[str, int, list[int]]]:
    """Rater, task and ranks in the order shown, by raters who see ``quality`` plus unit noise. With
    equal qualities they rank at random; with a gap of 3 they nearly always agree."""
    out = []
    for k in range(raters):
        rng = np.random.default_rng([seed, 0x51A, k])
        for at, task in enumerate(tasks):
            seen = [quality.get(name, 0.0) + rng.normal() for name in task.methods]
            ranks = np.empty(len(seen), dtype=np.int64)
            ranks[np.argsort(-np.array(seen), kind="stable")] = np.arange(1, len(seen) + 1)
            out.append((f"{SIMULATED}{k + 1}", at, ranks.tolist()))
    return out
