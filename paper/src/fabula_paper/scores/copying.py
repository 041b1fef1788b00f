"""The 4-grams that written stories share with the training text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import Stories
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary
from fabula.metrics.counting import Mask, Share, Text, share, written_only

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingText:
    """The training stories as one row of word ids, in which `<eos>` ends every sentence, and the ids of words."""

    tokens: IntArray
    index: dict[str, int]

    @classmethod
    def of_split(cls, stories: Stories, vocabulary: Vocabulary) -> TrainingText:
        """A split of a prepared corpus."""
        return cls(np.asarray(stories.tokens).astype(np.int64), dict(vocabulary.index))


def copied_4grams(stories: Text, training: TrainingText, given: Mask = None) -> Share:
    """4-grams of written sentences that the training text has too; one with an unknown word is never shared."""
    from fabula.corpus.tokenize import tokenise

    written = [
        [id for sentence in story for id in (*(training.index.get(word, UNK) for word in tokenise(sentence)), EOS)]
        for story in written_only(stories, given)
    ]
    tokens = np.array([id for story in written for id in story], dtype=np.int64)
    story_of = np.repeat(np.arange(len(written)), [len(story) for story in written])
    both = np.concatenate([tokens, [EOS] * 3, training.tokens, [EOS] * 3])
    codes, within, without_unknown = _fours(both)
    is_written = np.arange(len(codes)) < len(tokens)
    shared = np.isin(codes, codes[~is_written & within & without_unknown])
    of, cases = within & is_written, within & is_written & without_unknown & shared
    counts = [np.bincount(story_of[where[: len(tokens)]], minlength=len(stories)) for where in (cases, of)]
    return share(*counts)


def _fours(tokens: IntArray) -> tuple[IntArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """At each place: a code of the 4-gram from there, whether it is within a sentence, whether it knows all words."""
    pairs = np.unique(tokens[:-1] * (tokens.max() + 1) + tokens[1:], return_inverse=True)[1]
    codes = pairs[:-2] * (pairs.max() + 1) + pairs[2:]
    windows = np.lib.stride_tricks.sliding_window_view(tokens, 4)
    return codes, (windows != EOS).all(1), (windows != UNK).all(1)
