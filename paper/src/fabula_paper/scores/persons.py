"""Persons in written stories: names that the given sentences have, pronouns with a possible antecedent."""

from __future__ import annotations

import re
from collections.abc import Collection

from fabula.corpus import people
from fabula.metrics.counting import Mask, Share, Text, masks, share, words_of

HE, SHE = frozenset(people.HE), frozenset(people.SHE)
HE_NOUNS, SHE_NOUNS = frozenset(people.HE_NOUNS), frozenset(people.SHE_NOUNS)
EITHER_NOUNS = frozenset(people.EITHER_NOUNS)


def names_given(stories: Text, given: Mask, names: Collection[str]) -> Share:
    """Names in written sentences that stand in a given sentence of the story too; each mention counts.

    `names` are people's names, in their spelling. Of a story that was written whole the first sentence counts as given.
    """
    all_names = frozenset(names)
    cases, of = [], []
    for story, mask in zip(stories, _introducing(stories, given), strict=True):
        mentions = [[word for word in _capitalised(sentence) if word in all_names] for sentence in story]
        named = {name for sentence, first in zip(mentions, mask, strict=True) if first for name in sentence}
        written = [name for sentence, first in zip(mentions, mask, strict=True) if not first for name in sentence]
        cases.append(sum(name in named for name in written))
        of.append(len(written))
    return share(cases, of)


def pronouns_agree(stories: Text, given: Mask, he: Collection[str], she: Collection[str]) -> Share:
    """Written `he` and `she` (and their cases) of the gender that the given sentences speak of.

    Only stories count whose given sentences speak of one gender, by a name, a pronoun or a word like `mother`. There a
    pronoun of the other gender agrees too once somebody whom it may stand for has been mentioned: by a name or a word
    of that gender, or by one that may be either (`friend`, `dog`).
    """
    he_names, she_names = frozenset(he), frozenset(she)

    def genders(sentence: str) -> set[str]:
        words, names = set(words_of(sentence)), set(_capitalised(sentence))
        known = {"he"} if names & he_names or words & HE_NOUNS else set()
        return known | ({"she"} if names & she_names or words & SHE_NOUNS else set())

    cases, of = [], []
    for story, mask in zip(stories, _introducing(stories, given), strict=True):
        named: set[str] = set()
        for sentence in (s for s, first in zip(story, mask, strict=True) if first):
            named |= genders(sentence) | set(_pronouns(sentence))
        agreeing = total = 0
        for sentence, first in zip(story, mask, strict=True) if len(named) == 1 else ():
            named |= genders(sentence) | ({"he", "she"} if EITHER_NOUNS & set(words_of(sentence)) else set())
            if not first:
                pronouns = _pronouns(sentence)
                agreeing += sum(gender in named for gender in pronouns)
                total += len(pronouns)
        cases.append(agreeing)
        of.append(total)
    return share(cases, of)


def _introducing(stories: Text, given: Mask) -> list[list[bool]]:
    """Which sentences say who is in the story: the given ones, else the first."""
    return [list(mask) if any(mask) else [place == 0 for place in range(len(mask))] for mask in masks(stories, given)]


def _capitalised(sentence: str) -> list[str]:
    return re.findall(r"\b[A-Z][a-z]+\b", sentence)


def _pronouns(sentence: str) -> list[str]:
    """The gender of each pronoun."""
    return ["he" if word in HE else "she" for word in words_of(sentence) if word in HE | SHE]
