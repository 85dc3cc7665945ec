"""Output: tables or JSON on stdout, progress on stderr. It is light, because --help imports it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from json import dumps
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from loger.engine import Engine

JSON = "loger.json"
"""Where the context of a command keeps whether --json was given."""
PIPED_WIDTH = 110
"""Columns when stdout is not a terminal, where rich would assume 80."""
_NUMBER = re.compile(r"[+-]?[\d,.]+%?|–")
_COMMANDS = re.compile(r"\x1b\[[0-9;]*m|([\x00-\x08\x0b-\x1f\x7f-\x9f])")
"""Control characters that a terminal would obey; colours are kept."""


def plain(text: object) -> str:
    """A text without control characters, because anyone can choose the names in data."""
    return _COMMANDS.sub(lambda found: "�" if found[1] else found[0], str(text))


def say(text: object, *, err: bool = False) -> None:
    """Print a line that may contain names from data."""
    click.echo(plain(text), err=err)


class _Plain:
    """A stream that passes no control characters to the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text without control characters."""
        return self.stream.write(plain(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def console() -> Console:
    """The console for results."""
    from rich.console import Console

    out = Console(highlight=False, file=cast("TextIO", _Plain(sys.stdout)))
    if not out.is_terminal:
        out.width = PIPED_WIDTH
    return out


def wants_json() -> bool:
    """Whether the running command was given --json."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(JSON))


def as_json(what: object) -> None:
    """Print as JSON."""
    click.echo(dumps(what, ensure_ascii=False, indent=2))


def result(values: Any, draw: Callable[[Any], None]) -> None:
    """Print values as JSON if --json was given, else draw them."""
    if wants_json():
        as_json(values)
    else:
        draw(values)


def working(what: str) -> AbstractContextManager[object]:
    """A spinner on stderr, if a person is watching."""
    from rich.console import Console
    from rich.markup import escape

    return Console(stderr=True).status(escape(what))


def engine_name() -> str | None:
    """What --engine says; None if it wasn't given."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_root().params.get("engine")


def engine_named() -> Engine:
    """The engine that --engine names."""
    from loger.engine import engine_named

    return engine_named(engine_name() or "threads")


@contextmanager
def engine(before: str = "starting", on: Engine | None = None) -> Iterator[Any]:
    """An engine that draws a progress bar on stderr, or writes a line per step to a log.

    ``before`` is shown until the first step reports. A cluster reports its costs at the end.
    """
    from loger.engine.progress import shown

    works = on or engine_named()
    try:
        with shown(before, lines=True) as progress:
            yield works.with_progress(progress)
    finally:
        getattr(works, "close", lambda: None)()
        for line in getattr(works, "summary", str)().splitlines():
            click.echo(line, err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> Table:
    """A plain table; columns of numbers are aligned to the right."""
    from rich.table import Table

    out = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for k, column in enumerate(columns):
        numbers = bool(rows) and all(_NUMBER.fullmatch(_cell(row[k])) for row in rows)
        out.add_column(
            column, justify="right" if numbers else "left", no_wrap=numbers, header_style="dim"
        )
    for row in rows:
        out.add_row(*(_cell(value) for value in row))
    return out


def notes(found: Sequence[dict[str, Any]]) -> Table:
    """Notes on data that was changed or ignored."""
    rows = [(note["count"], note["what"], note["example"]) for note in found]
    return table(["rows", "note", "example"], rows, "\nNotes")


def _cell(value: object) -> str:
    from rich.markup import escape

    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
