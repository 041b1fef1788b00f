"""Persons in written stories: names that the given sentences have, pronouns that somebody there may be."""

from __future__ import annotations

import re
from collections.abc import Collection

from fabula.corpus import people
from fabula.metrics.counting import Mask, Share, Text, masks, share, words_of

HE, SHE = frozenset(people.HE), frozenset(people.SHE)
HE_WORDS, SHE_WORDS = HE | frozenset(people.HE_NOUNS), SHE | frozenset(people.SHE_NOUNS)
EITHER_WORDS = frozenset(people.EITHER_NOUNS)


def names_given(stories: Text, given: Mask, names: Collection[str]) -> Share:
    """Names in written sentences that stand in a given sentence of the story too; each mention counts.

    `names` are people's names, in their spelling. Of a story that was written whole the first sentence counts as given.
    """
    known = frozenset(names)
    cases, of = [], []
    for story, mask in zip(stories, _told(stories, given), strict=True):
        mentions = [[word for word in _capitalised(sentence) if word in known] for sentence in story]
        named = {word for found, was_given in zip(mentions, mask, strict=True) if was_given for word in found}
        own = [word for found, was_given in zip(mentions, mask, strict=True) if not was_given for word in found]
        cases.append(sum(word in named for word in own))
        of.append(len(own))
    return share(cases, of)


def pronouns_agree(stories: Text, given: Mask, he: Collection[str], she: Collection[str]) -> Share:
    """Written `he` and `she` (and their cases) of the gender that the given sentences speak of.

    Only stories count whose given sentences speak of one gender, by a name, a pronoun or a word like `mother`. There a
    pronoun of the other gender agrees too once somebody whom it may stand for has been mentioned: by a name or a word
    of that gender, or by one that may be either (`friend`, `dog`).
    """
    of_he, of_she = frozenset(he), frozenset(she)
    cases, of = [], []
    for story, mask in zip(stories, _told(stories, given), strict=True):
        named: set[str] = set()
        for sentence, was_given in zip(story, mask, strict=True):
            if was_given:
                named |= _genders(sentence, of_he, of_she, pronouns=True)
        hits = total = 0
        for sentence, was_given in zip(story, mask, strict=True) if len(named) == 1 else ():
            either = {"he", "she"} if set(words_of(sentence)) & EITHER_WORDS else set()
            named |= _genders(sentence, of_he, of_she, pronouns=False) | either
            if not was_given:
                said = [("he" if word in HE else "she") for word in words_of(sentence) if word in HE or word in SHE]
                hits += sum(gender in named for gender in said)
                total += len(said)
        cases.append(hits)
        of.append(total)
    return share(cases, of)


def _told(stories: Text, given: Mask) -> list[list[bool]]:
    """Which sentences say who is in the story: the given ones, else the first."""
    return [list(mask) if any(mask) else [place == 0 for place in range(len(mask))] for mask in masks(stories, given)]


def _capitalised(sentence: str) -> list[str]:
    return re.findall(r"\b[A-Z][a-z]+\b", sentence)


def _genders(sentence: str, he: frozenset[str], she: frozenset[str], pronouns: bool) -> set[str]:
    words, names = set(words_of(sentence)), set(_capitalised(sentence))
    found = set()
    if names & he or words & (HE_WORDS if pronouns else HE_WORDS - HE):
        found.add("he")
    if names & she or words & (SHE_WORDS if pronouns else SHE_WORDS - SHE):
        found.add("she")
    return found
