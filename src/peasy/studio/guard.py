"""The guard at the door: who may come in, how much they may carry, and what is said to browsers.

Everything is refused unless a rule lets it in. The rules hold on loopback too, where any page of a browser can knock.
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
"""Bytes of a request's body, unless the guard is told otherwise."""

LARGEST_HEADERS = 16 * 1024
"""Bytes of a request's headers and path together."""

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
    """The guard did not let it in; `status` says why to programs."""

    code, status = "refused", 403

    def __init__(self, status: int, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def is_loopback(host: str) -> bool:
    """Does this address stay on this machine?

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """Who may come in. `hosts` are the names it may be called by; with `by_number` it also answers to addresses.

    Only a name can be pointed at this machine by somebody else, so an address needs no list. `open` needs no key.
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
            raise UsageError("The key cannot be sent in a header.", hint="Use letters, digits and signs, no spaces.")
        self.key, self.by_number, self.body, self.open = key, by_number, body, frozenset(open)
        self.hosts = frozenset(host.lower() for host in hosts)
        self.token, self.closing = secrets.token_urlsafe(24), False

    def welcome(self, page: Response) -> None:
        """Give the page the word that its own requests carry; other sites can neither read nor send it."""
        page.set_cookie("peasy", self.token, httponly=True, samesite="strict", path="/")

    def check(self, method: str, path: str, raw: Sequence[tuple[bytes, bytes]]) -> None:
        """Refuse what may not come in."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        if self.closing:
            raise Refused(503, "This server is closing.", hint="Ask again when it is back.")
        if sum(len(name) + len(text) + 4 for name, text in raw) + len(path) > LARGEST_HEADERS:
            raise Refused(431, "The headers are too large.", hint=f"At most {LARGEST_HEADERS:,} bytes.")
        self._check_host(headers)
        self._check_origin(method, headers)
        if self.key is not None and path not in self.open:
            self._check_key(headers)
        if headers.get("content-length", "").isdecimal() and int(headers["content-length"]) > self.body:
            raise self.too_large()

    def too_large(self) -> Refused:
        """The error for a body that is larger than it may be."""
        return Refused(413, f"The body has more than {self.body:,} bytes.", hint="Send less at once.")

    def _check_host(self, headers: dict[str, str]) -> None:
        name = headers.get("host", "").lower()
        host = (name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() else name).strip("[]")
        if host not in self.hosts and not (self.by_number and _is_address(host)):
            raise Refused(421, "This server does not go by that name.", hint="Call it localhost, or give --allow-host.")

    def _check_origin(self, method: str, headers: dict[str, str]) -> None:
        """Browsers say where a request comes from: only our own pages may ask, and what they ask carries our word."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return
        foreign = origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()
        arrives = method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate" and origin is None
        if foreign or (site not in (None, "same-origin", "none") and not arrives):
            raise Refused(403, "Pages of other sites may not ask this server.")
        if method not in ("GET", "HEAD") and not hmac.compare_digest(_cookie(headers).encode(), self.token.encode()):
            raise Refused(403, "This page is older than the server.", hint="Reload it.")

    def _check_key(self, headers: dict[str, str]) -> None:
        kind, _, given = headers.get("authorization", "").partition(" ")
        assert self.key is not None
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.key.encode()):
            raise Refused(401, "The key is missing or wrong.", hint="Send it as: Authorization: Bearer KEY")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _cookie(headers: dict[str, str]) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get("peasy")
    except CookieError:
        return ""
    return "" if found is None else found.value


class Guarded:
    """The application behind its guard."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def polite(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in SAID if each[0] not in there)]
            await send(message)

        try:
            self.guard.check(scope["method"], scope["path"], scope["headers"])
            body = await self._whole(receive)
        except Refused as refused:
            await complain(refused, scope["path"])(scope, receive, polite)
            return
        if body is not None:
            await self.app(scope, _again(body, receive), polite)

    async def _whole(self, receive: Receive) -> bytes | None:
        """The body, which is no larger than it may be; None if its sender has left before its end."""
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
    """Gives the body once, and then what comes after it: that the sender leaves."""
    given = False

    async def give() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give
