"""When things go wrong the studio says so, keeps what was typed, and never runs it."""

import pytest
from desk import FIRST, LAST, STORY, Desk, Watch
from playwright.sync_api import Route, expect

pytestmark = pytest.mark.system

EVIL = "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"


def test_markup_in_every_field_is_text(desk: Desk) -> None:
    page = desk.page
    page.get_by_label("Title of the story").fill(f"Title {EVIL}")
    desk.type(f"{EVIL} A boat.", "", "", "", f"The end {EVIL}")
    desk.put(3, "The new plank")
    desk.menu(3, "Opening words…")
    page.get_by_role("textbox", name="It begins with these words").fill("The new")
    page.get_by_role("button", name="Set").click()
    desk.page.get_by_role("button", name="Fill in").click()
    desk.done()
    desk.take(1)
    desk.saved()
    page.get_by_role("button", name="Branch here").click()
    page.locator("#tree .leaf[data-current=yes]").get_by_role("button", name="More for").click()
    page.get_by_role("menuitem", name="Rename…").click()
    page.get_by_role("textbox", name="Name of this branch").fill(EVIL)
    page.keyboard.press("Enter")
    expect(page.locator("#tree [aria-current=true]")).to_have_text(EVIL)
    desk.tool(1, "Why").click()
    expect(page.locator(".why .word").first).to_be_visible()
    desk.saved().reload()
    assert desk.texts[0] == f"{EVIL} A boat."
    expect(page.locator("#tree [aria-current=true]")).to_have_text(EVIL)
    page.get_by_role("button", name="Stories").click()
    expect(page.locator("#stories-list .title").filter(has_text=f"Title {EVIL}").first).to_be_visible()
    assert page.evaluate("() => window.owned") is None
    assert page.locator("img").count() == 0


def test_the_server_goes_and_comes_back(desk: Desk, watch: Watch) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    page = desk.page
    desk.type(FIRST).saved()
    page.context.set_offline(True)
    desk.put(5, LAST)
    bar = page.get_by_role("alert").filter(has_text="does not answer")
    expect(bar).to_be_visible()
    expect(page.locator("#saved")).to_have_text("Not saved: no server")
    page.get_by_role("button", name="Fill in").click()
    expect(bar).to_have_count(1)  # one bar for one trouble
    assert desk.texts == [FIRST, "", "", "", LAST]
    page.context.set_offline(False)
    bar.first.get_by_role("button", name="Try now").click()
    desk.saved()
    expect(bar).to_have_count(0)  # also the one about the candidates: there is a server again
    desk.fill()
    desk.reload()
    assert desk.texts == [FIRST, "", "", "", LAST]


def test_a_busy_server_is_waited_for(desk: Desk, watch: Watch) -> None:
    watch.allow("429")
    told = '{"error": {"message": "the queue is full", "field": null, "status": 429}}'
    refused: list[str] = []

    def once(route: Route) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            route.fulfill(status=429, headers={"Retry-After": "1"}, content_type="application/json", body=told)

    desk.page.route("**/api/fill/stream", once)
    desk.type(*STORY)
    desk.page.get_by_role("button", name="Fill in").click()
    expect(desk.page.locator("#progress-text")).to_have_text("The studio is busy; trying again in 1 s")
    desk.done()
    assert len(refused) == 1


def test_stop_leaves_the_page_as_it_was(desk: Desk, watch: Watch) -> None:
    held: list[Route] = []
    desk.page.route("**/api/fill/stream", lambda route: held.append(route))
    desk.type(*STORY)
    desk.page.get_by_role("button", name="Fill in").click()
    desk.put(2, "Typing goes on meanwhile.")  # the page is not frozen
    desk.page.get_by_role("button", name="Stop").click()
    expect(desk.page.get_by_role("button", name="Fill in")).to_be_visible()
    expect(desk.page.get_by_role("alert")).to_have_count(0)
    desk.page.unroute("**/api/fill/stream")
    desk.fill()


def test_two_windows_do_not_overwrite_each_other(desk: Desk, watch: Watch) -> None:
    watch.allow("409")
    desk.type(FIRST).saved()
    browser = desk.page.context.browser
    assert browser is not None
    other = Desk(browser.new_page(), desk.url).open(desk.page.url.removeprefix(desk.url))  # another person's browser
    assert other.texts[0] == FIRST
    other.put(2, "Theirs.")
    other.saved()
    desk.put(2, "Mine.")
    bar = desk.page.get_by_role("alert")
    expect(bar).to_contain_text("changed in another window")
    bar.get_by_role("button", name="Keep mine as a branch").click()
    desk.saved()
    expect(desk.page.locator("#tree button.name")).to_have_text(["main", "main (mine)"])
    desk.page.locator("#tree button.name").first.click()
    expect(desk.line(2)).to_have_text("Theirs.")
    desk.page.locator("#tree button.name").nth(1).click()
    expect(desk.line(2)).to_have_text("Mine.")
    other.page.close()
