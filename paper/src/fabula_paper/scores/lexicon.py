"""A second opinion on tags: a word list that no model was trained with, since VADER both labels and judges.

AFINN has a valence from -5 to 5 for 3,382 words. It is read from its package and never shipped.
"""

from __future__ import annotations

import re
from functools import cache
from typing import ClassVar

from fabula_paper.scores.overlap import package_file

NEGATIONS = frozenset(
    ["not", "no", "never", "n't", "cannot", "nothing", "nobody", "neither", "nor", "without", "hardly", "barely"]
)
REACH = 3
"""Words before a valued one within which a negation turns it round."""
_WORD = re.compile(r"n['’]t\b|[a-z]+(?:-[a-z]+)*(?=n['’]t\b)|[a-z]+(?:-[a-z]+)*", re.IGNORECASE)


class LexiconTagger:
    """A sentence is positive or negative by the sign of its words' summed valence, else neutral; VADER's labels."""

    labels = ("negative", "neutral", "positive")
    settings: ClassVar[dict[str, object]] = {"tagger": "afinn"}

    def tag(self, sentences: list[str]) -> list[int | None]:
        totals = [valence(sentence, read_lexicon()) for sentence in sentences]
        return [1 + (total > 0) - (total < 0) for total in totals]


def valence(sentence: str, valences: dict[str, float]) -> float:
    """The sum over words; one that a negation stands before, within reach, counts the other way."""
    words = [word.lower().replace("’", "'") for word in _WORD.findall(sentence)]
    total = 0.0
    for place, word in enumerate(words):
        worth = valences.get(word, 0.0)
        if worth and word not in NEGATIONS:
            negated = any(before in NEGATIONS for before in words[max(0, place - REACH) : place])
            total += -worth if negated else worth
    return total


@cache
def read_lexicon() -> dict[str, float]:
    """The valence of each word of the list."""
    text = package_file("afinn", "data/AFINN-en-165.txt").read_text(encoding="utf-8")
    rows = (line.rsplit("\t", 1) for line in text.splitlines() if "\t" in line)
    return {word.lower(): float(worth) for word, worth in rows}
