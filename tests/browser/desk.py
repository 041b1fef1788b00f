"""A page of the studio in a writer's words, and what pages complain about."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import ConsoleMessage, Locator, Page, expect

WAIT_MS = 45_000
"""How long a condition may take to come true on a busy machine; nothing waits longer than it must."""
expect.set_options(timeout=WAIT_MS)
FIRST = "Karl rented a green boat for one day."
LAST = "The new plank was tight, and Karl thanked his neighbour."
STORY = (FIRST, "", "", "", LAST)


def grave(page: Page) -> list[str]:
    """What axe finds serious or critical."""
    violations = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes']}" for one in violations if one["impact"] in ("serious", "critical")]


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


class Desk:
    """A page of the studio, in a writer's words."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url

    def open(self, path: str = "/#new") -> Desk:
        self.page.goto(self.url + path)
        return self.ready()

    def new_story(self) -> None:
        self.page.get_by_role("button", name="Stories").click()
        self.page.get_by_role("button", name="New story").click()
        expect(self.line(1)).to_have_text("")

    def reload(self) -> Desk:
        self.page.reload()
        return self.ready()

    def ready(self) -> Desk:
        expect(self.page.locator("html[data-ready=yes]")).to_be_attached()
        return self

    def line(self, number: int) -> Locator:
        """A sentence of the text, or a gap."""
        return self.page.locator(f"#story-text .sentence[data-number='{number}']")

    def point(self, number: int) -> Locator:
        return self.page.get_by_role("slider", name=f"Mood of sentence {number}", exact=True)

    def caret(self, number: int, start: int = -1, end: int | None = None) -> Desk:
        """The caret at a character of a sentence, or a selection in it; -1 is its end."""
        script = """async ([number, start, end]) => {
          const { store } = await import("/page/store.js");
          const editor = await import("/page/editor.js");
          const { id, text } = store.doc.lines[number - 1];
          const from = start < 0 ? text.length : start;
          editor.focus(id, from);
          if (end !== null) editor.select(id, from, end);
        }"""
        self.page.evaluate(script, [number, start, end])
        return self

    def tool(self, number: int, name: str) -> Locator:
        """A tool of the sentence at the caret, which is put there."""
        return (
            self.caret(number)
            .page.get_by_role("toolbar", name="The sentence at the caret")
            .get_by_role("button", name=name)
        )

    def menu(self, number: int, entry: str) -> None:
        """An action from a sentence's menu."""
        self.tool(number, "More for this sentence").click()
        self.page.get_by_role("menuitem", name=entry).click()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The sentences of the story with all that is stored of them."""
        lines = self.page.evaluate("async () => (await import('/page/store.js')).store.doc.lines")
        assert isinstance(lines, list)
        return lines

    def on_server(self) -> dict[str, Any]:
        """The story on the page as the server has it."""
        story, branch = (part.split("=")[1] for part in self.page.url.partition("#")[2].split("&"))
        state = httpx.get(f"{self.url}/api/stories/{story}/branches/{branch}", timeout=30).json()["state"]
        assert isinstance(state, dict)
        return state

    @property
    def texts(self) -> list[str]:
        return [line["text"] for line in self.lines]

    @property
    def paragraphs(self) -> list[str]:
        """The text as it is on the page, a string for a paragraph."""
        groups: list[list[str]] = []
        for line in self.lines:
            if line["paragraph"]:
                groups.append([])
            groups[-1].append(line["text"] or "_")
        return [" ".join(group) for group in groups]

    def put(self, number: int, text: str) -> Desk:
        """Other words in a sentence, as if they were typed at once."""
        self.caret(number, 0, len(self.texts[number - 1])).page.keyboard.insert_text(text)
        expect(self.line(number)).to_have_text(text)
        return self

    def type(self, *texts: str) -> Desk:
        """Into the sentences from the first on; "" leaves one as it is."""
        for number, text in enumerate(texts, start=1):
            if text:
                self.put(number, text)
        return self

    @property
    def cards(self) -> Locator:
        return self.page.locator("#cards > li")

    def card(self, number: int) -> list[str]:
        """The sentences on a card."""
        return [" ".join(words.split()) for words in self.cards.nth(number - 1).locator(".words").all_inner_texts()]

    def offered(self) -> list[list[str]]:
        return [self.card(number + 1) for number in range(self.cards.count())]

    def done(self, cards: int = 3) -> Desk:
        """Until the stream has ended with so many candidates."""
        expect(self.page.locator("#suggest[data-state=done]")).to_be_attached()
        expect(self.cards).to_have_count(cards)
        return self

    def fill(self, cards: int = 3) -> Desk:
        self.page.get_by_role("button", name="Fill in").click()
        return self.done(cards)

    def asked(self, act: Callable[[], object], cards: int = 3) -> dict[str, Any]:
        """What the model is asked for by an action, after which there are candidates."""
        with self.page.expect_request("**/api/fill/stream") as request:
            act()
        self.done(cards)
        return request.value.post_data_json or {}

    def take(self, number: int) -> Desk:
        self.page.get_by_role("button", name=f"Take candidate {number}").click()
        return self

    def saved(self) -> Desk:
        expect(self.page.locator("#saved")).to_have_text("Saved")
        return self

    def away(self) -> Desk:
        """The pointer where it does nothing."""
        self.page.mouse.move(2, 400)
        return self
