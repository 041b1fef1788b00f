"""`fabula studio` as people start it: mistakes in one line, the address when it answers, nothing lost when killed."""

import json
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from doors import Refused
from fabula.apps.web.serve import bind
from started import SECONDS, Started

STATE = {"lines": [{"text": "A."}, {"text": "B."}]}


@pytest.fixture
def studio(random_models: Path) -> Iterator[Callable[..., Started]]:
    """Starts a studio; what a test leaves running is stopped."""
    studios: list[Started] = []

    def start(*words: object) -> Started:
        studios.append(Started("studio", "--port", 0, "--model", random_models / "default", *words))
        return studios[-1]

    yield start
    for each in studios:
        if each.process.poll() is None:
            each.stop()


def test_mistakes_are_one_line(tmp_path: Path, random_models: Path, refused: Refused) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("notes " * 1000, encoding="utf-8")
    db, model = ["--db", str(tmp_path / "new" / "s.db")], ["--model", str(random_models / "default")]
    with bind("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        for words, says in (
            (["--host", "0.0.0.0"], "give a --token"),
            (["--port", port], f"port {port} is taken: choose another with --port"),
            (["--port", "0", *model, "--db", str(text)], "is not a database"),
            (["--port", "0", *db, "--model", "nothing"], "no model and no folder is called 'nothing'"),
            (["--port", "0", *db, "--model", str(tmp_path)], "is not a checkpoint"),
        ):
            assert says in refused("studio", *words)
    assert not (tmp_path / "new").exists()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "fabula.apps.studio.app", raising=False)
    needed = "fabula studio: the studio needs fastapi: pip install 'fabula-stories[studio]'\n"
    assert refused("studio", "--port", "0") == needed


@pytest.mark.system
def test_it_says_where_it_is_and_ends_when_told(tmp_path: Path, studio: Callable[..., Started]) -> None:
    """With a token, on all addresses; an open stream does not hold up the end."""
    one = studio("--host", "0.0.0.0", "--token", "a-long-secret", "--db", tmp_path / "s.db")
    assert one.line.startswith("Fabula studio: http://")
    assert re.findall(r"http://\S+", one.line)[0].endswith("/?token=a-long-secret")
    port = int(one.url.rpartition(":")[2])
    assert httpx.get(f"http://127.0.0.1:{port}/api/health").status_code == 401
    welcome = httpx.get(f"http://127.0.0.1:{port}/?token=a-long-secret")
    cookie = {"Cookie": welcome.headers["set-cookie"].partition(";")[0]}
    assert httpx.get(f"http://127.0.0.1:{port}/api/health", headers=cookie).json()["status"] == "ok"
    body = json.dumps({"sentences": ["Tom was sad."] + [None] * 63, "samples": 200})
    with socket.create_connection(("127.0.0.1", port)) as line:
        head = "POST /api/fill/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-long-secret\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        assert b" 200 " in line.recv(100)
        assert one.stop(signal.SIGINT) in (0, 130)


@pytest.mark.system
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, studio: Callable[..., Started]) -> None:
    """Killed in the middle of saves and of a fill: every revision that a client was told of is there, whole."""
    one = studio("--db", tmp_path / "s.db")
    made = [httpx.post(f"{one.url}/api/stories", json={"title": f"{n}", "state": STATE}).json() for n in range(4)]
    acknowledged: dict[int, dict[str, Any]] = {}
    enough = threading.Barrier(5)

    def write(story: dict[str, Any]) -> None:
        """Save without end; remember what was acknowledged."""
        at = f"{one.url}/api/stories/{story['id']}/branches/{story['branch']['id']}"
        branch = story["branch"]
        with httpx.Client(timeout=SECONDS) as client:
            while True:
                # Large enough that a save takes many pages of the file.
                tray = [f"{branch['revision']}" * 20_000]
                try:
                    body = {
                        "state": {**STATE, "seed": branch["revision"], "tray": tray},
                        "revision": branch["revision"],
                    }
                    answer = client.put(at, json=body)
                except httpx.TransportError:
                    return
                assert answer.status_code == 200
                branch = acknowledged[story["id"]] = answer.json()
                if branch["revision"] == 10:
                    enough.wait(SECONDS)

    def fill() -> None:
        with httpx.Client(base_url=one.url, timeout=SECONDS) as client:
            body = {"sentences": ["Tom was sad."] + [None] * 63, "samples": 200}
            with pytest.raises(httpx.TransportError):
                client.post("/api/fill", json=body)

    threads = [threading.Thread(target=write, args=(story,)) for story in made] + [threading.Thread(target=fill)]
    for thread in threads:
        thread.start()
    enough.wait(SECONDS)
    assert httpx.get(f"{one.url}/api/health", timeout=SECONDS).json()["jobs"]["running"] >= 1
    one.stop()
    for thread in threads:
        thread.join(SECONDS)

    one.start()
    assert len(httpx.get(f"{one.url}/api/stories").json()["stories"]) == 4
    for story in made:
        told = acknowledged[story["id"]]
        found = httpx.get(f"{one.url}/api/stories/{story['id']}/branches/{story['branch']['id']}").json()
        # One more may have reached the disk than its client heard of.
        assert found["revision"] - told["revision"] in (0, 1)
        assert found["state"]["seed"] == found["revision"] - 1
        assert found["state"]["tray"] == [f"{found['revision'] - 1}" * 20_000]
        if found["revision"] == told["revision"]:
            assert found == told
