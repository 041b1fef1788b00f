"""Words can be clicked for others, verdicts are in a writer's words, and a story leaves as a book."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from desk import Desk
from playwright.sync_api import expect

pytestmark = pytest.mark.system

FIRST = "Karl rented a green boat for one day."
SECOND = "A plank of the green boat broke, and he was scared."
LAST = "The new plank was tight, and Karl thanked his neighbour."


def test_a_word_has_alternatives_to_go_on_from(desk: Desk) -> None:
    desk.type(FIRST, SECOND, "", "", LAST)
    desk.tool(2, "Why this sentence").click()
    panel = desk.row(2).locator(".why")
    expect(panel.locator(".verdict")).to_have_text(re.compile("^This sentence .* what came before.*what follows.*\\.$"))
    panel.get_by_role("button", name=re.compile("^plank,")).click()
    others = panel.locator(".others")
    expect(others).to_contain_text("Instead of “plank”, after “A”")
    first = others.locator(".alternatives button").first
    expect(first).to_have_text(re.compile(r"^\S+ (1 in [\d.,]+|almost sure)$"))
    word = first.inner_text().split()[0]
    assert word != "plank"
    first.click()
    desk.done()
    assert all(card[0].startswith(f"A {word}") for card in desk.offered())
    assert desk.texts[1] == SECOND


def test_a_story_becomes_a_book(desk: Desk, tmp_path: Path) -> None:
    page = desk.page
    desk.type("Tom & Ann <met>.", "", "They “sang”.")
    page.get_by_label("Title of the story").fill("A & B")
    expect(page.locator("#count")).to_have_text("6 words")
    for entry, ending, inside in (
        ("Word document", "docx", "word/document.xml"),
        ("E-book", "epub", "book/story.xhtml"),
    ):
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as waiting:
            page.get_by_role("menuitem", name=entry).click()
        file = tmp_path / f"book.{ending}"
        waiting.value.save_as(file)
        assert waiting.value.suggested_filename == f"a-b.{ending}"
        with zipfile.ZipFile(file) as book:
            assert book.testzip() is None  # every checksum is right
            for name in book.namelist():
                if name != "mimetype":
                    ElementTree.fromstring(book.read(name))
            text = " ".join("".join(ElementTree.fromstring(book.read(inside)).itertext()).split())
            assert text.endswith("Tom & Ann <met>. They “sang”.")
            assert "A & B" in text
            assert ending == "docx" or book.namelist()[0] == "mimetype"
    page.get_by_role("button", name="Export").click()
    page.get_by_role("menuitem", name="Read or print…").click()
    expect(page.get_by_role("dialog", name="A & B").locator("article p")).to_have_text("Tom & Ann <met>. They “sang”.")
    page.emulate_media(media="print")
    expect(page.locator("#lines")).to_be_hidden()
    expect(page.get_by_role("button", name="Print")).to_be_hidden()
    expect(page.locator("article p")).to_be_visible()


def test_a_length_is_typed_and_nothing_written_is_lost(desk: Desk) -> None:
    page = desk.page
    desk.type("Karl left.", "", "", "", "Karl came home.")
    length = page.get_by_role("spinbutton", name="Lines")
    length.fill("12")
    length.press("Enter")
    assert desk.texts == ["Karl left.", *[""] * 10, "Karl came home."]
    length.fill("2")
    length.press("Enter")
    assert desk.texts == ["Karl left.", "Karl came home."]
    page.get_by_role("button", name="Undo changing the length").click()
    desk.put(3, "It rained.")
    length.fill("2")
    length.press("Enter")
    assert desk.texts == ["Karl left.", "It rained.", "Karl came home."]
    expect(length).to_have_value("3")
    expect(page.locator("#note")).to_contain_text("Lines that have words stay")
