"""What every request passes: host, key, size of the body; and what every answer carries."""

from __future__ import annotations

import hmac
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loger.web import lane
from loger.web.admission import EVENTS, Admission, Uploads, is_costly
from loger.web.config import ServeConfig
from loger.web.masks import MAX_BYTES
from loger.web.metrics import Metrics
from loger.web.problems import ProblemError, answer

HEALTH = ("/v1/health", "/v1/health/live", "/v1/health/ready")
UNQUEUED = (*HEALTH, "/v1/openapi.json")
"""Paths that are answered at once, whoever waits."""
UPLOADS = "/v1/masks/"
"""Where long bodies may be put."""
EVENT_BYTES = 1024 * 1024
"""Of a batch of events."""
OPEN = (*HEALTH, "/v1/openapi.json")
"""Paths of the API that need no key."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class Guard:
    """Refuses what should not come in, counts and times what does."""

    def __init__(self, app: ASGIApp, config: ServeConfig, metrics: Metrics) -> None:
        self.app, self.config, self.metrics = app, config, metrics
        places = max(1, config.threads // 2) if config.lane is None else 1
        self.admission, self.uploads = Admission(places), Uploads()

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
            await send(message)

        try:
            await self._admitted(scope, receive, sent)
        except ProblemError as refused:
            response = answer(refused.status, str(refused), headers={"Connection": "close"})
            await response(scope, receive, sent)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            path = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.seen(method, path, status, time.perf_counter() - begun)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on as soon as it is whole and there is a place for it."""
        path = scope["path"]
        most = max(self.config.max_body, _allowed(scope["method"], path))
        self._check(path, Headers(scope=scope), most)
        with self.uploads(scope["method"] == "PUT" and path.startswith(UPLOADS)):
            await self._handed_on(path, scope, receive, send, most)

    async def _handed_on(
        self, path: str, scope: Scope, receive: Receive, send: Send, most: int
    ) -> None:
        body = await _whole_body(receive, most)
        if path in UNQUEUED or not path.startswith("/v1/"):
            await self.app(scope, _Replayed(receive, body), send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        with self.admission(client):
            if not is_costly(path, scope["query_string"], body):
                await self.app(scope, _Replayed(receive, body), send)
                return
            async with self.admission.place(client):
                answer = await self._costly(scope, _Replayed(receive, body))
            for message in answer:  # whoever reads slowly holds no place
                await send(message)

    async def _costly(self, scope: Scope, asked: _Replayed) -> list[Message]:
        """The whole answer to a costly question: by the slow lane, or here if there is none."""
        if self.config.lane is not None:
            answer = await lane.ask(self.config.lane, scope, asked.body)
            if answer is not None:
                self.metrics.costly.labels("lane").inc()
                return answer
        self.metrics.costly.labels("worker").inc()
        messages = list[Message]()

        async def keep(message: Message) -> None:
            messages.append(message)

        await self.app(scope, asked, keep)
        return messages

    def _check(self, path: str, headers: Headers, most: int) -> None:
        """Refuse a request by what its headers say."""
        if self.config.loopback and not _local(headers.get("host", "")):
            # A page elsewhere may have pointed its own name at this machine (DNS rebinding).
            raise ProblemError(403, "this server answers only to localhost; see --host")
        if "transfer-encoding" in headers and "content-length" in headers:
            # Two lengths: a proxy before us may go by the other one (request smuggling).
            raise ProblemError(400, "give Content-Length or Transfer-Encoding, not both")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise ProblemError(400, "the Content-Length is not a number")
        if int(length[:19]) > most:
            raise ProblemError(413, f"the body has more than {most:,} bytes")
        guarded = path.startswith("/v1/") or path == "/metrics"
        if self.config.api_key is not None and guarded and path not in OPEN:
            bearer = headers.get("authorization", "").removeprefix("Bearer ")
            key = headers.get("x-api-key", bearer).encode("utf-8", "replace")
            if not hmac.compare_digest(key, self.config.api_key.encode()):
                raise ProblemError(401, "give the API key in the header X-API-Key")


def _allowed(method: str, path: str) -> int:
    """How long the body of a request to a path may be, if longer than others."""
    if method == "PUT" and path.startswith(UPLOADS):
        return MAX_BYTES
    return EVENT_BYTES if path == EVENTS else 0


async def _whole_body(receive: Receive, most: int) -> bytes:
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
    """A body that has been read already, handed on; then whatever comes."""

    def __init__(self, receive: Receive, body: bytes) -> None:
        self.receive, self.body = receive, body
        self.given = False

    async def __call__(self) -> Message:
        if self.given:
            return await self.receive()
        self.given = True
        return {"type": "http.request", "body": self.body, "more_body": False}


_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)


def _local(host: str) -> bool:
    """Whether a Host header is one of this machine's local names, and nothing else."""
    return _LOCAL.fullmatch(host) is not None
