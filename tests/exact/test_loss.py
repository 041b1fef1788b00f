"""What the loop does with the terms: the weighted loss, rates, labels and averages, against hand calculation."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fabula.corpus.dataset import Corpus
from fabula.models.protocol import Terms
from fabula.models.slds import SLDS
from fabula.training.corpus_model import CorpusLearner, labelled_rows
from fabula.training.loop import Run, train
from fabula.training.losses.elbo import log_q_of
from fabula.training.recipe import ObjectiveSettings, recipe_from
from small import small_recipe


def a_learner(toy_corpus: Path, objective: dict[str, Any], train: dict[str, Any] | None = None) -> CorpusLearner:
    none = {"dropout": 0.0}
    recipe = small_recipe(objective=objective, train={"batch": 64, **(train or {})}, language=none, recognition=none)
    return CorpusLearner(recipe, Corpus.open(toy_corpus), torch.device("cpu"))


TERMS = Terms(*(torch.tensor(values) for values in ([-9.0, -5.0], [3.0, 1.0], [2.0, 0.0], [-4.0, -2.0], [-1.0, -3.0])))


@pytest.mark.parametrize(
    ("objective", "step", "expected"),
    [
        ({"kl_warmup": 0.0}, 0, 7 + (2 + 1) + 3 + 2),
        ({"kl_warmup": 0.0, "alpha": 0.5}, 0, 7 + (2 + 1) + 3 + 1),
        ({"kl_warmup": 0.0, "kl_weight": 0.8}, 0, 7 + 0.8 * (2 + 1) + 3 + 2),
        ({"kl_warmup": 2.0}, 4, 7 + 0.25 * (2 + 1) + 3 + 2),  # step 5 of 20
        ({"kl_warmup": 2.0}, 99, 7 + (2 + 1) + 3 + 2),
        ({"kl_warmup": 0.0, "target_kl": 5.0}, 0, 7 + (5 + 1) + 3 + 2),
        ({"kl_warmup": 0.0, "target_kl": 1.5}, 0, 7 + (2 + 1) + 3 + 2),
    ],
)
def test_loss_is_the_weighted_sum(objective: dict[str, Any], step: int, expected: float, toy_corpus: Path) -> None:
    """-E log p(X) + weight (max(KL Z, target) + KL S) - log p(S) - alpha log q(S), means over the batch; 10 steps."""
    assert a_learner(toy_corpus, objective).total(TERMS, step, 10).item() == pytest.approx(expected)


def test_labels_enter_the_loss(toy_corpus: Path) -> None:
    """The labelled stories that are read again are a term of their own."""
    learner = a_learner(toy_corpus, {"kl_warmup": 0.0, "labelled_per_step": 5})
    assert isinstance(learner.model, SLDS)
    learner.model.eval()
    rows = np.random.default_rng([0, 1, 0]).choice(learner.labelled, size=5, replace=False)
    again = learner.train_stories.batch(rows)
    log_q = log_q_of(learner.model.evidence(again), again.S).mean()
    assert learner.total(TERMS, 0, 10).item() == pytest.approx(7 + (2 + 1) + 3 + 2 - log_q.item(), rel=1e-6)


def test_rates_warm_up_and_fall(toy_corpus: Path) -> None:
    """Linear over the warm-up, a cosine to nothing over all steps, the dynamics at a rate of their own."""
    train = {"schedule": "cosine", "warmup_steps": 9, "learning_rate": 1.0, "learning_rate_dynamics": 0.5}
    learner = a_learner(toy_corpus, {}, train)
    for step, rise in ((0, 0.1), (4, 0.5), (20, 1.0), (40, 1.0)):
        assert learner.rate(step, 40) == pytest.approx(rise * 0.5 * (1 + math.cos(math.pi * step / 40)))
    networks, dynamics = learner.parameter_groups()
    assert (networks["full_rate"], dynamics["full_rate"]) == (1.0, 0.5)
    assert isinstance(learner.model, SLDS)
    assert {id(p) for p in dynamics["params"]} == {id(p) for p in learner.model.dynamics.parameters()}
    every = [*networks["params"], *dynamics["params"]]
    assert len(every) == len({id(p) for p in every}) == len(list(learner.model.parameters()))


def test_a_step_clips_the_gradients_norm(toy_corpus: Path, tmp_path: Path) -> None:
    learner = a_learner(toy_corpus, {}, {"clip": 0.5})
    Run(learner, tmp_path).step(np.arange(8), 10)
    gradients = [p.grad.flatten() for p in learner.model.parameters() if p.grad is not None]
    assert float(torch.cat(gradients).norm()) == pytest.approx(0.5, rel=1e-3)


def test_a_plateau_slows_down_and_patience_ends(
    toy_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worse epochs multiply the rate by `decay`; a better one resets the count; three in a row are the end."""
    run = Run(a_learner(toy_corpus, {}, {"decay": 0.5, "patience": 3}), tmp_path)
    figures = iter([10.0, 11.0, 9.0, 9.5, 9.0, 12.0])
    monkeypatch.setattr(CorpusLearner, "validate", lambda self: (next(figures), {}))
    seen = []
    for _ in range(6):
        assert not run.patience_is_out()
        run.progress.stories = 1
        run.end_epoch(1.0, None)
        seen.append((run.progress.best, run.progress.bad_epochs, run.progress.scale))
    assert seen == [(10, 0, 1), (10, 1, 0.5), (9, 0, 0.5), (9, 1, 0.25), (9, 2, 0.125), (9, 3, 0.0625)]
    assert run.patience_is_out()


def test_labels_are_a_seeded_share() -> None:
    """The share rounded, at least one story unless it is zero; the same for the same seed."""

    def rows(share: float, seed: int = 0, n: int = 1000) -> list[int]:
        found: list[int] = labelled_rows(n, ObjectiveSettings(labelled=share, label_seed=seed)).tolist()
        return found

    assert [len(rows(share)) for share in (0.0, 0.01, 0.25, 1.0)] == [0, 10, 250, 1000]
    assert len(rows(0.001, n=20)) == 1
    assert rows(0.1) == rows(0.1) != rows(0.1, seed=1)
    assert set(rows(0.01)) <= set(rows(0.1))


def test_unlabelled_stories_show_no_tag(toy_corpus: Path) -> None:
    run = a_learner(toy_corpus, {"labelled": 0.25})
    n = len(run.train_stories)
    batch = run.train_stories.batch(np.arange(n))
    labelled = (batch.S >= 0).any(1)
    assert labelled.nonzero().flatten().tolist() == run.labelled.tolist()
    assert (batch.S[labelled] >= 0)[batch.present[labelled]].all()
    assert len(run.labelled) == round(n / 4)
    assert (run.valid_stories.batch(np.arange(3)).S >= 0).any()


@pytest.mark.parametrize(("keep", "epoch", "trained"), [("best", 1, 3), ("last", 4, 4)])
def test_a_rising_figure_stops_a_run_that_keeps_its_best(
    keep: str, epoch: int, trained: int, toy_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figure rises from the first epoch on: patience 2 ends after three and keeps the first, or all four run."""
    figures = iter([1.0, 2.0, 3.0, 4.0])
    monkeypatch.setattr(CorpusLearner, "validate", lambda self: (next(figures), {}))
    model = {"kind": "lm", "language": {"embedding": 4, "hidden": 4}}
    recipe = {"name": "tiny", "model": model, "train": {"epochs": 4, "patience": 2, "batch": 108, "keep": keep}}
    entries: list[dict[str, Any]] = []
    checkpoint = train(recipe_from(recipe), Corpus.open(toy_corpus), tmp_path, bar=False, report=entries.append)
    assert (checkpoint.figures["epoch"], len(entries)) == (epoch, trained)
