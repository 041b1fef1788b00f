"""Counted by hand: variety of written sentences."""

import numpy as np
import pytest

from fabula.corpus.dataset import Corpus
from fabula.corpus.tokenize import detokenise
from fabula.metrics.counting import Share, distinct, words_of
from fabula_paper.scores.quality import Reader, quality


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


def test_the_mask_reaches_every_measure(toy_corpus: object) -> None:
    corpus = Corpus.open(str(toy_corpus))
    train = corpus.split("train")
    stories = [[detokenise(corpus.vocabulary.decode(s.tolist())) for s in train.sentences(n)] for n in range(40)]
    reader = Reader.of(corpus)
    whole = quality(stories, reader)
    some = quality(stories, reader, [[True] + [False] * (len(story) - 1) for story in stories])
    assert whole["sentences"] == sum(map(len, stories)) == some["sentences"] + len(stories)
    with pytest.raises(ValueError, match="no written sentence"):
        quality(stories[:1], reader, [[True] * len(stories[0])])
