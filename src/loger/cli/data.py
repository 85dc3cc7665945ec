"""``loger data``: look at data sets and convert them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from loger.cli import build
from loger.cli.options import (
    AsJson,
    Format,
    How,
    PositiveFrom,
    Source,
    TestShare,
    ValidationShare,
    read,
)

if TYPE_CHECKING:
    from rich.console import Console

    from loger.data import Dataset

app = typer.Typer(no_args_is_help=True, help="Look at data sets, convert, split and build them.")
app.add_typer(build.app, name="build")


@app.command()
def inspect(
    path: Source, format: Format = None, positive_from: PositiveFrom = None, json: AsJson = False
) -> None:
    """Show what is in a data set.

    Entities by type, relations with their degrees and largest hubs, interactions, and notes on
    rows that were changed or left out.

    \b
    Examples:
      loger data inspect my-shop
      loger data inspect ratings.csv --positive-from 4
      loger data inspect my-shop --json | jq .relations
    """
    dataset = read(path, format, positive_from)
    from loger.cli import show
    from loger.data.statistics import statistics

    with show.working("counting"):
        counts = statistics(dataset)
    show.result(counts, draw, json)


@app.command()
def convert(
    path: Source,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    format: Format = None,
    positive_from: PositiveFrom = None,
    to: Annotated[
        Literal["loger", "recbole"],
        typer.Option(help="Our own Parquet files, or RecBole's atomic files."),
    ] = "loger",
    force: Annotated[bool, typer.Option("--force", help="Replace the data set at OUT.")] = False,
    json: AsJson = False,
) -> None:
    """Write a data set as Parquet files, or as RecBole's atomic files.

    \b
    Examples:
      loger data convert my-shop my-shop.loger
      loger data convert my-shop my-shop.recbole --to recbole
    """
    from loger.data import saved

    if to == "recbole":
        _to_recbole(read(path, format, positive_from), out, json)
        return
    saved.check_target(out, replace=force)
    dataset = read(path, format, positive_from)
    _save(dataset, out, json)


@app.command()
def split(
    path: Source,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    how: How = "auto",
    test: TestShare = 0.2,
    validation: ValidationShare = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of a random split.")] = 0,
    format: Format = None,
    positive_from: PositiveFrom = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the data set at OUT.")] = False,
    json: AsJson = False,
) -> None:
    """Write a data set with a fixed split.

    Whoever reads it holds out the same interactions: each user's latest if there are times, else
    random ones; a split that the data have is kept, unless --split says otherwise.

    \b
    Example:
      loger data split my-shop my-shop.split --split random --seed 7
    """
    from loger.data import saved

    saved.check_target(out, replace=force)
    dataset = read(path, format, positive_from)
    from loger.data import split as divide

    parts = divide(dataset, how, test=test, validation=validation, seed=seed)  # type: ignore[arg-type]
    _save(parts.marked(), out, json, parts.sizes)


def _to_recbole(dataset: Dataset, out: Path, json: bool) -> None:
    """Write RecBole's files and show what was written."""
    from loger.cli import show
    from loger.data.readers import recbole

    rows = recbole.write(dataset, out)
    if json:
        show.as_json({"name": dataset.name, "out": str(out), "rows": rows})
        return
    lost = rows.pop("left out")
    show.console().print(show.table(["file", "rows"], [(k, f"{n:,}") for k, n in rows.items()]))
    if lost:
        typer.echo(f"note: {lost:,} facts that single interactions tell are left out", err=True)
    typer.echo(f"written to {out}")


def _save(dataset: Dataset, out: Path, json: bool, parts: dict[str, int] | None = None) -> None:
    """Write a data set and show what was written."""
    dataset.save(out)
    files = {p.name: p.stat().st_size for p in sorted(out.glob("*.parquet"))}
    from loger.cli import show

    if json:
        notes = [asdict(note) for note in dataset.notes]
        written = {"name": dataset.name, "out": str(out), "files": files, "notes": notes}
        show.as_json(written if parts is None else written | {"parts": parts})
        return
    size = sum(files.values()) / 1e6
    lines = [f"{dataset.name}: {len(files)} files, {size:.1f} MB in {out}", *dataset.notes]
    if parts is not None:
        lines.append(", ".join(f"{n:,} {part}" for part, n in parts.items()))
    for line in lines:
        show.console().print(str(line), markup=False, soft_wrap=True)


def draw(counts: dict[str, Any]) -> None:
    """Show the statistics of a data set."""
    from rich.markup import escape

    from loger.cli import show

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
        notes = [(n["count"], n["what"], n["example"]) for n in counts["notes"]]
        to.print(
            show.table(["rows", "what was found and how it was handled", "first"], notes, "\nNotes")
        )


def _draw_interactions(counts: dict[str, Any], to: Console) -> None:
    """How many interactions users and items have, and what is known of them."""
    from loger.cli import show

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
