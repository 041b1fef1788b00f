"""A server to talk to, and an ear for what pages complain about."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from playwright.sync_api import ConsoleMessage


class Server:
    """`python -m fabula ...` that prints its address when it answers there."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fabula", *self.arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        told = ""
        for line in self.process.stdout:
            told += line
            found = re.search(r"http://\S+", line)
            if found:
                self.url = found[0].rstrip("/")
                self.port = int(re.findall(r":(\d+)", self.url)[-1])
                return
        pytest.fail(f"the server ended before it answered: {told}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Watch:
    """What a page complained about on its console; a test says which complaints it provokes."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.expected: list[str] = []

    def heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def allow(self, pattern: str) -> None:
        self.expected.append(pattern)

    @property
    def unexpected(self) -> list[str]:
        return [told for told in self.complaints if not any(re.search(pattern, told) for pattern in self.expected)]
