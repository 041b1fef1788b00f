"""Stories in English: test stories, what a unit wrote into them, and pairs for people."""

from __future__ import annotations

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
)
"""Blind pairs for `fabula judge`: the paper's two comparisons, then one of ours."""


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

    def middles(self, name: str) -> list[list[str]]:
        """Whole stories of the middle-three setting by `system.sampler`, or people's own."""
        ids = [self.bench.test.ids[row] for row in self.bench.rows]
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


def export_pairs(stories: EnglishStories, folder: Path) -> None:
    """Write pairs/PAIRS-*.jsonl, which hold sentences of the corpus, and the form for the error analysis."""
    records, pairs = stories.bench.records, stories.bench.job.scale.pairs
    for sides in COMPARISONS:
        if not all(records.done(middle_unit(side)) for side in sides):
            continue
        texts = [{text["id"]: text["lines"] for text in records.texts(middle_unit(side))} for side in sides]
        names = [side.split(".")[0] for side in sides]
        lines = [
            {
                "id": f"{story_id}-{names[0]}-{names[1]}",
                "systems": [BY_NAME[name].title for name in names],
                "given": [place for place, given in enumerate(given_in(MIDDLE)) if given],
                "stories": [stories.filled(story_id, written[story_id], MIDDLE) for written in texts],
            }
            for story_id in [story_id for story_id in texts[0] if story_id in texts[1]][:pairs]
        ]
        path = folder / "pairs" / f"PAIRS-{names[0]}-{names[1]}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    sheet = (resources.files("fabula_paper") / "templates" / "error-sheet.md").read_bytes()
    write_file(folder / "error-sheet.md", sheet)
