"""Request security: API key, Host and Origin checks, CSRF token, size limits, security headers.

Requests are refused unless a rule allows them. The rules hold on loopback too, which any web page can reach.
"""

import asyncio
import contextlib
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from fastapi import Response
from starlette.datastructures import MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peasy.errors import PeasyError, UsageError
from peasy.server.responses import error_response

_MAX_BODY_BYTES = 2**20
"""Default limit of a request body in bytes."""

_MAX_DEPTH, _MAX_CONTAINERS = 32, 4096
"""Levels of lists and objects in a body, and their number: reading each takes time of the event loop."""

_LARGE_BODY_BYTES = 64 * 1024
"""Larger bodies are checked in a thread."""

_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""A string, which may lack its end, or a bracket; possessive, so that no text takes more than one pass."""

_SHUTTING_DOWN = (503, "This server is shutting down.", "Retry when it is back.")

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types default"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class HTTPRefusal(PeasyError):
    """Refused request with its HTTP status."""

    code, status = "refused", 403

    def __init__(self, status: int, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def is_loopback(host: str) -> bool:
    """True if this host can be reached only from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    address = _parse_ip(host.strip("[]"))
    return host == "localhost" if address is None else address.is_loopback


def host_names(host: str) -> tuple[str, ...]:
    """Return the Host names of a server on this address: also the machine's own, if others can reach it."""
    return (*LOOPBACK, host) if is_loopback(host) else (*LOOPBACK, host, socket.gethostname())


class Guard:
    """Checks of every request. `allowed_hosts` are Host names; `allow_ip_hosts` also accepts any IP address.

    DNS rebinding needs a name, so IP addresses need no list. `public_paths` need no API key.
    `root_path` is the path below which a proxy serves this server.
    """

    def __init__(
        self,
        api_key: str | None = None,
        allowed_hosts: Iterable[str] = LOOPBACK,
        allow_ip_hosts: bool = False,
        max_body_bytes: int = _MAX_BODY_BYTES,
        public_paths: Iterable[str] = (),
        root_path: str = "",
    ) -> None:
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and api_key.split() == [api_key]):
            raise UsageError("The API key cannot be sent in a header.", hint="Use printable ASCII without spaces.")
        self.api_key, self.allow_ip_hosts, self.max_body_bytes = api_key, allow_ip_hosts, max_body_bytes
        self.public_paths, self.root_path = frozenset(public_paths), root_path
        self.allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self.csrf_token, self.shutting_down = secrets.token_urlsafe(24), False

    def set_csrf_cookie(self, response: Response) -> None:
        """Set the CSRF cookie."""
        response.set_cookie("peasy", self.csrf_token, httponly=True, samesite="strict", path=f"{self.root_path}/")

    def check(self, method: str, path: str, raw_headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Raise if the request is not allowed."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw_headers}
        if self.shutting_down:
            raise HTTPRefusal(*_SHUTTING_DOWN)
        self._check_host(headers)
        self._check_origin(method, headers)
        if self.api_key is not None and path not in self.public_paths:
            self._check_key(headers, self.api_key)
        if headers.get("content-length", "").isdecimal():
            self._check_size(int(headers["content-length"]))

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self.max_body_bytes:
            raise HTTPRefusal(413, f"The body has more than {self.max_body_bytes:,} bytes.", "Send a smaller body.")

    def _check_host(self, headers: dict[str, str]) -> None:
        name = headers.get("host", "").lower()
        host = (name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() else name).strip("[]")
        if host not in self.allowed_hosts and not (self.allow_ip_hosts and _parse_ip(host)):
            raise HTTPRefusal(421, "This host name is not allowed.", hint="Use localhost, or start with --allow-host.")

    def _check_key(self, headers: dict[str, str], api_key: str) -> None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), api_key.encode()):
            raise HTTPRefusal(401, "The API key is missing or wrong.", hint="Send it as: Authorization: Bearer KEY")

    def _check_origin(self, method: str, headers: dict[str, str]) -> None:
        """Refuse cross-site browser requests; same-origin ones that change something must carry the CSRF cookie."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return
        foreign = origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()
        if foreign and site == "same-origin" and urlsplit(origin).hostname in self.allowed_hosts.difference(LOOPBACK):
            foreign = False  # a proxy replaced the Host header; the browser says that page and request have one origin
        navigates = method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate" and origin is None
        if foreign or (site not in (None, "same-origin", "none") and not navigates):
            raise HTTPRefusal(403, "Cross-site requests are not allowed.")
        cookie = cookie_parser(headers.get("cookie", "")).get("peasy", "")
        if method not in ("GET", "HEAD") and not hmac.compare_digest(cookie.encode(), self.csrf_token.encode()):
            raise HTTPRefusal(403, "This page is older than the server.", hint="Reload it.")


def check_structure(body: bytes) -> None:
    """Raise if a JSON body has very many or deep lists and objects, or is not UTF-8; its strings are not counted."""
    if b"\0" in body:  # only UTF-16 and UTF-32 have it, in which lists could hide
        raise HTTPRefusal(400, "The body is not JSON in UTF-8.")
    if body.count(b"[") + body.count(b"{") <= _MAX_DEPTH:
        return
    depth = count = 0
    for match in _STRUCTURE.finditer(body):
        first = body[match.start()]
        if first in b"[{":
            depth, count = depth + 1, count + 1
        elif first in b"]}":
            depth -= 1
        if depth > _MAX_DEPTH:
            raise HTTPRefusal(400, f"Lists and objects are nested more than {_MAX_DEPTH} levels deep.")
        if count > _MAX_CONTAINERS:
            raise HTTPRefusal(400, f"The body has more than {_MAX_CONTAINERS:,} lists and objects.")


def _parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address, or None for a name."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


class SecurityMiddleware:
    """ASGI middleware: applies the guard, bounds the body and adds security headers."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.guard.root_path:
            scope["root_path"] = self.guard.root_path  # the routes below then match with and without it

        has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            has_started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in _SECURITY_HEADERS.items():
                    headers.setdefault(name, text)
            await send(message)

        try:
            self.guard.check(scope["method"], scope["path"], scope["headers"])
            body = await self._read_body(receive)
            if body is not None and len(body) > _LARGE_BODY_BYTES:
                await asyncio.to_thread(check_structure, body)
            elif body:
                check_structure(body)
        except HTTPRefusal as refused:
            await error_response(refused, scope["path"])(scope, receive, send_with_headers)
            return
        if body is None:
            return
        buffered = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive_replayed() -> Message:
            """Give the buffered body once, then later messages (the disconnect)."""
            return next(buffered, None) or await receive()

        try:
            await self.app(scope, receive_replayed, send_with_headers)
        except asyncio.CancelledError:  # it outlasted a shutdown, for which uvicorn would print a traceback
            if not self.guard.shutting_down:
                raise
            if not has_started:
                await error_response(HTTPRefusal(*_SHUTTING_DOWN))(scope, receive, send_with_headers)

    async def _read_body(self, receive: Receive) -> bytes | None:
        """Return the body, or None if the client disconnects before its end; raise if it is too large."""
        body: bytes = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            self.guard._check_size(len(body))
            if not message.get("more_body", False):
                return body
