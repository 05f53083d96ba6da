"""HTTP on a socket, with an end to every patience.

uvicorn's protocol waits for ever for a request that trickles in, for a socket on which nothing comes, and for a reader
that does not read. Here each of them has a deadline, all below ten seconds, and whoever misses it is let go. A request
that is being answered has none: how long that takes is not its sender's fault.
"""

import asyncio
import socket
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE = 8.0
"""Seconds without a request, after which a socket is closed; longer than clients keep theirs, so that none is hit."""

REQUEST = 8.0
"""Seconds from the first byte of a request to its last."""

READING = 8.0
"""Seconds in which somebody who is sent something takes at least `TAKEN` bytes of it."""

TAKEN = 8192

LINGER = 1.0
"""Seconds in which a refused sender may finish speaking: a socket closed at once would take the answer with it."""

DISCARDED = 8 * 2**20
"""Bytes of a refused body that are thrown away before the sender is let go."""

HEADERS = 16 * 1024
"""Bytes of all headers together."""

BUFFER = 128 * 1024
"""Bytes that the system may hold for a reader."""


class Protocol(H11Protocol):
    """uvicorn's protocol with deadlines."""

    _request: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None
    _left = 0
    _refused = 0
    _lingers = False

    def connection_made(self, transport: Any) -> None:
        """Somebody is there: a request is to follow."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that `pause_writing` tells of the first byte that has to wait
        if (link := transport.get_extra_info("socket")) is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self._request = self.loop.call_later(REQUEST, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone; nobody waits for them any more."""
        for timer in (self._request, self._reader):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request."""
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
        """A request that is whole has no deadline; one that has begun keeps the one it has."""
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            if self._request is not None:
                self._request.cancel()
            self._request, self._refused = None, 0
        elif self._request is None and not self.transport.is_closing():
            self._request = self.loop.call_later(REQUEST, self._give_up)

    def on_response_complete(self) -> None:
        """An answer is out; another request may stand behind it already."""
        super().on_response_complete()
        if self.conn.trailing_data[0] or (self.cycle is not None and not self.cycle.response_complete):
            self._watch_request()

    def pause_writing(self) -> None:
        """Something has to wait for the reader."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """The reader has taken all."""
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
        """What came is no HTTP, or too much of it; told in one line, and the sender may finish speaking."""
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        text = "The headers are too large." if status == 431 else "This is not HTTP."
        body = f'{{"error": {{"message": "{text}", "type": "invalid_request_error", "param": null, "code": null}}}}'
        headers = [("content-type", "application/json"), ("connection", "close"), ("content-length", str(len(body)))]
        try:
            self.transport.write(self.conn.send(h11.Response(status_code=status, headers=headers)) or b"")
            self.transport.write(self.conn.send(h11.Data(data=body.encode())) or b"")
            self.conn.send(h11.EndOfMessage())
        except h11.LocalProtocolError:  # an answer was under way
            self._give_up()
            return
        self._linger()

    def _linger(self) -> None:
        self._lingers = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER, self._give_up)
