"""Counted by hand: variety and copying."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from fabula.corpus.dataset import Corpus
from fabula.corpus.tokenize import detokenise, tokenise
from fabula.corpus.toy import toy_stories
from fabula.corpus.vocabulary import EOS
from fabula.metrics.counting import Share, distinct, words_of
from fabula_paper.scores.quality import Reader, copied_4grams, quality


def training_text(stories: list[list[list[str]]]) -> Reader:
    """Tokenised stories as training text."""
    index: dict[str, int] = {}
    tokens: list[int] = []
    for sentence in (sentence for story in stories for sentence in story):
        tokens += [index.setdefault(word, EOS + 1 + len(index)) for word in sentence] + [EOS]
    return Reader(np.array(tokens, dtype=np.int64), index)


def test_words_are_cut_where_english_cuts_them() -> None:
    assert words_of("She didn't like Tom's dog-house.") == [
        "she", "did", "n't", "like", "tom", "'s", "dog-house", "."
    ]  # fmt: skip


def test_distinct_by_hand() -> None:
    stories = [["a b a b", "c"], ["a b"]]
    assert distinct(stories, 1) == pytest.approx(3 / 7)
    assert distinct(stories, 2) == pytest.approx(2 / 4)  # ab ba ab, ab; never across sentences
    assert distinct(stories, 1, [[True, False], [True]]) == 1.0
    assert np.isnan(distinct([["a"]], 2))


def test_a_share_without_cases_says_nothing() -> None:
    share = Share(np.array([0.0, 1.0]), np.array([0.0, 2.0]))
    assert share.value == 0.5


TRAINING = [["the", "dog", "ran", "to", "the", "big", "house"], ["a", "cat", "slept"]]


def test_copied_by_hand() -> None:
    """The last sentence joins the ends of two training sentences, which is no shared 4-gram."""
    stories = [["the dog ran to a big house"], ["ran to the big house"], ["a cat slept"], ["house a cat slept"]]
    copied = copied_4grams(stories, training_text([TRAINING]))
    assert copied.cases.tolist() == [1, 2, 0, 0]
    assert copied.of.tolist() == [4, 2, 0, 1]
    assert copied_4grams([["ran to the big", "a cat ran off"]], training_text([TRAINING]), [[True, False]]).value == 0


def test_an_unknown_word_is_in_no_shared_4gram() -> None:
    """`<unk>` stands for many words: two of them are not the same."""
    training = Reader(np.array([5, 1, 6, 5, 3]), {"dog": 5, "cat": 6})
    copied = copied_4grams([["dog xylophone cat dog"]], training)
    assert (copied.cases.tolist(), copied.of.tolist()) == ([0], [1])


@settings(max_examples=20)
@hypothesis_given(st.integers(0, 10_000))
def test_every_training_story_is_copied(seed: int) -> None:
    stories = [story.sentences for story in toy_stories(6, seed)]
    training = training_text([[tokenise(s) for s in story] for story in stories])
    assert copied_4grams(stories, training).value == 1


def test_everything_at_once(toy_corpus: object) -> None:
    """On the training stories themselves: all copied; and the mask reaches every measure."""
    corpus = Corpus.open(str(toy_corpus))
    train = corpus.split("train")
    stories = [[detokenise(corpus.vocabulary.decode(s.tolist())) for s in train.sentences(n)] for n in range(40)]
    reader = Reader.of(corpus)
    whole = quality(stories, reader)
    assert whole.sentences == sum(map(len, stories))
    # Rare words are <unk> in the corpus, and so in its text; all else is there word for word.
    assert whole.shares["copied_4grams"].value > 0.99
    figures = whole.to_json(draws=50)
    assert figures["copied_4grams"]["of"] == int(whole.shares["copied_4grams"].of.sum())
    some = quality(stories, reader, [[True] + [False] * (len(story) - 1) for story in stories])
    assert some.sentences == whole.sentences - len(stories)
    with pytest.raises(ValueError, match="no written sentence"):
        quality(stories[:1], reader, [[True] * len(stories[0])])
