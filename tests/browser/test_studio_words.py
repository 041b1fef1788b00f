"""Words can be clicked for others, verdicts are in a writer's words, and a story leaves as a book."""

import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from desk import FIRST, LAST, Desk
from playwright.sync_api import expect

pytestmark = pytest.mark.system

SECOND = "A plank of the green boat broke, and he was scared."


def test_a_word_has_alternatives(desk: Desk) -> None:
    desk.type(FIRST, SECOND, "", "", LAST)
    desk.tool(2, "Why").click()
    panel = desk.page.locator(".why")
    expect(panel.locator(".verdict")).to_have_text(re.compile("^This sentence .* what came before.*what follows.*\\.$"))
    panel.get_by_role("button", name=re.compile("^plank,")).click()
    others = desk.page.locator(".words-panel")
    expect(others).to_contain_text("Instead of “plank”")
    first = others.locator(".alternatives button").first
    word = first.inner_text()
    assert word != "plank"
    first.click()
    assert desk.texts[1] == SECOND.replace("plank", word, 1)
    desk.caret(2, SECOND.replace("plank", word, 1).index("scared") + 2).page.get_by_role(
        "button", name="Another word"
    ).click()
    expect(others).to_contain_text("Instead of “scared”")
    desk.page.keyboard.press("Control+z")
    assert desk.texts[1] == SECOND


def test_a_story_becomes_a_book(desk: Desk, tmp_path: Path) -> None:
    page = desk.page
    desk.type("Tom & Ann <met>.", "", "They “sang”.")
    desk.caret(2).page.keyboard.press("Enter")  # the gap begins a paragraph
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
            assert text.endswith(("Tom & Ann <met>.They “sang”.", "Tom & Ann <met>. They “sang”."))
            assert "A & B" in text
            assert ending == "docx" or book.namelist()[0] == "mimetype"
        expect(page.locator("#saved")).to_have_text("Saved")
        page.locator("#import").set_input_files(file)  # and back again
        expect(page.locator("#note")).to_contain_text("was imported as a new story")
        expect(page.get_by_label("Title of the story")).to_have_value("A & B")
        assert desk.paragraphs == ["Tom & Ann <met>.", "They “sang”."]
    page.get_by_role("button", name="Export").click()
    page.get_by_role("menuitem", name="Read or print…").click()
    reading = page.get_by_role("dialog", name="Reading view")
    expect(reading.locator("article p")).to_have_text(["Tom & Ann <met>.", "They “sang”."])
    expect(reading.locator("h2")).to_have_text("A & B")
    page.keyboard.press("Escape")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator("#sheet")).to_be_hidden()
    expect(page.locator("#print p")).to_have_text(["Tom & Ann <met>.", "They “sang”."])
    expect(page.locator("#print")).to_be_visible()
    box = page.locator("#print").bounding_box()
    assert box is not None
    assert box["y"] < 40  # from the top of the page


def test_a_length_is_typed_and_nothing_written_is_lost(desk: Desk) -> None:
    page = desk.page
    desk.type("Karl left.", "", "", "", "Karl came home.")
    length = page.get_by_role("spinbutton", name="Sentences")
    length.fill("12")
    length.press("Enter")
    assert desk.texts == ["Karl left.", *[""] * 10, "Karl came home."]
    length.fill("2")
    length.press("Enter")
    assert desk.texts == ["Karl left.", "Karl came home."]
    page.get_by_role("button", name="Undo").click()
    desk.put(3, "It rained.")
    length.fill("2")
    length.press("Enter")
    assert desk.texts == ["Karl left.", "It rained.", "Karl came home."]
    expect(length).to_have_value("3")
    expect(page.locator("#note")).to_contain_text("Sentences that have words stay")
