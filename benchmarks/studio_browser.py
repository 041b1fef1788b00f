"""How long a writer waits in the real page: from the click on Fill in to the first candidate, and to all three.

python benchmarks/studio_browser.py --model default

Five lines, the first and the last given. Beside the clock stands the processor's time that the server took meanwhile:
on quiet cores the clock shows little more than that, on busy ones it is the figure to compare. Needs Chromium and
playwright.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

STORIES = [
    ("Tom was afraid of dogs.", "Now the two of them sleep in the same bed."),
    ("Our roof began to leak during the storm.", "We slept well that night."),
    ("Sam lost his wallet at the beach.", "He thanked the stranger."),
    ("Anna wanted to bake a cake for her mother.", "Her mother cried with joy."),
    ("The twins found an old map in the attic.", "They were home before dinner."),
]
WATCH = """() => {
  window.seen = {};
  const look = () => {
    const cards = document.querySelectorAll("#cards > li").length;
    if (cards && !seen.first) seen.first = performance.now();
    if (document.querySelector("#suggest[data-state=done]") && cards && !seen.all) seen.all = performance.now();
  };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true });
}"""


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait(page: Page, url: str, pid: int, story: tuple[str, str], seed: int) -> tuple[float, float, float, float]:
    """Seconds to the first candidate and to the last, by the clock and of the server's processor time."""
    page.goto("about:blank")  # or it would only be another address of the same page
    page.goto(f"{url}/#new")
    page.locator("html[data-ready=yes]").wait_for(state="attached")
    for number, text in ((1, story[0]), (5, story[1])):
        page.get_by_role("textbox", name=re.compile(f"^Sentence {number} of")).fill(text)
    page.get_by_text("Settings").click()
    page.get_by_role("spinbutton", name="Seed").fill(str(seed))
    page.wait_for_load_state("networkidle")
    page.evaluate(WATCH)
    begun, cpu = page.evaluate("() => performance.now()"), processor_seconds(pid)
    page.get_by_role("button", name="Fill in").click()
    page.wait_for_function("() => seen.first", timeout=600_000)
    first_cpu = processor_seconds(pid) - cpu
    page.wait_for_function("() => seen.all", timeout=600_000)
    all_cpu = processor_seconds(pid) - cpu
    seen = page.evaluate("() => seen")
    return (seen["first"] - begun) / 1000, (seen["all"] - begun) / 1000, first_cpu, all_cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="default")
    parser.add_argument("--fills", type=int, default=5)
    args = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        words = ["studio", "--port", "0", "--no-open", "--model", args.model, "--db", f"{folder}/s.db"]
        server = subprocess.Popen([sys.executable, "-m", "fabula", *words], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = re.findall(r"http://\S+\d", server.stdout.readline())[0]
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page()
            wait(page, url, server.pid, STORIES[0], 0)  # what a process's first fill costs more is paid here
            times = [wait(page, url, server.pid, STORIES[n % len(STORIES)], n) for n in range(args.fills)]
            browser.close()
        finally:
            server.terminate()
            server.wait()
    for name, column in (("clock", 0), ("the server's processor", 2)):
        first, every = ([row[column + i] for row in times] for i in (0, 1))
        print(
            f"{args.model}, {name}: first candidate {statistics.median(first):.2f} s ({min(first):.2f} to "
            f"{max(first):.2f}), all three {statistics.median(every):.2f} s ({min(every):.2f} to {max(every):.2f})"
        )


if __name__ == "__main__":
    main()
