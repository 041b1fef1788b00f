"""Small random models, built in one way for every test."""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.models.build import build
from fabula.models.io import Checkpoint
from fabula.statespace.dynamics import LinearGaussian
from fabula.training.recipe import Recipe, recipe_from

LABELS = ("negative", "neutral", "positive")
SIZES: dict[str, dict[str, Any]] = {
    "language": {"embedding": 8, "hidden": 12},
    "dynamics": {"latent": 3},
    "recognition": {"hidden": 6},
}
TINY = """
[model.language]
embedding = 8
hidden = 12
[model.dynamics]
latent = 2
[model.recognition]
hidden = 4
[train]
epochs = 1
batch = 16
"""
"""The end of a recipe that is trained in a second; `model.kind = ...` may stand before it."""
M = TypeVar("M", bound=nn.Module)


def small_recipe(kind: str = "slds", **settings: Any) -> Recipe:
    """A recipe of these sizes; `language={"hidden": 5}` changes one of them."""
    parts = {part: sizes | settings.get(part, {}) for part, sizes in SIZES.items()}
    return recipe_from({"name": f"random-{kind}", "model": {"kind": kind, **parts}})


def small_model(
    kind: str = "slds", *, words: int, p_initial: Sequence[float] = (1 / 3,) * 3, p_next: Any = None, seed: int = 0,
    **settings: Any,
) -> Any:  # fmt: skip
    """An untrained model for evaluation; p(S_i | S_{i-1}) is uniform where it is not given."""
    torch.manual_seed(seed)
    K = len(p_initial)
    chain = torch.full((K, K), 1 / K) if p_next is None else torch.as_tensor(p_next)
    return build(small_recipe(kind, **settings).model, words, torch.tensor(p_initial), chain).eval()


def small_checkpoint(
    kind: str = "slds", *, words: Sequence[str], labels: Sequence[str] = LABELS, factors: Any = (), **model: Any
) -> Checkpoint:
    """An untrained model with its words and labels, as `save` and `StoryModel` take it."""
    vocabulary, K = Vocabulary((*SPECIALS, *words)), len(labels)
    settings = {part: model[part] for part in SIZES if part in model}
    return Checkpoint(
        model=small_model(kind, words=len(vocabulary), p_initial=[1 / K] * K, **model), vocabulary=vocabulary,
        labels=tuple(labels), recipe=small_recipe(kind, **settings).to_dict(), corpus_hash="0" * 64,
        figures={"ppl": 12.5}, factors=factors,
    )  # fmt: skip


def perturbed(module: M, scale: float) -> M:
    """The module with normal noise of this scale added to every parameter."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return module


def random_dynamics(K: int, D: int, seed: int, scale: float = 0.4) -> LinearGaussian:
    """Dynamics in float64 whose states differ."""
    torch.manual_seed(seed)
    return perturbed(LinearGaussian(K, D).double(), scale)


def prior_of(dynamics: LinearGaussian, S: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of p(Z | S), all sentences in one vector, in float64."""
    D, n = dynamics.D, len(S) * dynamics.D
    A, bias, Sigma = dynamics.A.double(), dynamics.bias.double(), dynamics.Sigma().double()
    mean, covariance = torch.zeros(n).double(), torch.zeros(n, n).double()
    for i, s in enumerate(S):
        here, before = slice(i * D, (i + 1) * D), slice((i - 1) * D, i * D)
        if i:
            mean[here] = A[s] @ mean[before]
            covariance[here, : i * D] = A[s] @ covariance[before, : i * D]
            covariance[: i * D, here] = covariance[here, : i * D].T
            covariance[here, here] = A[s] @ covariance[before, before] @ A[s].T
        mean[here] += bias[s]
        covariance[here, here] += Sigma[s]
    return mean, covariance
