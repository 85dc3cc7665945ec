"""Who is let in at once: costly questions queue apart from cheap ones, and no client takes all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import parse_qsl

from loger.web.problems import ProblemError

MAX_OF_CLIENT = 32
"""Requests of one address under way at a time."""
MAX_WAITING = 64
"""Costly requests that wait; more are told to come back."""
MAX_UPLOADS = 2
"""Long bodies at a time: each may take some hundred MB while it is read."""
COSTLY_PATHS = ("/v1/counterfactual", "/v1/recommendations:batch")
WHAT_IF = "/v1/what-if"
"""Two lists: costly where each has more than half of the items that are cheap."""
EVENTS = "/v1/events"
"""Long bodies, but soon done, and in a thread of their own."""
CHEAP = {"k": 20, "paths": 5}
"""What is asked for beyond this costs several times what most questions cost."""
CHEAP_BODY = 2_000
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
    if path.startswith(COSTLY_PATHS) or len(body) > CHEAP_BODY:
        return True
    asked = [*parse_qsl(query.decode("latin-1")), *_fields(body)]
    cheap = {**CHEAP, "k": CHEAP["k"] // 2} if path == WHAT_IF else CHEAP
    return ("reasons", "all") in asked or any(
        not _is_at_most(value, cheap[name]) for name, value in asked if name in cheap
    )


def _fields(body: bytes) -> list[tuple[str, object]]:
    """What a short body says, read as the app will read it; nothing if it is not JSON."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return []
    return list(said.items()) if isinstance(said, dict) else []


def _is_at_most(value: object, most: int) -> bool:
    """Whether a value is so small a number, written as numbers are."""
    text = str(value)
    # Python reads no number of thousands of digits; all that is small has few.
    return len(text) <= 9 and text.isascii() and text.isdigit() and int(text) <= most


class Admission:
    """Lets requests in: so many of a client, and to costly ones places in turn."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._of_client: Counter[str] = Counter()

    @contextmanager
    def __call__(self, client: str) -> Iterator[None]:
        """One request of a client; too many at a time are refused."""
        if self._of_client[client] >= MAX_OF_CLIENT:
            raise ProblemError(429, f"more than {MAX_OF_CLIENT} requests at a time; send fewer")
        self._of_client[client] += 1
        try:
            yield
        finally:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]

    @asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """A place for a costly question. Clients take turns, so whoever asks many waits for the
        others, not they for all of these; too many in the queue are refused."""
        if not self._free:
            await self._turn(client)
        else:
            self._free -= 1
        try:
            yield
        finally:
            self._pass_on()

    async def _turn(self, client: str) -> None:
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            raise ProblemError(429, "too many costly questions are waiting; try again later")
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had come just now
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give a place to the client whose turn it is, who then waits for all others."""
        while self._waiting:
            client, turns = next(iter(self._waiting.items()))
            del self._waiting[client]
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


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
