"""Strangers at the door: silent connections, guessed tokens, a log that stays small, a proxy in front."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from fabula.apps.web import connections, errors, guard, serve
from fabula.errors import UserError

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
    guard.protect(app, **guarding)
    return app


@contextmanager
def patient(serving: Serving, most: int) -> Iterator[int]:
    """The port of an app behind the connections of our servers."""
    with serving(small_app(), http=connections.protocol(connections.Connections(most))) as url:
        yield int(url.rsplit(":", 1)[1])


def hangs_up(line: socket.socket) -> bool:
    line.settimeout(SECONDS)
    try:
        return line.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_whoever_says_nothing_is_hung_up_on(serving: Serving, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """Also in the middle of a second request on a connection that was good for a first."""
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    with patient(serving, 100) as port, ExitStack() as stack:
        line = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        line.sendall(said)
        assert hangs_up(line)
        again = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        again.settimeout(SECONDS)
        again.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in again.recv(100)
        again.sendall(b"GET / HTTP/1.1\r\nHo")
        while again.recv(4096):
            pass


def test_many_silent_ones_lock_nobody_out(serving: Serving) -> None:
    """Twice as many as there is room for, and a writer comes in all the same; those who were silent longest leave."""
    with patient(serving, 20) as port, ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(40)]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as writer:
            assert [writer.get("/").json() for _ in range(3)] == ["here"] * 3
        assert hangs_up(silent[0])


def test_a_guesser_has_to_wait_and_the_owner_does_not(serving: Serving) -> None:
    with serving(small_app(token=TOKEN)) as url:
        welcome = httpx.get(f"{url}/?token={TOKEN}")
        name, _, value = welcome.headers["set-cookie"].partition(";")[0].partition("=")
        assert name == f"fabula_token_{url.rsplit(':', 1)[1]}"  # two servers of a machine share cookies otherwise
        assert TOKEN not in value
        assert len(value) >= 32
        for n in range(connections.TRIES):
            answer = httpx.get(f"{url}/", headers={"Authorization": f"Bearer guess-{n}"})
            assert answer.status_code == 401
        for headers in ({"Authorization": "Bearer guess"}, {"Authorization": f"Bearer {TOKEN}"}):
            answer = httpx.get(f"{url}/", headers=headers)
            assert (answer.status_code, 1 <= int(answer.headers["Retry-After"]) <= 60) == (429, True)
        assert httpx.get(f"{url}/?token={TOKEN}").status_code == 429
        assert httpx.get(f"{url}/", headers={"Cookie": f"{name}={value}"}).status_code == 200
        assert httpx.get(f"{url}/", headers={"Cookie": f"{name}={TOKEN}"}).status_code == 401


def test_a_throttle_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    throttle = connections.Throttle(tries=2, seconds=10.0)
    for now in (0.0, 4.0):
        monkeypatch.setattr("fabula.apps.web.connections.time.monotonic", lambda now=now: now)
        throttle.wrong("a")
    assert (throttle.wait("a"), throttle.wait("b")) == (6.0, 0.0)
    monkeypatch.setattr("fabula.apps.web.connections.time.monotonic", lambda: 10.5)
    assert throttle.wait("a") == 0.0


def test_a_malformed_origin_is_another_site(serving: Serving) -> None:
    with patient(serving, 100) as port:
        for origin in ("http://[::1", "http://[zz]/", "\x00", "http://%zz"):
            head = f"POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nContent-Length: 0\r\n\r\n"
            with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as line:
                line.sendall(head.encode())
                assert line.recv(100).split()[1] in (b"403", b"400")  # what no header may hold is refused before us


def test_the_log_says_the_same_only_so_often() -> None:
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("fabula.test.limited")
    logger.addHandler(handler)
    logger.addFilter(connections.RateLimitFilter(times=3, seconds=1000.0))
    for n in range(500):
        logger.error("no room for %s", n)
    logger.error("something else")
    assert len(told) == 4
    assert told[-1] == "something else"


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    made = serve.token_of(None, file)
    assert made is not None
    assert len(made) >= 22  # 128 bits in base64
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert serve.token_of(None, file) == made
    monkeypatch.setenv("FABULA_TOKEN", "from-the-environment")
    assert serve.token_of(None, None) == "from-the-environment"
    assert serve.token_of("typed-in", None) == "typed-in"
    with pytest.raises(UserError, match="not both"):
        serve.token_of("typed-in", file)
    with pytest.raises(UserError, match="cannot read a token"):
        serve.token_of(None, tmp_path)


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
