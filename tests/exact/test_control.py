"""Tags in, tags out: a judge that agrees, one that does not, and stories that a model writes along its tags."""

from pathlib import Path

import pytest
import torch

from fabula.corpus.dataset import Corpus
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.errors import UserError
from fabula.metrics.control import measure_control, write_along
from small import small_model

GLAD, PLAIN, SAD = "She was happy and glad.", "He opened the door.", "It was a terrible disaster."


def test_f1_and_distinct_2_by_hand() -> None:
    S = torch.tensor([[2, 1, 0], [2, 1, 0]])
    right = [[GLAD, PLAIN, SAD], [GLAD, PLAIN, SAD]]
    # One of the sad sentences comes out plain: F1 of sad 2/3, of plain 4/5, of glad 1.
    wrong = [[GLAD, PLAIN, SAD], [GLAD, PLAIN, PLAIN]]
    found = measure_control([right, wrong], S, VaderTagger())
    assert found.f1.tolist() == pytest.approx([100, 100 * (2 / 3 + 4 / 5 + 1) / 3])
    assert found.mean == pytest.approx(found.f1.mean())
    assert found.spread == pytest.approx(abs(found.f1[0] - found.f1[1]) / 2**0.5)
    assert found.distinct_2[0] == pytest.approx(0.5)  # every pair of words twice
    with pytest.raises(ValueError, match="2 sentences for 6 tags"):
        measure_control([[[GLAD], [SAD]]], S, VaderTagger())


@pytest.mark.parametrize("kind", ["slds", "s2s"])
def test_a_story_for_each_row_of_tags(kind: str, toy_corpus: Path) -> None:
    corpus = Corpus.open(toy_corpus)
    model = small_model(kind, words=len(corpus.vocabulary))
    S = torch.tensor([[0, 1, 2], [2, 2, 1], [1, 1, 1]])
    stories = write_along(model, corpus.vocabulary, S, seed=3)
    assert [len(story) for story in stories] == [3, 3, 3]
    assert all(sentence for story in stories for sentence in story)
    assert write_along(model, corpus.vocabulary, S, seed=3) == stories
    assert write_along(model, corpus.vocabulary, S, seed=4) != stories
    assert len(write_along(model, corpus.vocabulary, S, top_k=1)) == 3
    with pytest.raises(UserError, match="SLDS or S2S"):
        write_along(small_model("lm", words=9), corpus.vocabulary, S)
