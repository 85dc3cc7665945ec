"""What every request passes: host, key, length of the body, a queue if it is expensive; and the
headers that every answer carries."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loger.web.config import RESERVED, ServeConfig
from loger.web.keys import ACCESS, access
from loger.web.lane import Lane
from loger.web.masks import MAX_BYTES
from loger.web.metrics import Metrics
from loger.web.problems import ProblemError, answer

OPEN = ("/v1/health", "/v1/health/live", "/v1/health/ready", "/v1/openapi.json")
"""Paths of the API that need no key and are answered at once, whoever waits."""
UPLOADS = "/v1/masks/"
"""Where long bodies may be put."""
EVENTS = "/v1/events"
"""Takes long bodies, but answers soon, and in a thread of its own."""
EVENT_BYTES = 1024 * 1024
"""The longest body with a batch of events."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

MAX_OF_CLIENT = 32
"""Requests of one address at a time."""
MAX_WAITING = 64
"""Expensive requests that wait; more are asked to come back."""
MAX_UPLOADS = 2
"""Long bodies at a time: each may take some hundred MB while it is read."""
RETRY_AFTER_S = 1
"""When clients that were refused for the load should come back."""
EXPENSIVE_PATHS = (
    "/v1/counterfactual",
    "/v1/recommendations:batch",
    "/v1/recommendations:group",
)
WHAT_IF = "/v1/what-if"
"""Makes two lists, so half the length is expensive already."""
CHEAP = {"k": 20, "paths": 5}
"""The most that an ordinary request asks for; beyond it, a request takes several times as long."""
CHEAP_BODY = 2_000
"""Bytes; a longer body is a long history."""


def is_expensive(path: str, query: bytes, body: bytes) -> bool:
    """Whether a request takes several times as long as most, as far as it shows beforehand.

    >>> is_expensive("/v1/recommendations", b"user=ann&k=10", b"")
    False
    >>> is_expensive("/v1/recommendations", b"user=ann&k=100", b"")
    True
    """
    if path == EVENTS:
        return False
    if path.startswith(EXPENSIVE_PATHS) or len(body) > CHEAP_BODY:
        return True
    asked = [*parse_qsl(query.decode("latin-1")), *_fields(body)]
    cheap = {**CHEAP, "k": CHEAP["k"] // 2} if path == WHAT_IF else CHEAP
    return ("reasons", "all") in asked or any(
        not _is_at_most(value, cheap[name]) for name, value in asked if name in cheap
    )


def _fields(body: bytes) -> list[tuple[str, object]]:
    """The fields of a short body, read as the app will read them; none if it is not JSON."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return []
    return list(content.items()) if isinstance(content, dict) else []


def _is_at_most(value: object, most: int) -> bool:
    """Whether a value is a number up to ``most``, written as numbers usually are."""
    text = str(value)
    # Python refuses to parse thousands of digits; small numbers have few.
    return len(text) <= 9 and text.isascii() and text.isdigit() and int(text) <= most


class Guard:
    """Refuses what should not come in; counts, times and queues what does."""

    def __init__(
        self, app: ASGIApp, config: ServeConfig, metrics: Metrics, lane: Lane | None = None
    ) -> None:
        self.app, self.config, self.metrics, self.lane = app, config, metrics, lane
        self.queue = Queue(max(1, config.threads // 2) if lane is None else 1)
        self.of_client, self.uploads = Counter[str](), Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope.get(RESERVED):
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self._admit(scope, receive, sent)
        except ProblemError as refused:
            more = {"Connection": "close"}
            if refused.status in (429, 503):
                more["Retry-After"] = str(RETRY_AFTER_S)
            await answer(refused.status, str(refused), headers=more)(scope, receive, sent)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            path = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.seen(method, path, status, time.perf_counter() - begun)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the headers of a request and read its body, then pass it on."""
        path, most = scope["path"], self.config.max_body
        if scope.get(RESERVED) and path not in OPEN:
            raise ProblemError(503, "the server has too many connections; try again later")
        is_upload = scope["method"] == "PUT" and path.startswith(UPLOADS)
        if is_upload or path == EVENTS:
            most = max(most, MAX_BYTES if is_upload else EVENT_BYTES)
        self._check(scope, Headers(scope=scope), most)
        if is_upload:
            with at_most(MAX_UPLOADS, self.uploads, "", "uploads"):
                await self._pass_on(scope, _Replayed(receive, await _body(receive, most)), send)
        else:
            await self._pass_on(scope, _Replayed(receive, await _body(receive, most)), send)

    async def _pass_on(self, scope: Scope, request: _Replayed, send: Send) -> None:
        """Pass on a request at once, or if it is expensive when it has a place."""
        path = scope["path"]
        if path in OPEN or not path.startswith("/v1/"):
            await self.app(scope, request, send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        with at_most(MAX_OF_CLIENT, self.of_client, client, "requests"):
            if not is_expensive(path, scope["query_string"], request.body):
                await self.app(scope, request, send)
                return
            async with self.queue.place():
                messages = await self._answer_expensive(scope, request)
            for message in messages:  # a client that reads slowly holds no place
                await send(message)

    async def _answer_expensive(self, scope: Scope, request: _Replayed) -> list[Message]:
        """The whole answer to an expensive question, from the slow lane if there is one."""
        if self.lane is not None:
            answer = await self.lane.ask(scope, request.body)
            if answer is not None:
                self.metrics.costly.labels("lane").inc()
                return answer
        self.metrics.costly.labels("worker").inc()
        messages = list[Message]()

        async def keep(message: Message) -> None:
            messages.append(message)

        await self.app(scope, request, keep)
        return messages

    def _check(self, scope: Scope, headers: Headers, most: int) -> None:
        """Refuse a request by its headers."""
        if self.config.loopback and not _is_local(headers.get("host", "")):
            # A page elsewhere may have pointed its own name at this machine (DNS rebinding).
            raise ProblemError(403, "this server answers only to localhost; see --host")
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy in front of us may go by the other length (request smuggling). Our own parser
            # refuses this already; the app may run in another server.
            raise ProblemError(400, "give Content-Length or Transfer-Encoding, not both")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise ProblemError(400, "the Content-Length is not a number")
        if int(length[:19]) > most:
            raise ProblemError(413, f"the body has more than {most:,} bytes")
        path = scope["path"]
        if path not in OPEN and (path.startswith("/v1/") or path == "/metrics"):
            scope[ACCESS] = access(self.config, headers)
            scope[ACCESS].check(scope["method"], path)


async def _body(receive: Receive, most: int) -> bytes:
    """The body of a request; one that is too long, or ends early, is refused."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProblemError(400, "the request ended before its body was complete")
        body += message.get("body", b"")
        if len(body) > most:
            raise ProblemError(413, f"the body has more than {most:,} bytes")
        if not message.get("more_body"):
            return bytes(body)


class _Replayed:
    """Hands on a body that has been read already, then whatever comes."""

    def __init__(self, receive: Receive, body: bytes) -> None:
        self.receive, self.body = receive, body
        self.given = False

    async def __call__(self) -> Message:
        if self.given:
            return await self.receive()
        self.given = True
        return {"type": "http.request", "body": self.body, "more_body": False}


_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)


def _is_local(host: str) -> bool:
    """Whether a Host header is one of this machine's local names, and nothing else."""
    return _LOCAL.fullmatch(host) is not None


@contextmanager
def at_most(most: int, counts: Counter[str], who: str, what: str) -> Iterator[None]:
    """Count one more of somebody's, and refuse it if there are too many at a time."""
    if counts[who] >= most:
        raise ProblemError(429, f"more than {most} {what} at a time; send fewer or try again later")
    counts[who] += 1
    try:
        yield
    finally:
        counts[who] -= 1
        if not counts[who]:
            del counts[who]


class Queue:
    """So many places for expensive questions, first come, first served."""

    def __init__(self, places: int) -> None:
        self._places, self._waiting = asyncio.Semaphore(places), 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, unless too many wait already."""
        if self._waiting >= MAX_WAITING:
            raise ProblemError(503, "too many expensive questions are waiting; try again later")
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._places.release()
