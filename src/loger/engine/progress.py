"""How progress is shown, by rich, and small pieces of HTML for notebooks.

Library code reports to a callback ``progress(what, done, total)`` and draws nothing itself. The
callbacks that draw in a terminal or a notebook are here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING

from loger.engine.threads import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console


def resolved(progress: Progress | bool | None) -> AbstractContextManager[Progress]:
    """The callback that a caller of ``fit`` asks for.

    A callable is used as it is, False shows nothing, None shows bars in a terminal or notebook, and
    True also writes the steps to stderr elsewhere.
    """
    if callable(progress):
        return nullcontext(progress)
    if progress is False:
        return nullcontext(silent)
    return shown(lines=progress is True)


@contextmanager
def shown(before: str = "", *, lines: bool = False) -> Iterator[Progress]:
    """A callback that draws a bar for each step of work, and takes the bars away at the end.

    ``before`` says what goes on until the first step reports. A notebook without ipywidgets, which
    rich needs there, gets one line per step. Where nobody is watching, in a log or a pipe, the
    callback is silent, or with ``lines`` writes these lines to stderr.
    """
    notebook = "ipykernel" in sys.modules or "google.colab" in sys.modules
    if notebook and find_spec("ipywidgets") is None:
        yield _lines(before)
    elif notebook or (sys.stderr is not None and sys.stderr.isatty()):
        from rich.console import Console

        with bars(Console(stderr=True), before) as progress:
            yield progress
    else:
        yield _lines(before) if lines else silent


@contextmanager
def bars(console: Console, before: str = "") -> Iterator[Progress]:
    """Bars on a terminal."""
    from rich.markup import escape as plain
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=console, transient=True) as drawn:
        start = drawn.add_task(plain(before), total=None, visible=bool(before))

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = drawn.add_task(plain(what), total=total)
                drawn.update(start, visible=False)
            task = drawn.tasks[drawn.task_ids.index(tasks[what])]
            if done < task.completed:  # the same step, once more
                drawn.reset(tasks[what], total=total)
            drawn.update(tasks[what], completed=done, total=total, visible=done < total)

        yield progress


def _lines(before: str) -> Progress:
    """A line on stderr for what comes before, and for each step when it begins."""
    seen = set[str]()

    def progress(what: str, done: int, total: int) -> None:
        if what not in seen:
            seen.add(what)
            print(what, file=sys.stderr)

    if before:
        progress(before, 0, 0)
    return progress


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table.

    >>> table(["item"], [["<mug>"]])
    '<table><tr><th>item</th></tr><tr><td>&lt;mug&gt;</td></tr></table>'
    """
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def bar(share: float, width: int = 120) -> str:
    """A bar as long as a share of the width; negative shares have another colour."""
    length = round(min(abs(share), 1.0) * width)
    colour = "#4a7dbd" if share >= 0 else "#c0504d"
    style = f"display:inline-block;height:0.7em;width:{length}px;background:{colour}"
    return f'<span style="{style}"></span>'


def _row(tag: str, cells: Sequence[str]) -> str:
    inside = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"
