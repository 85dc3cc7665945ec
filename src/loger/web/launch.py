"""Starting a server: worker processes on this machine, or replicas of Ray Serve on a cluster.

On a cluster every replica opens the bundle by its path, which must be the same on all nodes. The
replicas of a node share one copy in memory. Each looks for a newer bundle by itself, as workers do;
a request ends with the bundle that it began with.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from threading import current_thread, main_thread
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from loger.engine import RayEngine
from loger.errors import LogerError
from loger.web.config import (
    RESERVED,
    VARIABLE,
    ServeConfig,
    bound_socket,
    check_installed,
    claimed_folder,
    clear_abandoned,
)

SECONDS = 10.0
"""How long a client has to send a whole request, from its first byte or from connecting."""
MAX_CONNECTIONS = 1_000
"""Connections of a process at a time."""
RESERVE, RESERVE_SECONDS = 32, 1.0
"""Further connections, which may only ask for health, and how many seconds they have for it."""
MIN_RATE = 16 * 1024
"""Bytes that a client must read in a second once ``SECONDS`` have passed."""
MIN_PIECE, FREE_PIECES = 16, 1_000
"""The average number of bytes that pieces or chunks of a body must have, after so many of them."""
MAX_OF_CLIENT = 100
"""Connections of one address at a time."""
MAX_HEAD = 64 * 1024
"""Bytes of headers or trailers; the parser itself has no limit."""
GRACE = 5
"""Seconds that running requests have to finish when the server stops."""
UVICORN: dict[str, Any] = {
    "access_log": False,
    "server_header": False,
    "http": "loger.web.launch:TimedProtocol",
    "ws": "none",
    "timeout_graceful_shutdown": GRACE,
}
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
RAY_NAME = "loger"
"""The name of the deployment in Ray Serve."""


def run(config: ServeConfig) -> None:
    """Serve until interrupted."""
    check_installed()
    bound_socket(config.host, config.port).close()  # refused before a model is loaded
    clear_abandoned()
    scratch, remove = claimed_folder()
    try:
        copies, metrics = scratch / "bundles", scratch / "metrics"
        copies.mkdir()
        metrics.mkdir()
        os.environ[VARIABLE] = replace(config, scratch=str(copies), lane=True).to_json()
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # requests are the unit of parallel work
        # prometheus_client reads this when it is imported; the app, which imports it, comes later.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
        if current_thread() is main_thread():  # uvicorn raises it again once it has stopped
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        uvicorn.run(
            "loger.web.app:from_environment",
            factory=True,
            host=config.host,
            port=config.port,
            workers=config.workers,
            **UVICORN,
        )
    finally:
        remove()


# ── connections ─────────────────────────────────────────────────────────────────────────


_open = Counter[str | bool]()
"""Open connections of this process by address, and those of the reserve as ``True``: thousands may
come in a second, so they are counted instead of looked through."""


class TimedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with a deadline for every request, and limits on connections and headers."""

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    """Closes the connection if the client doesn't read."""
    _reserved = False
    """Whether it may ask for health only."""
    _counted: tuple[str, bool] = "", False
    """What it counts as in ``_open``."""
    _running: RequestResponseCycle | None = None
    """The request that is being answered."""
    _pieces = 0
    """Pieces of the body, less those that its length allows."""
    _complete = False
    """Whether the last request that began has arrived in full."""
    _head = 0
    """Bytes received since the last piece of a body, or since the last request was complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it if there are too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that ``pause_writing`` reports every unsent byte
        self._reserved = len(self.connections) > MAX_CONNECTIONS
        self._counted = (self.client[0] if self.client else "", self._reserved)
        _open.update(self._counted)
        too_many = _open[self._counted[0]] > MAX_OF_CLIENT
        if too_many or (self._reserved and _open[True] > RESERVE):
            transport.abort()
        else:
            self._set_deadline()

    def pause_writing(self) -> None:
        """Give the client some time to read the answer."""
        super().pause_writing()
        if self._unread is None:
            seconds = SECONDS + self.transport.get_write_buffer_size() / MIN_RATE
            self._unread = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client has read everything."""
        self._forget_unread()
        super().resume_writing()

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        """Parse some bytes of a request. Its deadline stays, however often bytes arrive."""
        self._set_deadline()
        self._head += len(data)
        super().data_received(data)
        if self._head > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")
        # Between two requests uvicorn has a time limit of its own, but any byte switches it off,
        # even a stray line break. So our deadline stays until there is something to answer.
        answering = self._complete and not self.cycle.response_complete
        if answering or self.transport.is_closing():
            self._clear_deadline()

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self._complete, self._pieces = False, 0
        super().on_message_begin()
        if self._reserved:
            self.scope[RESERVED] = True  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        """Start counting again: what follows is the body."""
        self._head = 0
        super().on_headers_complete()

        if not self.pipeline:
            self._running = self.cycle

    def on_response_complete(self) -> None:
        """Continue with the next request of those that arrived together."""
        self._running = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, whose length the app limits."""
        self._head = 0
        self._pieces += 1 - len(body) // MIN_PIECE
        if self._pieces <= FREE_PIECES:
            super().on_body(body)
        elif not self.transport.is_closing():
            self.send_400_response("The chunks of the body are too small.")

    def on_message_complete(self) -> None:
        """Note that a request has arrived in full."""
        self._complete, self._head = True, 0
        if self._pieces <= FREE_PIECES:
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clear the deadline with the connection."""
        self._clear_deadline()
        self._forget_unread()
        _open.subtract(self._counted)
        if not _open[self._counted[0]]:
            del _open[self._counted[0]]  # or every address would stay for ever
        super().connection_lost(exc)
        if self._running is not None:  # uvicorn only notifies the last request that arrived
            self._running.disconnected = True

    def _set_deadline(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            seconds = RESERVE_SECONDS if self._reserved else SECONDS
            self._deadline = self.loop.call_later(seconds, self._too_late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        """Close the connection, with a 408 if no answer has begun."""
        self._deadline = None
        cycle = self.cycle
        answered = cycle is None or cycle.response_complete
        if self.pipeline or not (answered or cycle.scope is self.scope):
            self._set_deadline()  # the client waits for the answer to an earlier request
            return
        if answered or not cycle.response_started:
            self.transport.write(LATE)
        self.transport.close()


# ── replicas on Ray ─────────────────────────────────────────────────────────────────────


def run_on_ray(
    config: ServeConfig, address: str | None, until: Callable[[], bool] | None = None
) -> None:
    """Serve on the cluster at an address, or on a running or new one, until interrupted.

    At the end the deployment is deleted, and so are Ray Serve and the cluster if they were started
    here. Replicas on several machines can't share a file of events, so they accept none.
    """
    serve = ray_serve()
    if not config.port:  # Ray Serve can't choose a free port
        with bound_socket(config.host, 0) as probe:
            config = replace(config, port=int(probe.getsockname()[1]))
    scratch = Path(gettempdir()) / f"loger-replicas-{token_hex(8)}"
    placed = replace(config, events=False, events_file=None, scratch=str(scratch))
    with RayEngine(address, config.workers + 1) as engine:  # one core for Ray's proxy
        _ = engine.workers  # connects
        known = bool(serve.status().proxies)
        if not known:
            bound_socket(config.host, config.port).close()
            serve.start(http_options={"host": config.host, "port": config.port})
        where = "its own address" if known else f"http://{config.host}:{config.port}"
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            serve.run(_application(serve, placed), name=RAY_NAME, route_prefix="/")
            print(f"serving on Ray at {where}", file=sys.stderr)
            while until is None or not until():
                time.sleep(0.2)
        except KeyboardInterrupt:
            print("stopping", file=sys.stderr)
        finally:
            serve.delete(RAY_NAME)
            _on_every_node(_remove, str(scratch))
            if not known:
                serve.shutdown()


def _application(serve: Any, config: ServeConfig) -> Any:
    """The app, created where each replica runs."""

    def made() -> Any:
        from loger.web.app import create_app

        Path(config.scratch or "").mkdir(mode=0o700, exist_ok=True)
        return create_app(config)

    deployment = serve.deployment(
        serve.ingress(made)(type("Replica", (), {})),
        name=RAY_NAME,
        num_replicas=config.workers,
        max_ongoing_requests=4 * config.threads,
        ray_actor_options={"num_cpus": 1},
    )
    return deployment.bind()


def _on_every_node(fn: Callable[[str], None], argument: str) -> None:
    """Call a function once on each node that is alive."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0)(fn)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    where = [NodeAffinitySchedulingStrategy(node, soft=True) for node in nodes]
    ray.get([task.options(scheduling_strategy=node).remote(argument) for node in where])


def _remove(folder: str) -> None:
    """Remove a node's copies of bundles."""
    shutil.rmtree(folder, ignore_errors=True)


def ray_serve() -> Any:
    """Ray Serve, or an error that says how to install it."""
    for check in ("READY", "HEALTH"):  # Ray's 5 seconds are too short on a busy machine
        os.environ.setdefault(f"RAY_SERVE_PROXY_{check}_CHECK_TIMEOUT_S", "60")
    try:
        from ray import serve
    except ModuleNotFoundError as error:
        raise LogerError(
            f"serving on Ray needs {error.name}, which isn't installed; "
            "run pip install '.[ray-serve]' in the clone"
        ) from None
    return serve
