"""Access checks of Fabula's servers: Host, Origin, token and the body's size, before any route runs.

The server listens on the user's own machine, where every web page that the user visits can reach it. It refuses a name
that an attacker points at 127.0.0.1 (DNS rebinding: Host), a foreign page that posts here (Origin, Sec-Fetch-Site), and
everybody else on the network (token).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabula.apps.web import errors
from fabula.apps.web.errors import RefusedError
from fabula.apps.web.options import MAX_BODY
from fabula.errors import UserError

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
COOKIE = "fabula_token"
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    # The page's own files and nothing else. The picture of the arc is drawn from an SVG in memory (data:, blob:).
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def hosts_of(host: str, allowed: Collection[str] = ()) -> frozenset[str]:
    """The names under which a server bound to `host` may be asked for; `allowed`: a proxy's public ones."""
    names = {*LOOPBACK, *allowed, f"[{host}]" if ":" in host else host}
    if not is_loopback(host):
        names |= {socket.gethostname(), socket.getfqdn()}
    return frozenset(name.lower() for name in names)


class Guard:
    """The checks before every route, in the order of what an attacker can least influence.

    Every answer has the security headers, also one to a fault of ours.
    """

    def __init__(
        self, app: ASGIApp, hosts: Collection[str] = LOOPBACK, token: str | None = None, max_body: int = MAX_BODY,
        origins: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`origins`: pages of other addresses that may send requests."""
        self.app, self.hosts, self.token, self.max_body, self.origins = app, hosts, token, max_body, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        try:
            self._check_site(scope, headers)
            app = self._welcome(scope, headers) or self.app
            if scope["method"] not in SAFE:
                receive = replayed(await read_body(receive, headers, self.max_body), receive)
            await app(scope, receive, send_with_headers)
        except Exception as error:
            if started:
                raise
            await errors.ErrorResponse(error)(scope, receive, send_with_headers)

    def _check_site(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request for another Host or from another site's page."""
        host = headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        # Rebinding needs a name: where a token is needed, every address is accepted.
        if name not in self.hosts and (self.token is None or _address(name) is None):
            raise RefusedError(403, "this server is not called that: use the address it printed", field="Host")
        if len(headers.getlist("host")) > 1:
            raise RefusedError(403, "more than one Host was sent", field="Host")
        allowed = scope["method"] in SAFE or headers.get("origin") in self.origins
        if not allowed and not _same_origin(headers, host):
            raise RefusedError(403, "a request from another site was refused", field="Origin")

    def _welcome(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse whoever does not hold the token; the link with ?token= is answered with a cookie."""
        if self.token is None:
            return None
        # Browsers tell cookies apart by host, not by port: two servers on one machine need two names.
        cookie, sent = f"{COOKIE}_{(scope.get('server') or ('', 0))[1]}", HTTPConnection(scope)
        if _equal(sent.cookies.get(cookie, ""), session_of(self.token)):
            return None
        kind, _, credentials = headers.get("authorization", "").partition(" ")
        bearer = credentials.strip() if kind.lower() == "bearer" else ""
        opens_page = scope["method"] == "GET" and scope["path"] == "/"
        linked = sent.query_params.get("token", "") if opens_page else ""
        if _equal(bearer, self.token):
            return None
        if _equal(linked, self.token):
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(cookie, session_of(self.token), httponly=True, samesite="strict", path="/")
            return welcome
        message = "a token is needed: open the address that the server printed, or send Authorization: Bearer TOKEN"
        raise RefusedError(401, message, field="Authorization", headers={"WWW-Authenticate": "Bearer"})


def _equal(offered: str, secret: str) -> bool:
    """Whether two texts are equal, in a time that tells nothing about the secret."""
    return hmac.compare_digest(offered.encode("utf-8", "replace"), secret.encode("utf-8"))


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether a browser says that our own page sent this; a client that is no browser says nothing."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    try:
        return urlsplit(origin.lower()).netloc == host
    except ValueError:
        return False


def session_of(token: str) -> str:
    """The cookie's value: it lets its holder in here, but does not tell the token."""
    return hmac.new(token.encode("utf-8"), b"fabula session", hashlib.sha256).hexdigest()


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """The whole body. Routes start when everything is there, so none waits for a slow sender."""
    announced = headers.get("content-length", "")
    size, body, more = int(announced) if announced.isdigit() else 0, b"", True
    while more and size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the client left in the middle of its request")
        body, more = body + message.get("body", b""), message.get("more_body", False)
        size = max(size, len(body))
    if size > limit:
        raise RefusedError(413, f"the body is larger than {limit:,} bytes", field="body")
    if has_surrogate(body):
        raise UserError("the body holds half a character (a lone surrogate)")
    return body


def has_surrogate(body: bytes) -> bool:
    """Whether the JSON escapes a lone surrogate, which no encoding holds; where it is no JSON, the route says so."""
    if rb"\u" not in body:
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        return isinstance(error, UnicodeEncodeError)
    return False


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` with the body in one piece first, then what comes after it: the client's leaving."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message
