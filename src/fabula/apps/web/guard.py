"""Who may talk to a server of Fabula's: Host, Origin, token and body size are checked before any route runs.

The server listens on the user's own machine, where every web page that the user visits can reach it. Three doors are
shut: a name that an attacker points at 127.0.0.1 (DNS rebinding: Host), a foreign page that posts here (Origin,
Sec-Fetch-Site), and whoever else is on the network (token).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import math
import re
import socket
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabula.apps.web import errors
from fabula.apps.web.door import Throttle

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
MAX_BODY = 4 * 2**20
BODY_SECONDS = 30.0
"""How long a client may take to send its body."""
DRAINED = 8
"""A body that is too large is read and dropped up to so many times the limit, so that its sender hears why."""
COOKIE = "fabula_token"
SAFE = ("GET", "HEAD", "OPTIONS")

POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data: blob:",  # the picture of the arc is drawn from an SVG in memory
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The page's own files and nothing else: no inline script or style, no other host."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def hosts_of(host: str, allowed: Collection[str] = ()) -> frozenset[str]:
    """The names under which a server bound to `host` may be asked for; `allowed`: a proxy's public ones."""
    own = f"[{host}]" if ":" in host else host
    named = LOOPBACK | {name.lower() for name in allowed}
    if is_loopback(host):
        return named | {own}
    return named | {own.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}


def protect(
    app: FastAPI,
    *,
    hosts: Collection[str] = LOOPBACK,
    token: str | None = None,
    max_body: int = MAX_BODY,
    origins: Collection[str] = (),
) -> None:
    """Put the guard before every route of `app`, and the security headers on every answer. After `errors.install`.

    `origins`: pages of other addresses that may ask.
    """
    names = frozenset(name.lower() for name in hosts)
    app.add_middleware(Guard, hosts=names, token=token, max_body=max_body, origins=frozenset(origins))


class Guard:
    """The checks, in the order of what an attacker can least influence."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str],
        token: str | None,
        max_body: int,
        origins: frozenset[str] = frozenset(),
    ) -> None:
        self.app, self.hosts, self.token, self.max_body, self.origins = app, hosts, token, max_body, origins
        self.throttle = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None and scope["method"] not in SAFE:
            body = await read_body(receive, Headers(scope=scope), self.max_body)
            if isinstance(body, Response):
                refusal = body
            elif holds_half_characters(body):
                refusal = errors.answer(422, "the body holds half a character (a lone surrogate)")
            else:
                receive = replayed(body, receive)
        await (refusal or self.app)(scope, receive, dressed)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if not self._known(host):
            return errors.answer(403, "this server is not called that: use the address it printed", "Host")
        if len(headers.getlist("host")) > 1:
            return errors.answer(403, "more than one Host was sent", "Host")
        asks = scope["method"] not in SAFE and headers.get("origin") not in self.origins
        if asks and not _same_origin(headers, host):
            return errors.answer(403, "a request from another site was refused", "Origin")
        return self._stranger(scope, headers)

    def _known(self, host: str) -> bool:
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name in self.hosts:
            return True
        # Rebinding needs a name: where a token guards the door, every address will do.
        return self.token is not None and _is_address(name)

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        """None for whoever holds the token; the link with ?token= is traded for a cookie."""
        if self.token is None:
            return None
        cookie = cookie_name(scope)
        # Cannot be guessed, so it is looked at however many guesses there were.
        if hmac.compare_digest(_cookie(headers, cookie).encode("utf-8", "replace"), session_of(self.token).encode()):
            return None
        kind, _, credentials = headers.get("authorization", "").partition(" ")
        bearer = credentials.strip() if kind.lower() == "bearer" else ""
        asks = scope["method"] == "GET" and scope["path"] == "/"
        named = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0] if asks else ""
        address = (scope.get("client") or ("",))[0]
        if (bearer or named) and (wait := self.throttle.wait(address)):
            told = f"too many wrong tokens: try again in {math.ceil(wait)} seconds"
            return errors.answer(429, told, "Authorization", {"Retry-After": str(math.ceil(wait))})
        if self._is_token(bearer):
            return None
        if self._is_token(named):
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(cookie, session_of(self.token), httponly=True, samesite="strict", path="/")
            return welcome
        if bearer or named:
            self.throttle.wrong(address)
        wanted = {"WWW-Authenticate": "Bearer"}
        if scope["method"] in SAFE and errors.wants_page(headers.get("accept", "")):
            told = "a token is needed: open the address with ?token= that the server printed when it was started"
            return errors.page(401, told, wanted)
        told = "a token is needed: open the address that the server printed, or send Authorization: Bearer TOKEN"
        return errors.answer(401, told, "Authorization", wanted)

    def _is_token(self, offered: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(offered.encode("utf-8", "replace"), self.token.encode("utf-8"))


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether a browser says that our own page sent this; a client that is no browser says nothing."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin.lower()).netloc == host
        except ValueError:  # no address at all
            return False
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def session_of(token: str) -> str:
    """What the cookie holds: whoever reads it can come in here, but does not learn the token."""
    return hmac.new(token.encode("utf-8"), b"fabula session", hashlib.sha256).hexdigest()


def cookie_name(scope: Scope) -> str:
    """Browsers tell cookies apart by host, not by port: two servers on one machine need two names."""
    return f"{COOKIE}_{(scope.get('server') or ('', 0))[1]}"


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes | Response:
    """The whole body, or why it is refused. Routes begin when everything is there, so none waits for a slow sender."""
    told = errors.answer(413, f"the body is larger than {limit:,} bytes", "body")
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit * DRAINED:
        return told
    chunks: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return errors.answer(400, "the client left in the middle of its request")
                size += len(message.get("body", b""))
                more = message.get("more_body", False)
                if size > limit * DRAINED:
                    return told
                if size <= limit:
                    chunks.append(message.get("body", b""))
    except TimeoutError:
        return errors.answer(408, f"the body took longer than {BODY_SECONDS:.0f} seconds", "body")
    return b"".join(chunks) if size <= limit else told


def holds_half_characters(body: bytes) -> bool:
    """Whether JSON spells a lone surrogate: Python reads it, but no answer and no file could be written with it."""
    if not re.search(rb"\\u[dD][89a-fA-F]", body):
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass  # no JSON at all: the route says so
    return False


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` with the body in one piece first, then whatever comes after it: the client's leaving."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
