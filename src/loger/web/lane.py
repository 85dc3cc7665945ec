"""The slow lane: a process of low priority that answers costly questions, one at a time.

In threads of a worker a question of 100 ms would hold up everybody: threads of one process take
turns in Python. So a worker hands it on, over a Unix socket in the server's private folder, and
meanwhile waits. What goes over the socket are frames, each with its length before it: a request as
JSON and its body; then the head of the answer as JSON, its body in pieces, and an empty frame.

The lane is the same app without a guard: whoever asks it has passed the one of a worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Message, Scope

    from loger.web.config import ServeConfig

NICE = 10
"""How far the lane stands back: where all cores are busy it still gets about a tenth of one."""
SECONDS = 60.0
"""After so long a worker gives up on the lane, and answers by itself."""
GRACE = 2.0
"""Seconds that a question under way has when the lane is told to stop."""
PIECE = 64 * 1024
"""Bytes of a body that are handed on at a time, so that the event loop is never held for long."""
_TEXTS = ("type", "method", "path", "scheme", "http_version", "root_path", "client", "server")
_BYTES = ("raw_path", "query_string")


def supported() -> bool:
    """Whether this system has what a lane needs."""
    return hasattr(asyncio, "start_unix_server")


def up_mark(place: str) -> str:
    """The file by which workers tell that one of them is up: only then is a lane started."""
    return f"{place}.wanted"


# ── in a worker ─────────────────────────────────────────────────────────────────────────


async def ask(place: str, scope: Scope, body: bytes) -> list[Message] | None:
    """What the lane answers; None if it is not there, or ended meanwhile."""
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(place)
            try:
                writer.writelines([*_frame(_asked(scope)), len(body).to_bytes(4, "big")])
                for begin in range(0, len(body), PIECE):
                    writer.write(body[begin : begin + PIECE])
                    await writer.drain()
                return await _told(reader, scope)
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError):
        return None


def _asked(scope: Scope) -> bytes:
    """A request as the lane needs it, with the bundles that the worker serves."""
    request = {name: scope.get(name) for name in _TEXTS}
    request |= {name: scope.get(name, b"").decode("latin-1") for name in _BYTES}
    request["headers"] = _texts(scope["headers"])
    services = scope["app"].state.variants.services
    request["bundles"] = [service.served.fingerprint for service in services]
    return json.dumps(request).encode()


async def _told(reader: asyncio.StreamReader, scope: Scope) -> list[Message]:
    """The whole answer, as messages; the route, which metrics name, goes into the scope."""
    head = json.loads(await _read(reader))
    scope["route"] = SimpleNamespace(path=head["route"])
    start = {"type": "http.response.start", "status": head["status"]}
    messages: list[Message] = [{**start, "headers": _raw(head["headers"])}]
    more = True
    while more:
        piece = await _read(reader)
        more = len(piece) > 0
        messages.append({"type": "http.response.body", "body": piece, "more_body": more})
    return messages


# ── frames ──────────────────────────────────────────────────────────────────────────────


def _frame(data: bytes) -> tuple[bytes, bytes]:
    return len(data).to_bytes(4, "big"), data


async def _read(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def _texts(headers: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _raw(headers: Any) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


# ── the process ─────────────────────────────────────────────────────────────────────────


class Lane:
    """Answers what workers hand on."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._under_way = set[asyncio.Task[None]]()

    async def run(self, place: str, end: asyncio.Event) -> None:
        """Listen until told to end; questions under way have a moment more."""
        async with self.app.router.lifespan_context(self.app):
            server = await asyncio.start_unix_server(self._handle, place)
            await end.wait()
            server.close()
            Path(place).unlink(missing_ok=True)
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=GRACE)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError):  # the worker ended, or does not wait any more
            pass
        finally:
            self._under_way.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from anyio import to_thread

        asked, body = json.loads(await _read(reader)), await _read(reader)
        await to_thread.run_sync(self._catch_up, asked.pop("bundles"))
        scope = {"asgi": {"version": "3.0"}, "extensions": {}, **asked}
        scope |= {name: asked[name].encode("latin-1") for name in _BYTES}
        scope["headers"] = _raw(asked["headers"])
        given = False

        async def receive() -> Message:
            nonlocal given
            if given:
                await asyncio.Event().wait()  # there is nothing more to come
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", None)
                head = {"status": message["status"], "headers": _texts(message["headers"])}
                writer.writelines(_frame(json.dumps({**head, "route": route}).encode()))
                return
            told = message.get("body", b"")
            for begin in range(0, len(told), PIECE):
                writer.writelines(_frame(told[begin : begin + PIECE]))
            if not message.get("more_body"):
                writer.writelines(_frame(b""))
            await writer.drain()

        with suppress(Exception):  # a bug: it has been logged and answered with 500
            await self.app(scope, receive, send)

    def _catch_up(self, bundles: list[str]) -> None:
        """Know what the worker knows: every event that is acknowledged, and no older bundle."""
        from loger.errors import LogerError

        state = self.app.state
        for service, fingerprint in zip(state.variants.services, bundles, strict=True):
            if fingerprint != service.served.fingerprint and service.problem is None:
                with suppress(LogerError):  # it goes on with what it has, as workers do
                    service.refresh()
        state.events.try_to_follow()


def _end_with_parent(end: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    """End when the other end of standard input closes, however the parent ended."""

    def watch() -> None:
        sys.stdin.buffer.read()
        with suppress(RuntimeError):  # the loop may have ended already
            loop.call_soon_threadsafe(end.set)
        threading.Timer(2 * GRACE, os._exit, (0,)).start()

    threading.Thread(target=watch, name="loger-parent", daemon=True).start()


async def _serve(config: ServeConfig) -> None:
    from loger.web.app import create_app

    assert config.lane is not None
    end, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, end.set)
    _end_with_parent(end, loop)
    await Lane(create_app(config, guarded=False)).run(config.lane, end)


def main() -> None:
    """Run as ``python -m loger.web.lane`` by ``loger serve``, whose settings it finds."""
    from dataclasses import replace

    from loger.web.config import VARIABLE, ServeConfig

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    os.nice(NICE)
    config = ServeConfig.from_json(os.environ[VARIABLE])
    asyncio.run(_serve(replace(config, threads=1, fold_every=0)))
    sys.stderr.flush()
    os._exit(0)  # a question that is still under way in a thread is given up


if __name__ == "__main__":
    main()
