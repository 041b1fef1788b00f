"""Which words of a vocabulary are people's names, and which pronouns go with them: counted, not listed.

A name is a word written like one (a capital, then small letters) that is rarer in small letters, that often begins a
sentence (`Tom` does, `Friday` and `Texas` rarely do), and whose stories speak of `he` or of `she` far more often than
of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import Stories
from fabula.corpus.vocabulary import Vocabulary


def _listed(words: str) -> tuple[str, ...]:
    """Words written as a line."""
    return tuple(words.split())


HE = _listed("he him his himself")
SHE = _listed("she her hers herself")
ME = _listed("i me my mine myself we us our ours ourselves")
HE_NOUNS = _listed(
    "man men boy boys guy guys husband father dad daddy brother brothers son sons grandfather grandpa uncle nephew "
    "king prince mr sir boyfriend groom gentleman policeman fireman waiter actor stepfather stepdad"
)
SHE_NOUNS = _listed(
    "woman women girl girls lady ladies wife mother mom mommy mum sister sisters daughter daughters grandmother "
    "grandma aunt niece queen princess mrs ms miss girlfriend bride waitress actress stepmother stepmom"
)
EITHER_NOUNS = _listed(
    "friend friends neighbor neighbour baby child kid kids teacher doctor boss owner cat dog puppy kitten coach nurse "
    "cousin teenager student driver officer clerk cashier manager stranger pet horse bird parent parents someone "
    "everyone anyone person people"
)
"""Nouns that either pronoun may stand for."""
BEGINS = (0.25, 0.9)
"""Share of a name's uses that begin a sentence: `Thankfully` nearly always does, names stand elsewhere too."""
CLEAR = 0.7
"""Share of the pronouns of a name's stories that are of one gender, at least."""


def looks_like_a_name(word: str) -> bool:
    return len(word) > 1 and word.isalpha() and word[0].isupper() and word[1:].islower()


@dataclass(frozen=True)
class People:
    """Names by the pronoun that goes with them, the most frequent first."""

    he: tuple[str, ...] = ()
    she: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.he + self.she

    @classmethod
    def count(cls, stories: Stories, vocabulary: Vocabulary) -> People:
        """The names of a split."""
        V = len(vocabulary)
        tokens = np.asarray(stories.tokens).astype(np.int64)
        offsets, story_offsets = np.asarray(stories.sentence_offsets), np.asarray(stories.story_offsets)
        sentences_of_story = np.diff(story_offsets)
        story_of_sentence = np.repeat(np.arange(len(sentences_of_story)), sentences_of_story)
        story = np.repeat(story_of_sentence, np.diff(offsets))
        uses = np.bincount(tokens, minlength=V)
        begins = np.bincount(tokens[offsets[:-1]], minlength=V)
        pronouns = np.stack([_count(story, tokens, vocabulary, words, len(sentences_of_story)) for words in (HE, SHE)])
        seen = np.unique(np.stack([story, tokens]), axis=1)
        of_word = np.stack([np.bincount(seen[1], weights=row[seen[0]], minlength=V) for row in pronouns])
        share = of_word / np.maximum(of_word.sum(0), 1)
        small = np.array([vocabulary.index.get(w.lower(), 0) for w in vocabulary.words])
        named = np.array([looks_like_a_name(w) for w in vocabulary.words]) & (uses[small] < uses)
        named &= ~np.array([w.lower() in (*HE, *SHE) for w in vocabulary.words])
        named &= (begins >= BEGINS[0] * uses) & (begins <= BEGINS[1] * uses)
        he, she = (
            tuple(vocabulary.words[i] for i in sorted(np.flatnonzero(named & (row >= CLEAR)), key=lambda i: -uses[i]))
            for row in share
        )
        return cls(he, she)


NOBODY = People()


def _count(
    story: NDArray[np.int64], tokens: NDArray[np.int64], vocabulary: Vocabulary, words: Sequence[str], stories: int
) -> NDArray[np.int64]:
    """How often each story says one of the words."""
    spelled = [w for word in words for w in (word, word.capitalize())]
    wanted = np.isin(tokens, [vocabulary.index[w] for w in spelled if w in vocabulary.index])
    return np.bincount(story[wanted], minlength=stories)
