"""The pictures of docs/studio, drawn in the studio that `fabula studio --db NEW.db` has started at its usual port."""

import io
import shutil
from pathlib import Path

from desk import Desk
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from conftest import FLAGS, NAMES

OUT = Path(__file__).parents[2] / "docs" / "studio"
URL = "http://127.0.0.1:8000"
COLOURS = 224
"""Enough for flat colours and smooth letters, at a fraction of the bytes."""
STORY = ("Our cat climbed up a tall tree.", "", "", "", "He purred all evening.")
SIZES = {"wide": {"width": 1440, "height": 860}, "narrow": {"width": 360, "height": 780}}


def write(desk: Desk) -> None:
    """A story with a bent arc, and its candidates."""
    desk.type(*STORY)
    for number, key in ((2, "Home"), (4, "End")):
        desk.point(number).press(key)
    desk.page.get_by_text("Settings").click()
    desk.page.get_by_role("spinbutton", name="Seed").fill("1")
    desk.page.get_by_text("Settings").click()
    desk.page.mouse.move(2, 400)
    desk.fill().saved()


def keep(page: Page, name: str) -> None:
    picture = Image.open(io.BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(COLOURS).save(OUT / f"{name}.png", optimize=True)


def draw(page: Page, url: str, size: str, scheme: str) -> None:
    desk = Desk(page, url).open()
    write(desk)
    if size == "wide" and scheme == "light":
        desk.cards.nth(0).hover()
        expect(page.locator("#story-text .preview")).to_have_count(3)
    else:
        desk.take(1).saved()
        page.get_by_role("button", name="Branch here").click()
        expect(page.locator("#tree button.name")).to_have_count(2)
        if size == "wide":
            desk.tool(3, "Why").click()
            expect(page.locator(".why dl")).to_be_visible()
        expect(page.locator("#note")).to_be_hidden()
        page.evaluate("() => scrollTo(0, 0)")
    desk.saved()
    expect(page.locator("#curve .band")).to_be_attached()
    keep(page, f"{size}-{scheme}")


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    path = next(found for found in map(shutil.which, NAMES) if found)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for size, viewport in SIZES.items():
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
                draw(page, URL, size, scheme)
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
