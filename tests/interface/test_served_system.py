"""Models on servers, with processes that are killed and with a real server: `transformers serve` of SmolLM2."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from mcp import Client as McpClient

import fabula
from fabula.apps.fleet.shards import read_results
from fabula.apps.serve.mcp import create_mcp_server
from fabula.apps.studio.app import StudioSettings, create_app
from fabula.cli import main
from own_loop import run_alone
from smol_folder import make
from started import free_port

pytestmark = pytest.mark.system
SUPPORT = Path(__file__).parents[1] / "support"
DRIVER = """
import sys
from fabula.served.model import DefaultJudge
DefaultJudge.critic = None
from fabula.cli import main
sys.exit(main(sys.argv[1:]))
"""
ROWS, KILLS, AT_ONCE = 200, 20, 4


def test_a_job_whose_driver_and_server_are_killed_asks_nothing_twice(tmp_path: Path) -> None:
    """Twenty kills by SIGKILL. Answers that were on their way when a process died are the only ones paid for twice."""
    port, log, cache = free_port(), tmp_path / "log", tmp_path / "cache"
    rows = [{"id": n, "sentences": ["Tom left.", None, f"Day {n} came."]} for n in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    environment = {
        **os.environ, "FABULA_CACHE": str(cache), "OMP_NUM_THREADS": "1", "FABULA_SERVED_FAKE_AT_ONCE": str(AT_ONCE),
        "FABULA_SERVED_FAKE_ADDRESS": f"http://127.0.0.1:{port}/v1", "FABULA_SERVED_FAKE_MODEL": "m",
        "FABULA_SERVED_FAKE_RETRIES": "6", "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path]),
    }  # fmt: skip
    words = ["fill-many", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out"), "--samples", "1", "--yes"]
    commands = {
        "server": [sys.executable, str(SUPPORT / "fake_server.py"), str(port), str(log), "0.03"],
        "driver": [sys.executable, "-c", DRIVER, *words, "--model", "served:fake", "--quiet"],
    }

    def begin(which: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(commands[which], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answered() -> int:
        return len(log.read_text().splitlines()) if log.exists() else 0

    def stored() -> int:
        return len(list(cache.rglob("*.json")))

    running, rng, lost = {which: begin(which) for which in commands}, random.Random(7), 0
    for kill in range(KILLS):
        goal = (kill + 1) * ROWS // (KILLS + 2)
        while answered() < goal and running["driver"].poll() is None:
            time.sleep(0.02)
        assert running["driver"].poll() is None
        which = rng.choice(["server", "driver"])
        running[which].kill()
        running[which].wait()
        if which == "driver":
            time.sleep(0.2)  # the server notices that the connections have ended
            lost = answered() - stored()
        running[which] = begin(which)
    assert running["driver"].wait(timeout=300) == 0
    running["server"].kill()
    results = list(read_results(tmp_path / "out"))
    assert sorted(result["id"] for result in results) == list(range(ROWS))
    assert not any("error" in result for result in results)
    assert stored() == ROWS
    assert answered() - stored() == lost <= KILLS * AT_ONCE


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder, port = tmp_path_factory.mktemp("smol"), free_port()
    make(folder)
    program = str(Path(sys.executable).with_name("transformers"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    words = [program, "serve", str(folder), "--device", "cpu", "--port", str(port)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            values = {"address": f"http://127.0.0.1:{port}/v1", "model": str(folder), "tokens": "30", "seconds": "600"}
            yield {
                f"FABULA_SERVED_REAL_{name.upper()}": value
                for name, value in {**values, "at_once": "1", "window": "12"}.items()
            }
        finally:
            server.kill()


def test_a_real_server_works_through_every_door(
    real_server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes badly: what is tested is that its answers become stories with the given lines, openings and lengths."""
    for name, value in {**real_server, "FABULA_SERVERS": str(tmp_path / "servers.toml")}.items():
        monkeypatch.setenv(name, value)
    story, few = ["Tom was sad.", None, "He called Ann.", None, "Tom smiled."], {"samples": 1, "candidates": 1}
    while main(["models", "check", "real"]) != 0:  # retried by the client while it starts
        time.sleep(2)
    assert "json schema" in capsys.readouterr().out
    model = fabula.load("served:real")
    arc = {"sentiment": "? - ? + ?", "emotion": "? sadness ? ? ?", "verb": "? go ? ? ?"}
    (candidate,) = model.fill(story, arc=arc, starts={4: "Then she"}, **few).candidates  # type: ignore[arg-type]
    lines = [sentence.text for sentence in candidate.sentences]
    assert [lines[0], lines[2], lines[4]] == [story[0], story[2], story[4]]
    assert lines[3].startswith("Then she ")
    assert len(model.write(12, samples=1).candidates[0].sentences) == 12
    (tmp_path / "rows.jsonl").write_text(json.dumps({"id": 1, "sentences": ["Tom left.", None]}) + "\n")
    words = ["fill-many", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out"), "--samples", "1", "--yes"]
    assert main([*words, "--model", "served:real"]) == 0
    assert len(next(iter(read_results(tmp_path / "out")))["candidates"][0]["sentences"]) == 2
    body = {"sentences": story, **few}
    app = create_app(StudioSettings(model="served:real", db=tmp_path / "studio.db"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.post("/api/fill", json=body).json()["candidates"][0]["sentences"][4]["text"] == "Tom smiled."

    async def work() -> Any:
        async with McpClient(create_mcp_server("served:real")) as tools:
            return (await tools.call_tool("fill", {"sentences": story, "candidates": 1})).structured_content

    assert run_alone(work())["model"] == "served:real"
