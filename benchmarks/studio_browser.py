"""Seconds in a real browser from "Fill in" to the first word, the first candidate and all three; a key in a long story.

fabula studio --db new.db --no-open &
python benchmarks/studio_browser.py            # http://127.0.0.1:8000, chromium
"""

import shutil
import statistics
import sys
import time

from playwright.sync_api import Page, sync_playwright

TEXT = """async (texts) => {
  const { change, store } = await import("/page/store.js");
  const { blank } = await import("/page/state.js");
  change(() => ({ ...store.doc, lines: texts.map((text, i) => blank({ text, paragraph: i % 8 === 0 })) }));
  (await import("/page/editor.js")).focus(store.doc.lines[texts.length >> 1].id);
}"""
STORY = ["Our cat climbed up a tall tree.", "", "", "", "He purred all evening."]
REPEATS, REST_MS, KEYS = 5, 3000, " and then some more words"


def fill(page: Page) -> list[float]:
    begun, seconds = time.perf_counter(), []
    page.get_by_role("button", name="Fill in").click()
    for state in (".pending .words:has-text(' ')", ".card[data-number]", "#suggest[data-state=done]"):
        page.wait_for_selector(state, state="attached")
        seconds.append(time.perf_counter() - begun)
    page.wait_for_timeout(REST_MS)
    return seconds


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{url}/#new")
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        page.evaluate(TEXT, STORY)
        page.wait_for_timeout(REST_MS)
        names = ("first word", "first candidate", "all")
        for name, times in zip(names, zip(*(fill(page) for _ in range(REPEATS)), strict=True), strict=True):
            print(f"{name}: {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})")
        page.evaluate(TEXT, [f"Karl saw a green boat number {n} on the lake." for n in range(300)])
        page.wait_for_timeout(REST_MS)
        begun = time.perf_counter()
        page.keyboard.type(KEYS)
        print(f"a key in 300 sentences: {1000 * (time.perf_counter() - begun) / len(KEYS):.0f} ms")
        browser.close()


if __name__ == "__main__":
    main()
