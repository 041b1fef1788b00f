"""Stories broken on purpose, for the critic to learn from: what went wrong is known, and from which line on.

Four of the kinds are UNION's (Guan and Huang 2020): a line repeated, substituted, moved, negated. The others are what
story writers get wrong: an ending of another story, people who change their names or sex, facts turned round, words in
disorder.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

Telling = list[str]


class Broken(NamedTuple):
    """A story and the number of its first line that does not belong."""

    sentences: Telling
    first: int


OPPOSITES = (
    "happy sad", "won lost", "win lose", "love hate", "loved hated", "good bad", "great terrible", "best worst",
    "hot cold", "new old", "bought sold", "passed failed", "always never", "easy hard", "early late", "open closed",
    "alive dead", "rich poor", "big small", "found lost", "remembered forgot", "excited bored", "proud ashamed",
    "liked disliked", "accepted refused", "before after", "morning night", "first last", "more less", "came left",
    "inside outside", "fast slow", "clean dirty", "safe dangerous", "friend enemy", "husband wife", "son daughter",
    "brother sister", "mother father", "mom dad", "boy girl", "man woman", "everyone nobody", "everything nothing",
    "started stopped", "better worse", "full empty", "dry wet", "awake asleep", "laughed cried", "smiled frowned",
    "gave took", "pushed pulled", "increased decreased", "agreed refused", "broke fixed", "delicious disgusting",
)  # fmt: skip
TURNED = {a: b for pair in OPPOSITES for a, b in (pair.split(), pair.split()[::-1])}
HE_SHE = {
    "he": "she", "she": "he", "him": "her", "his": "her", "her": "his", "himself": "herself", "herself": "himself",
    "hers": "his",
}  # fmt: skip
VERBS = "was|is|were|are|had|could|would|did|can|will|does|has"
NEGATED = re.compile(rf"\b({VERBS})(n't| not)?\b")
PAST = re.compile(r"\b(?:decided|wanted|went|got|made|took|found|bought|started|tried|asked|told|loved|felt)\b")
INFINITIVE = {
    "decided": "decide", "wanted": "want", "went": "go", "got": "get", "made": "make", "took": "take", "found": "find",
    "bought": "buy", "started": "start", "tried": "try", "asked": "ask", "told": "tell", "loved": "love",
    "felt": "feel",
}  # fmt: skip
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b")
NAMES = [
    "Tom",
    "Anna",
    "Sam",
    "Kate",
    "Bill",
    "Mary",
    "Jake",
    "Lucy",
    "Tim",
    "Sarah",
    "Bob",
    "Amy",
    "Dan",
    "Lisa",
    "Fred",
    "Jane",
    "Ben",
    "Emma",
    "Joe",
    "Kelly",
    "Mike",
    "Ella",
    "Max",
    "Gina",
]


def swapped(line: str, table: dict[str, str]) -> str:
    """Every word of the table replaced by its partner, capitals kept."""

    def other(match: re.Match[str]) -> str:
        word = match.group()
        new = table.get(word.lower(), word)
        return new.capitalize() if word[0].isupper() else new

    return re.sub(r"[A-Za-z]+", other, line)


def negate(line: str) -> str:
    """A negation put in, or taken out."""

    def turn(match: re.Match[str]) -> str:
        return match.group(1) if match.group(2) else f"{match.group(1)} not"

    new, found = NEGATED.subn(turn, line, count=1)
    if not found:
        new = PAST.sub(lambda match: f"did not {INFINITIVE[match.group()]}", line, count=1)
    return new


class Corrupter:
    """Breaks stories in one of many ways, with lines of the other `stories`."""

    def __init__(self, stories: Sequence[Telling], rng: random.Random) -> None:
        self.stories, self.rng = stories, rng
        self.ways: tuple[tuple[float, Callable[[Telling], Broken | None]], ...] = (
            (0.10, self.repeat), (0.24, self.substitute), (0.14, self.reorder), (0.12, self.negated),
            (0.12, self.other_ending), (0.08, self.pronouns), (0.08, self.names), (0.08, self.turned),
            (0.04, self.disordered),
        )  # fmt: skip

    def __call__(self, story: Telling) -> Broken:
        """The story broken in a way that fits it; a line of it said again fits always."""
        for _ in range(5):
            way = self.rng.choices([w for _, w in self.ways], [share for share, _ in self.ways])[0]
            found = way(list(story)) or self.substitute(list(story))
            # What was put in may be what stood there.
            first = next((i for i, (a, b) in enumerate(zip(story, found.sentences, strict=True)) if a != b), None)
            if first is not None:
                return Broken(found.sentences, first)
        return self.repeat(list(story))

    def repeat(self, story: Telling) -> Broken:
        """A line twice, or nearly so."""
        j = self.rng.randrange(1, len(story))
        source = self.rng.randrange(0, j)
        story[j] = story[source]
        if self.rng.random() < 0.3:
            story[j] = " ".join(story[j].split()[:-2] or [story[j]]) + "."
        return Broken(story, j)

    def similar(self, line: str, place: int) -> str:
        """Of twenty other stories' lines the one with the most words in common: harder to tell."""
        words = set(re.findall(r"[a-z]{4,}", line.lower()))
        others = [self.rng.choice(self.stories) for _ in range(20)]
        lines = [other[min(place, len(other) - 1)] for other in others]
        return max(lines, key=lambda other: len(words & set(re.findall(r"[a-z]{4,}", other.lower()))))

    def substitute(self, story: Telling) -> Broken:
        """One or two lines of other stories."""
        places = self.rng.sample(range(1, len(story)), self.rng.choice((1, 1, 2)) if len(story) > 2 else 1)
        for j in places:
            other = self.rng.choice(self.stories)
            new = self.similar(story[j], j) if self.rng.random() < 0.5 else other[min(j, len(other) - 1)]
            story[j] = self.renamed(new, story) if self.rng.random() < 0.5 else new
        return Broken(story, min(places))

    def renamed(self, line: str, story: Telling) -> str:
        """A stranger's line with the story's first name in it, so that the name alone does not betray it."""
        own = [w for w in re.findall(r"\b[A-Z][a-z]{2,}\b", story[0]) if w.lower() not in HE_SHE]
        return NAME.sub(own[0], re.sub(rf"^(?:{'|'.join(NAMES)})\b", own[0], line)) if own else line

    def reorder(self, story: Telling) -> Broken:
        """Lines after the first in another order."""
        if len(story) < 3:
            return self.substitute(story)
        order = list(range(1, len(story)))
        if self.rng.random() < 0.5:
            i, j = self.rng.sample(range(len(order)), 2)
            order[i], order[j] = order[j], order[i]
        while order == sorted(order):
            self.rng.shuffle(order)
        first = next(place for place, number in enumerate(order, 1) if place != number)
        return Broken([story[0], *(story[j] for j in order)], first)

    def negated(self, story: Telling) -> Broken | None:
        return self._change(story, negate)

    def turned(self, story: Telling) -> Broken | None:
        """A fact turned round by the opposite of one of its words."""
        return self._change(story, lambda line: swapped(line, TURNED))

    def pronouns(self, story: Telling) -> Broken | None:
        return self._change(story, lambda line: swapped(line, HE_SHE))

    def names(self, story: Telling) -> Broken | None:
        """Somebody has another name in one line."""
        own = {w for line in story for w in NAME.findall(line)} | {story[0].split()[0]}
        new = self.rng.choice([name for name in NAMES if name not in own])
        old = re.compile(rf"\b({'|'.join(map(re.escape, sorted(own)))})\b")
        return self._change(story, lambda line: old.sub(new, line))

    def other_ending(self, story: Telling) -> Broken:
        """The end of another story from some line on."""
        other = self.rng.choice(self.stories)
        k = self.rng.randrange(max(1, len(story) - 2), len(story))
        return Broken(story[:k] + [other[min(j, len(other) - 1)] for j in range(k, len(story))], k)

    def disordered(self, story: Telling) -> Broken | None:
        """The words of a line in disorder, or a phrase said twice."""

        def change(line: str) -> str:
            words = line.split()
            i = self.rng.randrange(0, max(1, len(words) - 3))
            piece = words[i : i + 4]
            if self.rng.random() < 0.5:
                self.rng.shuffle(piece)
                return " ".join(words[:i] + piece + words[i + 4 :])
            return " ".join(words[: i + 4] + piece + words[i + 4 :])

        return self._change(story, change)

    def _change(self, story: Telling, change: Callable[[str], str]) -> Broken | None:
        """One line changed, any but the first; None where the change leaves all as they are."""
        for j in self.rng.sample(range(1, len(story)), len(story) - 1):
            new = change(story[j])
            if new != story[j]:
                return Broken([*story[:j], new, *story[j + 1 :]], j)
        return None
