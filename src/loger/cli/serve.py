"""``loger serve``: the HTTP API and the web app over a bundle; ``loger feedback``: which of the
reasons that it showed work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from loger.cli.options import AsJson, Host, Port, WordingFile, setting

CLICKED = "See which reasons work, by what people clicked."
feedback_app = typer.Typer(no_args_is_help=True, help=CLICKED)
VARIANTS = ["variant", "lists", "clicked", "rate", "first click", "if for everybody (SNIPS)"]
GROUPS = ["", "shown", "clicked", "rate", "times, at the same places"]


def serve(
    bundles: Annotated[
        list[Path],
        typer.Argument(
            metavar="BUNDLE...", help="A folder with a model that loger fit wrote, or several."
        ),
    ],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    traffic: Annotated[
        str | None,
        setting(
            "With several bundles, which share of users each gets, such as 90:10.", metavar="SHARES"
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Worker processes; they share the bundle's memory.")
    ] = 1,
    api_key: Annotated[
        str | None,
        setting(
            "Require this key with every request, in the header X-API-Key.", envvar="LOGER_API_KEY"
        ),
    ] = None,
    watch: Annotated[
        float,
        typer.Option(min=0, help="Seconds between checks for a newer bundle; 0 never checks."),
    ] = 2.0,
    masks: Annotated[
        Path | None,
        setting(
            "Keep uploaded masks here, NAME.txt with an item in a line; else they are kept "
            "as long as the server runs.",
            metavar="FOLDER",
        ),
    ] = None,
    events: Annotated[
        Path | None,
        setting(
            "Keep events here; else in BUNDLE.events.sqlite beside the bundle.", metavar="FILE"
        ),
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn/--no-events", help="Whether to take events.")
    ] = True,
    fold_every: Annotated[
        float,
        typer.Option(min=0, help="Seconds until events are folded into the bundle; 0 never folds."),
    ] = 300.0,
    images: Annotated[
        Path | None,
        setting(
            "Show the pictures that an image column of the items named, from this folder.",
            metavar="FOLDER",
        ),
    ] = None,
    wording: WordingFile = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="processes: workers of this machine; ray or ray=ADDRESS: replicas of Ray Serve.",
        ),
    ] = "processes",
) -> None:
    """Serve a model: web app, HTTP API and its documentation.

    Only this machine can reach the server unless --host says otherwise. When a new bundle is
    saved to the same folder, or a link is pointed to another, the server loads it without losing
    a request. Of several bundles a user always gets the same one, by a hash of the name.

    \b
    Examples:
      loger serve my.bundle
      loger serve my.bundle new.bundle --traffic 90:10
      LOGER_API_KEY=secret loger serve my.bundle --host 0.0.0.0 --workers 4
      loger serve /data/my.bundle --host 0.0.0.0 --workers 8 --engine ray=10.0.0.1:6379
    """
    name, _, address = engine.partition("=")
    if name not in ("processes", "ray") or (address and name == "processes"):
        raise typer.BadParameter(f"--engine is processes, ray or ray=ADDRESS, got {engine!r}")
    if name == "ray" and events is not None:
        raise typer.BadParameter("--events: replicas on Ray take none; leave it out")
    from loger.web.config import ServeConfig, check_installed

    check_installed()
    from loger.engine.files import read_manifest
    from loger.rules.wording import wording_of
    from loger.store.bundle import MODEL
    from loger.updates.feedback import Traffic

    for bundle in bundles:
        read_manifest(bundle, MODEL)
    shares = Traffic.read(traffic, len(bundles)).shares
    wording_of(None, wording)  # a mistake in it is told before a server starts
    folder, *others = (str(bundle.absolute()) for bundle in bundles)
    if images is not None and not images.is_dir():
        raise typer.BadParameter(f"--images: there is no folder {str(images)!r}")
    files = {"masks": masks, "wording": wording, "events": events, "images": images}
    kept = {name: None if path is None else str(path.absolute()) for name, path in files.items()}
    more = {"api_key": api_key or None, "watch": watch, "learn": learn, "fold_every": fold_every}
    config = ServeConfig(folder, host, port, workers, others=tuple(others), traffic=shares)
    config = replace(config, **more, **kept)  # type: ignore[arg-type]
    from loger.web.launch import run, run_on_ray

    if name == "ray":
        run_on_ray(config, address or None)
    else:
        run(config)


# ── loger feedback ──────────────────────────────────────────────────────────────────────


@feedback_app.callback(help=CLICKED)
def feedback_root() -> None:
    """Keep ``report`` a command of the group, though it is the only one."""


@feedback_app.command()
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
    from loger.updates.events import EventStore, events_path
    from loger.updates.feedback import report as made

    path = events_path(source) if source.is_dir() else source
    if not path.is_file():
        remedy = "serve the bundle and send impressions and clicks to /v1/events"
        raise DataError("there are no events yet", path=path, remedy=remedy)
    store = EventStore(path)
    try:
        told = made(store, min_shown)
    finally:
        store.close()
    show.result(told, lambda values: draw_report(values, most), json)


def draw_report(told: dict[str, Any], most: int) -> None:
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
