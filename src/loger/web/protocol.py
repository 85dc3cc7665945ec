"""Connections with deadlines and limits, underneath the app: uvicorn itself would wait forever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SECONDS = 10.0
"""The time a client has to send a whole request, from its first byte or from connecting."""
MAX_CONNECTIONS = 1_000
"""Connections of a process at a time; more are closed at once."""
MAX_OF_CLIENT = 100
"""Connections of one address at a time."""
MAX_HEAD = 64 * 1024
"""Bytes of headers or trailers; the parser itself would take any number of them."""
GRACE = 5
"""Seconds that running requests have to finish when the server is told to stop."""
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with a deadline for every request, and limits on connections and headers."""

    _deadline: asyncio.TimerHandle | None = None
    _complete = False
    """Whether the last request that began has arrived in full."""
    _head = 0
    """Bytes received since the last piece of a body, or since the last request was complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it if there are too many."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        clients = [getattr(other, "client", None) for other in self.connections]
        same = sum(client is not None and client[0] == address for client in clients)
        if len(clients) > MAX_CONNECTIONS or same > MAX_OF_CLIENT:
            transport.abort()
        else:
            self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Parse some bytes of a request. They don't move its deadline, however often they come."""
        self._set_deadline()
        self._head += len(data)
        super().data_received(data)
        if self._head > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")
        # Between two requests uvicorn has a time limit of its own, which any byte switches off, a
        # stray line break too. So the deadline goes only once there is something to answer.
        answering = self._complete and not self.cycle.response_complete
        if answering or self.transport.is_closing():
            self._clear_deadline()

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self._complete = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start counting again: what follows is the body."""
        self._head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, whose length the app limits."""
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request has arrived in full."""
        self._complete, self._head = True, 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clear the deadline with the connection."""
        self._clear_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(SECONDS, self._too_late)

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
