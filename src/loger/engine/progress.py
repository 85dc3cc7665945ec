"""Progress of long work, drawn where a person is watching: bars in a terminal or a notebook.

Library code reports to a callback ``progress(what, done, total)`` and draws nothing itself. This
is the callback that draws.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loger.engine.protocol import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console

SECONDS = 0.1
"""The least time between two updates of a notebook."""


def resolved(progress: Progress | bool | None) -> AbstractContextManager[Progress]:
    """The callback that a caller of ``fit`` asks for.

    A callable is itself, False shows nothing, None shows bars where a person is watching, and
    True shows the steps on stderr even where nobody is.
    """
    if callable(progress):
        return nullcontext(progress)
    if progress is False:
        return nullcontext(silent)
    return shown(lines=progress is True)


@contextmanager
def shown(before: str = "", *, lines: bool = False) -> Iterator[Progress]:
    """A callback that draws a bar for each step of work, and takes the bars away at the end.

    ``before`` says what goes on until the first step reports. Where nobody is watching, in a log
    or a pipe, the callback is silent, or with ``lines`` writes one line per step to stderr.
    """
    if in_notebook():
        with _notebook(before) as progress:
            yield progress
    elif sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console

        with bars(Console(stderr=True), before) as progress:
            yield progress
    else:
        yield _lines(before) if lines else silent


def in_notebook() -> bool:
    """Whether this runs in a Jupyter notebook or the like; IPython is not imported for it."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return type(shell).__module__.partition(".")[0] in ("ipykernel", "google")


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


@contextmanager
def _notebook(before: str) -> Iterator[Progress]:
    """One bar below the cell, of the step at work; needs no widgets."""
    ipython: Any = import_module("IPython.display")  # by name: it has no types, where it is at all
    place = ipython.display(ipython.HTML(_bar(before, 0, 0)), display_id=True)
    last = [0.0]

    def progress(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] >= SECONDS:
            last[0] = now
            place.update(ipython.HTML(_bar(what, done, total)))

    try:
        yield progress
    finally:
        place.update(ipython.HTML(""))


def _bar(what: str, done: int, total: int) -> str:
    """A bar as HTML; without a total one that only moves."""
    place = f' value="{done}" max="{total}"' if total else ""
    return f"<progress{place}></progress> {escape(what)}" if what else ""


def _lines(before: str) -> Callable[[str, int, int], None]:
    """A line on stderr for what comes before, and for each step when it begins."""
    seen = set[str]()

    def progress(what: str, done: int, total: int) -> None:
        if what not in seen:
            seen.add(what)
            print(what, file=sys.stderr)

    if before:
        progress(before, 0, 0)
    return progress
