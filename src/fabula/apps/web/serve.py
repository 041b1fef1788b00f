"""Start a server: bind a port, print the address, serve until stopped."""

from __future__ import annotations

import argparse
import errno
import os
import socket
import sys
import threading
import webbrowser
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from fabula.apps.web.guard import is_loopback
from fabula.errors import UserError

GRACE_SECONDS = 2  # how long an open stream may delay the end of the server
CONNECTIONS = 512  # open connections and requests, at most; a further one is answered with 503


def check(host: str, token: str | None) -> None:
    """Refuse a token that is too weak, and a server that other machines can reach without one."""
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token):
        raise UserError("a token has at least 8 printable ASCII characters and no blank", field="token")
    if token is None and not is_loopback(host):
        raise UserError(f"{host} can be reached from other machines: give a --token to let only its holders in")


def prepare(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that all servers with a model have, from the command line; mistakes are told before it is loaded."""
    check(args.host, args.token)
    bind(args.host, args.port).close()
    names = frozenset(args.allow_host)
    return {
        "model": args.model, "host": args.host, "token": args.token, "names": names, "device": args.device,
        "threads": args.threads,
    }  # fmt: skip


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; a `UserError` where the address or the port cannot be had."""
    if not 0 <= port <= 65535:
        raise UserError(f"a port is between 0 and 65535, not {port}", field="port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        code = getattr(error, "errno", None)
        if code == errno.EADDRINUSE:
            message = f"port {port} is taken: choose another with --port, or 0 for any that is free"
            raise UserError(message, field="port") from error
        if code == errno.EACCES:
            raise UserError(f"port {port} is not yours to take: choose one above 1023", field="port") from error
        raise UserError(f"cannot listen at {host}: {getattr(error, 'strerror', error)}", field="host") from error


def address(listening: socket.socket, host: str, token: str | None) -> str:
    """The address to open in a browser."""
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{listening.getsockname()[1]}/" + (f"?token={quote(token, safe='')}" if token else "")


class AnnouncingServer(uvicorn.Server):
    """Prints its address as soon as it answers there, and not before."""

    line, page = "", ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self.line, flush=True)
            if self.page:
                # In a thread: a text browser would block the server that it wants to read.
                threading.Thread(target=webbrowser.open, args=(self.page,), daemon=True).start()


def has_screen() -> bool:
    """Whether there is a display for a browser's window."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def serve(
    app: FastAPI, host: str, port: int, token: str | None = None, *, name: str = "Fabula studio", show: bool = False
) -> None:
    """Serve `app` until Ctrl-C; port 0 takes any that is free. `show` opens its page in the user's browser."""
    check(host, token)
    listening = bind(host, port)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none",
        timeout_graceful_shutdown=GRACE_SECONDS, limit_concurrency=CONNECTIONS,
    )  # fmt: skip
    server = AnnouncingServer(config)
    at = address(listening, host, token)
    server.line, server.page = f"{name}: {at}   (Ctrl-C stops it)", at if show else ""
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()
