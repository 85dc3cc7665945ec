"""Connections with deadlines and limits, beneath the app: uvicorn itself waits for ever."""

from __future__ import annotations

import asyncio
import re

import h11
import h11._readers
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0
"""The time that a client has to send a whole request, from its first byte or from connecting."""
MAX_CONNECTIONS = 1_000
"""Connections of a process at a time; more are closed at once."""
MAX_OF_CLIENT = 100
"""Connections of one address at a time."""
GRACE = 5
"""Seconds that requests under way have when the server is told to stop."""
_HEADER = re.compile(
    rb"(?P<field_name>[-!#$%&'*+.^_`|~0-9a-zA-Z]+):[ \t]*+"
    rb"(?P<field_value>(?:[^\x00\s]++(?:[ \t]+[^\x00\s]++)*)?)[ \t]*"
)
_CHUNK = re.compile(rb"(?P<chunk_size>[0-9A-Fa-f]{1,20})(?:(?P<chunk_ext>;[^\r\n]*+)|[ \t]*+)\r\n")
"""As h11 has both, but read once: on 60,000 blanks with a wrong byte at their end h11 tries every
way to divide them, for 45 seconds, in which nobody is answered."""
h11._readers.header_field_re, h11._readers.chunk_header_re = _HEADER, _CHUNK
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for every request, and limits on connections."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or close it if there are too many."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        clients = [getattr(other, "client", None) for other in self.connections]
        same = sum(client is not None and client[0] == address for client in clients)
        if len(clients) > MAX_CONNECTIONS or same > MAX_OF_CLIENT:
            transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Go on to the next request, which may have come already."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._forget()  # between two requests uvicorn has a time limit of its own
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Set a deadline while a request is incomplete; the bytes that come do not move it."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(SECONDS, self._too_late)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        """Close the connection; who has not been answered yet is told why."""
        self._deadline = None
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(LATE)
        self.transport.close()
