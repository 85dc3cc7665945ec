"""Recommendations and explanations as tables and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from loger.cli.show import table
from loger.explain.render import carried_text, heading, shown_rows
from loger.rules.sentences import arrows
from loger.rules.wording import ENGLISH, Wording

if TYPE_CHECKING:
    from loger.model import LOGER


def list_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A list, and how diversity moved items, if it moved any."""
    told = [
        (row["rank"], row["label"], f"{row['score']:.3f}", moved(row["rank"], row["variety"]))
        for row in rows
    ]
    if not any(move for *_, move in told):
        return table(["rank", "item", "score"], [row[:3] for row in told])
    return table(["rank", "item", "score", "by score"], told)


def moved(place: int, variety: dict[str, Any] | None) -> str:
    """How diversity moved an item, in a few words; empty if it didn't."""
    if variety is None or variety["rank_by_score"] == place:
        return ""
    return f"rank {variety['rank_by_score']}, costs {variety['cost']:.3f}: {variety['because']}"


def add_item(tree: Tree, place: int, row: dict[str, Any], words: Wording) -> None:
    """Add a recommended item with its reasons and paths."""
    change = moved(place, row.get("variety"))
    head = f"{place}. [bold]{escape(row['label'])}[/bold]  {row['lead']:+.3f}"
    branch = tree.add(f"{head}  [dim]{escape(change)}[/dim]" if change else head)
    add_reasons(branch, row, words)
    add_paths(branch, row)


def left_out(to: Console, rows: Sequence[dict[str, Any]]) -> None:
    """The items that diversity keeps off a list, and why."""
    for row in rows:
        said = f"left out: {row['label']}, rank {row['rank_by_score']} by score: {row['because']}"
        to.print(f"[dim]{escape(said)}[/dim]")


def testing(to: Console, model: LOGER, words: Wording = ENGLISH) -> None:
    """Warn that a model with held-out interactions is for testing."""
    if n := len(model.ranker_.held_out):
        to.print(f"[yellow]{escape(words.testing(n))}[/yellow]")


def explanation(record: dict[str, Any], user: str = "", words: Wording = ENGLISH) -> Tree:
    """An explanation as a tree: the reasons, the rest of the lead and, with paths, the score by
    rules and paths."""
    item, whose = (f"[bold]{escape(x)}[/bold]" for x in (record["label"], user or record["user"]))
    head, scores = heading(record, item, whose, words)
    tree = Tree(f"{head} [dim]({scores})[/dim]")
    add_reasons(tree, record, words)
    if record["held_out"]:
        tree.add(f"[yellow]{escape(words.testing(record['held_out']))}[/yellow]")
    if record["paths"]:
        _add_rules(tree, record)
        add_paths(tree.add("strongest paths"), record)
    return tree


def reasoned(record: dict[str, Any], user: str) -> Tree:
    """The paths that the reasoner found as a tree, best first."""
    head = f"[bold]{escape(record['label'])}[/bold] for [bold]{escape(user)}[/bold]"
    found = f"rank {record['rank']:,}, {len(record['paths'])} of {record['n']:,} paths shown"
    tree = Tree(f"{head}: {found} [dim](by the reasoner)[/dim]")
    for path in record["paths"]:
        tree.add(path_line(path))
    if not record["paths"]:
        tree.add(escape(record["because"]))
    if record["held_out"]:
        tree.add(f"[yellow]{escape(ENGLISH.testing(record['held_out']))}[/yellow]")
    rules = tree.add("[dim]rules it followed, by their importance to the user[/dim]")
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
    alone = f"rank {record['rank_without_logic']:,} by the encoder alone"
    parts = tree.add(f"the score, by rules [dim]({alone})[/dim]")
    if abs(record["logic"] - record["logit"]) < 1e-9:  # the default fusion: every part is in S
        parts.add(f"{record['encoder']:+.3f}  encoder")
        logit = parts
    else:
        parts.add(f"{record['encoder']:+.3f}  q, the encoder's probability")
        logic, sum_ = f"{record['logic']:+.3f}  α·p", f"{record['logit']:+.3f}"
        logit = parts.add(f"{logic}, where logit p = {sum_} is the sum of these parts:")
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
