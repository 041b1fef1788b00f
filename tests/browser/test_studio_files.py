"""What is exported can be imported: words from text, the arc too from Markdown, everything from JSON and pictures."""

from pathlib import Path

import pytest
from desk import Desk, Watch
from playwright.sync_api import expect

pytestmark = pytest.mark.system

LINES = ("Karl rented a *green* boat.", "", "He said: <b>wow</b> & _hm_ #1 -->.", "- Karl's boat was [safe] \\ dry.")


@pytest.mark.parametrize(
    ("entry", "ending", "keeps"),
    [
        ("Text .txt", ".txt", "words"),
        ("Markdown .md", ".md", "arc"),
        ("JSON", ".json", "everything"),
        ("Picture of the arc .svg", ".svg", "everything"),
        ("Picture of the arc .png", ".png", "everything"),
    ],
)
def test_round_trip(desk: Desk, tmp_path: Path, entry: str, ending: str, keeps: str) -> None:
    page = desk.page
    desk.menu(5, "Remove")
    desk.type(*LINES)
    page.get_by_label("Title of the story").fill("Boats & <others>")
    desk.point(2).press("End")
    page.get_by_text("Cast and notes").click()
    notes = page.get_by_label("Places and facts")
    notes.fill("It is set in a town -- by the sea.\nRain & wind -->.")
    desk.tool(1, "Lock").click()
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("menuitem", name=entry).click()
    assert waiting.value.suggested_filename == f"boats-others{ending}"
    file = tmp_path / f"story{ending}"
    waiting.value.save_as(file)
    desk.saved()

    desk.new_story()
    page.locator("#import").set_input_files(file)
    expect(desk.line(1)).to_have_text(LINES[0])
    assert desk.texts == [*LINES]
    desk.saved()  # as a new story
    expect(notes).to_have_value("" if keeps == "words" else "It is set in a town -- by the sea.\nRain & wind -->.")
    titled = "Boats & <others>" if keeps != "words" else ""
    expect(page.get_by_label("Title of the story")).to_have_value(titled)
    said = "free" if keeps == "words" else "glad, fixed"
    assert (desk.point(2).get_attribute("aria-valuetext") or "").startswith(said)
    assert desk.lines[0]["locked"] is (keeps == "everything")


OLD = "# Boats\n\n1. Karl \\*left\\*.\n2. _\n3. He sang.\n\nArc: ? + -\n"


def test_markdown_of_other_hands_is_imported(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text(OLD)
    (tmp_path / "prose.md").write_text("# Boats\n\nKarl left. He sang.\n\nIt rained.\n")
    desk.page.locator("#import").set_input_files(tmp_path / "old.md")
    expect(desk.line(1)).to_have_text("Karl *left*.")
    assert desk.texts == ["Karl *left*.", "", "He sang."]
    expect(desk.point(2)).to_have_attribute("aria-valuetext", "glad, fixed")
    desk.saved().page.locator("#import").set_input_files(tmp_path / "prose.md")
    expect(desk.line(1)).to_have_text("Karl left.")
    assert desk.paragraphs == ["Karl left. He sang.", "It rained."]


def test_what_is_no_story_is_refused(desk: Desk, watch: Watch, tmp_path: Path) -> None:
    for name, content in (("a.json", "{"), ("b.json", '{"title": 1}'), ("c.png", "no picture"), ("d.txt", " \n")):
        (tmp_path / name).write_text(content, encoding="utf-8")
        desk.page.locator("#import").set_input_files(tmp_path / name)
        expect(desk.page.get_by_role("alert")).to_contain_text(f"{name} was not imported")
    assert desk.texts == [""] * 5


def test_odd_files_neither_freeze_the_page_nor_make_a_story_that_cannot_be_saved(desk: Desk, tmp_path: Path) -> None:
    """Megabytes of gaps, unknown tags and pronouns, an index out of range: what is sound is imported and saved."""
    comment = f"<!-- fabula\nblank: {'7 ' * 900_000}\narc: + zzz -\nperson: Ann | xyz | a\n-->\n"
    (tmp_path / "odd.md").write_text(f"# Odd\n\nKarl left.\nHe sang.\n\n{comment}")
    desk.page.locator("#import").set_input_files(tmp_path / "odd.md")
    expect(desk.page.locator("[data-about=import], #note:visible")).to_contain_text("import")
    line = '{"text": "Karl left.", "tag": 7, "locked": "x", "start": null, "write": 1, "id": 5, "paragraph": "?"}'
    story = (
        f'"lines": [{line}, {line}], "seed": 1e99, "candidates": -4, "model": 3, "people": [{{"name": 1}}], "tray": [1]'
    )
    (tmp_path / "odd.json").write_text('{"format": "fabula-story", "title": "Odd", "state": {' + story + "}}")
    desk.page.locator("#import").set_input_files(tmp_path / "odd.json")
    expect(desk.line(1)).to_have_text("Karl left.")
    desk.saved()
