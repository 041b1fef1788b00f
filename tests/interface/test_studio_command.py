"""`fabula studio` as people start it: mistakes in one line, the address when it answers, nothing lost when killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from doors import Refused
from fabula.apps.web.serve import bind

SECONDS = 120.0
STATE = {"lines": [{"text": "A."}, {"text": "B."}]}


class Studio:
    """A studio in a process of its own."""

    def __init__(self, models: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fabula", "studio", "--port", "0", "--model", str(models / "default"), *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url = re.findall(r"http://\S+", self.line)[0]
        self.client = httpx.Client(base_url=self.url.partition("?")[0], timeout=SECONDS)

    def stop(self, how: int = signal.SIGKILL) -> int:
        self.client.close()
        self.process.send_signal(how)
        return self.process.wait(SECONDS)


@pytest.fixture
def started() -> Iterator[list[Studio]]:
    studios: list[Studio] = []
    yield studios
    for studio in studios:
        if studio.process.poll() is None:
            studio.stop()


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
def test_it_says_where_it_is_and_ends_when_told(random_models: Path, tmp_path: Path, started: list[Studio]) -> None:
    """With a token, on all addresses; an open stream does not hold up the end."""
    words = ["--host", "0.0.0.0", "--token", "a-long-secret", "--db", str(tmp_path / "s.db")]
    studio = Studio(random_models, *words)
    started.append(studio)
    assert studio.line.startswith("Fabula studio: http://")
    assert studio.url.endswith("/?token=a-long-secret")
    port = int(re.findall(r":(\d+)/", studio.url)[0])
    assert httpx.get(f"http://127.0.0.1:{port}/api/health").status_code == 401
    welcome = httpx.get(f"http://127.0.0.1:{port}/?token=a-long-secret")
    cookie = {"Cookie": welcome.headers["set-cookie"].partition(";")[0]}
    assert httpx.get(f"http://127.0.0.1:{port}/api/health", headers=cookie).json()["status"] == "ok"
    body = json.dumps({"sentences": ["Tom was sad."] + [None] * 63, "samples": 200})
    with socket.create_connection(("127.0.0.1", port)) as line:
        head = "POST /api/fill/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-long-secret\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        assert b" 200 " in line.recv(100)
        assert studio.stop(signal.SIGINT) in (0, 130)


@pytest.mark.system
def test_what_was_acknowledged_survives_a_kill(random_models: Path, tmp_path: Path, started: list[Studio]) -> None:
    """Killed in the middle of saves and of a fill: every revision that a client was told of is there, whole."""
    words = ["--db", str(tmp_path / "s.db")]
    studio = Studio(random_models, *words)
    started.append(studio)
    made = [studio.client.post("/api/stories", json={"title": f"{n}", "state": STATE}).json() for n in range(4)]
    acknowledged: dict[int, dict[str, Any]] = {}
    enough = threading.Barrier(5)

    def write(story: dict[str, Any]) -> None:
        """Save without end; remember what was acknowledged."""
        at = f"{studio.url}api/stories/{story['id']}/branches/{story['branch']['id']}"
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
        with httpx.Client(base_url=studio.url, timeout=SECONDS) as client:
            body = {"sentences": ["Tom was sad."] + [None] * 63, "samples": 200}
            with pytest.raises(httpx.TransportError):
                client.post("/api/fill", json=body)

    threads = [threading.Thread(target=write, args=(story,)) for story in made] + [threading.Thread(target=fill)]
    for thread in threads:
        thread.start()
    enough.wait(SECONDS)
    assert studio.client.get("/api/health").json()["jobs"]["running"] >= 1
    studio.stop(signal.SIGKILL)
    for thread in threads:
        thread.join(SECONDS)

    again = Studio(random_models, *words)
    started.append(again)
    assert len(again.client.get("/api/stories").json()["stories"]) == 4
    for story in made:
        told = acknowledged[story["id"]]
        found = again.client.get(f"/api/stories/{story['id']}/branches/{story['branch']['id']}").json()
        # One more may have reached the disk than its client heard of.
        assert found["revision"] - told["revision"] in (0, 1)
        assert found["state"]["seed"] == found["revision"] - 1
        assert found["state"]["tray"] == [f"{found['revision'] - 1}" * 20_000]
        if found["revision"] == told["revision"]:
            assert found == told
