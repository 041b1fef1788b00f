"""What written stories share with the training text, word for word."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import Stories
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary
from fabula.metrics.counting import Mask, Share, Text, share, written_only

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingText:
    """The training stories as one row of word ids, sentences closed by `<eos>`, and the ids of words."""

    tokens: IntArray
    index: dict[str, int]

    @classmethod
    def of_split(cls, stories: Stories, vocabulary: Vocabulary) -> TrainingText:
        """A split of a prepared corpus."""
        return cls(np.asarray(stories.tokens).astype(np.int64), dict(vocabulary.index))


@dataclass(frozen=True)
class Copied:
    """Word runs within sentences that the training text has too."""

    four_grams: Share
    longest: IntArray
    """Words of the longest shared n-gram of each story."""
    whole: Share
    """Sentences that the training text has, from their first word to their end."""


def copied(stories: Text, training: TrainingText, given: Mask = None) -> Copied:
    """Words are spaCy's, cased; an unknown word is in no shared n-gram."""
    from fabula.corpus.tokenize import tokenise

    sentences = [
        (number, [*(training.index.get(word, UNK) for word in tokenise(sentence)), EOS])
        for number, story in enumerate(written_only(stories, given))
        for sentence in story
    ]
    n, numbers = len(stories), np.array([number for number, _ in sentences], dtype=np.int64)
    lengths = np.array([len(ids) for _, ids in sentences], dtype=np.int64)
    tokens = np.array([token for _, ids in sentences for token in ids], dtype=np.int64)
    story_of = np.repeat(numbers, lengths)
    # Words from each place to the end of its sentence, `<eos>` not counted.
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(tokens)) - 1
    shared = np.minimum(_shared_lengths(tokens, training.tokens), left)
    has_four = left >= 4
    cases, of = (np.bincount(story_of[where], minlength=n) for where in (has_four & (shared >= 4), has_four))
    longest = np.zeros(n, dtype=np.int64)
    np.maximum.at(longest, story_of, shared)
    known = {ids.tobytes() for ids in np.split(training.tokens, np.flatnonzero(training.tokens == EOS) + 1)}
    whole = np.array([UNK not in ids and np.array(ids).tobytes() in known for _, ids in sentences], dtype=bool)
    sentence_share = share(np.bincount(numbers[whole], minlength=n), np.bincount(numbers, minlength=n))
    return Copied(share(cases, of), longest, sentence_share)


def _shared_lengths(tokens: IntArray, training: IntArray) -> IntArray:
    """At each place, how many words from there on stand together somewhere in the training text.

    n-grams grow by a word at a time, as numbers that are equal where the n-grams are. Places whose n-gram is not in
    both texts are dropped, so after a few words almost nothing is left.
    """
    shared = np.zeros(len(tokens), dtype=np.int64)
    both = np.concatenate([tokens, [EOS], training, [EOS]])
    word = (both != UNK) & (both != EOS)
    at = np.flatnonzero(word)
    code = both[at]
    for n in count(1):
        code = np.unique(code, return_inverse=True)[1]
        ours = at < len(tokens)
        in_both = np.isin(code, code[ours]) & np.isin(code, code[~ours])
        at, code = at[in_both], code[in_both]
        shared[at[at < len(tokens)]] = n
        grows = word[at + n]
        at, code = at[grows], code[grows]
        if not len(at):
            break
        code = code * (both.max() + 1) + both[at + n]
    return shared
