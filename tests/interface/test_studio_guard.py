"""Who gets into a server of Fabula's: Host, Origin, token, a proxy, sizes, headers; how one starts and is opened."""

import argparse
import asyncio
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from doors import Serving
from fabula.apps.web import errors, guard, serve, static
from fabula.apps.web.options import add_server
from fabula.errors import UserError

TOKEN = "a-long-secret"
INDEX = "<!doctype html><title>page</title>"


class Said(BaseModel):
    text: str


def small_app(folder: Path, **guarding: Any) -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.post("/echo")
    def echo(said: Said) -> Said:
        return said

    @app.get("/fault")
    def fault() -> None:
        raise RuntimeError("a secret of the source")

    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(INDEX, encoding="utf-8")
    (folder / "main.js").write_text("export {};", encoding="utf-8")
    (folder.parent / "outside.txt").write_text("not yours", encoding="utf-8")
    static.mount(app, folder)
    errors.install(app)
    app.add_middleware(guard.Guard, **guarding)
    return app


@pytest.fixture(scope="module")
def url(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(small_app(tmp_path_factory.mktemp("open") / "page", max_body=1000)) as url:
        yield url


@pytest.fixture(scope="module")
def guarded(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(small_app(tmp_path_factory.mktemp("guarded") / "page", token=TOKEN)) as url:
        yield url


def echo(url: str, headers: dict[str, str]) -> httpx.Response:
    return httpx.post(f"{url}/echo", json={"text": "x"}, headers=headers)


def is_refused(answer: httpx.Response, status: int, field: str | None) -> bool:
    """Whether it has this status, in the one shape."""
    told = answer.json()
    assert set(told) == {"error"}
    assert set(told["error"]) - {"fields"} == {"message", "field", "status"}
    assert "\n" not in told["error"]["message"]
    return (answer.status_code, told["error"]["status"], told["error"]["field"]) == (status, status, field)


@pytest.mark.parametrize("host", ["evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_name_that_points_here_is_not_let_in(url: str, host: str) -> None:
    """DNS rebinding: the page of evil.example asks its own name, which now leads to this machine."""
    assert is_refused(httpx.get(f"{url}/", headers={"Host": host}), 403, "Host")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:9", "[::1]:8000", "127.0.0.1:8000"])
def test_own_names_are_let_in(url: str, host: str) -> None:
    assert httpx.get(f"{url}/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1@evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_cannot_post(url: str, headers: dict[str, str]) -> None:
    assert is_refused(echo(url, headers), 403, "Origin")


@pytest.mark.parametrize("origin", ["http://[::1", "http://[zz]/", "\x00", "http://%zz"])
def test_a_malformed_origin_is_another_site(url: str, origin: str) -> None:
    body = '{"text": "x"}'
    head = f"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nOrigin: {origin}\r\n"
    with socket.create_connection(("127.0.0.1", int(url[17:])), timeout=60) as line:
        line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert line.recv(100).split()[1] in (b"403", b"400")  # what no header may hold is refused before us


def test_our_page_and_programs_can_post(url: str) -> None:
    for headers in ({"Origin": url, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}):
        assert echo(url, headers).json() == {"text": "x"}


def test_the_token_opens(guarded: str) -> None:
    assert is_refused(httpx.get(f"{guarded}/"), 401, "Authorization")
    for headers in ({"Authorization": "Bearer wrong"}, {"Cookie": "fabula_token_8000=wrong"}, {"Authorization": TOKEN}):
        answer = echo(guarded, headers)
        assert is_refused(answer, 401, "Authorization")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert is_refused(httpx.get(f"{guarded}/?token=wrong"), 401, "Authorization")
    assert echo(guarded, {"Authorization": f"Bearer {TOKEN}"}).json() == {"text": "x"}


def test_the_address_with_the_token_is_traded_for_a_cookie(guarded: str) -> None:
    with httpx.Client(base_url=guarded) as client:
        welcome = client.get(f"/?token={TOKEN}")
        assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
        assert "HttpOnly" in welcome.headers["set-cookie"]
        assert "SameSite=strict" in welcome.headers["set-cookie"]
        assert client.get("/page/main.js").status_code == 200
    name, _, value = welcome.headers["set-cookie"].partition(";")[0].partition("=")
    assert name == f"fabula_token_{guarded.rsplit(':', 1)[1]}"  # two servers of a machine share cookies otherwise
    assert TOKEN not in value
    assert len(value) >= 32
    assert httpx.get(f"{guarded}/", headers={"Cookie": f"{name}={value}"}).status_code == 200
    assert httpx.get(f"{guarded}/", headers={"Cookie": f"{name}={TOKEN}"}).status_code == 401


def test_with_a_token_any_address_is_a_host_but_no_name(guarded: str) -> None:
    key = {"Authorization": f"Bearer {TOKEN}"}
    assert httpx.get(f"{guarded}/", headers={**key, "Host": "192.168.0.7:8000"}).status_code == 200
    assert httpx.get(f"{guarded}/", headers={**key, "Host": "[fe80::1]:8000"}).status_code == 200
    assert is_refused(httpx.get(f"{guarded}/", headers={**key, "Host": "evil.example"}), 403, "Host")


def test_a_body_beyond_the_limit_is_refused(url: str) -> None:
    exact = json.dumps({"text": "x" * (1000 - len('{"text": ""}'))}).encode()
    head = {"Content-Type": "application/json"}
    assert len(exact) == 1000
    assert httpx.post(f"{url}/echo", content=exact, headers=head).status_code == 200
    assert is_refused(httpx.post(f"{url}/echo", content=exact + b" ", headers=head), 413, "body")
    assert is_refused(httpx.post(f"{url}/echo", content=b"x" * 10**7, headers=head), 413, "body")
    # Without a length said beforehand.
    assert is_refused(httpx.post(f"{url}/echo", content=iter([exact, b" "]), headers=head), 413, "body")
    assert httpx.post(f"{url}/echo", content=iter([exact[:5], exact[5:]]), headers=head).status_code == 200


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/nowhere", "/fault"])
def test_every_answer_is_dressed(url: str, path: str) -> None:
    answer = httpx.get(url + path)
    for name, value in guard.HEADERS.items():
        assert answer.headers[name] == value
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_page_files(url: str) -> None:
    index, script = httpx.get(f"{url}/"), httpx.get(f"{url}/page/main.js")
    for file in re.findall(r'(?:href|src)="(/(?:page|shared)/[^"]+)"', index.text):
        assert httpx.get(f"{url}{file}").status_code == 200, file
    assert index.headers["Content-Type"].startswith("text/html")
    assert script.headers["Content-Type"].startswith("text/javascript")
    assert script.headers["Cache-Control"] == "no-cache"
    again = httpx.get(f"{url}/page/main.js", headers={"If-None-Match": script.headers["ETag"]})
    assert again.status_code == 304
    assert httpx.head(f"{url}/").status_code == 200
    with socket.create_connection(("127.0.0.1", int(url[17:]))) as line:
        line.sendall(b"GET /page/../../outside.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        told = b"".join(iter(lambda: line.recv(1000), b""))
    assert b" 404 " in told
    assert b"not yours" not in told


@pytest.mark.parametrize(
    ("body", "says", "field"),
    [
        (b"{", "not valid JSON", None),
        (b"\xff", "could not be read", None),
        (b"[" * 100_000, "could not be read", None),
        (b"[]", "JSON object", None),
        (b"", "the body is missing", None),
        (b"{}", "text: is missing", "text"),
        (b'{"text": 1}', "must be text", "text"),
        (b'{"text": "\\ud800"}', "half a character", None),
        (b'{"\\uDC00": 1}', "half a character", None),
    ],
)
def test_what_is_no_request_is_told_in_the_one_shape(guarded: str, body: bytes, says: str, field: str | None) -> None:
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    answer = httpx.post(f"{guarded}/echo", content=body, headers=head)
    assert is_refused(answer, answer.status_code, field)
    assert answer.status_code in (400, 422)
    assert says in answer.json()["error"]["message"]


def test_only_loopback_needs_no_token() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.5"):
        serve.check(host, None)
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org", ""):
        with pytest.raises(UserError, match="--token"):
            serve.check(host, None)
        serve.check(host, TOKEN)
    for token in ("", "short", "with a blank", "tökentöken"):
        with pytest.raises(UserError, match="a token has"):
            serve.check("127.0.0.1", token)


def test_a_token_comes_from_the_command_line_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABULA_TOKEN", "from-the-environment")
    parser = argparse.ArgumentParser()
    add_server(parser, 8000)
    tokens = [parser.parse_args(words).token for words in ([], ["--token", "typed-in"])]
    assert tokens == ["from-the-environment", "typed-in"]


def test_the_page_is_opened_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with ThreadPoolExecutor(1) as pool:  # the browser tests leave a loop running in the worker's own thread
        for show, pages in ((False, []), (True, [INDEX])):
            pool.submit(serve.serve, small_app(tmp_path / "page"), "127.0.0.1", 0, show=show).result()
            assert opened == pages
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert serve.has_screen() == (sys.platform in ("darwin", "win32"))


def test_the_public_name_of_a_proxy_is_let_in_where_it_was_allowed(serving: Serving, tmp_path: Path) -> None:
    """From a page of that name only; TLS ends at the proxy, so that its scheme may be another."""
    hosts = guard.hosts_of("127.0.0.1", ["Stories.example"])
    with serving(small_app(tmp_path / "page", hosts=hosts, token=TOKEN)) as url:
        public = {"Host": "stories.example", "Authorization": f"Bearer {TOKEN}"}
        for scheme in ("http", "https"):
            assert echo(url, {**public, "Origin": f"{scheme}://stories.example"}).status_code == 200
        assert echo(url, {**public, "Origin": "http://evil.example"}).status_code == 403
        assert httpx.get(url, headers={**public, "Host": "evil.example"}).status_code == 403
