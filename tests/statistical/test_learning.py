"""A few seconds of training on the toy corpus: the words are learned, Z tells its own story, q(S) knows the tags.

Everything is seeded; margins are wide all the same, for another machine rounds otherwise: each test says what one run
gave and asks for about half of it.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from fabula.corpus.dataset import Corpus
from fabula.corpus.prepare import prepare_stories
from fabula.corpus.toy import toy_stories
from fabula.metrics.likelihood import likelihood
from fabula.metrics.record import mean_and_error
from fabula.models.batch import StoryDataset
from fabula.models.io import load
from fabula.models.slds import SLDS
from fabula.training.corpus_model import CorpusLearner
from fabula.training.loop import train
from fabula.training.recipe import recipe_from

pytestmark = pytest.mark.system
RECIPE = {
    "name": "learning",
    "model": {
        "language": {"embedding": 24, "hidden": 48, "tied": False, "dropout": 0.0},
        "dynamics": {"latent": 6},
        "recognition": {"hidden": 24, "dropout": 0.0},
    },
    "objective": {"posterior": "smoothing", "evidence_dropout": 0.3, "target_kl": 8.0},
    "train": {
        "epochs": 3, "batch": 16, "learning_rate": 1.5e-2, "learning_rate_dynamics": 1e-2, "schedule": "cosine",
        "warmup_steps": 20, "clip": 1.0,
    },
}  # fmt: skip


class Learned(NamedTuple):
    untrained: dict[str, Any]
    trained: dict[str, Any]
    model: SLDS
    dataset: StoryDataset


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    folder = tmp_path_factory.mktemp("learning")
    stories = toy_stories(880, seed=5)
    splits = {"train": stories[:700], "valid": stories[700:750], "test": stories[750:]}
    prepare_stories(splits, folder / "corpus", provenance={"toy": 880, "seed": 5}, progress=False)
    corpus = Corpus.open(folder / "corpus")
    dataset = StoryDataset(corpus.split("test"), "cpu")
    recipe = recipe_from(RECIPE)

    def figures(model: SLDS) -> dict[str, Any]:
        return likelihood(model, dataset, characters=1, samples=2, posterior="smoothing")

    start = CorpusLearner(recipe, corpus, torch.device("cpu")).model
    assert isinstance(start, SLDS)
    untrained = figures(start)
    (folder / "run").mkdir()
    train(recipe, corpus, folder / "run", bar=False)
    model = load(folder / "run").model
    assert isinstance(model, SLDS)
    return Learned(untrained, figures(model), model, dataset)


def test_words_tags_and_links_are_learnt(learned: Learned) -> None:
    """One run: from 366 nats a story to 138; all tags; Z worth 5.2 nats (se 0.3), KL 8.5, six units active. Before
    training tags are a guess."""
    before, after = learned.untrained, learned.trained
    assert after["nll_story"] < before["nll_story"] - 150
    assert after["f1_s"] > 95 > 70 > before["f1_s"]
    assert after["z_use"] > max(2.0, 5 * after["z_use_se"])
    assert after["kl_z"] > 4


@torch.no_grad()
def test_a_story_is_told_by_its_own_z(learned: Learned) -> None:
    """One run: Z of another story of the same length costs 15.4 nats (se 1.1). Asked: 7, and 5 standard errors."""
    lengths = learned.dataset.sentences
    rows = np.flatnonzero(lengths == np.bincount(lengths).argmax())
    batch = learned.dataset.batch(rows)
    generator = torch.Generator().manual_seed(0)
    noise = learned.model.noise_for(batch, generator)
    Z = learned.model.draw_posterior(learned.model.evidence(batch), batch.present, noise, None, "smoothing").Z
    told = learned.model.log_p_X(batch, Z).sum(-1)
    shuffled = learned.model.log_p_X(batch, Z.roll(1, 0)).sum(-1)
    cost, se = mean_and_error(told - shuffled)
    assert cost > 7
    assert cost > 5 * se
