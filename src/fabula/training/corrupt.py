"""Stories corrupted on purpose, for the critic to learn from: what went wrong is known, and from which line on.

Four of the kinds are UNION's (Guan and Huang 2020): a line repeated, substituted, moved, negated. The others are common
mistakes of story writers. The word lists are in `data/corruptions.toml`.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from typing import NamedTuple

Story = list[str]
LISTS = tomllib.loads((resources.files("fabula") / "data" / "corruptions.toml").read_text(encoding="utf-8"))
OPPOSITES = {a: b for pair in LISTS["opposites"] for a, b in (pair.split(), pair.split()[::-1])}
HE_SHE = dict(pair.split() for pair in LISTS["pronouns"])
INFINITIVE = dict(pair.split() for pair in LISTS["past"])
NAMES: list[str] = LISTS["names"]
NEGATABLE = re.compile(rf"\b({'|'.join(LISTS['negatable'])})(n't| not)?\b")
PAST = re.compile(rf"\b(?:{'|'.join(INFINITIVE)})\b")
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b")


class Corrupted(NamedTuple):
    """A story and the number of its first line that was changed."""

    sentences: Story
    first: int


def swapped(line: str, table: dict[str, str]) -> str:
    """Every word of the table replaced by its partner, capitals kept."""

    def partner(match: re.Match[str]) -> str:
        word = match.group()
        other = table.get(word.lower(), word)
        return other.capitalize() if word[0].isupper() else other

    return re.sub(r"[A-Za-z]+", partner, line)


def negate(line: str) -> str:
    """A negation put in, or taken out."""
    negated, count = NEGATABLE.subn(lambda m: m.group(1) + ("" if m.group(2) else " not"), line, count=1)
    return negated if count else PAST.sub(lambda m: f"did not {INFINITIVE[m.group()]}", line, count=1)


class Corrupter:
    """Corrupts stories in one of many ways, with lines of the other `stories`."""

    def __init__(self, stories: Sequence[Story], rng: random.Random) -> None:
        self.stories, self.rng = stories, rng
        self.ways: dict[Callable[[Story], Story | None], float] = {
            self.repeat: 0.10, self.substitute: 0.24, self.reorder: 0.14, self.by_line(negate): 0.12,
            self.other_ending: 0.12, self.by_line(partial(swapped, table=HE_SHE)): 0.08, self.names: 0.08,
            self.by_line(partial(swapped, table=OPPOSITES)): 0.08, self.disordered: 0.04,
        }  # fmt: skip

    def __call__(self, story: Story) -> Corrupted:
        """The story corrupted in a way that changes it; a repeated line does so always."""
        for _ in range(5):
            way = self.rng.choices(list(self.ways), list(self.ways.values()))[0]
            sentences = way(list(story)) or self.substitute(list(story))
            if sentences != story:
                break
        else:
            sentences = self.repeat(list(story))
        pairs = enumerate(zip(story, sentences, strict=True))
        return Corrupted(sentences, next((i for i, (before, after) in pairs if before != after), 1))

    def repeat(self, story: Story) -> Story:
        """A line twice, or nearly so."""
        j = self.rng.randrange(1, len(story))
        story[j] = story[self.rng.randrange(0, j)]
        if self.rng.random() < 0.3:
            story[j] = " ".join(story[j].split()[:-2] or [story[j]]) + "."
        return story

    def similar(self, line: str, place: int) -> str:
        """Of twenty other stories' lines the one with the most words in common: harder to notice."""
        words = set(re.findall(r"[a-z]{4,}", line.lower()))
        others = [self.rng.choice(self.stories) for _ in range(20)]
        lines = [other[min(place, len(other) - 1)] for other in others]
        return max(lines, key=lambda other: len(words & set(re.findall(r"[a-z]{4,}", other.lower()))))

    def substitute(self, story: Story) -> Story:
        """One or two lines of other stories."""
        for j in self.rng.sample(range(1, len(story)), self.rng.choice((1, 1, 2)) if len(story) > 2 else 1):
            other = self.rng.choice(self.stories)
            line = self.similar(story[j], j) if self.rng.random() < 0.5 else other[min(j, len(other) - 1)]
            story[j] = self.renamed(line, story) if self.rng.random() < 0.5 else line
        return story

    def renamed(self, line: str, story: Story) -> str:
        """Another story's line with this story's first name in it, so that the name alone does not betray it."""
        names = [w for w in re.findall(r"\b[A-Z][a-z]{2,}\b", story[0]) if w.lower() not in HE_SHE]
        return NAME.sub(names[0], re.sub(rf"^(?:{'|'.join(NAMES)})\b", names[0], line)) if names else line

    def reorder(self, story: Story) -> Story:
        """Lines after the first in another order."""
        if len(story) < 3:
            return self.substitute(story)
        order = list(range(1, len(story)))
        if self.rng.random() < 0.5:
            i, j = self.rng.sample(range(len(order)), 2)
            order[i], order[j] = order[j], order[i]
        while order == sorted(order):
            self.rng.shuffle(order)
        return [story[0], *(story[j] for j in order)]

    def by_line(self, change: Callable[[str], str]) -> Callable[[Story], Story | None]:
        return lambda story: self.changed(story, change)

    def names(self, story: Story) -> Story | None:
        """Somebody has another name in one line."""
        present = {w for line in story for w in NAME.findall(line)} | {story[0].split()[0]}
        other = self.rng.choice([name for name in NAMES if name not in present])
        pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(present)))})\b")
        return self.changed(story, lambda line: pattern.sub(other, line))

    def other_ending(self, story: Story) -> Story:
        """The end of another story from some line on."""
        other = self.rng.choice(self.stories)
        k = self.rng.randrange(max(1, len(story) - 2), len(story))
        return story[:k] + [other[min(j, len(other) - 1)] for j in range(k, len(story))]

    def disordered(self, story: Story) -> Story | None:
        """The words of a line in disorder, or a phrase twice."""

        def change(line: str) -> str:
            words = line.split()
            i = self.rng.randrange(0, max(1, len(words) - 3))
            piece = words[i : i + 4]
            if self.rng.random() < 0.5:
                self.rng.shuffle(piece)
                return " ".join(words[:i] + piece + words[i + 4 :])
            return " ".join(words[: i + 4] + piece + words[i + 4 :])

        return self.changed(story, change)

    def changed(self, story: Story, change: Callable[[str], str]) -> Story | None:
        """One line changed, any but the first; None where the change leaves all as they are."""
        for j in self.rng.sample(range(1, len(story)), len(story) - 1):
            line = change(story[j])
            if line != story[j]:
                return [*story[:j], line, *story[j + 1 :]]
        return None
