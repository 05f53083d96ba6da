"""uvicorn's h11 protocol with idle, request and slow-reader timeouts, and a strict reading of headers.

uvicorn waits for ever for a request that trickles in, an idle socket or a client that does not read. Here each has a
timeout below ten seconds, after which the connection is aborted. A request that is being processed has none.
h11 also accepts headers that a proxy in front may read differently, which lets one request hide another: those get 400.
"""

import asyncio
import re
import socket
import sys
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

_MAX_CONNECTIONS = 1000
"""Concurrent connections; the requests of further ones get 503, those of earlier ones are served."""

_MAX_REFUSED = 100
"""Connections beyond those that get this answer; still further ones are closed at once."""

_OTHER_FILES = 256
"""File descriptors that are kept for models, data and libraries."""

ACCEPTED_AT_ONCE = 32
"""Connections accepted in one step of the event loop. Those of about three steps are not counted yet; they too have
descriptors, and must leave some for files."""

WAITING_CONNECTIONS = 1024
"""Connections that wait in the kernel until they are accepted."""

IDLE_TIMEOUT = 8.0
"""Keep-alive timeout in seconds; longer than that of common clients, so that they close first."""

REQUEST_TIMEOUT = 8.0
"""Seconds from the first byte of a request to its last."""

SLOW_READER_TIMEOUT = 8.0
"""Seconds in which a client must read at least `_MIN_BYTES_READ` bytes of a response."""

_MIN_BYTES_READ = 8192

_LINGER_TIMEOUT = 1.0
"""Seconds for a refused client to finish sending: closing at once would reset the connection and lose the response."""

_MAX_DISCARDED_BYTES = 8 * 2**20
"""Bytes of a refused body that are discarded before the connection is aborted."""

_SEND_BUFFER_BYTES = 128 * 1024
"""Kernel send buffer in bytes."""


def connection_limit() -> int:
    """Let this process open a file for each connection; return how many it may have at once.

    Idle connections could otherwise take every descriptor, and each request that opens a file would fail.
    """
    if sys.platform != "win32":  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MAX_CONNECTIONS + _MAX_REFUSED + _OTHER_FILES
        if resource.RLIM_INFINITY != soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            return max(soft - _MAX_REFUSED - _OTHER_FILES, soft // 4)
    return _MAX_CONNECTIONS


_MAX_CHUNKS = 4096
"""Chunks of one body. Each takes 20 microseconds of the event loop, however small it is."""

MAX_HEAD_BYTES = 16 * 1024
"""Request line and headers of a request in bytes."""

_SINGLE = (
    b"authorization", b"content-length", b"content-type", b"cookie", b"host", b"origin", b"sec-fetch-mode",
    b"sec-fetch-site", b"transfer-encoding",
)  # fmt: skip
"""Headers that decide about a request: of two, a proxy may read the other one."""

_REQUEST_LINE = re.compile(rb"\S+ [/*]\S* HTTP/1\.[01]\r")
"""Method, path and version. A target with a host is for proxies: its host need not be that of the header."""

_CHUNK_HEAD = re.compile(rb"[0-9A-Fa-f]{1,16}(;[^\x00-\x08\x0a-\x1f\x7f]{0,200})?\r\n")


class StrictReceiveBuffer(ReceiveBuffer):
    """Receive buffer that refuses ambiguous header lines and bodies of very many chunks."""

    _num_chunks = 0

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines before the first blank one, or None if it has not arrived; raise if they are ambiguous."""
        before = bytes(self._data)
        lines = super().maybe_extract_lines()
        if lines is not None:
            _check_head(before[: len(before) - len(self._data)], is_trailer=self._num_chunks > 0)
            self._num_chunks = 0
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Return the line with the size of a chunk, or None if it has not arrived; raise if it is ambiguous."""
        line = super().maybe_extract_next_line()
        if line is not None:
            self._num_chunks += 1
            if self._num_chunks > _MAX_CHUNKS or not _CHUNK_HEAD.fullmatch(line):
                raise h11.LocalProtocolError("the head of a chunk is ambiguous or long, or there are too many")
        return line


def _check_head(head: bytes, is_trailer: bool) -> None:
    """Raise if a proxy could read these lines differently."""
    if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", head.replace(b"\r\n", b"")):
        raise h11.LocalProtocolError("a line ends without CR LF, or has a control character")
    if len(head) > MAX_HEAD_BYTES:
        raise h11.LocalProtocolError("the head is too large", error_status_hint=431)
    if not (is_trailer or _REQUEST_LINE.match(head)):
        raise h11.LocalProtocolError("the target is no path, or this is another version of HTTP")
    first, *rest = head.split(b"\r\n")
    if any(line[:1] in (b" ", b"\t") for line in rest):
        raise h11.LocalProtocolError("a header is folded")
    headers = [(name.strip().lower(), text) for name, _, text in (line.partition(b":") for line in rest)]
    names = [name for name, _ in headers]
    if any(names.count(name) > 1 for name in _SINGLE) or b"," in dict(headers).get(b"content-length", b""):
        raise h11.LocalProtocolError("a header that decides is repeated")
    if b"transfer-encoding" in names and (b"content-length" in names or not first.endswith(b"HTTP/1.1")):
        raise h11.LocalProtocolError("Transfer-Encoding together with Content-Length, or before HTTP/1.1")


class TimeoutProtocol(H11Protocol):
    """h11 protocol with timeouts."""

    _request_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None
    _unsent_bytes = 0
    _discarded_bytes = 0
    _lingering = False

    def connection_made(self, transport: Any) -> None:
        """Start the request timeout; one connection too many is refused, one of far too many closed."""
        super().connection_made(transport)
        if self.limit_concurrency is not None:
            excess = len(self.connections) - self.limit_concurrency
            if excess > _MAX_REFUSED:
                transport.abort()
                return
            # uvicorn counts at every request: idle connections could then shut out a client that came before them
            self.limit_concurrency = 0 if excess > 0 else None
        self.conn._receive_buffer = StrictReceiveBuffer()
        transport.set_write_buffer_limits(high=0)  # `pause_writing` is called as soon as one byte is buffered
        if (connection := transport.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._request_timer = self.loop.call_later(REQUEST_TIMEOUT, self._abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        for timer in (self._request_timer, self._reader_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; discard the rest of a refused body up to a limit."""
        if self._lingering:
            return
        if self.cycle is not None and self.cycle.response_complete and self.cycle.more_body:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > _MAX_DISCARDED_BYTES:
                self._abort()
                return
        super().data_received(data)
        self._update_request_timer()

    def _update_request_timer(self) -> None:
        """Cancel the timer of a complete request; start one for an incomplete request that has none."""
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            if self._request_timer is not None:
                self._request_timer.cancel()
            self._request_timer, self._discarded_bytes = None, 0
        elif self._request_timer is None and not self.transport.is_closing():
            self._request_timer = self.loop.call_later(REQUEST_TIMEOUT, self._abort)

    def on_response_complete(self) -> None:
        """Start the timer again if a pipelined request has begun."""
        super().on_response_complete()
        if self.conn.trailing_data[0] or (self.cycle is not None and not self.cycle.response_complete):
            self._update_request_timer()

    def pause_writing(self) -> None:
        """Start the slow-reader timeout."""
        super().pause_writing()
        self._start_reader_timer()

    def resume_writing(self) -> None:
        """Cancel the slow-reader timeout."""
        super().resume_writing()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _start_reader_timer(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(SLOW_READER_TIMEOUT, self._on_reader_timeout)

    def _on_reader_timeout(self) -> None:
        if self._unsent_bytes - self.transport.get_write_buffer_size() < _MIN_BYTES_READ:
            self._abort()
        else:
            self._start_reader_timer()

    def _abort(self) -> None:
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
            self._abort()
            return
        self._lingering = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_TIMEOUT, self._abort)
