"""``loger serve``: the HTTP API and the web app over a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from loger.cli.options import WordingFile


def serve(
    bundles: Annotated[
        list[Path],
        typer.Argument(
            metavar="BUNDLE...", help="A folder with a model that loger fit wrote, or several."
        ),
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen at; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8000,
    traffic: Annotated[
        str | None,
        typer.Option(
            metavar="SHARES",
            help="With several bundles, which share of users each gets, such as 90:10.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Worker processes; they share the bundle's memory.")
    ] = 1,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="LOGER_API_KEY",
            help="Require this key with every request, in the header X-API-Key.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        float,
        typer.Option(min=0, help="Seconds between checks for a newer bundle; 0 never checks."),
    ] = 2.0,
    masks: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep uploaded masks here, NAME.txt with an item in a line; else they are kept "
            "as long as the server runs.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep events here; else in BUNDLE.events.sqlite beside the bundle.",
            show_default=False,
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
        typer.Option(
            metavar="FOLDER",
            help="Show the pictures that an image column of the items named, from this folder.",
            show_default=False,
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
    from loger.updates.feedback.shown import Traffic

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
