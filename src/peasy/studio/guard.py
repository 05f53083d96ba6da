"""Request security: API key, Host and Origin checks, CSRF token, size limits, security headers.

Requests are refused unless a rule allows them. The rules hold on loopback too, which any web page can reach.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Sequence
from http.cookies import CookieError, SimpleCookie

from fastapi import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peasy.errors import PeasyError, UsageError
from peasy.studio.reply import complain

BODY = 2**20
"""Default limit of a request body in bytes."""

LARGEST_HEADERS = 16 * 1024
"""Limit of a request's headers and path together in bytes."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types default"
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

SAID = [(name.encode(), text.encode()) for name, text in HEADERS.items()]


class Refused(PeasyError):
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
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """Checks of every request. `hosts` are the accepted Host names; `by_number` also accepts any IP address.

    DNS rebinding needs a name, so IP addresses need no list. Paths in `open` need no API key.
    """

    def __init__(
        self,
        key: str | None = None,
        hosts: Iterable[str] = LOOPBACK,
        by_number: bool = False,
        body: int = BODY,
        open: Iterable[str] = (),
    ) -> None:
        if key is not None and not (key.isascii() and key.isprintable() and key.split() == [key]):
            raise UsageError("The API key cannot be sent in a header.", hint="Use printable ASCII without spaces.")
        self.key, self.by_number, self.body, self.open = key, by_number, body, frozenset(open)
        self.hosts = frozenset(host.lower() for host in hosts)
        self.token, self.closing = secrets.token_urlsafe(24), False

    def welcome(self, page: Response) -> None:
        """Set the CSRF cookie."""
        page.set_cookie("peasy", self.token, httponly=True, samesite="strict", path="/")

    def check(self, method: str, path: str, raw: Sequence[tuple[bytes, bytes]]) -> None:
        """Raise if the request is not allowed."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        if self.closing:
            raise Refused(503, "This server is shutting down.", hint="Retry when it is back.")
        if sum(len(name) + len(text) + 4 for name, text in raw) + len(path) > LARGEST_HEADERS:
            raise Refused(431, "The headers are too large.", hint=f"At most {LARGEST_HEADERS:,} bytes.")
        self._check_host(headers)
        self._check_origin(method, headers)
        if self.key is not None and path not in self.open:
            self._check_key(headers)
        if headers.get("content-length", "").isdecimal() and int(headers["content-length"]) > self.body:
            raise self.too_large()

    def too_large(self) -> Refused:
        """Return the error for a body above the limit."""
        return Refused(413, f"The body has more than {self.body:,} bytes.", hint="Send a smaller body.")

    def _check_host(self, headers: dict[str, str]) -> None:
        name = headers.get("host", "").lower()
        host = (name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() else name).strip("[]")
        if host not in self.hosts and not (self.by_number and _is_address(host)):
            raise Refused(421, "This host name is not allowed.", hint="Use localhost, or start with --allow-host.")

    def _check_origin(self, method: str, headers: dict[str, str]) -> None:
        """Refuse cross-site browser requests; same-origin ones that change something must carry the CSRF cookie."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return
        foreign = origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()
        navigates = method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate" and origin is None
        if foreign or (site not in (None, "same-origin", "none") and not navigates):
            raise Refused(403, "Cross-site requests are not allowed.")
        if method not in ("GET", "HEAD") and not hmac.compare_digest(_cookie(headers).encode(), self.token.encode()):
            raise Refused(403, "This page is older than the server.", hint="Reload it.")

    def _check_key(self, headers: dict[str, str]) -> None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        assert self.key is not None
        if scheme.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), self.key.encode()):
            raise Refused(401, "The API key is missing or wrong.", hint="Send it as: Authorization: Bearer KEY")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _cookie(headers: dict[str, str]) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get("peasy")
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


class Guarded:
    """ASGI middleware: applies the guard, bounds the body and adds security headers."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(header for header in SAID if header[0] not in present)]
            await send(message)

        try:
            self.guard.check(scope["method"], scope["path"], scope["headers"])
            body = await self._whole(receive)
        except Refused as refused:
            await complain(refused, scope["path"])(scope, receive, send_with_headers)
            return
        if body is not None:
            await self.app(scope, _again(body, receive), send_with_headers)

    async def _whole(self, receive: Receive) -> bytes | None:
        """Return the body, or None if the client disconnects before its end; raise if it is too large."""
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self.guard.body:
                raise self.guard.too_large()
            if not message.get("more_body", False):
                return body


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the buffered body once, then later messages (the disconnect)."""
    replayed = False

    async def receive_replayed() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_replayed
