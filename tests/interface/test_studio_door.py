"""Strangers at the door: malformed origins, where tokens come from, a proxy in front; and the page that is opened."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from fabula.apps.web import errors, guard, serve
from fabula.apps.web.options import add_server

Serving = Callable[..., AbstractContextManager[str]]
TOKEN = "a-long-secret"
SECONDS = 60.0


def small_app(**guarding: Any) -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.get("/")
    @app.post("/")
    def here() -> str:
        return "here"

    errors.install(app)
    app.add_middleware(guard.Guard, **guarding)
    return app


def test_a_cookie_does_not_tell_the_token(serving: Serving) -> None:
    with serving(small_app(token=TOKEN)) as url:
        welcome = httpx.get(f"{url}/?token={TOKEN}")
        name, _, value = welcome.headers["set-cookie"].partition(";")[0].partition("=")
        assert name == f"fabula_token_{url.rsplit(':', 1)[1]}"  # two servers of a machine share cookies otherwise
        assert TOKEN not in value
        assert len(value) >= 32
        assert httpx.get(f"{url}/", headers={"Cookie": f"{name}={value}"}).status_code == 200
        assert httpx.get(f"{url}/", headers={"Cookie": f"{name}={TOKEN}"}).status_code == 401


def test_a_malformed_origin_is_another_site(serving: Serving) -> None:
    with serving(small_app()) as url:
        port = int(url.rsplit(":", 1)[1])
        for origin in ("http://[::1", "http://[zz]/", "\x00", "http://%zz"):
            head = f"POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nContent-Length: 0\r\n\r\n"
            with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as line:
                line.sendall(head.encode())
                assert line.recv(100).split()[1] in (b"403", b"400")  # what no header may hold is refused before us


def test_a_token_comes_from_the_command_line_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABULA_TOKEN", "from-the-environment")
    parser = argparse.ArgumentParser()
    add_server(parser, 8000)
    tokens = [parser.parse_args(words).token for words in ([], ["--token", "typed-in"])]
    assert tokens == ["from-the-environment", "typed-in"]


def test_the_page_is_opened_in_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the server answers, and only where it is wanted and there is a screen."""
    opened: list[str] = []
    ready = threading.Event()

    def look(url: str) -> None:
        opened.append(httpx.get(url).text)
        ready.set()

    monkeypatch.setattr("webbrowser.open", look)

    class Once(serve.AnnouncingServer):
        async def main_loop(self) -> None:
            await asyncio.to_thread(ready.wait, 5 if self.page else 0)

    monkeypatch.setattr(serve, "AnnouncingServer", Once)
    serve.serve(small_app(), "127.0.0.1", 0)
    assert not opened
    serve.serve(small_app(), "127.0.0.1", 0, show=True)
    assert opened == ['"here"']
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert serve.has_screen() == (sys.platform in ("darwin", "win32"))


def test_the_public_name_of_a_proxy_is_let_in_where_it_was_allowed(serving: Serving) -> None:
    """From a page of that name only; TLS ends at the proxy, so that its scheme may be another."""
    with serving(small_app(hosts=guard.hosts_of("127.0.0.1", ["Stories.example"]), token=TOKEN)) as url:
        public = {"Host": "stories.example", "Authorization": f"Bearer {TOKEN}"}
        for scheme in ("http", "https"):
            assert httpx.post(url, headers={**public, "Origin": f"{scheme}://stories.example"}).status_code == 200
        assert httpx.post(url, headers={**public, "Origin": "http://evil.example"}).status_code == 403
        assert httpx.get(url, headers={**public, "Host": "evil.example"}).status_code == 403
