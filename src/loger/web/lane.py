"""The slow lane: a process with low priority that answers a worker's expensive requests.

In a thread of the worker, a request that takes 100 ms would delay all others, because only one
thread of a process runs Python at a time. So the worker sends it through a pipe to another process,
one request at a time. The lane runs the same app without the guard: what it gets has passed the
worker's. If the lane isn't running, or ends midway, the worker answers the request itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from loger.errors import LogerError
from loger.web.config import ACCESS, ServeConfig

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Message, Scope

log = logging.getLogger("loger.web")
NICE = 10
"""How much lower the lane's priority is than a worker's. On busy cores it still gets a tenth of
one."""
TIMEOUT_S = 60.0
"""How long a worker waits for the lane before it stops it and answers by itself."""
RESTART_INTERVAL_S = 10.0
"""The shortest time between two starts of a lane."""
SCOPE = ("type", "method", "path", "raw_path", "query_string", "headers", "scheme", "http_version",
         "root_path", "client", "server", ACCESS)  # fmt: skip
"""What the app reads of a request."""


class Lane:
    """A worker's end of the pipe; the caller sends one request at a time."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._ready, self._started, self._stopped = False, 0.0, False

    def start(self) -> None:
        """Start the process. It is ready a few seconds later."""
        spawn = get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        # A daemon ends with this process; if this process is killed, the closed pipe ends it.
        self.process = spawn.Process(target=run, args=(self.config, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self._ready, self._started = False, time.monotonic()

    def stop(self) -> None:
        """End the process, even in the middle of a request."""
        self._stopped = True
        if self.process is not None:
            self.process.kill()
            self.process.join()

    async def ask(self, scope: Scope, body: bytes) -> list[Message] | None:
        """The lane's answer, or None if it gave none. The path of the route, by which requests are
        counted, goes into ``scope``."""
        services = scope["app"].state.variants.services
        bundles = [service.served.fingerprint for service in services]
        request = {name: scope[name] for name in SCOPE if name in scope}
        answer = await asyncio.to_thread(self._ask, (request, body, bundles))
        if answer is None:
            return None
        scope["route"] = SimpleNamespace(path=answer[0])
        messages: list[Message] = answer[1]
        return messages

    def _ask(self, question: object) -> Any:
        pipe = self._pipe
        try:
            if pipe is None or not (self._ready or pipe.poll()):
                return None
            if not self._ready:
                pipe.recv()  # the lane reports that it is ready
                self._ready = True
            pipe.send(question)
            if not pipe.poll(TIMEOUT_S):
                raise TimeoutError
            return pipe.recv()
        except (OSError, EOFError):  # TimeoutError is an OSError
            self._replace()
            return None

    def _replace(self) -> None:
        """End a lane that doesn't answer, and start another one unless this one just started."""
        assert self.process is not None
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self._ready = False
        if self._stopped or time.monotonic() - self._started < RESTART_INTERVAL_S:
            return
        log.warning(
            "the slow-lane process ended with exit code %s; starting another", self.process.exitcode
        )
        _forget_gauges(self.process.pid)
        self.start()


def _forget_gauges(pid: int | None) -> None:
    """Remove a dead process's gauges from the metrics; its counts stay."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]


# ── the process ─────────────────────────────────────────────────────────────────────────


def run(config: ServeConfig, pipe: Connection) -> None:
    """Answer requests from a pipe until it closes."""
    from loger.web.app import create_app

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which ends us
    if hasattr(os, "nice"):
        os.nice(NICE)
    app = create_app(replace(config, threads=1, merge_interval=0, lane=False), guarded=False)
    with suppress(OSError, EOFError):  # the worker ended
        asyncio.run(_answer_all(app, pipe))
    sys.stderr.flush()


async def _answer_all(app: FastAPI, pipe: Connection) -> None:
    async with app.router.lifespan_context(app):
        pipe.send(None)
        while True:  # nothing else runs in this loop, so it may block
            request, body, bundles = pipe.recv()
            _catch_up(app, bundles)
            pipe.send(await _answer(app, request, body))


async def _answer(
    app: FastAPI, request: dict[str, Any], body: bytes
) -> tuple[str | None, list[Message]]:
    """The path of the route that answers a request, and its messages."""
    scope = {"asgi": {"version": "3.0"}, "extensions": {}, **request}
    unread, messages = [body], list[Any]()

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # there is nothing more to come
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async def send(message: Message) -> None:
        messages.append(dict(message))

    with suppress(Exception):  # a bug, which has been logged and answered with 500
        await app(scope, receive, send)
    return getattr(scope.get("route"), "path", None), messages


def _catch_up(app: FastAPI, bundles: list[str]) -> None:
    """Learn what the worker knows: its bundle, and every event that it acknowledged."""
    for service, fingerprint in zip(app.state.variants.services, bundles, strict=True):
        if fingerprint != service.served.fingerprint and service.problem is None:
            with suppress(LogerError):  # it goes on with what it has, as workers do
                service.refresh()
    app.state.events.try_to_follow()
