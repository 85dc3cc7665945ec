"""What every request passes: host, key, length of the body, a queue if it is expensive; and the
headers that every answer carries.

The server's own key allows everything. ``key_for`` makes keys from it that allow less.
"""

from __future__ import annotations

import hmac
import json
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl

from anyio import CapacityLimiter
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loger.web.config import ACCESS, RESERVED, ServeConfig
from loger.web.lane import Lane
from loger.web.masks import MAX_BYTES
from loger.web.metrics import Metrics
from loger.web.problems import ProblemError, answer

OPEN = ("/v1/health", "/v1/health/live", "/v1/health/ready", "/v1/openapi.json")
"""Paths of the API that need no key and never wait."""
UPLOADS = "/v1/masks/"
"""Takes long bodies."""
EVENTS = "/v1/events"
"""Takes long bodies too, but is cheap and has a thread of its own."""
EVENT_BYTES = 1024 * 1024
"""The longest body with events."""
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
"""Expensive requests that wait; further ones are refused."""
MAX_UPLOADS = 2
"""Uploads at a time: each can take a few hundred MB while it is read."""
RETRY_AFTER_S = 1
"""When clients should try again after they were refused because of load."""
EXPENSIVE_PATHS = (
    "/v1/counterfactual",
    "/v1/recommendations:batch",
    "/v1/recommendations:group",
)
WHAT_IF = "/v1/what-if"
"""Makes two lists, so it is expensive from half the length on."""
CHEAP = {"k": 20, "paths": 5}
"""Beyond these, a request takes several times as long as an ordinary one."""
CHEAP_BODY = 2_000
"""Bytes; a longer body has a long history."""


def is_expensive(path: str, query: bytes, body: bytes) -> bool:
    """Whether a request will take several times as long as most, judged by what it asks for.

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
    """The fields of a body as the app will read them; none if it isn't a JSON object."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return []
    return list(content.items()) if isinstance(content, dict) else []


def _is_at_most(value: object, most: int) -> bool:
    """Whether a value is a whole number up to ``most``, written in digits alone."""
    text = str(value)
    # Python refuses to parse thousands of digits.
    return len(text) <= 9 and text.isascii() and text.isdigit() and int(text) <= most


class Guard:
    """Refuses what shouldn't come in; counts, times and queues the rest."""

    def __init__(
        self, app: ASGIApp, config: ServeConfig, metrics: Metrics, lane: Lane | None = None
    ) -> None:
        self.app, self.config, self.metrics, self.lane = app, config, metrics, lane
        self.queue = CapacityLimiter(max(1, config.threads // 2) if lane is None else 1)
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
        """Check a request's headers, read its body and pass it on."""
        path, most = scope["path"], self.config.max_body
        if scope.get(RESERVED) and path not in OPEN:
            raise ProblemError(503, "the server has too many connections; try again later")
        is_upload = scope["method"] == "PUT" and path.startswith(UPLOADS)
        if is_upload or path == EVENTS:
            most = max(most, MAX_BYTES if is_upload else EVENT_BYTES)
        self._check(scope, Headers(scope=scope), most)
        if is_upload:
            with at_most(MAX_UPLOADS, self.uploads, "", "uploads"):
                await self._pass_on(scope, await _body(receive, most), receive, send)
        else:
            await self._pass_on(scope, await _body(receive, most), receive, send)

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Pass a request on: at once, or when it is its turn if it is expensive."""
        path, unread = scope["path"], [body]

        async def request() -> Message:
            """The body, which has been read already, then everything after it."""
            if not unread:
                return await receive()
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        if path in OPEN or not path.startswith("/v1/"):
            await self.app(scope, request, send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        with at_most(MAX_OF_CLIENT, self.of_client, client, "requests"):
            if not is_expensive(path, scope["query_string"], body):
                await self.app(scope, request, send)
                return
            async with place(self.queue):
                messages = await self._answer_expensive(scope, body, request)
            for message in messages:  # the next one starts even if this client reads slowly
                await send(message)

    async def _answer_expensive(self, scope: Scope, body: bytes, request: Receive) -> list[Message]:
        """The whole answer to an expensive request, from the slow lane if there is one."""
        if self.lane is not None:
            answer = await self.lane.ask(scope, body)
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
            # Another site may have pointed its own name at this machine (DNS rebinding).
            raise ProblemError(
                403, "this server answers only requests to localhost; to change that, see --host"
            )
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy in front of us may trust the other one (request smuggling). httptools refuses
            # this too, but the app may run in another server.
            raise ProblemError(400, "send Content-Length or Transfer-Encoding, not both")
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
    """The body of a request, refused if it is too long or ends early."""
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


_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)


def _is_local(host: str) -> bool:
    """Whether a Host header is one of this machine's local names, and nothing else."""
    return _LOCAL.fullmatch(host) is not None


@contextmanager
def at_most(most: int, counts: Counter[str], who: str, what: str) -> Iterator[None]:
    """Count one more for ``who`` while the block runs, or refuse it if there are too many."""
    if counts[who] >= most:
        raise ProblemError(429, f"more than {most} {what} at a time; send fewer or try again later")
    counts[who] += 1
    try:
        yield
    finally:
        counts[who] -= 1
        if not counts[who]:
            del counts[who]


@asynccontextmanager
async def place(queue: CapacityLimiter) -> AsyncIterator[None]:
    """Wait for a place, first come, first served, unless too many requests wait already."""
    if queue.statistics().tasks_waiting >= MAX_WAITING:
        raise ProblemError(503, "too many expensive requests are waiting; try again later")
    async with queue:
        yield


# ── keys ────────────────────────────────────────────────────────────────────────────────


KeyScope = Literal["admin", "any", "own"]
ADMIN = ("/v1/events", "/v1/reload")
"""Paths that change other people's lists; so does any change of a mask."""
OWN = (
    "/v1/recommendations", "/v1/what-if", "/v1/explain", "/v1/explain/reasoner", "/v1/why-not",
    "/v1/counterfactual", "/v1/profile", "/v1/history", "/v1/items", "/v1/facts", "/v1/images",
    "/v1/similar", "/v1/rules", "/v1/masks", "/v1/about",
)  # fmt: skip
"""Paths for a key of one user. Examples of rules and searches would name others."""


class Access(NamedTuple):
    """What a request may do."""

    scope: KeyScope = "admin"
    user: str | None = None
    """Whose key it is, in scope ``own``."""

    def check(self, method: str, path: str) -> None:
        """Refuse a path that the key isn't for."""
        changes = path in ADMIN or (path.startswith("/v1/masks/") and method in ("PUT", "DELETE"))
        if changes and self.scope != "admin":
            raise ProblemError(403, f"{method} {path[:80]} needs the server's own API key")
        if self.scope == "own" and not (path in OWN or path.startswith("/v1/items/")):
            raise ProblemError(403, f"a key for one user doesn't allow {path[:80]}")

    def check_user(self, user: str | None) -> None:
        """Refuse a question about somebody else; a new user has no name."""
        if self.scope == "own" and user not in (None, self.user):
            raise ProblemError(403, "this key is for another user")


def key_for(
    secret: str, user: str | None = None, *, scope: KeyScope = "own", expires: int = 0
) -> str:
    """A key that may do less than the server's own. Anyone with that key can make others.

    Args:
        secret: the server's key, as in ``LOGER_API_KEY``.
        user: whose key it is, in scope ``own``: for questions about this user, about items, and
            about somebody new by their history.
        scope: ``own``, or ``any`` for questions about any user.
        expires: when it ends, in seconds since 1970; 0 if only with the server's key.

    >>> key_for("secret", scope="any")
    'any.0.f1ff5ba9cc9c675e6f17b1bfa8564627d1bb105b54e0596bf3c0a9dbdc394b2c'
    """
    if (scope == "own") != (user is not None) or scope == "admin":
        raise ValueError("pass a user or scope='any'")
    name = "" if user is None else "." + urlsafe_b64encode(user.encode()).decode().rstrip("=")
    text = f"{scope}{name}.{expires}"
    return f"{text}.{_signature(secret, text)}"


def access(config: ServeConfig, headers: Headers) -> Access:
    """What the key in a request's headers allows; a missing or wrong one is refused."""
    if config.api_key is None:
        return Access("admin" if config.loopback else "any")
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    key = headers.get("x-api-key", bearer)
    if hmac.compare_digest(key.encode("utf-8", "replace"), config.api_key.encode()):
        return Access()
    text, _, signature = key.rpartition(".")
    right = _signature(config.api_key, text)
    if hmac.compare_digest(signature.encode("utf-8", "replace"), right.encode()):
        scope, *name, expires = text.split(".")  # what we signed is as key_for wrote it
        if 0 < int(expires) < time.time():
            raise ProblemError(401, "this API key has expired; ask for a new one")
        user = urlsafe_b64decode(name[0] + "=" * (-len(name[0]) % 4)).decode() if name else None
        return Access("own" if scope == "own" else "any", user)
    raise ProblemError(401, "send the API key in the header X-API-Key")


def _signature(secret: str, text: str) -> str:
    signed = f"loger key {text}".encode("utf-8", "replace")
    return hmac.digest(secret.encode(), signed, "sha256").hex()
