"""Stories as people read them: the corpus's sentences where they are at hand, and what a unit wrote between them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from fabula.corpus.tokenize import detokenise
from fabula.errors import UserError
from fabula_paper.bench import Bench
from fabula_paper.plan import SENTENCES, SETTINGS

UNKNOWN_WORD = "UNK"
"""How a rare word reads where only the prepared corpus is at hand; the paper prints it so."""


class StoryDataset:
    """The test stories in English, and the answers of units put into them."""

    def __init__(self, bench: Bench, raw: Path | None = None) -> None:
        self.bench, self.raw = bench, raw

    @cached_property
    def row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.bench.test.ids)}

    @cached_property
    def typed(self) -> dict[str, list[str]]:
        """The sentences as they were typed, from the raw file."""
        if self.raw is None:
            return {}
        from fabula.corpus.read import Story, read_stories

        found = {story.id: list(story.sentences) for story in read_stories(self.raw) if isinstance(story, Story)}
        if not set(found) & set(self.bench.test.ids):
            raise UserError(f"--raw {self.raw} has none of the corpus's test stories", field="raw")
        return found

    def true(self, name: str) -> list[str]:
        """A test story's own sentences."""
        typed = self.typed.get(name)
        if typed is not None:
            return typed
        decode = self.bench.corpus.vocabulary.decode
        return [
            detokenise([UNKNOWN_WORD if word == "<unk>" else word for word in decode(words)])
            for words in self.bench.words(self.row_of[name])
        ]

    def filled(self, name: str, lines: list[str], setting: str) -> list[str]:
        """The story with these lines, as a unit's texts hold them, in the places of a setting."""
        story = self.true(name)
        for place, line in zip(SETTINGS[setting], lines, strict=True):
            story[place] = english(line)
        return story


def english(line: str) -> str:
    """Words with blanks between them to a written sentence."""
    return detokenise(line.split(" "))


def given_in(setting: str) -> list[bool]:
    """Which of five sentences a setting gives."""
    return [place not in SETTINGS[setting] for place in range(SENTENCES)]
