"""What people see of VADER: a name decides no tag, and the confidence is a probability with a meaning."""

import math

import pytest

import fabula
from fabula.corpus.states import SENTIMENT
from fabula.corpus.taggers.names import NamesLeftOut
from fabula.corpus.taggers.sentiment import VaderTagger

NAMED = (
    "Mia went home.", "Grace opened the door.", "Hope sat on the bench.", "Faith bought a bag of rice.",
    "Joy walked to the office.", "Rob called the bank.", "Tia parked the car.", "Kia read the letter.",
    "Ty and Mia took the bus.", "Grant painted the fence.", "Harmony wrote a list.", "Mercy came at noon.",
    "We met Hope at the station.", "The keys were in Faith's coat.", "I saw Mr. Savage at the shop.",
    "He gave the ticket to Merry.", "They asked Rich about the road.", "Charity and Dick ate soup.",
    "Po looked at the map.", "The teacher spoke to Joy and Sunny.",
)  # fmt: skip
"""Nothing happens in any of them: each tag but neutral would be owed to a name."""


@pytest.mark.parametrize("model", ["small", "default"])
def test_no_name_decides_a_tag(model: str) -> None:
    """By the tagger of the default model and by q(S | X) of the small one; the paper's VADER tags most of them."""
    tagging = fabula.load(model).tag(NAMED)
    assert tagging.tags == ("neutral",) * len(NAMED)
    assert all(0.5 <= shares["neutral"] < 1 for shares in tagging.probabilities)
    assert sum(state != 1 for state in VaderTagger().tag(list(NAMED))) >= 15


def test_words_that_are_no_names_still_count() -> None:
    tagger = NamesLeftOut(VaderTagger(), {"Mia"})
    said = ["Mia was happy.", "Great news came.", 'He said, "Love wins."', "Sadly, it rained.", "Mia cried all night."]
    assert tagger.tag(said) == VaderTagger().tag(said) == [2, 2, 2, 0, 0]


def test_the_confidence_is_the_chance_that_a_rater_stays_on_this_side_of_the_border() -> None:
    """By quadrature over a rater's valence sum, N(s, 0.9^2); `tag` is always the likeliest label."""
    tagger = VaderTagger()
    sentences = ["It was a table.", "He was sad.", "He was sad and cried and hated it.", "The food was okay.", "Fine."]
    for sentence, shares in zip(sentences, tagger.shares(sentences), strict=True):
        assert math.isclose(sum(shares), 1)
        assert min(shares) >= 0
        assert tagger.tag([sentence]) == [shares.index(max(shares))]
    from fabula.corpus.taggers.sentiment import RATER, valence

    s, border = valence(tagger.compound("He was sad.")), valence(-0.2)
    grid = [s + RATER * (k + 0.5) / 1000 for k in range(-8000, 8000)]
    below = sum(math.exp(-0.5 * ((x - s) / RATER) ** 2) for x in grid if x <= border) / 1000 / math.sqrt(2 * math.pi)
    assert abs(tagger.shares(["He was sad."])[0][SENTIMENT.index("negative")] - below) < 1e-3
    assert tagger.shares(["He was sad and cried and hated it."])[0][0] > tagger.shares(["He was sad."])[0][0]
