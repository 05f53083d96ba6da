"""uvicorn's h11 protocol with idle, request and slow-reader timeouts.

uvicorn waits for ever for a request that trickles in, an idle socket or a client that does not read. Here each has a
timeout below ten seconds, after which the connection is aborted. A request that is being processed has none.
"""

import asyncio
import socket
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE = 8.0
"""Keep-alive timeout in seconds; longer than that of common clients, so that they close first."""

REQUEST = 8.0
"""Seconds from the first byte of a request to its last."""

READING = 8.0
"""Seconds in which a client must read at least `TAKEN` bytes of a response."""

TAKEN = 8192

LINGER = 1.0
"""Seconds for a refused client to finish sending: closing at once would reset the connection and lose the response."""

DISCARDED = 8 * 2**20
"""Bytes of a refused body that are discarded before the connection is aborted."""

HEADERS = 16 * 1024
"""Limit of all headers together in bytes."""

BUFFER = 128 * 1024
"""Kernel send buffer in bytes."""


class Protocol(H11Protocol):
    """h11 protocol with timeouts."""

    _request: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None
    _left = 0
    _refused = 0
    _lingers = False

    def connection_made(self, transport: Any) -> None:
        """Start the request timeout."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` is called as soon as one byte is buffered
        if (connection := transport.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self._request = self.loop.call_later(REQUEST, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        for timer in (self._request, self._reader):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; discard the rest of a refused body up to a limit."""
        if self._lingers:
            return
        if self.cycle is not None and self.cycle.response_complete and self.cycle.more_body:
            self._refused += len(data)
            if self._refused > DISCARDED:
                self._give_up()
                return
        super().data_received(data)
        self._watch_request()

    def _watch_request(self) -> None:
        """Cancel the timer of a complete request; start one for an incomplete request that has none."""
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            if self._request is not None:
                self._request.cancel()
            self._request, self._refused = None, 0
        elif self._request is None and not self.transport.is_closing():
            self._request = self.loop.call_later(REQUEST, self._give_up)

    def on_response_complete(self) -> None:
        """Start the timer again if a pipelined request has begun."""
        super().on_response_complete()
        if self.conn.trailing_data[0] or (self.cycle is not None and not self.cycle.response_complete):
            self._watch_request()

    def pause_writing(self) -> None:
        """Start the slow-reader timeout."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Cancel the slow-reader timeout."""
        super().resume_writing()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _watch_reader(self) -> None:
        self._left = self.transport.get_write_buffer_size()
        self._reader = self.loop.call_later(READING, self._check_reader)

    def _check_reader(self) -> None:
        if self._left - self.transport.get_write_buffer_size() < TAKEN:
            self._give_up()
        else:
            self._watch_reader()

    def _give_up(self) -> None:
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP or too large headers with a JSON error, then linger."""
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        text = "The headers are too large." if status == 431 else "Not a valid HTTP request."
        body = f'{{"error": {{"message": "{text}", "type": "invalid_request_error", "param": null, "code": null}}}}'
        headers = [("content-type", "application/json"), ("connection", "close"), ("content-length", str(len(body)))]
        try:
            self.transport.write(self.conn.send(h11.Response(status_code=status, headers=headers)) or b"")
            self.transport.write(self.conn.send(h11.Data(data=body.encode())) or b"")
            self.conn.send(h11.EndOfMessage())
        except h11.LocalProtocolError:  # a response was already started
            self._give_up()
            return
        self._linger()

    def _linger(self) -> None:
        self._lingers = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER, self._give_up)
