"""How results look: tables or JSON on stdout, progress on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from json import dumps
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from loger.engine import Engine, engine_named
from loger.engine.progress import shown
from loger.explain.render import carried_text, heading, shown_rows
from loger.rules.sentences import arrows
from loger.rules.wording import ENGLISH, Wording

if TYPE_CHECKING:
    from loger.model import LOGER

_NUMBER = re.compile(r"[+-]?[\d,.]+%?|–")
PIPED_WIDTH = 110
"""Columns when stdout is not a terminal, where rich would take 80."""


_COMMANDS = re.compile(r"\x1b\[[0-9;]*m|([\x00-\x08\x0b-\x1f\x7f-\x9f])")
"""Signs that a terminal takes for commands; colours stay."""


def plain(text: object) -> str:
    """A text without what a terminal would take for commands: names come from anybody's data."""
    return _COMMANDS.sub(lambda found: "�" if found[1] else found[0], str(text))


def say(text: object, *, err: bool = False) -> None:
    """Write a line in which there may be names from data."""
    typer.echo(plain(text), err=err)


class _Plain:
    """A stream that lets no commands of a text through to the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write what is left of a text."""
        return self.stream.write(plain(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def console() -> Console:
    """Where results go."""
    out = Console(highlight=False, file=cast("TextIO", _Plain(sys.stdout)))
    if not out.is_terminal:
        out.width = PIPED_WIDTH
    return out


def as_json(what: object) -> None:
    """Print as JSON."""
    typer.echo(dumps(what, ensure_ascii=False, indent=2))


def result(values: dict[str, Any], draw: Callable[[dict[str, Any]], None], json: bool) -> None:
    """Print values as JSON, or draw them."""
    if json:
        as_json(values)
    else:
        draw(values)


def working(what: str) -> AbstractContextManager[object]:
    """A spinner on stderr while something goes on, if a person is watching."""
    return Console(stderr=True).status(escape(what))


@contextmanager
def engine(before: str = "starting", on: Engine | str = "threads") -> Iterator[Any]:
    """An engine, with a bar on stderr for each step of work, or a line in a log; then it is closed
    and, if it is a cluster, says what the work cost.

    ``before`` says what goes on until the first step reports.
    """
    works = engine_named(on) if isinstance(on, str) else on
    try:
        with shown(before, lines=True) as progress:
            yield works.with_progress(progress)
    finally:
        getattr(works, "close", lambda: None)()
        for line in getattr(works, "summary", str)().splitlines():
            typer.echo(line, err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> Table:
    """A plain table; columns of numbers are aligned to the right."""
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


def list_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A list, with what variety did to places, if it did anything."""
    told = [
        (row["rank"], row["label"], f"{row['score']:.3f}", moved(row["rank"], row["variety"]))
        for row in rows
    ]
    if not any(move for *_, move in told):
        return table(["rank", "item", "score"], [row[:3] for row in told])
    return table(["rank", "item", "score", "by score"], told)


def moved(place: int, variety: dict[str, Any] | None) -> str:
    """What variety did to an item's place, in a few words; empty if nothing."""
    if variety is None or variety["rank_by_score"] == place:
        return ""
    return f"{variety['rank_by_score']}., costs {variety['cost']:.3f}: {variety['because']}"


def left_out(to: Console, rows: Sequence[dict[str, Any]]) -> None:
    """What variety keeps out of a list, and why."""
    for row in rows:
        said = f"left out: {row['label']}, {row['rank_by_score']}. by score: {row['because']}"
        to.print(f"[dim]{escape(said)}[/dim]", soft_wrap=True)


def testing(to: Console, model: LOGER, words: Wording = ENGLISH) -> None:
    """Say of a model with a test part that it is one."""
    if n := len(model.ranker_.held_out):
        to.print(f"[yellow]{escape(words.testing(n))}[/yellow]", soft_wrap=True)


def explanation(record: dict[str, Any], user: str = "", words: Wording = ENGLISH) -> Tree:
    """An explanation as a tree: its reasons and what else its lead is made of and, where there are
    paths, the same score by rules and paths."""
    item, whose = (f"[bold]{escape(x)}[/bold]" for x in (record["label"], user or record["user"]))
    head, scores = heading(record, item, whose, words)
    tree = Tree(f"{head} [dim]({scores})[/dim]")
    add_reasons(tree, record, words)
    if record["held_out"]:
        tree.add(f"[yellow]{escape(words.testing(record['held_out']))}[/yellow]")
    if record["paths"]:
        _add_rules(tree, record)
        add_paths(tree.add("the strongest paths"), record)
    return tree


def reasoned(record: dict[str, Any], user: str) -> Tree:
    """What the reasoner found, as a tree: its paths, its favourite first, or that it missed."""
    head = f"[bold]{escape(record['label'])}[/bold] for [bold]{escape(user)}[/bold]"
    found = f"rank {record['rank']:,}, {len(record['paths'])} of {record['n']:,} paths shown"
    tree = Tree(f"{head}: {found} [dim](by the reasoner)[/dim]")
    for path in record["paths"]:
        tree.add(path_line(path))
    if not record["paths"]:
        tree.add(escape(record["because"]))
    if record["held_out"]:
        tree.add(f"[yellow]{escape(ENGLISH.testing(record['held_out']))}[/yellow]")
    rules = tree.add("[dim]the rules it followed, by their importance to the user[/dim]")
    for rule in record["followed"]:
        rules.add(f"[dim]{rule['importance']:+.3f}  {escape(rule['sentence'])}[/dim]")
    return tree


def add_reasons(tree: Tree, record: dict[str, Any], words: Wording = ENGLISH) -> None:
    """Add the parts of an item's lead, reasons first, and how much of it the reasons carry."""
    for row in shown_rows(record, words):
        tree.add(f"{row.contribution:+.3f}  {escape(row.sentence(words))}")
    tree.add(f"[dim]{escape(carried_text(record, words))}[/dim]")


def add_paths(tree: Tree, record: dict[str, Any]) -> None:
    """Add paths, the largest contribution first."""
    for path in sorted(record["paths"], key=lambda path: -path["contribution"]):
        tree.add(path_line(path))


def _add_rules(tree: Tree, record: dict[str, Any]) -> None:
    alone = f"by the encoder alone, rank {record['rank_without_logic']:,}"
    parts = tree.add(f"by rules, the score is the sum of [dim]({alone})[/dim]")
    if abs(record["logic"] - record["logit"]) < 1e-9:  # the default fusion: every part is in S
        parts.add(f"{record['encoder']:+.3f}  encoder")
        logit = parts
    else:
        parts.add(f"{record['encoder']:+.3f}  q, the encoder's probability")
        logic, sum_ = f"{record['logic']:+.3f}  α·p", f"{record['logit']:+.3f}"
        logit = parts.add(f"{logic}, where logit p = {sum_} is the sum of")
    logit.add(f"{record['prior']:+.3f}  prior")
    logit.add(f"{record['popularity']:+.3f}  popularity")
    for rule in record["rules"]:
        n = f"{rule['paths']:,} path{'s' if rule['paths'] != 1 else ''}"
        logit.add(f"{rule['contribution']:+.3f}  {escape(rule['sentence'])} [dim]({n})[/dim]")


def path_line(path: dict[str, Any]) -> str:
    """What a path adds, its sentence, and below it the path itself."""
    labels = [entity["label"] for entity in path["entities"]]
    drawn = escape(arrows(labels, path["relations"]))
    return f"{path['contribution']:+.3f}  {escape(path['sentence'])}\n[dim]{drawn}[/dim]"
