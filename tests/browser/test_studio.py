"""Writing in the studio in a real browser: by mouse, by keyboard, along an arc, taking, branching, coming back."""

import re
from typing import Any

import pytest
from desk import FIRST, LAST, STORY, Desk
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.system


def drag(desk: Desk, number: int, label: int) -> None:
    """Pulls a point of the arc to one of the three labels."""
    cell = desk.page.locator("#arc").bounding_box()
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


def body_of(desk: Desk, number: int, tool: str) -> dict[str, Any]:
    """What a tool of a sentence asks the model for."""
    return desk.asked(desk.tool(number, tool).click)


def test_rewrite_one_sentence_and_force_its_opening(desk: Desk) -> None:
    desk.type(*STORY).fill().take(1)
    before = desk.texts
    assert body_of(desk, 3, "Rewrite")["sentences"] == [*before[:2], None, *before[3:]]  # the others are kept
    first = desk.offered()
    assert all(len(card) == 1 for card in first)
    assert [before[2]] not in first
    assert body_of(desk, 3, "Rewrite")["seed"] == 1  # asked again for the same: another seed
    assert desk.offered() != first
    desk.menu(3, "Opening words…")
    desk.page.get_by_role("textbox", name="It begins with these words").fill("His neighbour")
    desk.page.get_by_role("button", name="Set").click()
    body_of(desk, 3, "Rewrite")
    offered = desk.offered()
    assert all(card[0].startswith("His neighbour") for card in offered)
    desk.take(2)
    assert desk.texts == [*before[:2], *offered[1], *before[3:]]


def test_verbs_offer_longer_shorter_and_the_next_sentence(desk: Desk) -> None:
    desk.type(FIRST, "A plank broke.", LAST)
    body_of(desk, 2, "Longer")
    assert all(len(card[0].split()) > 3 for card in desk.offered())
    desk.page.keyboard.press("Escape")
    body_of(desk, 1, "Shorter")
    counts = [len(card[0].split()) for card in desk.offered()]
    assert min(counts) < len(FIRST.split())
    body = body_of(desk, 1, "Continue")
    assert body["sentences"][:3] == [FIRST, None, "A plank broke."]
    offered = desk.offered()
    desk.take(1)
    assert desk.texts[:3] == [FIRST, offered[0][0], "A plank broke."]


def test_candidates_find_their_sentences_after_an_insertion(desk: Desk) -> None:
    """Sentences are known by what they are, not by their places: what was written for one never lands on another."""
    desk.type(*STORY).fill()
    offered = desk.offered()
    desk.caret(1).page.keyboard.press("Enter")
    desk.page.keyboard.type("My own line.")
    desk.away().take(1)
    assert desk.texts == [FIRST, "My own line.", *offered[0], LAST]
    desk.menu(4, "Remove")
    desk.cards.nth(1).get_by_role("button", name="Take candidate 2").click()
    assert desk.texts == [FIRST, "My own line.", offered[1][0], offered[1][2], LAST]
    desk.tool(3, "Rewrite").click()
    desk.done()
    desk.menu(1, "Gap after")
    again = desk.offered()
    desk.take(1)
    assert desk.texts == [FIRST, "", "My own line.", again[0][0], offered[1][2], LAST]


def test_sentences_are_locked_marked_moved_removed_pasted(desk: Desk) -> None:
    page = desk.page
    desk.caret(1)
    paste(page, f"{FIRST} “Is it safe?” asked Mr. Hill.\n\nIt was!\n_\nKarl was glad at 5 p.m. on Friday.")
    asked, glad = "“Is it safe?” asked Mr. Hill.", "Karl was glad at 5 p.m. on Friday."
    assert desk.paragraphs == [f"{FIRST} {asked}", "It was! _", glad]
    desk.tool(1, "Lock").click()
    desk.caret(1).page.keyboard.type("x")
    expect(page.locator("#note")).to_contain_text("This sentence is locked")
    assert desk.texts[0] == FIRST
    desk.menu(3, "Move up")
    assert desk.paragraphs == [f"{FIRST} It was!", f"{asked} _", glad]
    desk.menu(2, "Remove")
    assert desk.texts == [FIRST, asked, "", glad]
    desk.menu(2, "Mark to be written anew")
    desk.fill()
    assert [len(card) for card in desk.offered()] == [2, 2, 2]  # the marked one and the gap
    desk.take(1)
    assert (desk.texts[0], desk.texts[3]) == (FIRST, glad)
    while page.get_by_role("button", name="Undo").get_attribute("aria-disabled") != "true":
        page.keyboard.press("Control+z")
    assert desk.texts == [""] * 5


def test_find_and_replace(desk: Desk) -> None:
    page = desk.page
    desk.type("Karl saw a boat.", "The Boat was green.", "A boat!", "Boats.")
    desk.tool(3, "Lock").click()
    page.keyboard.press("Control+f")
    page.get_by_label("Find", exact=True).fill("boat")
    expect(page.locator("#search-count")).to_have_text("4")
    page.get_by_label("Replace with").fill("ship")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert desk.texts[0] == "Karl saw a ship."
    page.get_by_role("button", name="Replace all").click()
    assert desk.texts[:4] == ["Karl saw a ship.", "The ship was green.", "A boat!", "ships."]
    expect(page.locator("#note")).to_contain_text("1 in locked sentences stayed")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+z")
    assert desk.texts[1] == "The Boat was green."


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


def test_what_was_taken_is_the_writers(desk: Desk) -> None:
    """The next fill keeps what was taken; a whole candidate over sentences of several says what it replaced."""
    desk.type(*STORY).fill()
    offered = desk.offered()
    desk.page.get_by_role("button", name="Take only sentence 3 of candidate 2").click()
    desk.take(1)
    expect(desk.page.locator("#note")).to_contain_text("Sentence 3, taken from another candidate, was replaced")
    assert desk.texts == [FIRST, *offered[0], LAST]
    desk.page.get_by_role("button", name="Fill in").click()
    expect(desk.page.get_by_role("alert")).to_contain_text("Every sentence has words already")
    desk.caret(4).page.keyboard.press("Alt+Enter")
    assert desk.asked(desk.fill)["sentences"] == [FIRST, *offered[0], None, LAST]


def test_a_long_story_is_read_in_part(desk: Desk) -> None:
    desk.caret(1)
    paste(desk.page, " ".join(f"Karl saw boat {n}." for n in range(60)))
    assert len(desk.texts) == 60
    desk.caret(40).page.keyboard.press("Alt+Enter")
    assert len(desk.asked(desk.fill)["sentences"]) == 25
    expect(desk.page.locator("#extent")).to_have_text("Fabula reads sentences 29 to 53 of 61 for this.")
    offered = desk.offered()
    desk.take(1)
    assert desk.texts[40] == offered[0][0]


@pytest.mark.parametrize("width", [360, 768, 1024, 1180, 1440])
def test_the_text_has_room_at_every_width(desk: Desk, width: int) -> None:
    desk.page.set_viewport_size({"width": width, "height": 900})
    desk.type(*STORY)
    box = desk.page.locator("#story-text").bounding_box()
    assert box is not None
    assert box["width"] >= (220 if width < 640 else 380)
    assert desk.page.evaluate("() => document.documentElement.scrollWidth") <= width
