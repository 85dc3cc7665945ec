"""``loger data``: look at data sets and convert them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    """Show what is in a data set: entities, relations, hubs, interactions, notes.

    \b
    Examples:
      loger data inspect my-shop
      loger data inspect ratings.csv --positive-from 4
      loger data inspect my-shop --json | jq .relations
    """
    dataset = read(path, format, positive_from)
    from loger.cli import show
    from loger.cli.statistics import statistics

    with show.working("counting"):
        found = statistics(dataset)
    if json:
        show.as_json(found)
    else:
        draw(found, show.console())


@app.command()
def convert(
    path: Source,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    format: Format = None,
    positive_from: PositiveFrom = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the data set there.")] = False,
    json: AsJson = False,
) -> None:
    """Write a data set as Parquet files, which load in seconds whatever it came from.

    \b
    Example:
      loger data convert my-shop my-shop.loger
    """
    from loger.data import saved

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
    seed: Annotated[int, typer.Option(help="For a random split.")] = 0,
    format: Format = None,
    positive_from: PositiveFrom = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the data set there.")] = False,
    json: AsJson = False,
) -> None:
    """Write a data set with a split, so that all who read it hold out the same interactions.

    Each user's latest interactions are held out where there are times, else any; a split
    that the data brings is kept, unless --split says otherwise.

    \b
    Example:
      loger data split my-shop my-shop.split --split random --seed 7
    """
    from loger.data import saved

    saved.check_target(out, replace=force)
    dataset = read(path, format, positive_from)
    import numpy as np

    from loger.data import split as divide
    from loger.data.dataset import PARTS

    parts = divide(dataset, how, test=test, validation=validation, seed=seed)  # type: ignore[arg-type]
    marks = np.empty(len(dataset.interactions), dtype=np.int8)
    for k, name in enumerate(PARTS):
        marks[getattr(parts, name)] = k
    events = replace(dataset.interactions, parts=marks)
    sizes = {name: len(getattr(parts, name)) for name in PARTS}
    _save(replace(dataset, interactions=events), out, json, sizes)


def _save(dataset: Dataset, out: Path, json: bool, parts: dict[str, int] | None = None) -> None:
    """Write a data set and tell what was written."""
    dataset.save(out)
    files = {p.name: p.stat().st_size for p in sorted(out.glob("*.parquet"))}
    from loger.cli import show

    if json:
        notes = [asdict(note) for note in dataset.notes]
        told = {"name": dataset.name, "out": str(out), "files": files, "notes": notes}
        show.as_json(told if parts is None else told | {"parts": parts})
        return
    size = sum(files.values()) / 1e6
    lines = [f"{dataset.name}: {len(files)} files, {size:.1f} MB in {out}", *dataset.notes]
    if parts is not None:
        lines.append(", ".join(f"{n:,} {part}" for part, n in parts.items()))
    for line in lines:
        show.console().print(str(line), markup=False, soft_wrap=True)


def draw(found: dict[str, Any], to: Console) -> None:
    """Show the statistics of a data set."""
    from rich.markup import escape

    from loger.cli import show

    to.print(
        f"[bold]{escape(found['name'])}[/bold]: {found['users']:,} users, "
        f"{found['items']:,} items, {found['interactions']:,} interactions "
        f"({found['density']:.2%} of all pairs), {found['entities']:,} entities, "
        f"{found['facts']:,} facts"
    )
    types = [(t["type"], t["entities"], t["example"]) for t in found["types"]]
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
        for r in found["relations"]
    ]
    columns = ["relation", "from → to", "facts", "per head", "per tail", "largest hub"]
    to.print(show.table(columns, relations, "\nRelations"))
    spread = [
        (name, s["least"], s["median"], s["mean"], s["most"], s["none"])
        for name, s in (("user", found["per_user"]), ("item", found["per_item"]))
    ]
    columns = ["per", "least", "median", "mean", "most", "with none"]
    to.print(show.table(columns, spread, "\nInteractions"))
    has = [name for name in ("ratings", "times") if found[name]]
    if found["parts"]:
        has.append("a split: " + ", ".join(f"{n:,} {part}" for part, n in found["parts"].items()))
    to.print(f"with {', '.join(has)}" if has else "without ratings, times or a split")
    if found["notes"]:
        notes = [(n["count"], n["what"], n["example"]) for n in found["notes"]]
        to.print(
            show.table(["rows", "what was found and how it was handled", "first"], notes, "\nNotes")
        )
