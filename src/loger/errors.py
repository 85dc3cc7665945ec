"""The one family of errors that a caller of loger has to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike

_FEW = 1000
"""Names that are few enough to look for such as look alike but are many edits away."""

BUSY_EXIT = 75
"""The exit status of a command that found something in use (EX_TEMPFAIL of sysexits.h)."""

_LISTED = 12
"""Names that are few enough to list."""


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


class BusyError(DataError):
    """Another process is using what should be written; the same call may succeed later."""


class NotFittedError(LogerError, AttributeError):
    """A model is asked before it has learned anything."""


class ViewError(LogerError, AttributeError):
    """The view of one user is asked for what only the whole graph has."""


def nearest(name: str, known: Sequence[str], most: int = 3) -> list[str]:
    """Up to three names that are few edits away, about as few as the nearest, those that begin
    with the name before others as near; else such as begin with it, contain it, or, among few,
    look like it.

    >>> nearest("1000", ["10300", "10000", "2000"], 1), nearest("lable", ["table", "label"], 1)
    (['10000'], ['label'])
    """
    if not name.strip() or not known:
        return []
    wanted = name.casefold()
    few = max(1, min(3, len(wanted) // 3))
    close = [k for k in known if abs(len(k) - len(wanted)) <= few]
    plain = [k.casefold() for k in close]
    found = []
    for k, (text, edits) in enumerate(zip(plain, _edits(wanted, plain), strict=True)):
        if edits <= few:
            pairs = enumerate(zip(wanted, text, strict=False))
            alike = next((n for n, (a, b) in pairs if a != b), len(text))
            found.append((edits, not text.startswith(wanted), -alike, k))
    if found:
        fewest = min(found)[0]
        return [close[k] for edits, *_, k in sorted(found)[:most] if edits <= fewest + 1]
    begun = [k for k in known if k.casefold().startswith(wanted)]
    within = begun or [k for k in known if wanted in k.casefold()]
    if within or len(known) > _FEW:
        return within[:most]
    from difflib import get_close_matches  # only where a name is wrong

    return get_close_matches(name, known, n=most, cutoff=0.6)


def _edits(name: str, others: Sequence[str]) -> list[int]:
    """How many letters must be added, left out, replaced, or exchanged with their neighbour to
    make each of the others of a name (optimal string alignment); all others at once."""
    import numpy as np

    if not others:
        return []
    width = max(1, *map(len, others))
    letters = np.array(others, dtype=f"<U{width}").view(np.uint32).reshape(len(others), width)
    earlier = row = [np.full(len(others), j, dtype=np.int16) for j in range(width + 1)]
    for i, letter in enumerate(name):
        last, row = row, [np.full(len(others), i + 1, dtype=np.int16)]
        for j in range(width):
            other = (letters[:, j] != ord(letter)).astype(np.int16)
            best = np.minimum(last[j] + other, np.minimum(last[j + 1], row[j]) + 1)
            if i and j:
                crossed = (letters[:, j - 1] == ord(letter)) & (letters[:, j] == ord(name[i - 1]))
                best = np.where(crossed, np.minimum(best, earlier[j - 1] + 1), best)
            row.append(best)
        earlier = last
    ends = np.array([len(other) for other in others])
    return [int(d) for d in np.stack(row)[ends, np.arange(len(others))]]


class UnknownNameError(LogerError, KeyError):
    """A user, item, relation or setting that does not exist, with the nearest that does.

    With ``listed``, where nothing is near and what exists is little, that is all of it.
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
        # To look for near names among very many takes a second; who has found some gives them.
        known = list(known) if near is None or listed else []
        near = nearest(name, known) if near is None else near
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        if listed and not near and 0 < len(known) <= _LISTED:
            hint = f"; there are {', '.join(map(repr, sorted(known)))}"
        self.kind, self.name = kind, name
        super().__init__(f"there is no {kind} {name!r}{hint}")

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])
