"""A language model's server for tests: it answers as it is told to, well or badly, and counts what it answered.

As a program, `python fake_server.py PORT LOG SECONDS`, it obeys every request after so many seconds, and adds a line to
LOG for each answer that it sent.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MOODS = {"negative": "Tom was sad and lost {0}.", "neutral": "Tom saw {0}.", "positive": "Tom was happy and won {0}."}
Script = Callable[["Handler", dict[str, Any]], None]


def obedient(body: dict[str, Any], turn: int = 0) -> str:
    """A line of the right mood for each that is asked for, with its opening; another seed gives other lines."""
    prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    lines = {}
    for number, words in re.findall(r"^Line (\d+)(?::(.*))?\.$", prompt, re.MULTILINE):
        mood = next((mood for mood in MOODS if f"{mood} in mood" in words), "neutral")
        start = re.search("these words: ([^;]+)", words)
        text = MOODS[mood].format(f"thing {(body.get('seed', 0) + turn) % 9973 + int(number)}")
        lines[number] = f"{start[1]} {text[4:]}" if start else text
    if "prompt" in body:
        (_, line), *others = lines.items()
        begun = prompt.splitlines()[-1].partition(". ")[2]
        return "\n".join([line.removeprefix(begun), *(f"{n}. {text}" for n, text in others)])
    return json.dumps(lines)


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.seen.append({"path": self.path, "key": self.headers.get("Authorization", ""), **body})
        self.server.script(self, body)

    def send(self, content: str, kind: str = "application/json", status: int = 200, **headers: str) -> None:
        data = content.encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def answer(self, *texts: str, **extra: Any) -> None:
        """A whole answer, with as many choices as texts."""
        common = {"finish_reason": "stop", **extra}
        messages = ({"message": {"role": "assistant", "content": text}, "text": text} for text in texts)
        choices = [{"index": i, **message, **common} for i, message in enumerate(messages)]
        self.send(json.dumps({"choices": choices, "usage": {"prompt_tokens": 50, "completion_tokens": 10}}))
        with self.server.lock:
            self.server.answered += 1
            if self.server.log is not None:
                with self.server.log.open("a") as log:
                    log.write("answered\n")

    def obey(self, body: dict[str, Any]) -> None:
        self.answer(obedient(body))


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Script = Handler.obey, port: int = 0, log: Path | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script, self.log, self.lock, self.answered = script, log, threading.Lock(), 0
        self.seen: list[dict[str, Any]] = []

    def handle_error(self, *_: Any) -> None:
        """A client that left is no error of the server's."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def fake_server(script: Script = Handler.obey) -> Iterator[FakeServer]:
    server = FakeServer(script)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":

    def slowly(handler: Handler, body: dict[str, Any]) -> None:
        time.sleep(float(sys.argv[3]))
        handler.obey(body)

    FakeServer(slowly, port=int(sys.argv[1]), log=Path(sys.argv[2])).serve_forever()
