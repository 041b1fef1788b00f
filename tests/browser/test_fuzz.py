"""Random edits of every field, reloads, second windows, fills, killed servers: nothing acknowledged is lost."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from desk import Desk
from machinery import Watch
from playwright.sync_api import Page, expect

EDITS = {
    "lines": [
        "c(s.type, one.id, word)",
        "c(s.bend, {[one.id]: pick(['positive', 'negative', null])})",
        "c(s.lock, one.id, pick([true, false]))",
        "c(s.mark, one.id, pick([true, false]))",
        "c(s.open, one.id, word)",
        "c(s.insert, at)",
        "c(s.take, {[one.id]: word})",
        "c(s.remove, one.id)",
        "c(s.move, one.id, pick([-1, 1]))",
        "c(s.resize, 2 + at)",
        "c(() => s.paste(m.store.doc, one.id, 0, 0, [[word, 'Then it rained.'], ['It was late.']]).doc)",
        "e.back()",
        "e.forth()",
    ],
    "seed": ["c(s.set, {seed: n})"],
    "candidates": ["c(s.set, {candidates: 1 + (n % 4)})"],
    "temperature": ["c(s.set, {temperature: pick([null, 0.5, 0.9])})"],
    "tense": ["c(s.set, {tense: pick([null, 'past', 'present'])})"],
    "person": ["c(s.set, {person: pick([null, 'first', 'third'])})"],
    "length": ["c(s.set, {length: pick([null, 'short', 'long'])})"],
    "people": [
        "c(s.set, {people: [...m.store.doc.people, {name: word, pronoun: 'she', about: ''}].slice(-5)})",
        "c(s.set, {people: m.store.doc.people.slice(1)})",
    ],
    "notes": ["c(s.set, {notes: word})"],
    "tray": ["c(s.collect, [{id: word, at: n, sentences: {[one.id]: word}, score: 0, seed: n, favourite: false}])"],
}
"""Changes by the field of the story that they change; `model` is a name, which the fill at the end sends."""
SCRIPT = """async ([call, n]) => {
  const [m, s, e] = await Promise.all(["store", "state", "editor"].map((name) => import(`/page/${name}.js`)));
  const at = n % m.store.doc.lines.length;
  const [one, c, word] = [m.store.doc.lines[at], m.change, `Word ${n}.`];
  const pick = (list) => list[n % list.length];
  CALL;
}"""
STORED = """async () => {
  const { store } = await import("/page/store.js");
  return (await import("/page/state.js")).stored(store.doc);
}"""


class Server:
    """A studio in a process of its own, which can be killed and started again over the same file."""

    def __init__(self, model: Path, db: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = ["--model", str(model), "--db", str(db), "--port", str(self.port), "--no-open"]
        self.command = [sys.executable, "-m", "fabula", "studio", *options]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert "Fabula studio" in self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def state_of(page: Page) -> dict[str, Any]:
    state = page.evaluate(STORED)
    assert isinstance(state, dict)
    return state


def edit(page: Page, chance: random.Random) -> None:
    field = chance.choice(["lines"] * 8 + list(EDITS))
    page.evaluate(SCRIPT.replace("CALL", chance.choice(EDITS[field])), ["", chance.randrange(10**6)])


def on_server(desk: Desk) -> dict[str, Any]:
    """The branch on the page as the server has it."""
    story, branch = (part.split("=")[1] for part in desk.page.url.partition("#")[2].split("&"))
    state = httpx.get(f"{desk.url}/api/stories/{story}/branches/{branch}", timeout=30).json()["state"]
    assert isinstance(state, dict)
    return state


def at_rest(desk: Desk) -> Desk:
    """No fill is on its way, whose candidates would change the story a moment later, and all is saved."""
    expect(desk.page.locator("#suggest[data-state=running]")).to_have_count(0, timeout=180_000)
    return desk.saved()


def run(page: Page, server: Server, edits: int, seed: int) -> None:
    chance = random.Random(seed)
    desk = Desk(page, server.url).open()
    desk.put(1, "It began.").saved()
    for number in range(edits):
        edit(page, chance)
        what = chance.random()
        if what < 0.01:
            server.kill()
            edit(page, chance)
            server.start()
            if page.locator(".bar").get_by_role("button", name="Try now").is_visible():
                page.locator(".bar").get_by_role("button", name="Try now").click()
        elif what < 0.03:
            at_rest(desk)
            before = state_of(page)
            desk.reload()
            assert state_of(page) == before, (seed, number)
        elif what < 0.04:
            at_rest(desk)
            other = Desk(page.context.new_page(), server.url).open(page.url.removeprefix(server.url))
            assert state_of(other.page) == state_of(page), (seed, number)
            edit(other.page, chance)
            other.saved()
            expect(page.locator("#saved")).to_have_text("Saved")
            page.wait_for_function(
                "async (text) => JSON.stringify((await import('/page/store.js')).store.doc.lines) === text",
                arg=other.page.evaluate("async () => JSON.stringify((await import('/page/store.js')).store.doc.lines)"),
            )
            other.page.close()
        elif what < 0.05:
            page.get_by_role("button", name="Fill in").click()
        elif what < 0.08:
            assert on_server(at_rest(desk)) == state_of(page), (seed, number)
    assert on_server(at_rest(desk)) == state_of(page)


@pytest.mark.parametrize("edits", [300, pytest.param(2000, marks=pytest.mark.system)])
def test_nothing_acknowledged_is_lost(
    page: Page, watch: Watch, random_models: Path, tmp_path: Path, edits: int
) -> None:
    watch.allow("Failed to load resource")
    page.on("dialog", lambda dialog: dialog.accept())
    server = Server(random_models / "default", tmp_path / "studio.db")
    try:
        run(page, server, edits, seed=edits)
    finally:
        server.kill()


def test_every_field_of_the_story_is_edited() -> None:
    from fabula.apps.studio.document import State

    assert set(EDITS) | {"model"} == set(State.model_fields)
