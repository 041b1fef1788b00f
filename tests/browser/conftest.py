"""A server in a process of its own and a real Chromium, one of each for all tests; a fresh page for every test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from fabula.corpus.dataset import Corpus
from fabula.training.checkpoint import save
from fabula.training.loop import train
from fabula.training.recipe import recipe_from

NAMES = ("chromium", "chromium-browser", "google-chrome")
# For a machine without a network, where nothing may be asked for and nobody watches.
FLAGS = [
    *["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
    *["--disable-component-update", "--disable-sync"],
]
WAIT_MS = 20_000
"""How long a condition may take to come true on a busy machine; nothing waits longer than it must."""
TINY = {
    "name": "tiny",
    "model": {
        "kind": "slds",
        "language": {"embedding": 24, "hidden": 48},
        "dynamics": {"latent": 4},
        "recognition": {"hidden": 16},
    },
    "train": {"epochs": 6, "batch": 24, "learning_rate": 1e-2},
}


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


@pytest.fixture(scope="session")
def small_model(toy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the toy grammar, trained in seconds: quick to answer, and it knows the grammar's words."""
    folder = tmp_path_factory.mktemp("models") / "small"
    run = tmp_path_factory.mktemp("run")
    save(folder, train(recipe_from(TINY), Corpus.open(toy_corpus), run, device="cpu", bar=False))
    return folder


@pytest.fixture(scope="session")
def start_server() -> Iterator[Callable[..., Server]]:
    """Starts `fabula ARGUMENTS`; what was started is stopped at the end."""
    started: list[Server] = []

    def start(*arguments: str) -> Server:
        started.append(Server(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def studio(small_model: Path, start_server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A studio that all tests share; its stories are told apart by their titles."""
    db = tmp_path_factory.mktemp("studio") / "studio.db"
    return start_server("studio", "--port", "0", "--model", str(small_model), "--db", str(db))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        pytest.skip("no chromium was found: run `make browser`")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


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


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser profile of its own, wide screen."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    context.set_default_timeout(WAIT_MS)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, watch: Watch) -> Iterator[Page]:
    """A blank page; at the end its console has nothing that the test did not expect."""
    page = context.new_page()
    page.on("console", watch.heard)
    page.on("pageerror", lambda error: watch.complaints.append(f"uncaught: {error}"))
    yield page
    assert not watch.unexpected
