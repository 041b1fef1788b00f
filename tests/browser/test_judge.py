"""Judging in a real browser: two people finish a study, one by mouse, one by keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from desk import Watch, grave
from playwright.sync_api import Browser, Page, Route, expect

from doors import Serving
from fabula import cli
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.routes import create_app
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out

pytestmark = pytest.mark.system
SCRIPT = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
PAIRS = 5


def pair(n: int) -> Pair:
    """A pair whose first system writes of red things; a sentence of the first pair holds a script."""
    red, blue = (
        (f"Kim found box {n}.", f"It was {colour}. {SCRIPT if n == 0 else ''}", f"Kim sang {n}.", f"Kim kept box {n}.")
        for colour in ("red", "blue")
    )
    return Pair(id=f"pair-{n}", systems=("SLDS", "LM"), given=(0, 3), stories=(red, blue))


class Judge(NamedTuple):
    """A served study for two people a pair."""

    url: str
    store: Store


@pytest.fixture
def judge(tmp_path: Path, serving: Serving) -> Iterator[Judge]:
    settings = StudySettings(annotators=2, seed=4)
    store, server_store = Store(tmp_path / "study.db"), Store(tmp_path / "study.db")
    store.create_study(lay_out([pair(n) for n in range(PAIRS)], settings), settings)
    with serving(create_app(server_store)) as url:
        yield Judge(url, store)
    store.close()


def story_of(page: Page, colour: str) -> str:
    """The side on which a colour's story stands."""
    sides = {side: page.locator(f"#name-{side} + ol").inner_text() for side in ("left", "right")}
    (side,) = (side for side, text in sides.items() if f"It was {colour}." in text)
    return side


def rate(page: Page, side: str, ratings: list[int]) -> None:
    for place, rating in enumerate(ratings, start=2):
        page.locator(f"#{side}_{place} input[value='{rating}']").check()


def expect_pair(page: Page, number: int) -> None:
    expect(page.locator("#progress")).to_contain_text(f"pair {number} ·")
    expect(page.locator("#task")).to_be_visible()


def save(page: Page) -> None:
    page.get_by_role("button", name="Save and go on").click()


def test_two_judges_finish_five_pairs_and_the_report_counts_them(
    judge: Judge, browser: Browser, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ann, by mouse, prefers red, rating it 3 and blue 1. Bob, by keys alone, rates left 2, right 0: always a tie."""
    page.goto(judge.url)
    page.get_by_label("Your code").fill("ann")
    page.get_by_role("button", name="Begin").click()
    for number in range(1, PAIRS + 1):
        expect_pair(page, number)
        assert page.locator("#stories script, #stories img").count() == 0, "what a system wrote is shown as text"
        red = story_of(page, "red")
        rate(page, red, [3, 3, 3])
        rate(page, story_of(page, "blue"), [1, 1, 1])
        page.get_by_role("radio", name={"left": "Story A", "right": "Story B"}[red]).check()
        save(page)
    expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
    expect(page.locator("#thanks-text")).to_contain_text("5 pairs")
    expect(page).to_have_title("Fabula judge")

    context = browser.new_context()
    other = context.new_page()
    other.goto(f"{judge.url}/")
    expect(other.get_by_label("Your code")).to_be_focused()
    other.keyboard.type("bob")
    other.keyboard.press("Enter")
    for number in range(1, PAIRS + 1):
        expect_pair(other, number)
        for key in ("2", "2", "2", "0", "0", "0"):
            other.keyboard.press(key)
        expect(other.locator("#choice input").first).to_be_focused()
        other.keyboard.press("ArrowRight")
        expect(other.get_by_label("Neither: a tie")).to_be_checked()
        other.keyboard.press("Tab")
        other.keyboard.press("Enter")
    expect(other.get_by_role("heading", name="Thank you")).to_be_focused()
    context.close()

    capsys.readouterr()
    assert cli.main(["judge", "report", "--db", str(judge.store.path), "--format", "json", "--bootstrap", "20"]) == 0
    report = json.loads(capsys.readouterr().out)
    (comparison,) = report["comparisons"]
    lm, slds = comparison["rows"]
    assert (report["finished"], report["judgements"]) == (PAIRS, 2 * PAIRS)
    assert (slds["best"]["value"], lm["best"]["value"], comparison["ties"]["value"]) == (50, 0, 50)
    left = sum(not item.swapped for item in judge.store.items())  # SLDS is each pair's first system
    assert slds["coherence"]["value"] == pytest.approx((3 * PAIRS + 2 * left) / (2 * PAIRS))
    assert lm["coherence"]["value"] == pytest.approx((1 * PAIRS + 2 * (PAIRS - left)) / (2 * PAIRS))
    assert all(one.seconds > 0 for one in judge.store.judgements())

    page.goto(f"{judge.url}/?code=cid")
    expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
    expect(page.locator("#thanks-text")).to_contain_text("Every pair has been judged already")


def test_nothing_is_lost_by_a_reload_a_closed_window_or_a_lost_answer(judge: Judge, page: Page, watch: Watch) -> None:
    page.goto(f"{judge.url}/?code=ann")
    expect_pair(page, 1)
    shown = page.locator("#stories").inner_text()
    rate(page, "left", [3, 0, 1])
    page.reload()
    expect_pair(page, 1)
    assert page.locator("#stories").inner_text() == shown
    for place, rating in ((2, 3), (3, 0), (4, 1)):
        expect(page.locator(f"#left_{place} input[value='{rating}']")).to_be_checked()

    save(page)  # too early: it says what is missing, and goes there
    expect(page.locator("#missing")).to_have_text("3 sentences have no rating yet; say which story is better")
    expect(page.locator("#right_2 input").first).to_be_focused()
    assert judge.store.judgements() == []

    rate(page, "right", [2, 2, 2])
    page.get_by_role("radio", name="Story A").check()

    def swallow(route: Route) -> None:
        route.fetch()
        route.abort()

    watch.allow("Failed to load resource")
    page.route("**/api/judge/answers", swallow)
    save(page)
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    assert len(judge.store.judgements()) == 1  # it had arrived, and the page cannot know
    page.unroute("**/api/judge/answers")
    save(page)
    expect_pair(page, 2)
    expect(page.get_by_role("alert")).to_be_hidden()
    (kept,) = judge.store.judgements()
    assert {kept.ratings[0], kept.ratings[1]} == {(3, 0, 1), (2, 2, 2)}


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1440)])
def test_axe_finds_nothing_grave_and_nothing_sticks_out(
    judge: Judge, browser: Browser, scheme: str, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    for address, shown in (("/", "#enter"), ("/?code=ann", "#task")):
        page.goto(f"{judge.url}{address}")
        expect(page.locator(shown).first).to_be_visible()
        assert not grave(page), address
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
    context.close()


def test_not_me(judge: Judge, page: Page) -> None:
    page.goto(f"{judge.url}/?code=ann")
    expect_pair(page, 1)
    page.get_by_role("button", name="Not me").click()
    page.get_by_label("Your code").fill("BOB")
    page.keyboard.press("Enter")
    expect_pair(page, 1)
    expect(page.locator("#progress")).to_contain_text("bob")
