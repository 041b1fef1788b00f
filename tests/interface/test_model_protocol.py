"""A model of a kind that Fabula does not know: registered in one line, it is trained, scored, asked and made to write.

It has no recurrent network: p(X_i | X_:i) is that of a bag of words. Nothing outside this file knows its class.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from fabula.api import StoryModel
from fabula.corpus.dataset import Corpus
from fabula.errors import UserError
from fabula.metrics.likelihood import likelihood
from fabula.models.batch import Batch, StoryDataset
from fabula.models.build import build
from fabula.models.io import load
from fabula.models.protocol import MODELS, Model, register_model
from fabula.models.settings import ModelSettings
from fabula.sampling.names import known_names
from fabula.training.loop import train
from fabula.training.recipe import recipe_from
from small import stories_of


class Unigram(Model):
    """log p(X) = sum over words of log p(word)."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(vocabulary))

    def log_p_words(self, batch: Batch, Z: Tensor | None = None) -> Float[Tensor, "batch token"]:
        return self.scores.log_softmax(0)[batch.tokens] * (batch.tokens != 0)

    def first_word_scores(self) -> Float[Tensor, " vocab"]:
        return self.scores


@pytest.fixture
def unigram() -> Iterator[str]:
    register_model("unigram")(lambda settings, vocabulary, p_initial, p_next: Unigram(vocabulary))
    yield "unigram"
    del MODELS.implementations["unigram"]


def test_a_new_kind_is_trained_measured_and_asked(unigram: str, toy_corpus: Path, tmp_path: Path) -> None:
    """A unigram's best likelihood is the entropy of the words: training comes near it, and nothing is a bound."""
    corpus = Corpus.open(toy_corpus)
    settings = {"epochs": 30, "batch": 64, "learning_rate": 0.3, "learning_rate_dynamics": 0.3, "precision": "float32"}
    recipe = recipe_from({"name": "words", "model": {"kind": unigram}, "train": settings})
    train(recipe, corpus, tmp_path / "run", bar=False)
    checkpoint = load(tmp_path / "run")
    stories = corpus.split("train")
    found = likelihood(checkpoint.model, StoryDataset(stories, "cpu"), characters=1)
    counts = np.bincount(np.asarray(stories.tokens))
    shares = counts[counts > 0] / counts.sum()
    best = -float((shares * np.log(shares)).sum())
    assert best <= np.log(found["ppl"]) < best + 0.15 < np.log(len(counts))
    assert found["ppl_iw"] is None
    assert set(found["kinds"].values()) == {"exact"}
    narrator = StoryModel(checkpoint)
    scored = narrator.score(["Mia was glad.", "Tom was sad."])
    assert (scored.kind, scored.samples) == ("exact", 0)
    assert scored.log_p == pytest.approx(sum(scored.log_p_sentences), rel=1e-5)
    assert known_names(checkpoint.model, checkpoint.vocabulary)
    for refused in (narrator.explain, narrator.posterior):
        with pytest.raises(UserError):
            refused(["Mia was glad.", "Tom was sad."])


def made(kind: str) -> Model:
    return build(ModelSettings(kind=kind), 20, torch.full((3,), 1 / 3), torch.full((3, 3), 1 / 3)).eval()


@torch.no_grad()
def test_log_p_of_sentences_is_the_sum_over_their_words() -> None:
    """For S2S too, whose inner ends of sentences are no tokens; its count of tokens leaves them out."""
    dataset = StoryDataset(stories_of([[[4, 5], [6]], [[7], [8, 9], [10]]], [[0, 1], [2, 1, 0]]), "cpu")
    batch = dataset.batch(np.arange(2))
    ends = (batch.starts + batch.lengths - 1).clamp(min=0)
    for kind in ("lm", "s2s"):
        model = made(kind)
        words = model.log_p_words(batch)
        torch.testing.assert_close(words.sum(1), model.log_p_X(batch).sum(1))
        paid = (words < 0).sum(1)
        assert paid.tolist() == model.token_count(dataset.token_counts, dataset.sentences).tolist()
        assert bool((words.gather(1, ends)[:, :1] == 0).all()) == model.reads_tags
