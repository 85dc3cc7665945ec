"""``loger data``: look at data sets, convert and split them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loger.cli import build, options, show

if TYPE_CHECKING:
    from rich.console import Console

    from loger.data import Dataset


@click.group(cls=options.Group)
def data() -> None:
    """Build, inspect, convert and split data sets."""


data.add_command(build.build)


@data.command()
@options.source
@options.format_
@options.min_rating
def inspect(path: Path, format: str | None, min_rating: float | None) -> None:
    """Show what is in a data set.

    The output lists entities by type, relations with their largest hubs, interactions, and notes on
    rows that loger changed or ignored.

    \b
    Examples:
      loger data inspect my-shop
      loger data inspect ratings.csv --min-rating 4
      loger data inspect my-shop --json | jq .relations
    """
    dataset = options.read(path, format, min_rating)
    from loger.data.statistics import statistics

    with show.working("counting"):
        counts = statistics(dataset)
    show.result(counts, draw)


@data.command()
@options.source
@options.out("FOLDER")
@click.option(
    "--to",
    type=click.Choice(["loger", "recbole"]),
    default="loger",
    help="Parquet files for loger, or atomic files for RecBole.",
)
@options.format_
@options.min_rating
@options.force("FOLDER")
def convert(
    path: Path, out: Path, to: str, format: str | None, min_rating: float | None, force: bool
) -> None:
    """Convert a data set to Parquet files, or to RecBole's atomic files.

    \b
    Examples:
      loger data convert my-shop -o my-shop.loger
      loger data convert my-shop -o my-shop.recbole --to recbole
    """
    from loger.data import saved

    if to == "recbole":
        _to_recbole(options.read(path, format, min_rating), out)
        return
    saved.check_target(out, replace=force)
    _save(options.read(path, format, min_rating), out)


@data.command()
@options.source
@options.out("FOLDER")
@options.split
@options.test
@click.option(
    "--validation",
    type=float,
    default=0.1,
    metavar="SHARE",
    help="Share of the remaining interactions to use for validation.",
)
@options.seed
@options.force("FOLDER")
def split(
    path: Path, out: Path, how: str, test: float, validation: float, seed: int, force: bool
) -> None:
    """Write a data set with a fixed split.

    Every command that reads the result holds out the same interactions. By default, loger keeps a
    split that the data already has; otherwise it holds out each user's latest interactions, or
    random ones if there are no times.

    \b
    Example:
      loger data split my-shop -o my-shop.split --split random --seed 7
    """
    from loger.data import saved

    saved.check_target(out, replace=force)
    dataset = options.read(path, None, None)
    from loger.data import split as divide

    parts = divide(dataset, how, test=test, validation=validation, seed=seed)  # type: ignore[arg-type]
    _save(parts.marked(), out, parts.sizes)


def _to_recbole(dataset: Dataset, out: Path) -> None:
    """Write RecBole's files and show what was written."""
    from loger.data.readers import recbole

    rows = recbole.write(dataset, out)
    if show.wants_json():
        show.as_json({"name": dataset.name, "out": str(out), "rows": rows})
        return
    lost = rows.pop("left out")
    show.console().print(show.table(["file", "rows"], [(k, f"{n:,}") for k, n in rows.items()]))
    if lost:
        click.echo(f"note: left out {lost:,} facts about single interactions", err=True)
    click.echo(f"Saved to {out}")


def _save(dataset: Dataset, out: Path, parts: dict[str, int] | None = None) -> None:
    """Write a data set and show what was written."""
    dataset.save(out)
    files = {p.name: p.stat().st_size for p in sorted(out.glob("*.parquet"))}
    if show.wants_json():
        notes = [asdict(note) for note in dataset.notes]
        written = {"name": dataset.name, "out": str(out), "files": files, "notes": notes}
        show.as_json(written if parts is None else written | {"parts": parts})
        return
    size = sum(files.values()) / 1e6
    lines = [f"{dataset.name}: {len(files)} files, {size:.1f} MB in {out}", *dataset.notes]
    if parts is not None:
        lines.append(", ".join(f"{n:,} {part}" for part, n in parts.items()))
    for line in lines:
        show.console().print(str(line), markup=False)


def draw(counts: dict[str, Any]) -> None:
    """Show the statistics of a data set."""
    from rich.markup import escape

    to = show.console()
    to.print(
        f"[bold]{escape(counts['name'])}[/bold]: {counts['users']:,} users, "
        f"{counts['items']:,} items, {counts['interactions']:,} interactions "
        f"({counts['density']:.2%} of all pairs), {counts['entities']:,} entities, "
        f"{counts['facts']:,} facts"
    )
    types = [(t["type"], t["entities"], t["example"]) for t in counts["types"]]
    to.print(show.table(["type", "entities", "for example"], types, "\nEntities"))
    relations = [
        (
            r["relation"],
            f"{r['head_type']} → {r['tail_type']}",
            r["facts"],
            r["per_head"],
            r["per_tail"],
            f"{r['hub']} ({r['hub_degree']:,})",
        )
        for r in counts["relations"]
    ]
    columns = ["relation", "from → to", "facts", "per head", "per tail", "largest hub"]
    to.print(show.table(columns, relations, "\nRelations"))
    _draw_interactions(counts, to)
    if counts["notes"]:
        to.print(show.notes(counts["notes"]))


def _draw_interactions(counts: dict[str, Any], to: Console) -> None:
    """How many interactions users and items have, and what is known of them."""
    rows = [
        (name, s["min"], s["median"], s["mean"], s["max"], s["none"])
        for name, s in (("user", counts["per_user"]), ("item", counts["per_item"]))
    ]
    columns = ["per", "min", "median", "mean", "max", "with none"]
    to.print(show.table(columns, rows, "\nInteractions"))
    has = [name for name in ("ratings", "strengths", "times") if counts[name]]
    if counts["parts"]:
        has.append("a split: " + ", ".join(f"{n:,} {part}" for part, n in counts["parts"].items()))
    to.print(f"with {', '.join(has)}" if has else "without ratings, times or a split")
