"""Access checks of Fabula's servers: Host, Origin, token and the body's size, form and speed, before any route runs.

The server listens on the user's own machine, where every web page that the user visits can reach it. It refuses a name
that an attacker points at 127.0.0.1 (DNS rebinding: Host), a foreign page that posts here (Origin, Sec-Fetch-Site), and
everybody else on the network (token).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import socket
import time
from collections import Counter
from collections.abc import Collection
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabula.apps.web import errors

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
MAX_BODY = 4 * 2**20
MAX_KEYS = 300  # of one object of a body: validating many unknown keys holds up everybody
BODIES = 64  # that are on their way from one client, at most
BODY_SECONDS, BYTES_PER_SECOND = 10.0, 10_000  # a body may take so long, and longer by what has arrived at this rate
CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The address of whoever sent the request that is answered."""
COOKIE = "fabula_token"
CLOSE = {"Connection": "close"}
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


def protect(app: FastAPI, **checks: Any) -> None:
    """Put the checks before every route of `app`, and the security headers on every answer. After `errors.install`."""
    app.add_middleware(Guard, **checks)


class Guard:
    """The checks, in the order of what an attacker can least influence."""

    def __init__(
        self, app: ASGIApp, hosts: Collection[str] = LOOPBACK, token: str | None = None, max_body: int = MAX_BODY,
        origins: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`origins`: pages of other addresses that may send requests."""
        self.app, self.hosts, self.token, self.max_body, self.origins = app, hosts, token, max_body, origins
        self.reading: Counter[str] = Counter()  # bodies on their way, by client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._wrong_site(scope, headers) or self._wrong_token(scope, headers)
        if refusal is None and scope["method"] not in SAFE:
            body = await self._body(scope, receive, headers)
            if isinstance(body, Response):
                refusal = body
            else:
                receive = replayed(body, receive)
        await (refusal or self.app)(scope, receive, send_with_headers)

    async def _body(self, scope: Scope, receive: Receive, headers: Headers) -> bytes | Response:
        """The whole body, or its refusal; one client's slow bodies do not take up all connections."""
        client = client_of(scope, headers)
        CLIENT.set(client)
        if self.reading[client] >= BODIES:
            return errors.answer(429, "too many requests at a time", headers={"Retry-After": "5", **CLOSE})
        self.reading[client] += 1
        try:
            body = await read_body(receive, headers, self.max_body)
        finally:
            self.reading[client] -= 1
            self.reading += Counter()  # forgets clients that send nothing
        if isinstance(body, Response) or (body.count(b":") <= MAX_KEYS and rb"\u" not in body):
            return body
        return errors.answer(422, fault) if (fault := await asyncio.to_thread(fault_of, body)) else body

    def _wrong_site(self, scope: Scope, headers: Headers) -> Response | None:
        """The refusal of a request for another Host or from another site's page."""
        host = headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        # Rebinding needs a name: where a token is needed, every address is accepted.
        if name not in self.hosts and (self.token is None or _address(name) is None):
            return errors.answer(403, "this server is not called that: use the address it printed", "Host")
        if len(headers.getlist("host")) > 1:
            return errors.answer(403, "more than one Host was sent", "Host")
        allowed = scope["method"] in SAFE or headers.get("origin") in self.origins
        if not allowed and not _same_origin(headers, host):
            return errors.answer(403, "a request from another site was refused", "Origin")
        return None

    def _wrong_token(self, scope: Scope, headers: Headers) -> Response | None:
        """None for whoever holds the token; the link with ?token= is answered with a cookie."""
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
        return errors.answer(401, message, "Authorization", {"WWW-Authenticate": "Bearer"})


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


def client_of(scope: Scope, headers: Headers) -> str:
    """The sender's address: the one that a proxy of this machine names last, else the connection's."""
    peer = (scope.get("client") or ("", 0))[0]
    forwarded = headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return forwarded or peer if is_loopback(peer) else peer


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes | Response:
    """The whole body, or its refusal. Routes start when everything is there, so none waits for a slow sender."""
    too_large = errors.answer(413, f"the body is larger than {limit:,} bytes", "body")
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        return too_large
    chunks, size, more = [], 0, True
    begun = time.monotonic()
    while more:
        left = begun + BODY_SECONDS + size / BYTES_PER_SECOND - time.monotonic()
        try:
            message = await asyncio.wait_for(receive(), left)
        except TimeoutError:
            return errors.answer(408, "the body came too slowly: send it again", "body", CLOSE)
        if message["type"] == "http.disconnect":
            return errors.answer(400, "the client left in the middle of its request")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            return too_large
    return b"".join(chunks)


def fault_of(body: bytes) -> str | None:
    """What is wrong with a body of whatever route: too many keys, or a lone surrogate, which nothing could be written
    with. Where it is no JSON at all, the route says so."""

    def bounded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > MAX_KEYS:
            raise OverflowError
        return dict(pairs)

    try:
        json.dumps(json.loads(body, object_pairs_hook=bounded), ensure_ascii=False).encode("utf-8")
    except OverflowError:
        return f"an object of the body has more than {MAX_KEYS} keys"
    except UnicodeEncodeError:
        return "the body holds half a character (a lone surrogate)"
    except (ValueError, RecursionError):
        pass
    return None


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` with the body in one piece first, then what comes after it: the client's leaving."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message
