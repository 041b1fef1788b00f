"""Axe finds nothing serious, in light and dark, wide and narrow; nothing sticks out of a narrow screen."""

import re

import pytest
from desk import STORY, Desk, Watch, grave
from playwright.sync_api import Browser, expect

pytestmark = pytest.mark.system

JUDGE = """async () => {
  const { store, show } = await import("/page/store.js");
  const { batch } = store.ui;
  const [first, ...rest] = batch.filling.candidates;
  const parts = { holds_together: -2.2, leads_to_ending: -2.5, reads_easily: -3.7, weakest: 3 };
  batch.filling = { ...batch.filling, candidates: [{ ...first, parts }, ...rest] };
  show({});
}"""
"""As if a critic had judged the first candidate."""


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 360),
        ("dark", 768),
        ("light", 1024),
        ("dark", 1440),
    ],
)
def test_axe(browser: Browser, studio: str, watch: Watch, scheme: str, width: int) -> None:
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    page.on("console", watch.heard)
    desk = Desk(page, studio).open()
    found = {"blank": grave(page)}
    desk.type(*STORY)
    desk.point(3).press("Home")
    desk.fill().take(2)
    desk.tool(2, "Why").click()
    expect(page.locator(".why dl")).to_be_visible()
    page.get_by_text("Settings").click()
    desk.saved()
    page.get_by_role("button", name="More for main").click()
    page.get_by_role("menuitem", name="Versions…").click()
    expect(page.get_by_role("dialog", name="Versions of").get_by_role("status")).to_have_text(re.compile("^(Go|None)"))
    found["versions"] = grave(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Branch here").click()
    expect(page.locator("#tree button.name")).to_have_count(2)
    page.evaluate("async () => (await import('/page/messages.js')).warn('test', 'A message.', [])")
    found["written"] = grave(page)
    page.get_by_text("Settings").click()
    page.get_by_text("Kept candidates").click()
    page.get_by_text("Cast and notes").click()
    page.get_by_role("button", name="+ Karl").click()
    page.get_by_role("button", name="Add a person").click()
    page.evaluate(JUDGE)
    expect(page.locator(".weakest")).to_be_visible()
    found["cast and critic"] = grave(page)
    page.locator(".why .word").nth(1).click()
    expect(page.locator(".words-panel button").first).to_be_visible()
    page.keyboard.press("Control+f")
    expect(page.get_by_label("Replace with")).to_be_visible()
    found["words and tray"] = grave(page)
    for number, entry in ((1, "Compare with another…"), (2, "Compare with the first")):
        page.get_by_role("button", name=f"More for candidate {number}").click()
        page.get_by_role("menuitem", name=entry).click()
    expect(page.get_by_role("dialog", name="Two candidates")).to_be_visible()
    found["compare"] = grave(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("menuitem", name="Read or print…").click()
    found["reading"] = grave(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Shape of the arc").click()
    found["menu"] = grave(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Stories").click()
    expect(page.locator("#stories-list li").first).to_be_visible()
    found["stories"] = grave(page)
    entries = page.locator("#stories-list li")
    held = entries.count()
    for act, count in (("Duplicate", held + 1), ("Move to the trash", held)):
        entries.first.get_by_role("button", name="More for").click()
        page.get_by_role("menuitem", name=act).click()
        expect(entries).to_have_count(count)
    page.get_by_role("button", name="Trash", exact=True).click()
    expect(page.locator("#stories-name")).to_have_text("Trash")
    expect(entries.first).to_be_visible()
    found["trash"] = grave(page)
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    context.close()
    assert not {where: told for where, told in found.items() if told}
    assert wide <= width
    assert not watch.unexpected
