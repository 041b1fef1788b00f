"""The queue before the model: its length, what happens when clients leave, and that nobody gets another's answer.

Work that a test has to hold up waits at a gate; nothing here depends on how fast the machine is.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import fabula
from doors import Serving
from fabula.api import StoryModel
from fabula.apps.serve import jobs
from fabula.apps.studio.app import StudioSettings, create_app
from fabula.apps.web.errors import RefusedError
from gates import SECONDS, Gate, until
from own_loop import run_alone

STORY = ["Mia's car would not start.", None, "Mia made it to work on time."]
TOLD = ["Tom was sad.", "Tom was glad."]


@pytest.fixture(scope="module")
def server(serving: Serving, random_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    db = tmp_path_factory.mktemp("jobs") / "studio.db"
    settings = StudioSettings(model=str(random_models / "default"), db=db, queue=16, workers=1)
    with serving(create_app(settings)) as url:
        yield url


@pytest.fixture
def studio(server: str) -> str:
    """The address of a studio whose queue is empty."""
    until(lambda: counts(server) == (0, 0))
    return server


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Before every tagging."""
    made, tag = Gate(), StoryModel.tag

    def waiting(self: StoryModel, *args: Any, **settings: Any) -> Any:
        made.wait()
        return tag(self, *args, **settings)

    monkeypatch.setattr(StoryModel, "tag", waiting)
    return made


def counts(url: str) -> tuple[int, int]:
    told = httpx.get(f"{url}/api/health", timeout=SECONDS).json()["jobs"]
    return told["running"], told["waiting"]


def post(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/api/{path}", json=body, timeout=SECONDS)


def leave_in_the_middle(url: str, path: str, body: dict[str, Any], reached: Callable[[], Any]) -> None:
    """Send a request, wait for a point, hang up."""
    content = json.dumps(body).encode()
    head = f"POST /api/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=SECONDS) as line:
        line.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        reached()


def test_beyond_the_queue_comes_429_and_everybody_else_the_right_answer(
    studio: str, gate: Gate, random_models: Path
) -> None:
    """20 clients at once while the model is busy: 16 wait and get what they asked for, 4 are told when to come back."""
    narrator = fabula.load(random_models / "default")
    asked: list[dict[str, Any]] = [{"sentences": TOLD, "seed": n, "samples": 3} for n in range(20)]
    with ThreadPoolExecutor(21) as clients:
        busy = clients.submit(post, studio, "tag", {"sentences": TOLD})
        assert gate.begun.acquire(timeout=SECONDS)
        waiting = [clients.submit(post, studio, "score", body) for body in asked]
        until(lambda: counts(studio)[1] == 16 and sum(one.done() for one in waiting) == 4)
        gate.opened.set()
        answers = [one.result() for one in waiting]
        assert busy.result().json() == json.loads(narrator.tag(TOLD).to_json())
    for body, answer in zip(asked, answers, strict=True):
        if answer.status_code == 429:
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
            assert answer.json()["error"]["status"] == 429
        else:
            assert answer.status_code == 200
            assert answer.json() == narrator.score(**body).to_dict(4) | {"sentences": TOLD}
    assert sorted(answer.status_code for answer in answers) == [200] * 16 + [429] * 4
    assert len({answer.json()["log_p"] for answer in answers if answer.status_code == 200}) == 16


@pytest.mark.parametrize("path", ["fill", "fill/stream"])
def test_who_leaves_ends_the_job(studio: str, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """A fill without an end, in the real sampler: it stops in the middle of a round, and the next is served."""
    begun, fill_iter = threading.Event(), StoryModel.fill_iter

    def endless(self: StoryModel, **call: Any) -> Iterator[Any]:
        while True:
            for _ in fill_iter(self, **call):
                begun.set()
        yield

    monkeypatch.setattr(StoryModel, "fill_iter", endless)
    leave_in_the_middle(studio, path, {"sentences": STORY, "samples": 50}, lambda: begun.wait(SECONDS))
    assert begun.is_set()
    until(lambda: counts(studio) == (0, 0))
    assert post(studio, "tag", {"sentences": TOLD}).status_code == 200


def test_candidates_come_before_the_end(studio: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is with the client while the sampler is still at work on the second."""
    gate, fill_iter = Gate(), StoryModel.fill_iter

    def held(self: StoryModel, **call: Any) -> Iterator[Any]:
        for filling in fill_iter(self, **call):
            yield filling
            gate.wait()

    monkeypatch.setattr(StoryModel, "fill_iter", held)
    body = {"sentences": STORY, "samples": 10}
    with httpx.stream("POST", f"{studio}/api/fill/stream", json=body, timeout=SECONDS) as answer:
        events = (line.removeprefix("event: ") for line in answer.iter_lines() if line.startswith("event: "))
        named = (name for name in events if name != "writing")
        assert [next(named) for _ in range(3)] == ["progress", "progress", "candidates"]
        assert gate.begun.acquire(timeout=SECONDS)
        gate.opened.set()
        rest = list(named)  # how far the second round is may be told several times
        assert set(rest[:-2]) == {"progress"}
        assert rest[-2:] == ["candidates", "done"]


def test_a_fault_in_a_job_is_told_and_the_worker_goes_on(studio: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a secret of the source")

    for name in ("score", "fill_iter"):
        monkeypatch.setattr(StoryModel, name, broken)
    answer = post(studio, "score", {"sentences": TOLD})
    assert (answer.status_code, answer.json()["error"]["status"]) == (500, 500)
    streamed = post(studio, "fill/stream", {"sentences": STORY})
    assert "event: error" in streamed.text
    assert '"status": 500' in streamed.text
    assert "secret" not in answer.text + streamed.text
    assert post(studio, "tag", {"sentences": TOLD}).status_code == 200


def test_a_stopped_queue_takes_nothing_and_ends_its_workers() -> None:
    gate = Gate()

    def work() -> Iterator[int]:
        gate.wait()
        yield 1

    async def main() -> None:
        pool = jobs.WorkerPool(workers=2, queue_size=1)
        running = [pool.submit(work), pool.submit(work)]
        for _ in running:
            assert await asyncio.to_thread(gate.begun.acquire, timeout=SECONDS)
        waiting = pool.submit(work)
        with pytest.raises(RefusedError) as full:
            pool.submit(work)
        assert full.value.status == 429
        await asyncio.to_thread(pool.close)
        assert [await job.last() for job in (*running, waiting)] == [None, None, None]
        assert pool.counts == {"running": 0, "waiting": 0, "queue": 1}
        with pytest.raises(RefusedError) as stopped:
            pool.submit(work)
        assert stopped.value.status == 503

    run_alone(main())


def test_who_waits_is_told_how_many_are_ahead(studio: str, gate: Gate) -> None:
    with ThreadPoolExecutor(1) as clients:
        busy = clients.submit(post, studio, "tag", {"sentences": TOLD})
        assert gate.begun.acquire(timeout=SECONDS)
        body = {"sentences": STORY, "samples": 2}
        with httpx.stream("POST", f"{studio}/api/fill/stream", json=body, timeout=SECONDS) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith(("event: ", "data: ")))
            told = [next(lines) for _ in range(4)]
            assert told[2:] == ["event: waiting", 'data: {"ahead": 1}']
            gate.opened.set()
            assert "event: done" in list(lines)
        assert busy.result().status_code == 200
