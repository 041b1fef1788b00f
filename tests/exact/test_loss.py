"""What the loop does with the terms: the weighted loss, rates, labels and averages, against hand calculation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fabula.corpus.dataset import Corpus
from fabula.models.protocol import Terms
from fabula.models.slds import SLDS
from fabula.training.loop import Run, labelled_rows
from fabula.training.objective import log_q_of
from fabula.training.recipe import ObjectiveSettings, recipe_from


def a_run(toy_corpus: Path, tmp_path: Path, objective: dict[str, Any], train: dict[str, Any] | None = None) -> Run:
    recipe = recipe_from(
        {
            "name": "loss",
            "model": {
                "language": {"embedding": 6, "hidden": 8, "dropout": 0.0},
                "dynamics": {"latent": 2},
                "recognition": {"hidden": 4, "dropout": 0.0},
            },
            "objective": objective,
            "train": {"batch": 64, **(train or {})},
        }
    )
    return Run(recipe, Corpus.open(toy_corpus), tmp_path, torch.device("cpu"))


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
def test_loss_is_the_weighted_sum(
    objective: dict[str, Any], step: int, expected: float, toy_corpus: Path, tmp_path: Path
) -> None:
    """-E log p(X) + weight (max(KL Z, target) + KL S) - log p(S) - alpha log q(S), means over the batch; 10 steps."""
    run = a_run(toy_corpus, tmp_path, objective)
    run.progress.step = step
    assert run.loss(TERMS, 10).item() == pytest.approx(expected)


def test_labels_and_sparsity_enter_the_loss(toy_corpus: Path, tmp_path: Path) -> None:
    """Each is a term of its own: the labelled stories read again, and the sparse word weights."""
    base = {"kl_warmup": 0.0}
    run = a_run(toy_corpus, tmp_path, {**base, "labelled_per_step": 5})
    assert isinstance(run.model, SLDS)
    run.model.eval()
    rows = np.random.default_rng([0, 1, 0]).choice(run.labelled, size=5, replace=False)
    again = run.train_stories.batch(rows)
    taught = log_q_of(run.model.evidence(again), again.S).mean()
    assert run.loss(TERMS, 10).item() == pytest.approx(7 + (2 + 1) + 3 + 2 - taught.item(), rel=1e-6)
    sparse = a_run(toy_corpus, tmp_path, {**base, "valence_penalty": 0.1})
    assert isinstance(sparse.model, SLDS)
    with torch.no_grad():
        sparse.model.recognition.valence.free.weight[3, 1] = -2.0
    assert sparse.loss(TERMS, 10).item() == pytest.approx(15 + 0.1 * 2)


def test_rates_warm_up_and_fall(toy_corpus: Path, tmp_path: Path) -> None:
    """Linear over the warm-up, a cosine to nothing over all epochs, the dynamics at a rate of their own."""
    train = {"schedule": "cosine", "epochs": 4, "warmup_steps": 9, "learning_rate": 1.0, "learning_rate_dynamics": 0.5}
    run = a_run(toy_corpus, tmp_path, {}, train)
    for step, scale in ((0, 0.1), (4, 0.5), (20, 1.0), (40, 1.0)):
        run.progress.step = step
        run._set_rates(10)
        cosine = 0.5 * (1 + math.cos(math.pi * step / 40))
        rates = [group["lr"] for group in run.optimiser.param_groups]
        assert rates == pytest.approx([scale * cosine, 0.5 * scale * cosine])
    assert isinstance(run.model, SLDS)
    slow = {id(parameter) for parameter in run.optimiser.param_groups[1]["params"]}
    assert slow == {id(parameter) for parameter in run.model.dynamics.parameters()}
    every = [p for group in run.optimiser.param_groups for p in group["params"]]
    assert len(every) == len({id(p) for p in every}) == len(list(run.model.parameters()))


def test_a_plateau_slows_down_and_patience_ends(
    toy_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worse epochs multiply the rate by `decay`; a better one resets the count; three in a row are the end."""
    run = a_run(toy_corpus, tmp_path, {}, {"decay": 0.5, "patience": 3})
    figures = iter([10.0, 11.0, 9.0, 9.5, 9.0, 12.0])
    monkeypatch.setattr(Run, "validate", lambda self, weights: (next(figures), {}))
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


def test_unlabelled_stories_show_no_tag(toy_corpus: Path, tmp_path: Path) -> None:
    run = a_run(toy_corpus, tmp_path, {"labelled": 0.25})
    n = len(run.train_stories)
    batch = run.train_stories.batch(np.arange(n))
    labelled = (batch.S >= 0).any(1)
    assert labelled.nonzero().flatten().tolist() == run.labelled.tolist()
    assert (batch.S[labelled] >= 0)[batch.present[labelled]].all()
    assert len(run.labelled) == round(n / 4)
    assert (run.valid_stories.batch(np.arange(3)).S >= 0).any()
