"""Stories in English: test stories, what a unit wrote into them, text written elsewhere, and pairs for people."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from importlib import resources
from pathlib import Path

from fabula.corpus.tokenize import detokenise
from fabula.errors import UserError
from fabula.models.io import write_file
from fabula_paper.bench import Bench
from fabula_paper.plan import BY_NAME, HUMAN, MIDDLE, SENTENCES, SETTINGS

UNKNOWN_WORD = "UNK"
"""How the paper prints a rare word; used where only the prepared corpus is at hand."""
COMPARISONS = (
    ("slds.gibbs-peek", "lm.rerank"),
    ("slds.gibbs-peek", "s2s.rerank"),
    ("default.fill", "lm-1024.rerank"),
    ("narrator.fill", "slds.gibbs-peek"),
    ("narrator.fill", HUMAN),
)
"""Blind pairs for `fabula judge`: the paper's two comparisons, then ours."""


class EnglishStories:
    """The test stories in English, and the answers of units put into them."""

    def __init__(self, bench: Bench, raw: Path | None = None) -> None:
        self.bench, self.raw = bench, raw
        self.row_of = {name: row for row, name in enumerate(bench.test.ids)}

    @cached_property
    def typed(self) -> dict[str, list[str]]:
        """The sentences as they were typed, from the raw file."""
        if self.raw is None:
            return {}
        from fabula.corpus.read import Story, read_stories

        stories = {story.id: list(story.sentences) for story in read_stories(self.raw) if isinstance(story, Story)}
        if not set(stories) & set(self.bench.test.ids):
            raise UserError(f"--raw {self.raw} has none of the corpus's test stories", field="raw")
        return stories

    def true(self, story_id: str) -> list[str]:
        """The sentences of a test story."""
        if story_id in self.typed:
            return list(self.typed[story_id])
        decode = self.bench.corpus.vocabulary.decode
        return [
            detokenise([UNKNOWN_WORD if word == "<unk>" else word for word in decode(words)])
            for words in self.bench.words(self.row_of[story_id])
        ]

    def filled(self, story_id: str, lines: list[str], setting: str) -> list[str]:
        """The story with written lines in the places of a setting."""
        story = self.true(story_id)
        for place, line in zip(SETTINGS[setting], lines, strict=True):
            story[place] = english(line)
        return story

    def middles(self, name: str, n: int | None = None) -> list[list[str]]:
        """Whole stories of the middle-three setting by `system.sampler`, or people's own."""
        ids = [self.bench.test.ids[row] for row in self.bench.rows[:n]]
        if name == HUMAN:
            return [self.true(story_id) for story_id in ids]
        lines = {text["id"]: text["lines"] for text in self.bench.records.texts(middle_unit(name))}
        return [self.filled(story_id, lines[story_id], MIDDLE) for story_id in ids if story_id in lines]


def middle_unit(name: str) -> str:
    """The unit that wrote the middle three sentences by `system.sampler`."""
    system, _, sampler = name.partition(".")
    return f"sample/{system}.{MIDDLE}.{sampler}"


def english(line: str) -> str:
    """Words separated by blanks as a written sentence."""
    return detokenise(line.split(" "))


def given_in(setting: str) -> list[bool]:
    """Which of the five sentences a setting gives."""
    return [place not in SETTINGS[setting] for place in range(SENTENCES)]


def take_lines(bench: Bench, name: str, file: Path) -> str:
    """Record middles that were written elsewhere, a line of JSON for each story; returns the unit's name."""
    system = BY_NAME.get(name)
    if system is None or not system.outside:
        outside = ", ".join(s.name for s in BY_NAME.values() if s.outside)
        raise UserError(f"--lines {name}: no system that is written elsewhere; such systems: {outside}", field="lines")
    try:
        content = file.read_bytes()
        texts = [json.loads(line) for line in content.decode("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise UserError(f"--lines {file} cannot be read: {error}", field="lines") from error
    ids, count = set(bench.test.ids), len(SETTINGS[MIDDLE])
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, dict) or text.get("id") not in ids or len(text.get("lines") or ()) != count:
            raise UserError(f"--lines {file}, line {number}: not a test story's id with {count} lines", field="lines")
    record = {
        "stage": "sample", "system": name, "detail": f"{MIDDLE}.fill", "scale": bench.job.scale.name,
        "seed": bench.job.seed, "n": len(texts), "kind": "estimate", "data_hash": bench.corpus.hash,
        "device": "elsewhere", "setting": MIDDLE, "missing": [i + 1 for i in SETTINGS[MIDDLE]], "sampler": "fill",
        "peeks": False, "file_sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip
    unit = middle_unit(f"{name}.fill")
    bench.records.write(unit, record, [{"id": text["id"], "lines": list(text["lines"])} for text in texts])
    return unit


def export_pairs(stories: EnglishStories, folder: Path) -> None:
    """Write pairs/PAIRS-*.jsonl, which hold sentences of the corpus, and the form for the error analysis."""
    records, pairs = stories.bench.records, stories.bench.job.scale.pairs
    for sides in COMPARISONS:
        written = [side for side in sides if side != HUMAN]
        if not all(records.done(middle_unit(side)) for side in written):
            continue
        texts = {side: {t["id"]: t["lines"] for t in records.texts(middle_unit(side))} for side in written}
        ids = [story_id for story_id in texts[written[0]] if all(story_id in lines for lines in texts.values())]
        names = [side.split(".")[0] for side in sides]
        lines = [
            {
                "id": f"{story_id}-{names[0]}-{names[1]}",
                "systems": ["people" if name == HUMAN else BY_NAME[name].title for name in names],
                "given": [place for place, given in enumerate(given_in(MIDDLE)) if given],
                "stories": [
                    stories.true(story_id) if side == HUMAN else stories.filled(story_id, texts[side][story_id], MIDDLE)
                    for side in sides
                ],
            }
            for story_id in ids[:pairs]
        ]
        path = folder / "pairs" / f"PAIRS-{names[0]}-{names[1]}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    sheet = (resources.files("fabula_paper") / "templates" / "error-sheet.md").read_bytes()
    write_file(folder / "error-sheet.md", sheet)
