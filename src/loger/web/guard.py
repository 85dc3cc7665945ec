"""What every request passes: host, key, size of the body; and what every answer carries."""

from __future__ import annotations

import hmac
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loger.web.config import LOOPBACK, ServeConfig
from loger.web.metrics import Metrics
from loger.web.problems import ProblemError, answer

OPEN = ("/v1/health", "/v1/openapi.json")
"""Paths of the API that need no key."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; "
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
            headers = Headers(scope=scope)
            refused = self._refused(scope["path"], headers)
            if refused is not None:
                await answer(refused.status, str(refused))(scope, receive, sent)
            else:
                await self.app(scope, _Limited(receive, self.config.max_body), sent)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            path = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.seen(method, path, status, time.perf_counter() - begun)

    def _refused(self, path: str, headers: Headers) -> ProblemError | None:
        if self.config.loopback and not _local(headers.get("host", "")):
            # A page elsewhere may have pointed its own name at this machine (DNS rebinding).
            return ProblemError(403, "this server answers only to localhost; see --host")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return ProblemError(400, "the Content-Length is not a number")
        if int(length[:19]) > self.config.max_body:
            return ProblemError(413, f"the body has more than {self.config.max_body:,} bytes")
        guarded = path.startswith("/v1/") or path == "/metrics"
        if self.config.api_key is not None and guarded and path not in OPEN:
            bearer = headers.get("authorization", "").removeprefix("Bearer ")
            key = headers.get("x-api-key", bearer).encode("utf-8", "replace")
            if not hmac.compare_digest(key, self.config.api_key.encode()):
                return ProblemError(401, "give the API key in the header X-API-Key")
        return None


class _Limited:
    """A body that ends in an error as soon as it is too long."""

    def __init__(self, receive: Receive, most: int) -> None:
        self.receive, self.left = receive, most

    async def __call__(self) -> Message:
        message = await self.receive()
        self.left -= len(message.get("body", b""))
        if self.left < 0:
            raise HTTPException(413, "the body is too long")
        return message


def _local(host: str) -> bool:
    name = host.removeprefix("[").partition("]")[0] if "]" in host else host.partition(":")[0]
    return name.lower() in LOOPBACK
