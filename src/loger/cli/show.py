"""How things look: tables on stdout, signs of life on stderr, JSON for machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from loger.engine import LocalEngine
from loger.graph import INVERSE_MARK

_NUMBER = re.compile(r"[\d,.]+%?|–")
COMPILING = "compiling (the first time, about half a minute)"
PIPED_WIDTH = 110
"""Columns when stdout is not a terminal, where rich would take 80."""


def console() -> Console:
    """Where results go."""
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = PIPED_WIDTH
    return out


def as_json(what: object) -> None:
    """Print as JSON."""
    typer.echo(json.dumps(what, ensure_ascii=False, indent=2))


def working(what: str) -> AbstractContextManager[object]:
    """A sign of life on stderr while something goes on, if a person is watching."""
    return Console(stderr=True).status(escape(what))


@contextmanager
def engine(before: str) -> Iterator[LocalEngine]:
    """This machine's engine, with a bar on stderr for each step of work.

    ``before`` says what goes on until the first step reports.
    """
    aside = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=aside, transient=True, disable=not aside.is_terminal) as bars:
        start = bars.add_task(before, total=None)

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
                bars.update(start, visible=False)
            bars.update(tasks[what], completed=done, total=total)

        yield LocalEngine(progress=progress)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> Table:
    """A plain table; columns that hold numbers stand to the right."""
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


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def rule_table(measures: Sequence[dict[str, Any]], title: str) -> Table:
    """Measured rules, as sentences."""
    rows = [
        (
            m["sentence"],
            m["support"],
            "–" if m["precision"] is None else f"{m['precision']:.1%}",
            "–" if m["lift"] is None else m["lift"],
            m.get("remark", ""),
        )
        for m in measures
    ]
    return table(["rule", "support", "precision", "lift", ""], rows, title)


def path(labels: Sequence[str], names: Sequence[str]) -> str:
    """A path through labelled entities; arrows point the way each fact is stated.

    >>> path(["Ann", "mug", "Acme", "lamp"], ["purchase", "has_brand", "has_brand⁻¹"])
    'Ann –purchase→ mug –has_brand→ Acme ←has_brand– lamp'
    """
    text = labels[0]
    for name, label in zip(names, labels[1:], strict=True):
        plain = name.removesuffix(INVERSE_MARK)
        text += f" –{plain}→ {label}" if plain == name else f" ←{plain}– {label}"
    return text
