"""The published report as a page: axe finds nothing serious, light or dark; nothing sticks out of a narrow screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser

PAGE = Path(__file__).parents[2] / "docs" / "reproduction" / "index.html"


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 360),
        ("dark", 1440),
        pytest.param("light", 1440, marks=pytest.mark.long),
        pytest.param("dark", 360, marks=pytest.mark.long),
    ],
)
def test_the_report_can_be_read_by_everyone(browser: Browser, scheme: str, width: int) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(PAGE.as_uri())
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
