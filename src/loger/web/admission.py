"""Who is let in at once: costly questions queue apart from cheap ones, and no client takes all."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from loger.web.problems import ProblemError

MAX_OF_CLIENT = 32
"""Requests of one address under way at a time."""
MAX_WAITING = 64
"""Costly requests that wait; more are told to come back."""
MAX_UPLOADS = 2
"""Long bodies at a time: each may take some hundred MB while it is read."""
COSTLY_PATHS = ("/v1/what-if", "/v1/why-not", "/v1/counterfactual", "/v1/update")
EVENTS = "/v1/events"
"""Long bodies, but soon done, and in a thread of their own."""
_ASKED = re.compile(rb'(?:[?&]|")(k|paths)"?\s*[=:]\s*(\d{1,9})')
_CHEAP = {b"k": 20, b"paths": 5}
"""What is asked for beyond this costs several times what most questions cost."""
_CHEAP_BODY = 2_000
"""Bytes; a longer body is a long history."""


def is_costly(path: str, query: bytes, body: bytes) -> bool:
    """Whether a request costs several times what most cost, as far as can be told beforehand.

    >>> is_costly("/v1/recommendations", b"user=ann&k=10", b"")
    False
    >>> is_costly("/v1/recommendations", b"user=ann&k=100", b"")
    True
    """
    if path == EVENTS:
        return False
    asked = _ASKED.findall(b"?" + query + b"&" + body[:_CHEAP_BODY])
    return (
        path.startswith(COSTLY_PATHS)
        or len(body) > _CHEAP_BODY
        or b"reasons=all" in query
        or any(int(value) > _CHEAP[name] for name, value in asked)
    )


class Admission:
    """Lets requests in; costly ones may take half of the threads."""

    def __init__(self, threads: int) -> None:
        self._costly = asyncio.Semaphore(max(1, threads // 2))
        self._waiting = 0
        self._of_client: Counter[str] = Counter()

    @asynccontextmanager
    async def __call__(self, client: str, costly: bool) -> AsyncIterator[None]:
        """Wait for a place; too many requests of one client, or in the queue, are refused."""
        if self._of_client[client] >= MAX_OF_CLIENT:
            raise ProblemError(429, f"more than {MAX_OF_CLIENT} requests at a time; send fewer")
        if costly and self._waiting >= MAX_WAITING:
            raise ProblemError(429, "too many costly questions are waiting; try again later")
        self._of_client[client] += 1
        try:
            if not costly:
                yield
                return
            self._waiting += 1
            try:
                await self._costly.acquire()
            finally:
                self._waiting -= 1
            try:
                yield
            finally:
                self._costly.release()
        finally:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]


class Uploads:
    """Lets few long bodies in at a time, before they are read."""

    def __init__(self) -> None:
        self._under_way = 0

    @contextmanager
    def __call__(self, is_upload: bool) -> Iterator[None]:
        """One upload, if it is one; one too many is told to come back."""
        if is_upload and self._under_way >= MAX_UPLOADS:
            raise ProblemError(429, f"more than {MAX_UPLOADS} uploads at a time; try again later")
        self._under_way += is_upload
        try:
            yield
        finally:
            self._under_way -= is_upload
