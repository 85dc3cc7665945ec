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
from rich.table import Table
from rich.tree import Tree

from loger.engine import LocalEngine
from loger.graph import INVERSE_MARK
from loger.progress import shown

_NUMBER = re.compile(r"[+-]?[\d,.]+%?|–")
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
    """This machine's engine, with a bar on stderr for each step of work, or a line in a log.

    ``before`` says what goes on until the first step reports.
    """
    with shown(before, lines=True) as progress:
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


def explanation(told: dict[str, Any], of: str = "") -> Tree:
    """An explanation as a tree: the parts that add up to the score, then the paths."""
    whose = f" for [bold]{escape(of)}[/bold]" if of else ""
    head = f"[bold]{escape(told['label'])}[/bold]{whose}: score {told['score']:.3f}"
    out = Tree(f"{head}, rank {told['rank']:,} (by the encoder alone {bare(told):,})")
    parts = out.add("the score is the sum of")
    if abs(told["logic"] - told["logit"]) < 1e-9:  # the default fusion: every part is in S
        parts.add(f"{told['encoder']:+.3f}  encoder")
        logit = parts
    else:
        parts.add(f"{told['encoder']:+.3f}  q, the encoder's probability")
        logit = parts.add(f"{told['logic']:+.3f}  α·p, of logit p = {told['logit']:+.3f}, made of")
    logit.add(f"{told['prior']:+.3f}  prior")
    logit.add(f"{told['popularity']:+.3f}  popularity")
    for rule in told["rules"]:
        n = f"{rule['paths']:,} path{'s' if rule['paths'] != 1 else ''}"
        logit.add(f"{rule['contribution']:+.3f}  {escape(rule['sentence'])} [dim]({n})[/dim]")
    if not told["paths"]:
        out.add(escape(told["because"]))
        return out
    because = out.add("because")
    for chain in told["paths"]:
        because.add(path_line(chain))
    return out


def bare(told: dict[str, Any]) -> int:
    """The rank that the encoder alone would give."""
    return int(told["rank_without_logic"])


def path_line(chain: dict[str, Any]) -> str:
    """What a path adds, its sentence, and below it the path itself."""
    labels = [entity["label"] for entity in chain["entities"]]
    drawn = escape(path(labels, chain["relations"]))
    return f"{chain['contribution']:+.3f}  {escape(chain['sentence'])}\n[dim]{drawn}[/dim]"
