"""Starting the server: what it needs, where it listens, its worker processes."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import current_thread, main_thread

from loger.errors import LogerError
from loger.web.config import VARIABLE, ServeConfig


def check_installed() -> None:
    """Refuse if what serving needs is not installed: looked for, not imported, for workers are
    processes of their own, and the one that starts them needs little of it."""
    for name in ("fastapi", "httptools", "prometheus_client", "uvicorn"):
        if find_spec(name) is None:
            raise LogerError(
                f"serving needs {name}, which is not installed; run "
                "pip install 'loger-rec[serve]', in a clone pip install '.[serve]'"
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


def run(config: ServeConfig) -> None:
    """Serve until interrupted."""
    check_installed()
    check_free(config.host, config.port)
    import uvicorn

    from loger.web.copies import clear_abandoned, scratch_prefix
    from loger.web.protocol import GRACE

    clear_abandoned()
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as scratch:
        copies, metrics = Path(scratch) / "bundles", Path(scratch) / "metrics"
        copies.mkdir()
        metrics.mkdir()
        os.environ[VARIABLE] = replace(config, scratch=str(copies), lane=True).to_json()
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # requests are the unit of parallel work
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
        if current_thread() is main_thread():  # uvicorn raises it again once it has stopped
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        uvicorn.run(
            "loger.web.app:from_environment",
            factory=True,
            host=config.host,
            port=config.port,
            workers=config.workers,
            access_log=False,
            server_header=False,
            http="loger.web.protocol:TimedProtocol",
            ws="none",
            timeout_graceful_shutdown=GRACE,
        )
