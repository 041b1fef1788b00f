"""Counted by hand: variety of written sentences, tags by a word list, the macro-F1 of tags that are followed or not."""

import numpy as np
import pytest

from fabula.corpus.dataset import Corpus
from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.tokenize import detokenise
from fabula.metrics.counting import Share, distinct, words_of
from fabula_paper.scores.lexicon import LexiconTagger, read_lexicon, valence
from fabula_paper.scores.quality import Reader, quality
from fabula_paper.scoring import macro_f1

GLAD, PLAIN, SAD = "She was happy and glad.", "He opened the door.", "It was a terrible disaster."
WORDS = {"good": 3.0, "bad": -3.0, "happy": 2.0, "never": -1.0}


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


def test_f1_by_hand() -> None:
    S = np.array([[2, 1, 0], [2, 1, 0]])
    right = [[GLAD, PLAIN, SAD], [GLAD, PLAIN, SAD]]
    # One of the sad sentences comes out plain: F1 of sad 2/3, of plain 4/5, of glad 1.
    wrong = [[GLAD, PLAIN, SAD], [GLAD, PLAIN, PLAIN]]
    f1, (low, high) = macro_f1([right, wrong], S, VaderTagger(), draws=200, seed=0)
    assert f1.tolist() == pytest.approx([100, 100 * (2 / 3 + 4 / 5 + 1) / 3])
    assert low is not None
    assert high is not None
    assert low <= f1.mean() <= high == 100


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("A good day.", 3),
        ("Good and BAD and happy.", 2),
        ("It was not a good day.", -3),
        ("It wasn't good.", -3),
        ("He did not see that it was a good day.", 3),  # out of the negation's reach
        ("She was never bad.", 3),  # a negation has no valence of its own
        ("A goodly day.", 0),
    ],
)
def test_valence_by_hand(sentence: str, expected: float) -> None:
    assert valence(sentence, WORDS) == expected


def test_the_list_judges_what_nobody_doubts() -> None:
    """Fails, and does not skip, where the eval extra is missing: make test installs it."""
    tagger = LexiconTagger()
    assert isinstance(tagger, Tagger)
    assert tagger.labels == VaderTagger().labels
    assert tagger.tag(["She was happy and proud.", "He opened the window.", "The war was a terrible disaster."]) == [
        2, 1, 0
    ]  # fmt: skip
    assert len(read_lexicon()) > 3000
