"""What written stories share with the training text, word for word.

n-grams are hashed to 64 bits and grown a word at a time: only places that still match go on, in the stories and in the
training text, so after the first few words next to nothing is left.
"""

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
    """The training stories as one row of word ids, sentences closed by `<eos>`, and the ids of words."""

    tokens: IntArray
    index: dict[str, int]

    @classmethod
    def of_split(cls, stories: Stories, vocabulary: Vocabulary) -> TrainingText:
        """A split of a prepared corpus."""
        return cls(np.asarray(stories.tokens).astype(np.int64), dict(vocabulary.index))


@dataclass(frozen=True)
class Copied:
    """What is shared with the training text, word for word, within sentences."""

    four_grams: Share
    """4-grams of each story that the training text has."""
    longest: IntArray
    """Words of the longest n-gram that each story shares with it."""
    whole: Share
    """Sentences that the training text has, from their first word to their end."""


def copied(stories: Text, training: TrainingText, given: Mask = None) -> Copied:
    """Words as spaCy's, cased; an unknown word is in no shared n-gram."""
    from fabula.corpus.tokenize import tokenise

    sentences = [
        (number, [training.index.get(word, UNK) for word in tokenise(sentence)])
        for number, story in enumerate(written_only(stories, given))
        for sentence in story
    ]
    tokens = np.array([number for _, ids in sentences for number in (*ids, EOS)], dtype=np.int64)
    lengths = np.array([len(ids) + 1 for _, ids in sentences], dtype=np.int64)
    story_of = np.repeat(np.array([number for number, _ in sentences], dtype=np.int64), lengths)
    shared = _shared_lengths(tokens, training.tokens)
    n = len(stories)
    # A place holds a 4-gram of words if its sentence has four more, `<eos>` not counted.
    left = np.concatenate([np.arange(length - 1, -1, -1) for length in lengths]) if len(lengths) else lengths
    has = left >= 4
    four = share(np.bincount(story_of[has & (shared >= 4)], minlength=n), np.bincount(story_of[has], minlength=n))
    longest = np.zeros(n, dtype=np.int64)
    np.maximum.at(longest, story_of, np.minimum(shared, left))
    # A whole sentence: it stands between two <eos> there as here; `shared` at its first word runs to its <eos>.
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64) if len(lengths) else lengths
    known = _whole_sentences(tokens, first, lengths, training.tokens)
    owner = story_of[first]
    whole = share(np.bincount(owner[known], minlength=n), np.bincount(owner, minlength=n))
    return Copied(four, longest, whole)


def _shared_lengths(tokens: IntArray, training: IntArray) -> IntArray:
    """At each place, how many words from there on stand together somewhere in the training text."""
    shared = np.zeros(len(tokens), dtype=np.int64)
    dead, training_dead = (tokens == UNK) | (tokens == EOS), (training == UNK) | (training == EOS)
    at, there = np.flatnonzero(~dead), np.flatnonzero(~training_dead)
    code, training_code = _mix(tokens[at]), _mix(training[there])
    n = 1
    while len(at) and len(there):
        known, training_known = np.isin(code, training_code), np.isin(training_code, code)
        at, code = at[known], code[known]
        there, training_code = there[training_known], training_code[training_known]
        shared[at] = n
        on, training_on = _goes_on(at, n, dead), _goes_on(there, n, training_dead)
        at, there = at[on], there[training_on]
        code = code[on] * _FACTOR + _mix(tokens[at + n])
        training_code = training_code[training_on] * _FACTOR + _mix(training[there + n])
        n += 1
    return shared


def _whole_sentences(tokens: IntArray, first: IntArray, lengths: IntArray, training: IntArray) -> NDArray[np.bool_]:
    """Which sentences are sentences of the training text."""
    ends = np.flatnonzero(training == EOS)
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)
    wanted = set(lengths.tolist())
    have: set[bytes] = {
        training[start : end + 1].tobytes()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        if end + 1 - start in wanted
    }
    return np.array(
        [
            UNK not in sentence and sentence.tobytes() in have
            for sentence in (tokens[start : start + length] for start, length in zip(first, lengths, strict=True))
        ],
        dtype=bool,
    )


_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def _mix(ids: IntArray) -> NDArray[np.uint64]:
    """Ids scattered over 64 bits (splitmix64's finish)."""
    x = ids.astype(np.uint64) + _FACTOR
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _goes_on(at: IntArray, n: int, dead: NDArray[np.bool_]) -> NDArray[np.bool_]:
    inside = at + n < len(dead)
    return inside & ~dead[np.minimum(at + n, len(dead) - 1)]
