"""``loger serve``: the HTTP API and the web app over a bundle."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from loger.errors import LogerError


def serve(
    bundle: Annotated[Path, typer.Argument(help="A folder that `loger fit` wrote.")],
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes; they share the bundle.")] = 1,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="LOGER_API_KEY",
            help="Ask every request for this key, in the header X-API-Key.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        float, typer.Option(min=0, help="Seconds between looks for a newer bundle; 0: never.")
    ] = 2.0,
) -> None:
    """Serve recommendations with reasons: a web app, an HTTP API and its documentation.

    Only this machine can reach it unless --host says otherwise. A bundle that is saved anew to
    the same folder, or a link that is pointed to another, is taken up without losing a request.

    \b
    Examples:
      loger serve my.bundle
      LOGER_API_KEY=secret loger serve my.bundle --host 0.0.0.0 --workers 4
    """
    check_installed()
    import uvicorn

    from loger.bundle import MODEL
    from loger.files import read_manifest
    from loger.web.config import VARIABLE, ServeConfig

    read_manifest(bundle, MODEL)
    check_free(host, port)
    config = ServeConfig(
        str(bundle.absolute()), host, port, workers, api_key=api_key or None, watch=watch
    )
    with tempfile.TemporaryDirectory(prefix="loger-metrics-") as numbers:
        os.environ[VARIABLE] = config.to_json()
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # requests are the unit of parallel work
        if workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = numbers
        uvicorn.run(
            "loger.web.app:from_environment",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            access_log=False,
            server_header=False,
        )


def check_free(host: str, port: int) -> None:
    """Refuse an address that something else listens at, before a model is loaded."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise LogerError(
                f"cannot listen at {host}:{port} ({error.strerror}); give another --port or --host"
            ) from None


def check_installed() -> None:
    """Refuse if what serving needs is not installed."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client.multiprocess  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise LogerError(
            f"serving needs {error.name}, which is not installed; run pip install 'loger[serve]', "
            "in a clone pip install '.[serve]'"
        ) from None
