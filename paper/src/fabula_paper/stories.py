"""Stories in English: test stories, and what a unit wrote into them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from fabula.corpus.tokenize import detokenise
from fabula.errors import UserError
from fabula_paper.bench import Bench
from fabula_paper.plan import HUMAN, MIDDLE, SETTINGS

UNKNOWN_WORD = "UNK"
"""How the paper prints a rare word; used where only the prepared corpus is at hand."""


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
