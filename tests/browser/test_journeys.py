"""Six journeys through the studio in a real browser. Each waits for states that the page shows, never for time."""

import re

import pytest
from desk import Desk, Watch, grave
from playwright.sync_api import Browser, Page, Route, expect

FIRST, LAST = "Mia was sad.", "Tom made it to work on time."
STORY = (FIRST, "", "", "", LAST)


@pytest.fixture
def desk(page: Page, quick_studio: str) -> Desk:
    return Desk(page, quick_studio).open()


def test_write_and_fill(desk: Desk) -> None:
    """Candidates are previewed in place, stand in the story only when taken, and are there after a reload."""
    desk.type(*STORY).fill()
    assert desk.texts == [*STORY]
    candidates = desk.offered()
    assert all(len(card) == 3 and all(card) for card in candidates)
    desk.cards.nth(1).hover()
    expect(desk.page.locator("#story-text .preview")).to_have_text(candidates[1])
    desk.away().take(2)
    assert desk.texts == [FIRST, *candidates[1], LAST]
    desk.saved().reload()
    assert desk.texts == [FIRST, *candidates[1], LAST]


def test_rewrite_in_place_and_undo(desk: Desk) -> None:
    """Candidates for one sentence stand in the text below it; none is what stood there; what is taken is kept."""
    desk.type(*STORY).tool(3, "Write").click()
    (candidate,) = desk.done().card(1)
    assert desk.page.locator("#story-text #cards").count() == 1
    desk.take(1)
    assert desk.texts == [FIRST, "", candidate, "", LAST]
    desk.page.get_by_role("button", name="Undo").click()
    assert desk.texts == [*STORY]
    desk.page.get_by_role("button", name="Redo").click()
    assert desk.texts == [FIRST, "", candidate, "", LAST]
    desk.tool(3, "Rewrite").click()
    assert [candidate] not in desk.done().offered()
    assert desk.asked(desk.fill)["sentences"] == [FIRST, None, candidate, None, LAST]


def test_write_as_on_a_page(desk: Desk) -> None:
    """A sentence ends where the next begins. Enter splits, makes gaps and paragraphs; Backspace joins; undo."""
    keyboard = desk.caret(1).page.keyboard
    keyboard.type("Mia was sad. She sat by Mr. Hill. ")
    assert desk.texts == ["Mia was sad.", "She sat by Mr. Hill. ", "", "", "", ""]
    keyboard.press("Enter")
    keyboard.press("Enter")
    keyboard.type("It rained")
    assert desk.paragraphs == ["Mia was sad. She sat by Mr. Hill. ", "It rained _ _ _ _"]
    desk.caret(3, 3).page.keyboard.press("Enter")
    assert desk.texts[2:4] == ["It", "rained"]
    keyboard.press("Backspace")
    assert desk.texts[2] == "It rained"
    desk.caret(3, 0).page.keyboard.press("Backspace")
    assert len(desk.paragraphs) == 1
    keyboard.press("Control+z")
    assert len(desk.paragraphs) == 2
    keyboard.press("ArrowLeft")
    keyboard.type("so")  # at the end of the sentence before, not at the beginning of the next
    assert desk.texts[1] == "She sat by Mr. Hill. so"
    keyboard.press("Control+a")
    keyboard.type("Anew")
    assert desk.texts == ["Anew"]
    keyboard.press("Control+z")
    assert desk.texts[1].startswith("She sat by Mr. Hill.")


def three_lanes(desk: Desk) -> None:
    """As if the model told a sentence's sentiment, emotion and main verb: its answers are changed on their way."""
    emotions = ["joy", "sadness", "anger", "fear", "surprise", "none"]
    verbs = ["go", "buy", "find", "remember", "forgive", "none"]

    def models(route: Route) -> None:
        answer = route.fetch()
        listed = answer.json()
        for model in listed["models"]:
            lanes = {"sentiment": model["labels"], "emotion": emotions, "verb": verbs}
            model["factors"] = [{"name": name, "labels": labels} for name, labels in lanes.items()]
        route.fulfill(response=answer, json=listed)

    expected = {"emotion": {"surprise": 1.0}, "verb": {"remember": 1.0}}
    posterior = {"tags": [{"neutral": 1.0}] * 5, "factors": [expected] * 5, "samples": 1, "seed": 0, "model": "m"}
    desk.page.route("**/api/models", models)
    desk.page.route("**/api/posterior", lambda route: route.fulfill(json=posterior))
    desk.reload()


def test_arc_and_lanes(desk: Desk) -> None:
    """The mood of a point is the mood of the candidates; emotion and action are chosen from a chip beside it."""
    desk.type(*STORY).point(3).press("End")
    expect(desk.point(3)).to_have_attribute("aria-valuetext", "glad, fixed")
    desk.fill()
    for card in desk.cards.all():  # the tag is what the text has; where that is another, the card says what was asked
        tag = card.locator(".words").nth(1).get_attribute("data-tag")
        assert tag == "positive" or "glad" in card.locator(".missed").first.inner_text()
    desk.saved()
    three_lanes(desk)
    desk.page.get_by_role("button", name="emotion and action of sentence 3").click()
    desk.page.get_by_role("menuitemradio", name="Action: forgive").click()
    chip = desk.page.get_by_role("button", name="forgive or thank: emotion and action of sentence 3")
    expect(chip).to_be_visible()
    expect(desk.tool(3, "Action: forgive or thank")).to_be_visible()
    expect(desk.tool(3, "Mood: glad")).to_be_visible()
    desk.saved().reload()
    expect(chip).to_be_visible()
    assert desk.lines[2]["tag"] == "positive/?/forgive"


def test_cast_and_notes_are_kept(desk: Desk, browser: Browser, watch: Watch) -> None:
    """An edit of the cast alone or of the notes alone is saved, and another person's is never written over."""
    watch.allow("409")
    page = desk.page
    desk.type(FIRST).saved()
    page.get_by_text("Cast and notes").click()
    page.get_by_role("button", name="Add a person").click()
    page.get_by_label("Name of person 1").fill("Ann")
    desk.saved().reload().page.get_by_text("Cast and notes (1)").click()
    expect(page.get_by_label("Name of person 1")).to_have_value("Ann")
    notes = page.get_by_label("Places and facts")
    notes.fill("It is set in Oslo.")
    desk.saved().reload().page.get_by_text("Cast and notes (2)").click()
    expect(notes).to_have_value("It is set in Oslo.")
    with browser.new_context() as other:
        theirs = Desk(other.new_page(), desk.url).open(page.url.removeprefix(desk.url))
        theirs.page.get_by_text("Cast and notes (2)").click()
        theirs.page.get_by_label("Places and facts").fill("It is set in Rome.")
        theirs.saved()
    page.get_by_label("Who person 1 is").fill("a baker")
    expect(page.get_by_role("alert")).to_contain_text("changed in another window")


def test_branch_version_and_restore(desk: Desk) -> None:
    """A branch leaves the other as it was; a version brings back the lines with the cast, and undo takes that back."""
    page = desk.page
    page.get_by_text("Cast and notes").click()
    page.get_by_label("Places and facts").fill("It is set in Oslo.")
    desk.type(FIRST).saved()
    page.get_by_role("button", name="Branch here").click()
    tree = page.locator("#tree button.name")
    expect(tree).to_have_text(["main", "branch 2"])
    page.get_by_label("Places and facts").fill("")
    desk.type(LAST).saved()
    page.get_by_role("button", name="More for branch 2").click()
    page.get_by_role("menuitem", name="Versions…").click()
    page.get_by_role("dialog", name="Versions of").locator(".open").filter(has_text=FIRST).click()
    expect(desk.line(1)).to_have_text(FIRST)
    expect(page.get_by_label("Places and facts")).to_have_value("It is set in Oslo.")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_label("Places and facts")).to_have_value("")
    desk.saved().reload()
    assert desk.texts[0] == LAST
    tree.first.click()
    expect(desk.line(1)).to_have_text(FIRST)


def focused(page: Page) -> str:
    """The name of what has the focus."""
    name = page.evaluate("() => (({ ariaLabel, textContent }) => ariaLabel ?? textContent)(document.activeElement)")
    assert isinstance(name, str)
    return name


def tab_to(page: Page, pattern: str, key: str = "Tab") -> None:
    for _ in range(80):
        if re.search(pattern, focused(page)):
            return
        page.keyboard.press(key)
    pytest.fail(f"{key} never came to {pattern}")


def test_keyboard_and_axe(desk: Desk) -> None:
    """A story is written, bent, filled in and taken by keys alone, and axe finds nothing serious on the page."""
    keyboard = desk.page.keyboard
    tab_to(desk.page, "^The story$")
    keyboard.press("Control+Home")
    keyboard.type(FIRST)
    keyboard.press("Control+End")
    keyboard.type(LAST)
    tab_to(desk.page, "^Mood of sentence 5$", "Shift+Tab")  # one stop for the arc, at the sentence of the caret
    keyboard.press("ArrowUp")
    keyboard.press("End")
    keyboard.press("Control+Enter")
    candidates = desk.done().offered()
    tab_to(desk.page, "^Take candidate 2$")
    keyboard.press("Enter")
    assert desk.texts == [FIRST, *candidates[1], LAST]
    assert focused(desk.page) == "Take candidate 2"
    assert not grave(desk.page)
    keyboard.press("Control+z")
    assert desk.texts == [*STORY]
