"""The demo's story as README shows it: python docs/picture.py (make picture) fills it in and writes all that shows it.

    docs/story.json       what the default model writes for the demo's prompt: seed by seed, and the demo's own answer
    docs/story.svg        the picture, drawn from it
    README.md, docs/writing.md      their first `fabula fill`, which is the demo's

Run it when the default model, the demo's prompt or the ranking changes; a test notices the first two. Words may differ
on another processor by the last bit of a float, so the test compares what is shown, not what is drawn anew.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

from fabula.catalogue import PACKAGED

STORY = ("Ben planted a small tree behind the house.", None, None, None, "The whole family ate apples that autumn.")
SEED = 0
HERE = Path(__file__).parent
ANSWER, PICTURE, PAGES = HERE / "story.json", HERE / "story.svg", (HERE.parent / "README.md", HERE / "writing.md")
SEEDS = range(20)
OFF_COLOUR = re.compile(
    r"\b(sle(ep|pt|eping) (together|with)|(in|to) bed (with|together)|sex\w*|naked|nude|undress\w*|lust\w*"
    r"|rap(e|ed|ist)|kill\w*|murder\w*|suicid\w*|hang(ed)? (him|her)self|stab\w*|strangl\w*|guns?"
    r"|shot (him|her|them)|blood\w*|drown(ed)?|dead body|corpse|drunk|drugs?|cocaine|heroin"
    r"|abus\w*|slave\w*|nazi\w*|hell|damn\w*)\b",
    re.IGNORECASE,
)
"""Readings that neither a demo nor a first run may have."""
COMMAND = re.compile(r"^fabula fill .*$", re.MULTILINE)
COLOURS = {"negative": "#b5483a", "neutral": "#7f8c8d", "positive": "#3f8f5b"}
PLACES = {"negative": 38, "neutral": 62, "positive": 86}


def typed() -> str:
    """The story as it is typed behind `fabula fill`."""
    return " ".join(f'"{line}"' if line else "_" for line in STORY)


def model_hash() -> str:
    """A digest of the default model's weights, its critic's included."""
    digest = hashlib.sha256()
    for name in ("adapter.safetensors", "critic/adapter.safetensors"):
        digest.update((PACKAGED / "default" / name).read_bytes())
    return digest.hexdigest()


def picture(answer: dict[str, Any]) -> str:
    """The best candidate: its arc to the left, given lines in grey, written ones in bold."""
    sentences = answer["candidates"][0]["sentences"]
    height = 46 + 30 * len(sentences)
    rows = [34 + 30 * i for i in range(len(sentences))]
    points = " ".join(f"{PLACES[s['tag']]},{y}" for s, y in zip(sentences, rows, strict=True))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" width="640" height="{height}" role="img" '
        'aria-labelledby="t" font-family="Georgia, serif" font-size="16">',
        '<title id="t">A story of five sentences: the first and the last were given, the three between were '
        "written</title>",
        f'<rect width="640" height="{height}" rx="8" fill="#fdfcf8"/>',
        f'<polyline fill="none" stroke="#c8c2b4" stroke-width="2" points="{points}"/>',
    ]
    for sentence, y in zip(sentences, rows, strict=True):
        ink = 'fill="#1d1d1b" font-weight="bold"' if sentence["written"] else 'fill="#6a6a66"'
        lines.append(f'<circle cx="{PLACES[sentence["tag"]]}" cy="{y}" r="6" fill="{COLOURS[sentence["tag"]]}"/>')
        lines.append(f'<text x="112" y="{y + 5}" {ink}>{html.escape(sentence["text"])}</text>')
    small = f'y="{height - 10}" font-size="12" fill="#6a6a66"'
    told = "grey: given. bold: written by the default model (make demo)."
    return "\n".join(
        [*lines, f'<text x="24" {small}>sad · glad</text><text x="112" {small}>{told}</text>', "</svg>", ""]
    )


def main() -> None:
    import fabula

    model, fillings = fabula.load("default"), {}
    for seed in SEEDS:
        fillings[seed] = model.fill(STORY, candidates=1, seed=seed)
        print(seed, fillings[seed].candidates[0].text, flush=True)
    stories = [filling.candidates[0].text for filling in fillings.values()]
    if wrong := [story for story in stories if OFF_COLOUR.search(story)]:
        sys.exit(f"off-colour, so choose another prompt: {wrong[0]}")
    record = {"model": model_hash(), "stories": stories, "answer": fillings[SEED].to_dict(decimals=4)}
    ANSWER.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    PICTURE.write_text(picture(record["answer"]), encoding="utf-8")
    for page in PAGES:
        page.write_text(
            COMMAND.sub(f"fabula fill {typed()}", page.read_text(encoding="utf-8"), count=1), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
