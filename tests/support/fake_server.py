"""A language model's server for tests: it answers as it is told to, and counts what it answered."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOODS = {
    "negative": "Tom was sad and lost number {0}.",
    "neutral": "Tom walked to house number {0}.",
    "positive": "Tom was happy and won prize {0}.",
}
Script = Callable[["Handler", dict[str, Any]], None]


def moods(prompt: str) -> dict[int, str]:
    """The lines that a prompt asks for, with the mood of each."""
    asked = re.findall(r"^Line (\d+)(?::(.*))?\.$", prompt, re.MULTILINE)
    return {int(n): next((m for m in MOODS if f"{m} in mood" in words), "neutral") for n, words in asked}


def obedient(prompt: str, seed: int) -> dict[str, str]:
    """A line of the right mood for each that is asked for; openings are kept, and another seed gives other lines."""
    lines = {n: MOODS[mood].format(seed % 997 + n) for n, mood in moods(prompt).items()}
    for n, opening in re.findall(r"^Line (\d+): it begins with exactly these words: ([^;.]+)", prompt, re.MULTILINE):
        lines[int(n)] = f"{opening} was number {seed % 997}."
    return {str(n): line for n, line in lines.items()}


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append({"path": self.path, "key": self.headers.get("Authorization", ""), **body})
        self.server.script(self, body)

    def send(self, content: str, kind: str = "application/json", status: int = 200, **headers: str) -> None:
        data = content.encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def answer(self, body: dict[str, Any], *texts: str, finish: str = "stop", **extra: Any) -> None:
        """A whole answer, counted as paid for."""
        with self.server.lock:
            self.server.answered[json.dumps(body, sort_keys=True)] += 1
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": text},
                "text": text,
                "finish_reason": finish,
                **extra,
            }
            for i, text in enumerate(texts)
        ]
        self.send(json.dumps({"choices": choices, "usage": {"prompt_tokens": 50, "completion_tokens": 10}}))

    def obey(self, body: dict[str, Any]) -> None:
        prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        self.answer(body, json.dumps(obedient(prompt, body.get("seed", 0))))


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Script, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script, self.lock = script, threading.Lock()
        self.seen: list[dict[str, Any]] = []
        self.answered = Counter[str]()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def fake_server(script: Script = Handler.obey) -> Iterator[FakeServer]:
    server = FakeServer(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
