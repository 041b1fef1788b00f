"""Random edits of every field, reloads, second windows, fills, killed servers: nothing acknowledged is lost."""

import random
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, Watch
from playwright.sync_api import Page, expect

from started import Started, free_port

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


def state_of(page: Page) -> dict[str, Any]:
    state = page.evaluate(STORED)
    assert isinstance(state, dict)
    return state


def edit(page: Page, chance: random.Random) -> None:
    field = chance.choice(["lines"] * 8 + list(EDITS))
    page.evaluate(SCRIPT.replace("CALL", chance.choice(EDITS[field])), ["", chance.randrange(10**6)])


def at_rest(desk: Desk) -> Desk:
    """No fill is on its way, whose candidates would change the story a moment later, and all is saved."""
    expect(desk.page.locator("#suggest[data-state=running]")).to_have_count(0, timeout=180_000)
    return desk.saved()


def run(page: Page, server: Started, edits: int, seed: int) -> None:
    chance = random.Random(seed)
    desk = Desk(page, server.url).open()
    desk.put(1, "It began.").saved()
    for number in range(edits):
        edit(page, chance)
        what = chance.random()
        if what < 0.01:
            server.stop()
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
            assert at_rest(desk).on_server() == state_of(page), (seed, number)
    assert at_rest(desk).on_server() == state_of(page)


@pytest.mark.parametrize("edits", [300, pytest.param(2000, marks=pytest.mark.system)])
def test_nothing_acknowledged_is_lost(
    page: Page, watch: Watch, random_models: Path, tmp_path: Path, edits: int
) -> None:
    watch.allow("Failed to load resource")
    page.on("dialog", lambda dialog: dialog.accept())
    words = ["--model", random_models / "default", "--db", tmp_path / "studio.db", "--port", free_port(), "--no-open"]
    server = Started("studio", *words)
    try:
        run(page, server, edits, seed=edits)
    finally:
        server.stop()


def test_every_field_of_the_story_is_edited() -> None:
    from fabula.apps.studio.document import State

    assert set(EDITS) | {"model"} == set(State.model_fields)
