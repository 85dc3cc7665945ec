"""The errors that callers of loger need to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from os.path import commonprefix

_CLOSE = 0.6
"""How similar a name must be to be suggested, from 0 to 1; the default of ``difflib``."""

_MANY = 10_000
"""At most this many names are compared, so that a request to a server can't take long."""

BUSY_EXIT = 75
"""Exit status of a command if another process uses its target (EX_TEMPFAIL of sysexits.h)."""

_LISTED = 12
"""A message lists all known names if there are at most this many."""


class LogerError(Exception):
    """An error that the caller can fix. The message says what loger expected, what it got, and what
    to do."""


class DataError(LogerError):
    """A file or table doesn't contain what loger expects.

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


class BusyError(DataError):
    """Another process is using the target; the same call may succeed later."""


class NotFittedError(LogerError, AttributeError):
    """The model has not been fitted yet."""


class ViewError(LogerError, AttributeError):
    """Something needs the whole graph, but only one user's view is loaded."""


def nearest(name: str, known: Sequence[str], most: int = 3) -> list[str]:
    """Up to ``most`` names similar to ``name``; if there are none, names that begin with it or
    contain it.

    Among equally similar names, those that begin with ``name`` come first, then those that share
    its beginning.

    >>> nearest("1000", ["10300", "10000", "2000"], 1), nearest("lable", ["table", "label"], 1)
    (['10000'], ['label'])
    """
    wanted = name.casefold()
    if not wanted.strip():
        return []
    found = []
    for k, alike in _alike(wanted, _comparable(wanted, known)):
        text = k.casefold()
        begin = len(commonprefix([text, wanted]))  # noqa: RUF071 (of letters, not of paths)
        found.append((-alike, not text.startswith(wanted), -begin, k))
    if found:
        found.sort(key=lambda one: one[:3])
        return [k for minus, *_, k in found[:most] if -minus >= -found[0][0] - 0.1]
    begun = [k for k in known if k.casefold().startswith(wanted)]
    return (begun or [k for k in known if wanted in k.casefold()])[:most]


def _comparable(wanted: str, known: Sequence[str]) -> Sequence[str]:
    """All names; if there are too many, only those of similar length or with the same beginning."""
    if len(known) > _MANY:
        known = [k for k in known if abs(len(k) - len(wanted)) <= max(1, len(wanted) // 3)]
    if len(known) > _MANY:
        begin = wanted[: len(wanted) // 2]
        known = [k for k in known if k.casefold().startswith(begin)]
    return known[:_MANY]


def _alike(wanted: str, known: Iterable[str]) -> Iterator[tuple[str, float]]:
    """The similar names, and how similar each is."""
    from difflib import SequenceMatcher  # slow to import, and needed only for unknown names

    matcher = SequenceMatcher(b=wanted, autojunk=False)
    for k in known:
        matcher.set_seq1(k.casefold())
        bounds = matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio  # cheapest first
        if all(bound() >= _CLOSE for bound in bounds):
            yield k, matcher.ratio()


class UnknownNameError(LogerError, KeyError):
    """An unknown user, item, relation or setting; the message suggests the closest match.

    With ``listed``, if nothing is close and there are few names, the message lists them all.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        *,
        near: Sequence[str] | None = None,
        listed: bool = False,
    ) -> None:
        # Searching very many names takes a second, so callers may pass matches they already have.
        known = list(known) if near is None or listed else []
        near = nearest(name, known) if near is None else near
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        if listed and not near and 0 < len(known) <= _LISTED:
            hint = f"; choose from {', '.join(map(repr, sorted(known)))}"
        self.kind, self.name = kind, name
        super().__init__(f"unknown {kind} {name!r}{hint}")

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])
