"""``loger serve``: the HTTP API and the web app; ``loger feedback``: which reasons work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loger.cli import options, show

VARIANTS = ["variant", "lists", "clicked", "rate", "first click", "if shown to everyone (SNIPS)"]
GROUPS = ["", "shown", "clicked", "rate", "compared with others at the same ranks"]
ROWS = 10
"""Rows of each table."""


@click.command()
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True, type=options.PATH)
@options.host
@options.port(8000)
@options.number("--workers", 1, "Number of worker processes; they share the bundle's memory.")
@click.option("--traffic", metavar="SHARES", help="Each bundle's share of users, such as 90:10.")
@click.option(
    "--api-key",
    envvar="LOGER_API_KEY",
    metavar="KEY",
    help="Key that every request must send as X-API-Key.  [env: LOGER_API_KEY]",
)
@click.option("--no-auth", is_flag=True, help="Accept requests from other machines without a key.")
@options.settings(
    "A setting: events (false: record no events and learn from none), merge_interval (seconds "
    "until events join the bundle; 0 for never), watch (seconds between checks for a new bundle; 0 "
    "for never), images (folder with pictures), masks (folder for uploaded masks), wording (TOML "
    "file), events_file, threads or max_body"
)
def serve(
    bundles: tuple[Path, ...],
    host: str,
    port: int,
    workers: int,
    traffic: str | None,
    api_key: str | None,
    no_auth: bool,
    set_: tuple[str, ...],
) -> None:
    """Serve a model as a web app and an HTTP API.

    By default, only this machine can reach the server. If you save a new bundle to the same folder,
    or point a link to another one, the server loads it without dropping requests. With several
    bundles, each user always gets the same one. `loger --engine ray serve` uses Ray Serve.

    \b
    Examples:
      loger serve my.bundle
      loger serve my.bundle new.bundle --traffic 90:10
      LOGER_API_KEY=secret loger serve my.bundle --host 0.0.0.0 --workers 4
      loger --engine ray=10.0.0.1:6379 serve /data/my.bundle --workers 8
    """
    engine = show.engine_name() or "processes"
    name, _, address = engine.partition("=")
    if name not in ("processes", "ray") or (address and name == "processes"):
        raise click.UsageError(
            f"a server's --engine must be processes, ray or ray=ADDRESS, got {engine!r}"
        )
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
        "others": others, "traffic": Traffic.read(traffic, len(bundles)).shares,
    }  # fmt: skip
    config = layered(ServeConfig(folder), texts=set_, values=given).with_absolute_paths()
    check_key(config.host, config.api_key, no_auth)
    if name == "ray" and config.events_file is not None:
        raise click.UsageError("replicas on Ray don't record events; remove events_file")
    if config.images is not None and not Path(config.images).is_dir():
        raise click.UsageError(f"images: no such folder {config.images!r}")
    for bundle in bundles:
        read_manifest(bundle, MODEL)
    wording_of(None, config.wording)  # report mistakes in the file before the server starts
    from loger.web.launch import run, run_on_ray

    if name == "ray":
        run_on_ray(config, address or None)
    else:
        run(config)


@click.group(cls=options.Group)
def feedback() -> None:
    """See which reasons people click."""


@feedback.command()
@click.argument("source", metavar="BUNDLE", type=options.PATH)
@options.number("--min-shown", 20, "Hide entries that were shown fewer times.")
def report(source: Path, min_shown: int) -> None:
    """Show which rules, kinds of reasons and items people click, and compare variants.

    BUNDLE is a bundle that you served, or its file BUNDLE.events.sqlite. The report counts the
    impressions and clicks that your shop sends to /v1/events. The last column compares how often
    people clicked something with other things at the same ranks. Intervals are 95% confidence
    intervals. With --json, loger prints all rows.

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
        remedy = "serve the bundle, and send impressions and clicks to /v1/events"
        raise DataError("there are no events yet", path=path, remedy=remedy)
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
        out.print(f"Ignored impressions of {lists['unknown']:,} unknown lists.")
    if lists["only_clicked"]:
        out.print(f"Ignored clicks on {lists['only_clicked']:,} lists without an impression.")
    if told["variants"]:
        out.print(show.table(VARIANTS, [_variant(v) for v in told["variants"]], "variants"))
    for row in told["difference"]:
        out.print(f"{row['name']}: {_interval(row, 'rate', 'low', 'high', percent=True)}")
    names = {"kinds": "kinds of reasons", "rules": "rules", "items": "items"}
    for key, title in names.items():
        if told[key]:
            out.print(show.table(GROUPS, [_group(g) for g in told[key][:ROWS]], title))
    if told["positions"]:
        rows = [(p["rank"], p["shown"], p["clicked"], _rate(p)) for p in told["positions"][:ROWS]]
        out.print(show.table(["rank", "shown", "clicked", "rate"], rows, "ranks"))


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
