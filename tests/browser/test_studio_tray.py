"""Candidates are kept with their branch; stories are searched, renamed, duplicated, thrown away and taken back."""

import re

import pytest
from desk import FIRST, LAST, STORY, Desk
from playwright.sync_api import expect

pytestmark = pytest.mark.system


def more(desk: Desk, number: int, entry: str) -> None:
    desk.page.get_by_role("button", name=f"More for candidate {number}").click()
    desk.page.get_by_role("menuitem", name=entry).click()


def test_candidates_stay_and_favourites_come_first(desk: Desk) -> None:
    page = desk.page
    desk.type(*STORY).fill()
    old = desk.offered()
    more(desk, 3, "Keep as a favourite")
    desk.away().fill()
    new = desk.offered()
    assert new != old
    desk.saved().reload()
    page.get_by_text("Kept candidates (6)").click()
    kept = page.locator("#tray-list .words")
    assert kept.all_inner_texts() == [" ".join(card) for card in (old[2], *new, *old[:2])]
    page.locator("#tray-list .take").first.click()
    assert desk.texts == [FIRST, *old[2], LAST]
    page.locator("#tray-list li").nth(1).get_by_role("button", name="More for").click()
    page.get_by_role("menuitem", name="Remove").click()
    expect(kept).to_have_count(5)


def test_two_candidates_are_compared_and_one_line_taken(desk: Desk) -> None:
    page = desk.page
    desk.type(*STORY).fill()
    offered = desk.offered()
    more(desk, 1, "Compare with another…")
    more(desk, 2, "Compare with the first")
    dialog = page.get_by_role("dialog", name="Two candidates")
    shown = [" ".join(text.split()) for text in dialog.locator("td[data-side='the second'] p").all_inner_texts()]
    assert shown == offered[1]
    assert dialog.locator("mark").count() > 0
    dialog.get_by_role("button", name="Take sentence 3 of the second").click()
    dialog.get_by_role("button", name="Close").click()
    assert desk.texts == [FIRST, "", offered[1][1], "", LAST]


def test_stories_are_searched_renamed_duplicated_and_thrown_away(desk: Desk) -> None:
    page = desk.page
    desk.type("A walrus sang in the harbour.", "Nobody slept.").saved()
    page.get_by_role("button", name="Stories").click()
    search = page.get_by_role("searchbox", name="Search in all stories")
    search.fill("NOBODY slept")
    entries = page.locator("#stories-list li")
    expect(entries).to_have_count(1)
    expect(entries.first).to_contain_text("8 words")
    expect(entries.first.locator(".glimpse")).to_have_text("A walrus sang in the harbour. Nobody slept.")

    def do(entry: str, which: int = 0) -> None:
        entries.nth(which).get_by_role("button", name=re.compile("^More for")).click()
        page.get_by_role("menuitem", name=entry).click()

    do("Rename…")
    page.get_by_role("textbox", name="Title of the story").last.fill("The walrus")
    page.keyboard.press("Enter")
    expect(entries.first.locator(".title")).to_have_text("The walrus")
    do("Duplicate")
    expect(entries).to_have_count(2)
    do("Move to the trash", 0)
    expect(entries).to_have_count(1)
    page.get_by_role("button", name="Trash", exact=True).click()
    expect(entries.locator(".title")).to_have_text(["The walrus (copy)"])
    do("Restore")
    expect(page.locator("#stories-none")).to_have_text("No story holds these words.")
    page.get_by_role("button", name="Trash", exact=True).click()
    expect(entries).to_have_count(2)
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#title")).to_have_value("The walrus")


def test_the_cast_is_found_edited_and_read(desk: Desk) -> None:
    """Names in the lines are offered; what is said of people goes with the request."""
    page = desk.page
    desk.type(*STORY)
    page.get_by_text("Cast and notes").click()
    page.get_by_role("button", name=re.compile(r"^\+ Karl")).click()
    expect(page.get_by_role("button", name=re.compile(r"^\+ Karl"))).to_have_count(0)
    expect(page.get_by_label("Name of person 1")).to_have_value("Karl")
    page.get_by_label("Pronoun of person 1").select_option("he")
    page.get_by_label("Who person 1 is").fill("a fisherman")
    page.get_by_role("button", name="Add a person").click()
    expect(page.get_by_label("Name of person 2")).to_be_focused()
    page.keyboard.type("Ann")
    page.get_by_label("Places and facts").fill("It is set in a harbour town.\n\nThe boat leaks")
    body = desk.asked(desk.fill)
    assert body["people"] == [
        {"name": "Karl", "pronoun": "he", "about": "a fisherman"},
        {"name": "Ann", "pronoun": None, "about": ""},
    ]
    assert body["notes"] == ["It is set in a harbour town.", "The boat leaks"]
    assert not page.locator("#stale").is_visible()
    page.get_by_role("button", name="Remove person 2").click()
    expect(page.locator("#stale")).to_be_visible()


def test_more_like_one_and_different_from_these(desk: Desk) -> None:
    """Ten are asked for and as many as wanted shown; an example goes along as a note, which makes nothing stale."""
    page = desk.page
    desk.type(*STORY).fill()
    old = desk.offered()
    body = desk.asked(lambda: more(desk, 2, "More like this"))
    desk.away()
    assert (body["candidates"], body["notes"]) == (10, [" ".join(old[1])])
    assert len(desk.offered()) == 3
    assert old[1] not in desk.offered()
    assert not page.locator("#stale").is_visible()
    liked = desk.offered()
    assert desk.asked(page.get_by_role("button", name="Different from these").click)["notes"] == []
    desk.away()
    assert not [card for card in desk.offered() if card in liked]
