"""Long stories are written with dynamics that cannot run away; short ones with the model's own."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fabula
from fabula import filling
from fabula.models.steady import HORIZON, RADIUS, contracted, steady


def test_the_radius_is_bounded_and_stable_matrices_are_left_alone() -> None:
    A = torch.stack([torch.diag(torch.tensor([1.2, 0.3])), torch.diag(torch.tensor([0.5, -0.9]))])
    found = contracted(A)
    assert torch.linalg.eigvals(found).abs().amax(-1) == pytest.approx([RADIUS, 0.9])
    assert torch.equal(found[1], A[1])
    assert torch.allclose(found[0] / A[0].clamp(min=1e-9), torch.full((2, 2), RADIUS / 1.2) * torch.eye(2))


def test_a_steady_model_shares_everything_but_A(random_models: Path) -> None:
    model = fabula.load(random_models / "default").model
    assert model.latent is not None
    with torch.no_grad():
        model.latent.dynamics.A.mul_(3)
    before = model.latent.dynamics.A.clone()
    found = steady(model).latent
    assert found is not None
    assert torch.equal(model.latent.dynamics.A, before)
    assert torch.linalg.eigvals(found.dynamics.A).abs().max() <= RADIUS + 1e-5
    assert found.decoder is model.latent.decoder
    assert found.dynamics.bias is model.latent.dynamics.bias
    without = fabula.load(random_models / "lm").model
    assert steady(without) is without


def test_only_long_stories_are_written_with_it(random_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    narrator, used = fabula.load(random_models / "default"), []
    from fabula.sampling.driver import fill_stories as drawn

    def watched(model: object, *rest: object) -> object:
        used.append(model)
        return drawn(model, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(filling, "fill_stories", watched)
    short = narrator.write(HORIZON, samples=1)
    long = narrator.write(HORIZON + 1, samples=1)
    assert used[0] is narrator.model
    assert used[1] is not narrator.model
    assert not short.notes
    assert "longer than the stories this model was made of" in long.notes[0]


def test_a_short_story_does_not_notice_a_long_one_beside_it(random_models: Path) -> None:
    narrator = fabula.load(random_models / "default")
    calls: list[dict[str, Any]] = [
        {"sentences": ["Tom was sad.", *[None] * n], "samples": 3, "seed": 5} for n in (2, HORIZON, 3)
    ]
    *_, together = narrator.fill_together(calls)
    alone = [narrator.fill(**call) for call in calls]
    texts = [[[found.text for found in filling.candidates] for filling in group] for group in (together, alone)]  # type: ignore[union-attr]
    assert texts[0] == texts[1]
