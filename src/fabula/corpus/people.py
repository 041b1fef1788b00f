"""Which words of a vocabulary are people's names, and which pronouns go with them: counted, not listed.

A name is a word written like one (a capital, then small letters) that is rarer in small letters, that often begins a
sentence (`Tom` does, `Friday` and `Texas` rarely do), and whose stories speak of `he` or of `she` far more often than
of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabula.corpus.dataset import Stories
from fabula.corpus.tokenize import listed
from fabula.corpus.vocabulary import Vocabulary

HE = listed("he him his himself")
SHE = listed("she her hers herself")
ME = listed("i me my mine myself we us our ours ourselves")
HE_NOUNS = listed(
    "man men boy boys guy guys husband father dad daddy brother brothers son sons grandfather grandpa uncle nephew "
    "king prince mr sir boyfriend groom gentleman policeman fireman waiter actor stepfather stepdad"
)
SHE_NOUNS = listed(
    "woman women girl girls lady ladies wife mother mom mommy mum sister sisters daughter daughters grandmother "
    "grandma aunt niece queen princess mrs ms miss girlfriend bride waitress actress stepmother stepmom"
)
EITHER_NOUNS = listed(
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
        seen, of_word = np.unique(np.stack([story, tokens]), axis=1), np.empty((2, V))
        for gender, words in enumerate((HE, SHE)):
            forms = [form for word in words for form in (word, word.capitalize()) if form in vocabulary.index]
            spoken = story[np.isin(tokens, [vocabulary.index[form] for form in forms])]
            of_story = np.bincount(spoken, minlength=len(sentences_of_story))
            of_word[gender] = np.bincount(seen[1], weights=of_story[seen[0]], minlength=V)
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
