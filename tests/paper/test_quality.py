"""Counted by hand: variety, repetition, full stops, copying, names, pronouns."""

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
from fabula_paper.scores import copying
from fabula_paper.scores.copying import TrainingText, copied
from fabula_paper.scores.persons import names_given, pronouns_agree
from fabula_paper.scores.quality import Reader, quality, repeated_4grams, repeated_sentences, unended

ENDS_GIVEN = [[True, False, True]]


def training_text(stories: list[list[list[str]]]) -> TrainingText:
    """Tokenised stories as training text."""
    index: dict[str, int] = {}
    tokens: list[int] = []
    for sentence in (sentence for story in stories for sentence in story):
        tokens += [index.setdefault(word, EOS + 1 + len(index)) for word in sentence] + [EOS]
    return TrainingText(np.array(tokens, dtype=np.int64), index)


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


def test_a_repeated_sentence_counts_once_for_each_place() -> None:
    found = repeated_sentences([["He ran.", "he ran!", "She ran."], ["A dog.", "A cat."]])
    assert found.cases.tolist() == [2, 0]
    assert found.of.tolist() == [3, 2]
    assert found.value == pytest.approx(2 / 5)
    # A written sentence that says what a given one says is a case; the given one is not counted.
    assert repeated_sentences([["He ran.", "He ran."]], [[True, False]]).cases.tolist() == [1]


def test_repeated_4grams_by_hand() -> None:
    found = repeated_4grams([["one two three four five", "zero one two three four"]])
    assert (found.cases.tolist(), found.of.tolist()) == ([2], [4])
    assert repeated_4grams([["one two three four", "one two three four"]], [[True, False]]).value == 1.0


def test_what_ends_a_sentence() -> None:
    story = ["He ran.", 'She said "go!"', "They left...", "No stop", "Why?", 'A quote "here"']
    assert unended([story]).cases.tolist() == [2]


def test_a_share_without_cases_says_nothing() -> None:
    share = Share(np.array([0.0, 1.0]), np.array([0.0, 2.0]))
    assert share.value == 0.5
    assert np.isnan(share.per_story()[0])


# --- copying


TRAINING = [["the", "dog", "ran", "to", "the", "big", "house"], ["a", "cat", "slept"]]


def test_copied_by_hand() -> None:
    training = training_text([TRAINING])
    found = copied([["the dog ran to a big house"], ["ran to the big house"], ["a cat slept"]], training)
    assert found.longest.tolist() == [4, 5, 3]
    assert found.four_grams.cases.tolist() == [1, 2, 0]
    assert found.four_grams.of.tolist() == [4, 2, 0]
    assert found.whole.cases.tolist() == [0, 0, 1]  # the second is the end of a sentence, not a whole one


def test_ngrams_do_not_cross_the_ends_of_sentences() -> None:
    training = training_text([TRAINING])
    assert copied([["house a cat slept"]], training).longest.tolist() == [3]


def test_an_unknown_word_is_in_no_shared_ngram() -> None:
    """`<unk>` stands for many words: two of them are not the same."""
    training = TrainingText(np.array([5, 1, 6, 3]), {"dog": 5, "cat": 6})
    found = copied([["dog xylophone cat"]], training)
    assert found.longest.tolist() == [1]
    assert found.whole.cases.tolist() == [0]


@settings(max_examples=20)
@hypothesis_given(st.integers(0, 10_000))
def test_every_training_story_is_copied_whole(seed: int) -> None:
    stories = [story.sentences for story in toy_stories(6, seed)]
    training = training_text([[tokenise(s) for s in story] for story in stories])
    found = copied(stories, training)
    assert found.four_grams.value == 1
    assert found.whole.value == 1
    assert found.longest.tolist() == [max(len(tokenise(s)) for s in story) for story in stories]


def test_shared_lengths_are_what_a_search_finds() -> None:
    """Against the plain search, over 3 words, so that there are many matches of all lengths."""
    rng = np.random.default_rng(0)
    tokens, training = rng.integers(3, 7, size=300), rng.integers(3, 7, size=400)

    def search(at: int) -> int:
        longest = 0
        for there in range(len(training)):
            n = 0
            while (
                at + n < len(tokens) and there + n < len(training) and tokens[at + n] == training[there + n]
                and tokens[at + n] != EOS
            ):  # fmt: skip
                n += 1
            longest = max(longest, n)
        return longest

    assert copying._shared_lengths(tokens, training).tolist() == [search(at) for at in range(len(tokens))]


# --- persons


def test_names_of_the_given_sentences() -> None:
    names = {"Tom", "Mia", "Bo"}
    story = ["Tom had a dog.", "Tom's friend Bo saw Mia and Tom.", "Mia left."]
    found = names_given([story], ENDS_GIVEN, names)
    assert (found.cases.tolist(), found.of.tolist()) == ([3], [4])  # Tom, Mia, Tom; Bo is from nowhere
    # A story written whole: its first sentence says who is there.
    assert names_given([story], None, names).cases.tolist() == [2]
    assert names_given([story], None, names).of.tolist() == [5]


def test_pronouns_by_hand() -> None:
    he, she = {"Tom"}, {"Mia"}

    def agreed(*story: str) -> tuple[float, float]:
        found = pronouns_agree([story], [[True] + [False] * (len(story) - 1)], he, she)
        return float(found.cases[0]), float(found.of[0])

    assert agreed("Tom ran.", "He saw her.") == (1, 2)
    assert agreed("Tom ran.", "His mother saw that she was late.") == (2, 2)
    assert agreed("Tom ran.", "He saw Mia.", "She hid herself.") == (3, 3)
    assert agreed("Tom ran.", "She hid.", "He saw Mia.") == (1, 2)  # Mia came too late for `she`
    assert agreed("Tom had a dog.", "She barked.") == (1, 1)
    assert agreed("Tom met Mia.", "She hid.") == (0, 0)  # both genders are there: nothing to get wrong
    assert agreed("It rained.", "She hid.") == (0, 0)  # nor where nothing is known


def test_everything_at_once(toy_corpus: object) -> None:
    """On the training stories themselves: all copied, every sentence ended; and the mask reaches every measure."""
    corpus = Corpus.open(str(toy_corpus))
    train = corpus.split("train")
    stories = [[detokenise(corpus.vocabulary.decode(s.tolist())) for s in train.sentences(n)] for n in range(40)]
    reader = Reader.of(corpus)
    whole = quality(stories, reader)
    assert whole.sentences == sum(map(len, stories))
    assert whole.shares["unended"].value == 0
    # Rare words are <unk> in the corpus, and so in its text; all else is there word for word.
    assert whole.shares["copied_4grams"].value > 0.99
    figures = whole.to_json(draws=50)
    assert figures["copied_4grams"]["of"] == int(whole.shares["copied_4grams"].of.sum())
    some = quality(stories, reader, [[True] + [False] * (len(story) - 1) for story in stories])
    assert some.sentences == whole.sentences - len(stories)
    with pytest.raises(ValueError, match="no written sentence"):
        quality(stories[:1], reader, [[True] * len(stories[0])])
