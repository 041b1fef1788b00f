"""Nothing of the writer's is lost: saves while typing, copies in the browser, prompts, a way out of every conflict."""

import pytest
from desk import FIRST, LAST, STORY, Desk, Watch
from playwright.sync_api import Browser, Dialog, expect

pytestmark = pytest.mark.system


def lines_on_server(desk: Desk) -> list[str]:
    return [line["text"] for line in desk.on_server()["lines"]]


def test_own_words_are_not_taken_over(desk: Desk) -> None:
    """A line written by hand since the candidates came stays, and the candidates are said to be stale."""
    desk.type(*STORY).fill()
    expect(desk.page.locator("#stale")).to_be_hidden()
    offered = desk.offered()[0]
    desk.put(3, "A heron watched him.")
    expect(desk.page.locator("#stale")).to_be_visible()
    desk.take(1)
    assert desk.texts == [FIRST, offered[0], "A heron watched him.", offered[2], LAST]
    expect(desk.page.locator("#note")).to_contain_text("Sentence 3 stays as you wrote it")


def type_past_the_page(desk: Desk, line: int, text: str) -> None:
    """As if the page's own bound were not there."""
    call = "m.change(s.type, m.store.doc.lines[line].id, text)"
    imports = "const m = await import('/page/store.js'); const s = await import('/page/state.js');"
    desk.page.evaluate(f"async ([line, text]) => {{ {imports} {call}; }}", [line - 1, text])


def test_a_line_that_is_refused_holds_up_no_other(desk: Desk, watch: Watch) -> None:
    watch.allow("422")
    desk.type(FIRST).saved()
    type_past_the_page(desk, 2, "x" * 4500)
    expect(desk.page.get_by_role("alert")).to_contain_text("Sentence 2 is not saved")
    with desk.page.expect_response(lambda answer: answer.request.method == "PUT" and answer.ok):
        desk.put(5, LAST)
    expect(desk.page.locator("#saved")).to_contain_text("Not saved")
    assert lines_on_server(desk) == [FIRST, "", "", "", LAST]
    asked: list[Dialog] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog)
        dialog.accept()

    desk.page.on("dialog", leave)
    desk.page.reload()
    desk.ready()
    assert [dialog.type for dialog in asked] == ["beforeunload"]
    assert desk.texts == [FIRST, "x" * 4500, "", "", LAST]  # from the browser's own copy


def test_what_no_server_took_is_there_again(desk: Desk, watch: Watch) -> None:
    """The window goes while the server is away: both for a stored story and for one that never was."""
    watch.allow("ERR_INTERNET_DISCONNECTED")
    context = desk.page.context
    desk.type(FIRST).saved()
    where = desk.page.url.removeprefix(desk.url)
    never = Desk(context.new_page(), desk.url).open()
    context.set_offline(True)
    desk.put(5, LAST)
    never.type("A story that never reached a server.")
    expect(desk.page.locator("#saved")).to_contain_text("Not saved")
    expect(never.page.locator("#saved")).to_contain_text("Not saved")
    never.page.wait_for_function(
        "Object.keys(localStorage).filter((name) => /^fabula.unsaved/.test(name)).length === 2"
    )
    never.page.close()
    desk.page.goto("about:blank")
    context.set_offline(False)
    desk.open(where)
    assert desk.texts == [FIRST, "", "", "", LAST]
    desk.saved()
    other = Desk(context.new_page(), desk.url).open()
    bar = other.page.get_by_role("alert").filter(has_text="A story that never reached a server.")
    bar.get_by_role("button", name="Open it").click()
    expect(other.line(1)).to_have_text("A story that never reached a server.")
    other.saved()


def test_back_goes_to_the_story_before(desk: Desk) -> None:
    desk.type(FIRST).saved()
    desk.new_story()
    desk.type("Another one.").saved()
    desk.page.go_back()
    expect(desk.line(1)).to_have_text(FIRST)
    desk.page.go_forward()
    expect(desk.line(1)).to_have_text("Another one.")


def test_the_last_story_is_opened_again(desk: Desk, browser: Browser) -> None:
    """The address alone leads to what was worked on last; a new story stays one when its page is loaded again."""
    desk.type("The one that was written last.").saved()
    assert Desk(desk.page.context.new_page(), desk.url).open("/").texts[0] == "The one that was written last."
    stranger = browser.new_page()  # nothing is known of this browser, but it is on this machine
    assert Desk(stranger, desk.url).open("/").texts[0] == "The one that was written last."
    stranger.close()
    desk.new_story()
    assert desk.reload().texts == [""] * 5


def test_two_windows_of_one_browser_show_the_same(desk: Desk) -> None:
    """What one saves, the other shows at once, its own words unharmed; then both go on from there."""
    desk.type(FIRST).saved()
    other = Desk(desk.page.context.new_page(), desk.url).open(desk.page.url.removeprefix(desk.url))
    other.put(2, "From the second window.")
    expect(desk.line(2)).to_have_text("From the second window.")
    desk.put(3, "From the first.")
    expect(other.line(3)).to_have_text("From the first.")
    expect(desk.page.get_by_role("alert")).to_have_count(0)
    other.page.close()


def test_what_is_refused_in_part_is_saved_in_the_other_parts(desk: Desk, watch: Watch) -> None:
    """An empty person holds up nothing; notes that are too long are said to be, and everything else is saved."""
    watch.allow("422")
    page = desk.page
    desk.type(FIRST).saved()
    page.get_by_text("Cast and notes").click()
    page.get_by_role("button", name="Add a person").click()
    desk.put(2, "It was dry.")
    desk.saved()
    assert lines_on_server(desk)[1] == "It was dry."
    page.get_by_role("button", name="Remove person 1").click()
    script = "async () => { const m = await import('/page/store.js'); const s = await import('/page/state.js'); "
    page.evaluate(script + "m.change(s.set, {notes: 'x'.repeat(4500)}); }")
    expect(page.get_by_role("alert")).to_contain_text("The notes are not saved")
    with page.expect_response(lambda answer: answer.request.method == "PUT" and answer.ok):
        desk.put(5, LAST)
    assert lines_on_server(desk)[4] == LAST
    page.get_by_label("Places and facts").fill("Short.")
    desk.saved()


def test_undo_goes_by_pauses_and_fields(desk: Desk) -> None:
    """A pause ends a step; the notes undo by themselves; a change of the cast is a step."""
    page = desk.page
    desk.caret(1).page.keyboard.type("One word")
    page.wait_for_timeout(700)  # the pause is what is tested
    page.keyboard.type(" and more")
    page.get_by_text("Cast and notes").click()
    page.get_by_role("button", name="Add a person").click()
    page.get_by_label("Name of person 1").fill("Ann")
    notes = page.get_by_label("Places and facts")
    notes.focus()
    page.keyboard.insert_text("Oslo")
    notes.press("Control+z")
    expect(notes).to_have_value("")
    assert desk.texts[0] == "One word and more"
    desk.caret(1).page.keyboard.press("Control+z")
    expect(page.get_by_label("Name of person 1")).to_have_value("")
    page.keyboard.press("Control+z")
    expect(page.get_by_label("Name of person 1")).to_have_count(0)
    page.keyboard.press("Control+z")
    assert desk.texts[0] == "One word"
    page.keyboard.press("Control+z")
    assert desk.texts[0] == ""


def test_a_story_closed_at_once_is_saved_once(desk: Desk) -> None:
    """Typed and closed before the first save: it is in the list, and not offered again as unsaved."""
    desk.put(1, "Closed at once.")
    desk.page.close(run_before_unload=False)
    other = Desk(desk.page.context.new_page(), desk.url)
    other.page.goto(other.url + "/#new")
    other.ready()
    other.page.get_by_role("button", name="Stories").click()
    expect(other.page.locator("#stories-list .title").filter(has_text="Closed at once.")).to_have_count(1)
    expect(other.page.get_by_role("alert")).to_have_count(0)
