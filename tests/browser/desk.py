"""A page of the studio in a writer's words: lines, points of the arc, cards."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

WAIT_MS = 45_000
"""How long a condition may take to come true on a busy machine; nothing waits longer than it must."""
expect.set_options(timeout=WAIT_MS)


class Desk:
    """A page of the studio, in a writer's words."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url

    def open(self, path: str = "/#new") -> Desk:
        self.page.goto(self.url + path)
        return self.ready()

    def reload(self) -> Desk:
        self.page.reload()
        return self.ready()

    def ready(self) -> Desk:
        expect(self.page.locator("html[data-ready=yes]")).to_be_attached()
        return self

    def line(self, number: int) -> Locator:
        return self.page.get_by_role("textbox", name=re.compile(f"^Sentence {number} of"))

    def row(self, number: int) -> Locator:
        return self.page.locator("#lines > li").nth(number - 1)

    def point(self, number: int) -> Locator:
        return self.page.get_by_role("slider", name=f"Mood of sentence {number}", exact=True)

    def tool(self, number: int, name: str) -> Locator:
        """A button of a line's own."""
        return self.row(number).get_by_role("button", name=name, exact=True)

    def menu(self, number: int, entry: str) -> None:
        """An action from a line's menu."""
        self.row(number).hover()
        self.tool(number, f"More for line {number}").click()
        self.page.get_by_role("menuitem", name=entry).click()

    @property
    def texts(self) -> list[str]:
        return [line.input_value() for line in self.page.locator("#lines textarea").all()]

    def type(self, *texts: str) -> Desk:
        """Into the lines from the first on; "" leaves one as it is."""
        for number, text in enumerate(texts, start=1):
            if text:
                self.line(number).fill(text)
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
