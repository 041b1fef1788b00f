"""Taggers for people's stories: a name says nothing of a sentence, whatever its word means elsewhere.

"Mia went home." is negative to VADER, which knows MIA as an abbreviation. Here a neutral name stands in for every name
before a tagger, or the recognition network, reads the sentence. Prepared corpora and the paper's recipes keep their
taggers as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fabula.corpus.people import looks_like_a_name
from fabula.corpus.taggers.protocol import Tagger, Taggers, parts_of

NEUTRAL = "Alex"
"""A name that no tagger has a word for."""
ALSO_WORDS = frozenset(
    ("Bliss", "Chance", "Charity", "Dick", "Faith", "Glory", "Grace", "Harmony", "Honor", "Honour", "Hope", "Joy",
     "Justice", "Liberty", "Mercy", "Mia", "Rob")
)  # fmt: skip
"""Names that are words too, and seldom begin a sentence as words."""
WORD = re.compile(r"[^\W\d_]+")
BEGINNING = re.compile(r"(?:^|(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)\.|[!?:(\"“‘'])\s*$")


def neutral(sentence: str, names: Collection[str] = ()) -> str:
    """The sentence with `NEUTRAL` for every name: for `names` and `ALSO_WORDS`, inside it for any word with a capital.

    >>> neutral("Grace hoped that Merry was home. Rich men sang.")
    'Alex hoped that Alex was home. Rich men sang.'
    """

    def replaced(match: re.Match[str]) -> str:
        word = match[0]
        if not looks_like_a_name(word):
            return word
        begins = BEGINNING.search(sentence[: match.start()]) is not None
        return word if begins and word not in ALSO_WORDS and word not in names else NEUTRAL

    return WORD.sub(replaced, sentence)


@dataclass(frozen=True)
class NamesLeftOut:
    """A tagger that reads every sentence with a neutral name in place of each name."""

    inner: Tagger
    names: Collection[str]

    @property
    def labels(self) -> tuple[str, ...]:
        return self.inner.labels

    @property
    def settings(self) -> dict[str, object]:
        return self.inner.settings

    def tag(self, sentences: list[str]) -> list[int | None]:
        return self.inner.tag([neutral(sentence, self.names) for sentence in sentences])

    def shares(self, sentences: list[str]) -> list[list[float]] | None:
        """How sure the tagger is of each label (`VaderTagger.shares`); None where it does not say."""
        read = getattr(self.inner, "shares", None)
        return None if read is None else read([neutral(sentence, self.names) for sentence in sentences])

    def __getattr__(self, name: str) -> Any:
        """What else the tagger has: `states`, `slow`, `fault`."""
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def without_names(tagger: Tagger, names: Collection[str]) -> Tagger:
    """The tagger, or each of several, with names left out."""
    parts = tuple(NamesLeftOut(part, frozenset(names)) for part in parts_of(tagger))
    return Taggers(parts) if isinstance(tagger, Taggers) else parts[0]
