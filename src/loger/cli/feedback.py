"""``loger feedback``: which reasons work, by what people clicked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from loger.cli.options import AsJson

app = typer.Typer(no_args_is_help=True, help="See which reasons work, by what people clicked.")


@app.callback()
def root() -> None:
    """See which reasons work, by what people clicked."""


@app.command()
def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="BUNDLE", help="A bundle that was served, or its file BUNDLE.events.sqlite."
        ),
    ],
    min_shown: Annotated[
        int, typer.Option(min=1, help="Leave out what was shown less often.")
    ] = 20,
    most: Annotated[int, typer.Option("-n", min=1, help="Rows of each table.")] = 10,
    json: AsJson = False,
) -> None:
    """Say which rules, kinds of reason and items were clicked, and how variants compare.

    Needs impressions and clicks, which are sent to /v1/events of loger serve. "times" is how many
    times as often as others something was clicked at the same places of lists; all intervals are
    of 95 %. With --json every row is printed.

    \b
    Examples:
      loger feedback report my-shop.bundle
      loger feedback report my-shop.bundle.events.sqlite --json
    """
    from loger.cli import show
    from loger.errors import DataError
    from loger.updates.events.store import EventStore, beside
    from loger.updates.feedback.report import report as made

    path = beside(source) if source.is_dir() else source
    if not path.is_file():
        remedy = "serve the bundle and send impressions and clicks to /v1/events"
        raise DataError("there are no events yet", path=path, remedy=remedy)
    store = EventStore(path)
    try:
        told = made(store, min_shown)
    finally:
        store.close()
    show.result(told, lambda values: draw(values, most), json)


def draw(told: dict[str, Any], most: int) -> None:
    """Show a report as tables."""
    from loger.cli import show

    lists, out = told["lists"], show.console()
    out.print(
        f"{lists['seen']:,} of {lists['made']:,} lists were seen, with {told['items_seen']:,} "
        f"items and {told['clicks']:,} click{'' if told['clicks'] == 1 else 's'}"
    )
    if lists["unknown"]:
        out.print(f"impressions of {lists['unknown']:,} lists that are not known are left out")
    if lists["only_clicked"]:
        out.print(f"clicks of {lists['only_clicked']:,} lists without an impression are left out")
    if told["variants"]:
        out.print(show.table(VARIANTS, [_variant(v) for v in told["variants"]], "variants"))
    for row in told["difference"]:
        out.print(f"{row['name']}: {_interval(row, 'rate', 'low', 'high', percent=True)}")
    names = {"kinds": "kinds of reason", "rules": "rules", "items": "items"}
    for key, title in names.items():
        if told[key]:
            out.print(show.table(GROUPS, [_group(g) for g in told[key][:most]], title))
    if told["positions"]:
        rows = [(p["rank"], p["shown"], p["clicked"], _rate(p)) for p in told["positions"][:most]]
        out.print(show.table(["place", "shown", "clicked", "rate"], rows, "places"))


VARIANTS = ["variant", "lists", "clicked", "rate", "first click", "if for everybody (SNIPS)"]
GROUPS = ["", "shown", "clicked", "rate", "times, at the same places"]


def _variant(row: dict[str, Any]) -> tuple[object, ...]:
    snips = dict(zip(("value", "low", "high"), row["snips"], strict=True))
    everybody = _interval(snips, "value", "low", "high", percent=True)
    first = f"{row['mrr']:.3f}"
    return row["name"], row["lists"], row["clicked"], _rate(row), first, everybody


def _group(row: dict[str, Any]) -> tuple[object, ...]:
    times = _interval(row, "ratio", "ratio_low", "ratio_high")
    return row["name"], row["shown"], row["clicked"], _rate(row), times


def _rate(row: dict[str, Any]) -> str:
    return _interval(row, "rate", "low", "high", percent=True)


def _interval(
    row: dict[str, Any], value: str, low: str, high: str, *, percent: bool = False
) -> str:
    def said(number: float | None) -> str:
        return "…" if number is None else f"{number:.1%}" if percent else f"{number:.2f}"

    return f"{said(row[value])} ({said(row[low])} to {said(row[high])})"
