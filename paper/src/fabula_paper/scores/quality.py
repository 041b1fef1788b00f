"""How written stories read, by counting: variety, repetition, full stops; and every counted measure at one call."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import Corpus
from fabula.corpus.people import People
from fabula.metrics.counting import Mask, Share, Text, distinct, masks, ngrams, per_sentence, words_of, written_only
from fabula.metrics.counting import share as make_share
from fabula.registry import Registry
from fabula_paper.scores.copying import TrainingText, copied
from fabula_paper.scores.persons import names_given, pronouns_agree
from fabula_paper.scores.verbs import Verbs

_ENDED = re.compile(r"[.!?…][\"'”’)\]]*$")


@dataclass(frozen=True)
class Reader:
    """What the training text teaches the measures: its words, its people, its verbs."""

    training: TrainingText
    he: tuple[str, ...]
    she: tuple[str, ...]
    """People's names, by the pronoun that goes with them."""
    verbs: Verbs

    @classmethod
    def of(cls, corpus: Corpus) -> Reader:
        train, vocabulary = corpus.split("train"), corpus.vocabulary
        people = People.count(train, vocabulary)
        text, verbs = TrainingText.of_split(train, vocabulary), Verbs.learn(train, vocabulary)
        return cls(text, people.he, people.she, verbs)


MEASURES: Registry[Callable[[Text, Reader, Mask], Share]] = Registry("fabula.measures", "measure")
"""Measures of other packages, which `quality` takes beside Fabula's own (docs/extending.md)."""


@dataclass(frozen=True)
class Quality:
    """Every counted measure of some stories; figures by `to_json`, with bootstrap intervals."""

    stories: int
    sentences: int
    words: float
    """Of a written sentence, marks not counted."""
    distinct_1: float
    distinct_2: float
    """Falls with the number of stories: only sets of equal size compare."""
    shares: dict[str, Share]
    longest_copied: NDArray[np.int64]
    """Words of the longest n-gram that each story shares with the training text."""

    def to_json(self, *, draws: int = 1000, seed: int = 0) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "stories": self.stories,
            "sentences": self.sentences,
            "words_per_sentence": round(self.words, 3),
            "distinct_1": round(self.distinct_1, 4),
            "distinct_2": round(self.distinct_2, 4),
            "longest_copied_mean": round(float(self.longest_copied.mean()), 3),
            "longest_copied_max": int(self.longest_copied.max()),
        }
        for name, share in self.shares.items():
            figures[name] = share.interval(draws=draws, seed=seed).to_json() | {"of": int(share.of.sum())}
        return figures


def quality(stories: Text, reader: Reader, given: Mask = None) -> Quality:
    """All measures of the written sentences."""
    written = [sentence for story in written_only(stories, given) for sentence in story]
    if not written:
        raise ValueError("no written sentence to measure")
    copies = copied(stories, reader.training, given)
    return Quality(
        stories=len(stories),
        sentences=len(written),
        words=sum(word[0].isalnum() for sentence in written for word in words_of(sentence)) / len(written),
        distinct_1=distinct(stories, 1, given),
        distinct_2=distinct(stories, 2, given),
        shares={
            "repeated_sentences": repeated_sentences(stories, given),
            "repeated_4grams": repeated_4grams(stories, given),
            "copied_4grams": copies.four_grams,
            "copied_sentences": copies.whole,
            "names_given": names_given(stories, given, (*reader.he, *reader.she)),
            "pronouns_agree": pronouns_agree(stories, given, reader.he, reader.she),
            "verbless": per_sentence(stories, given, lambda story, place: not reader.verbs.has_verb(story[place])),
            "unended": unended(stories, given),
            **{name: MEASURES.find(name)(stories, reader, given) for name in MEASURES.names()},
        },
        longest_copied=copies.longest,
    )


def repeated_sentences(stories: Text, given: Mask = None) -> Share:
    """Written sentences with the words of another sentence of their story, case and marks aside."""

    def words(sentence: str) -> list[str]:
        return [word for word in words_of(sentence) if word[0].isalnum() or word[0] in "'’"]

    return per_sentence(stories, given, lambda story, place: [words(s) for s in story].count(words(story[place])) > 1)


def repeated_4grams(stories: Text, given: Mask = None) -> Share:
    """4-grams of written sentences that stand elsewhere in their story too."""
    cases, of = [], []
    for story, mask in zip(stories, masks(stories, given), strict=True):
        grams = [ngrams(words_of(sentence), 4) for sentence in story]
        counts = Counter(gram for sentence in grams for gram in sentence)
        written = [gram for sentence, was_given in zip(grams, mask, strict=True) if not was_given for gram in sentence]
        cases.append(sum(counts[gram] > 1 for gram in written))
        of.append(len(written))
    return make_share(cases, of)


def unended(stories: Text, given: Mask = None) -> Share:
    """Written sentences that do not end with a mark; a closing quotation mark or bracket may follow it."""
    return per_sentence(stories, given, lambda story, place: not _ENDED.search(story[place].strip()))
