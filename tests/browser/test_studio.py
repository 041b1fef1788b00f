"""Writing in the studio in a real browser: by mouse, by keyboard, along an arc, taking, branching, coming back."""

from __future__ import annotations

import re

import pytest
from desk import Desk
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.system

FIRST = "Karl rented a green boat for one day."
LAST = "The new plank was tight, and Karl thanked his neighbour."
STORY = (FIRST, "", "", "", LAST)


def drag(desk: Desk, number: int, label: int) -> None:
    """Pulls a point of the arc to one of the three labels."""
    cell = desk.row(number).locator(".arc-cell").bounding_box()
    knob = desk.point(number).bounding_box()
    assert cell is not None
    assert knob is not None
    mouse = desk.page.mouse
    y = knob["y"] + knob["height"] / 2
    mouse.move(knob["x"] + knob["width"] / 2, y)
    mouse.down()
    for share in (0.3, 0.6, 1.0):
        start, end = knob["x"] + knob["width"] / 2, cell["x"] + cell["width"] * (0.14 + 0.36 * label)
        mouse.move(start + share * (end - start), y + 3 * share)
    mouse.up()


def follows(desk: Desk, line: int, tag: str, said: str) -> bool:
    """Whether each candidate's line has this tag, or says that it was asked for; a tag is what the text has."""
    return all(
        card.locator(".words").nth(line).get_attribute("data-tag") == tag
        or f"asked for {said}" in card.locator(".missed").first.inner_text()
        for card in desk.cards.all()
    )


def test_the_dragged_arc_is_the_candidates_arc(desk: Desk) -> None:
    desk.type(*STORY)
    expect(desk.page.locator("#curve .band")).to_be_attached()  # free points have their band
    expect(desk.point(3)).to_have_attribute("aria-valuetext", re.compile(r"^free; the model expects \w+ \d+ %"))
    for label, said, tag in ((2, "glad", "positive"), (0, "sad", "negative")):
        drag(desk, 3, label)
        expect(desk.point(3)).to_have_attribute("aria-valuetext", f"{said}, fixed")
        desk.away().fill()
        assert follows(desk, 1, tag, said)
    desk.point(3).click()
    expect(desk.point(3)).to_have_attribute("aria-valuetext", re.compile("^free"))
    desk.page.keyboard.press("Control+z")
    expect(desk.point(3)).to_have_attribute("aria-valuetext", "sad, fixed")
    desk.page.keyboard.press("Control+z")  # a whole drag is one step
    expect(desk.point(3)).to_have_attribute("aria-valuetext", "glad, fixed")


def test_regenerate_one_line_and_force_its_opening(desk: Desk) -> None:
    desk.type(*STORY).fill().take(1)
    before = desk.texts
    desk.away().row(3).hover()
    with desk.page.expect_request("**/api/fill/stream") as asked:
        desk.tool(3, "Regenerate this line").click()
    body = asked.value.post_data_json
    assert body is not None
    assert body["sentences"] == [*before[:2], None, *before[3:]]  # the others are kept
    desk.done()
    assert all(len(card) == 1 for card in desk.offered())
    first = desk.offered()
    desk.tool(3, "Regenerate this line").click()  # asked again for the same: another seed
    desk.done()
    assert desk.offered() != first
    desk.menu(3, "Opening words…")
    desk.page.get_by_label("Opening words of sentence 3").fill("His neighbour")
    desk.tool(3, "Regenerate this line").click()
    desk.done()
    offered = desk.offered()
    assert all(card[0].startswith("His neighbour") for card in offered)
    desk.take(2)
    assert desk.texts == [*before[:2], *offered[1], *before[3:]]


def test_lines_are_locked_marked_cleared_moved_added_removed_pasted(desk: Desk) -> None:
    page = desk.page
    desk.line(1).focus()
    paste(page, f"{FIRST} “Is it safe?” asked Mr. Hill. It was!\n_\nKarl was glad at 5 p.m. on Friday.")
    assert desk.texts == [FIRST, "“Is it safe?” asked Mr. Hill.", "It was!", "", "Karl was glad at 5 p.m. on Friday."]
    desk.tool(1, "Lock").click()
    expect(desk.line(1)).to_have_attribute("readonly", "")
    desk.menu(2, "Move down")
    assert desk.texts[1:3] == ["It was!", "“Is it safe?” asked Mr. Hill."]
    desk.menu(2, "Clear")
    desk.menu(2, "Remove")
    assert desk.texts == [FIRST, "“Is it safe?” asked Mr. Hill.", "", "Karl was glad at 5 p.m. on Friday."]
    desk.menu(1, "Insert a line below")
    desk.page.keyboard.type("Hm.")
    assert desk.texts[:3] == [FIRST, "Hm.", "“Is it safe?” asked Mr. Hill."]
    desk.row(3).hover()
    desk.tool(3, "Write this").click()
    desk.fill()
    assert [len(card) for card in desk.offered()] == [2, 2, 2]  # the marked line and the blank one
    desk.take(1)
    taken = desk.texts
    assert (taken[0], taken[1], taken[4]) == (FIRST, "Hm.", "Karl was glad at 5 p.m. on Friday.")
    while page.get_by_role("button", name="Undo").get_attribute("aria-disabled") != "true":
        page.keyboard.press("Control+z")
    assert desk.texts == [""] * 5


def paste(page: Page, text: str) -> None:
    """What the browser does at Ctrl+V, without a system's clipboard."""
    page.evaluate(
        """text => {
            const clipboardData = new DataTransfer();
            clipboardData.setData("text/plain", text);
            const options = {clipboardData, bubbles: true, cancelable: true};
            document.activeElement.dispatchEvent(new ClipboardEvent("paste", options));
        }""",
        text,
    )


def test_a_link_gives_the_same_candidates(desk: Desk) -> None:
    desk.type(*STORY)
    desk.point(3).press("Home")
    desk.page.get_by_text("Settings").click()
    desk.page.get_by_role("spinbutton", name="Seed").fill("41")
    desk.page.get_by_role("spinbutton", name="Candidates").fill("4")
    desk.page.get_by_label("Boldness").select_option("bold")
    desk.fill(4)
    offered = desk.offered()
    desk.page.get_by_role("button", name="Copy a link").click()
    expect(desk.page.locator("#note")).to_contain_text("Link copied")
    link = desk.page.evaluate("() => navigator.clipboard.readText()")
    assert link.startswith(f"{desk.url}/#r=")
    desk.saved()
    again = Desk(desk.page.context.new_page(), desk.url).open(link.removeprefix(desk.url)).done(4)
    assert again.offered() == offered
    assert again.texts == [*STORY]
    expect(again.point(3)).to_have_attribute("aria-valuetext", "sad, fixed")
    again.page.close()

    damaged = Desk(desk.page.context.new_page(), desk.url).open("/#r=abc")
    expect(damaged.page.get_by_role("alert")).to_contain_text("This link is damaged")
    damaged.page.close()


def test_what_was_taken_is_kept_when_room_is_made_for_another_line(desk: Desk) -> None:
    """Clearing a line, and adding one, ask for that line: nobody expects the others to be written anew."""
    desk.type("Karl rented a green boat for one day.", "", "", "", "The boat was safe.")
    desk.fill().take(1).saved()
    taken = desk.texts
    desk.menu(3, "Clear")
    desk.fill()
    assert {len(card) for card in desk.offered()} == {1}
    desk.take(1).saved()
    assert [text for i, text in enumerate(desk.texts) if i != 2] == [text for i, text in enumerate(taken) if i != 2]
    desk.page.get_by_role("button", name="Add a line").click()
    assert desk.page.locator("#lines > li[data-kind=fabula]").count() == 0
    desk.row(2).hover()
    desk.tool(2, "Write this").click()
    expect(desk.page.locator("#lines > li[data-kind=fabula]")).to_have_count(1)
