"""``loger serve``: the HTTP API and the web app over a bundle."""

from __future__ import annotations

from typing import Annotated

import typer

from loger.cli.options import Bundle


def serve(
    bundle: Bundle,
    host: Annotated[
        str, typer.Option(help="The address to listen at; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8000,
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
) -> None:
    """Serve a model: web app, HTTP API and its documentation.

    Only this machine can reach the server unless --host says otherwise. When a new bundle is
    saved to the same folder, or a link is pointed to another, the server loads it without losing
    a request.

    \b
    Examples:
      loger serve my.bundle
      LOGER_API_KEY=secret loger serve my.bundle --host 0.0.0.0 --workers 4
    """
    from loger.web.config import ServeConfig
    from loger.web.launch import check_installed, run

    check_installed()
    from loger.bundle import MODEL
    from loger.files import read_manifest

    read_manifest(bundle, MODEL)
    folder = str(bundle.absolute())
    run(ServeConfig(folder, host, port, workers, api_key=api_key or None, watch=watch))
