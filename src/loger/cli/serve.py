"""``loger serve``: the HTTP API and the web app; ``loger feedback``: which reasons work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loger.cli import options, show

VARIANTS = ["variant", "lists", "clicked", "rate", "first click", "if for everybody (SNIPS)"]
GROUPS = ["", "shown", "clicked", "rate", "times, at the same places"]
ROWS = 10
"""Rows of each table."""


@click.command()
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True, type=options.PATH)
@options.host
@options.port(8000)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Worker processes; they share the bundle's memory.",
)
@click.option(
    "--traffic",
    metavar="SHARES",
    help="With several bundles, each one's share of users, such as 90:10.",
)
@click.option(
    "--api-key",
    envvar="LOGER_API_KEY",
    metavar="KEY",
    help="Require this key in the header X-API-Key of every request.  [env: LOGER_API_KEY]",
)
@click.option("--no-auth", is_flag=True, help="Accept other machines without a key.")
@click.option("--events/--no-events", default=True, help="Record events and learn from them.")
@click.option(
    "--merge-interval",
    type=click.FloatRange(0),
    default=300.0,
    metavar="SECONDS",
    help="Merge events into the bundle at least this often; 0 never does.",
)
@click.option(
    "--images", type=options.PATH, metavar="FOLDER", help="Pictures named by an image column."
)
@options.wording
@click.option(
    "--set",
    "set_",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another setting: watch (seconds between checks for a new bundle; 0 never checks), masks "
    "(folder that keeps uploaded masks), events_file, threads or max_body.",
)
@click.option(
    "--engine",
    default="processes",
    metavar="NAME",
    help="processes on this machine, or replicas of Ray Serve: ray or ray=ADDRESS.",
)
def serve(
    bundles: tuple[Path, ...],
    host: str,
    port: int,
    workers: int,
    traffic: str | None,
    api_key: str | None,
    no_auth: bool,
    events: bool,
    merge_interval: float,
    images: Path | None,
    wording: Path | None,
    set_: tuple[str, ...],
    engine: str,
) -> None:
    """Serve a model: web app, HTTP API and its documentation.

    Only this machine can reach the server, unless you set --host. When you save a new bundle to the
    same folder, or point a link to another one, the server loads it without losing a request. With
    several bundles, each user always gets the same one, chosen by a hash of the name.

    \b
    Examples:
      loger serve my.bundle
      loger serve my.bundle new.bundle --traffic 90:10
      LOGER_API_KEY=secret loger serve my.bundle --host 0.0.0.0 --workers 4
      loger serve /data/my.bundle --workers 8 --engine ray=10.0.0.1:6379
    """
    name, _, address = engine.partition("=")
    if name not in ("processes", "ray") or (address and name == "processes"):
        raise click.UsageError(f"--engine is processes, ray or ray=ADDRESS, got {engine!r}")
    from loger.engine.files import read_manifest
    from loger.engine.settings import layered
    from loger.rules.wording import wording_of
    from loger.store.bundle import MODEL
    from loger.updates.feedback import Traffic
    from loger.web.config import ServeConfig, check_installed, check_key

    check_installed()
    folder, *others = (str(bundle.absolute()) for bundle in bundles)
    given: dict[str, Any] = {
        "host": host, "port": port, "workers": workers, "api_key": api_key,
        "events": events, "merge_interval": merge_interval, "others": others,
        "traffic": Traffic.read(traffic, len(bundles)).shares,
        "wording": None if wording is None else str(wording),
        "images": None if images is None else str(images),
    }  # fmt: skip
    config = layered(ServeConfig(folder), texts=set_, values=given).with_absolute_paths()
    check_key(config.host, config.api_key, no_auth)
    if name == "ray" and config.events_file is not None:
        raise click.UsageError("replicas on Ray record no events; omit events_file")
    if images is not None and not images.is_dir():
        raise click.UsageError(f"--images: no such folder {str(images)!r}")
    for bundle in bundles:
        read_manifest(bundle, MODEL)
    wording_of(None, wording)  # reports mistakes in it before a server starts
    from loger.web.launch import run, run_on_ray

    if name == "ray":
        run_on_ray(config, address or None)
    else:
        run(config)


@click.group()
def feedback() -> None:
    """See which reasons work, by what people clicked."""


@feedback.command()
@click.argument("source", metavar="BUNDLE", type=options.PATH)
@click.option(
    "--min-shown", type=click.IntRange(1), default=20, metavar="N", help="Omit what was shown less."
)
@options.json
def report(source: Path, min_shown: int) -> None:
    """Show which rules, kinds of reason and items people clicked, and compare variants.

    BUNDLE is a bundle that was served, or its file BUNDLE.events.sqlite. The report needs the
    impressions and clicks that your shop sends to /v1/events of loger serve. "times" compares how
    often people clicked something with other things at the same places. Intervals are 95%. --json
    prints all rows.

    \b
    Examples:
      loger feedback report my-shop.bundle
      loger feedback report my-shop.bundle.events.sqlite --json
    """
    from loger.errors import DataError
    from loger.updates.events import EventStore, events_path
    from loger.updates.feedback import report as made

    path = events_path(source) if source.is_dir() else source
    if not path.is_file():
        remedy = "serve the bundle and send impressions and clicks to /v1/events"
        raise DataError("no events yet", path=path, remedy=remedy)
    store = EventStore(path)
    try:
        found = made(store, min_shown)
    finally:
        store.close()
    show.result(found, draw_report)


def draw_report(told: dict[str, Any]) -> None:
    """Show a report as tables."""
    lists, out = told["lists"], show.console()
    out.print(
        f"{lists['seen']:,} of {lists['made']:,} lists were seen, with {told['items_seen']:,} "
        f"items and {told['clicks']:,} click{'' if told['clicks'] == 1 else 's'}"
    )
    if lists["unknown"]:
        out.print(f"impressions of {lists['unknown']:,} unknown lists are ignored")
    if lists["only_clicked"]:
        out.print(f"clicks of {lists['only_clicked']:,} lists without an impression are ignored")
    if told["variants"]:
        out.print(show.table(VARIANTS, [_variant(v) for v in told["variants"]], "variants"))
    for row in told["difference"]:
        out.print(f"{row['name']}: {_interval(row, 'rate', 'low', 'high', percent=True)}")
    names = {"kinds": "kinds of reason", "rules": "rules", "items": "items"}
    for key, title in names.items():
        if told[key]:
            out.print(show.table(GROUPS, [_group(g) for g in told[key][:ROWS]], title))
    if told["positions"]:
        rows = [(p["rank"], p["shown"], p["clicked"], _rate(p)) for p in told["positions"][:ROWS]]
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
