"""The one family of errors that a caller of loger has to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from os import PathLike


class LogerError(Exception):
    """Something a person can fix: the message says what was expected, what came, what to do."""


class DataError(LogerError):
    """A file or table does not say what it should.

    >>> str(DataError("rating is not a number", path="r.csv", line=7, value="five",
    ...               remedy="write it as a number"))
    "r.csv:7: rating is not a number, got 'five'; write it as a number"
    """

    def __init__(
        self,
        what: str,
        *,
        path: str | PathLike[str] | None = None,
        line: int | None = None,
        value: object = None,
        remedy: str | None = None,
    ) -> None:
        self.path, self.line, self.value, self.remedy = path, line, value, remedy
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        got = "" if value is None else f", got {value!r}"
        todo = "" if remedy is None else f"; {remedy}"
        super().__init__(f"{where}{what}{got}{todo}")


class NotFittedError(LogerError, AttributeError):
    """A model is asked before it has learned anything."""


class ViewError(LogerError, AttributeError):
    """The view of one user is asked for what only the whole graph has."""


def _near(name: str, known: list[str]) -> list[str]:
    """Up to three names that look alike, or else begin alike."""
    begun = (k for k in known if name and k.lower().startswith(name.lower()))
    return get_close_matches(name, known, n=3, cutoff=0.6) or list(islice(begun, 3))


class UnknownNameError(LogerError, KeyError):
    """A user, item, relation or setting that does not exist, with the nearest that does."""

    def __init__(
        self, kind: str, name: str, known: Iterable[str], *, near: Sequence[str] | None = None
    ) -> None:
        # To look for near names among very many takes a second; who has found some gives them.
        near = _near(name, list(known)) if near is None else near
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        self.kind, self.name = kind, name
        super().__init__(f"there is no {kind} {name!r}{hint}")

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])
