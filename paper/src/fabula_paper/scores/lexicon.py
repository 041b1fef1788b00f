"""A second opinion on tags: word lists that no model was trained with, since VADER both labels and judges.

AFINN has a valence from -5 to 5 for 3,382 words, the NRC lexicon says of 6,468 whether they are positive or negative.
Both have terms of their own (NRC: research), so they are read from their packages and never shipped.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from fabula.errors import UserError
from fabula_paper.scores.external import package_file

LEXICONS = {"afinn": ("afinn", "data/AFINN-en-165.txt"), "nrc": ("nrclex", "data/nrc_en.json")}
NEGATIONS = frozenset(
    ["not", "no", "never", "n't", "cannot", "nothing", "nobody", "neither", "nor", "without", "hardly", "barely"]
)
REACH = 3
"""Words before a valued one within which a negation turns it round."""
_WORD = re.compile(r"n['’]t\b|[a-z]+(?:-[a-z]+)*(?=n['’]t\b)|[a-z]+(?:-[a-z]+)*", re.IGNORECASE)


@dataclass(frozen=True)
class LexiconTagger:
    """A sentence is positive or negative by the sign of its words' summed valence, else neutral; VADER's labels."""

    lexicon: str = "afinn"

    def __post_init__(self) -> None:
        if self.lexicon not in LEXICONS:
            raise UserError(f"unknown lexicon {self.lexicon!r}: {' or '.join(LEXICONS)}", field="lexicon")

    @property
    def labels(self) -> tuple[str, ...]:
        return ("negative", "neutral", "positive")

    @property
    def settings(self) -> dict[str, object]:
        return {"tagger": self.lexicon}

    def tag(self, sentences: list[str]) -> list[int | None]:
        valences = read_lexicon(self.lexicon)
        return [1 + (total > 0) - (total < 0) for total in (valence(sentence, valences) for sentence in sentences)]


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


@lru_cache(maxsize=2)
def read_lexicon(name: str) -> dict[str, float]:
    """The valence of each word of a list."""
    text = package_file(*LEXICONS[name]).read_text(encoding="utf-8")
    if name == "afinn":
        rows = (line.rsplit("\t", 1) for line in text.splitlines() if "\t" in line)
        return {word.lower(): float(worth) for word, worth in rows}
    entries: dict[str, list[str]] = json.loads(text)
    signed = {word.lower(): ("positive" in of) - ("negative" in of) for word, of in entries.items()}
    return {word: float(sign) for word, sign in signed.items() if sign}
