"""Tags by a word list, on valences made up here; and that the real list can be read."""

import pytest

from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula_paper.scores.lexicon import LexiconTagger, read_lexicon, valence

WORDS = {"good": 3.0, "bad": -3.0, "happy": 2.0, "never": -1.0}


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
