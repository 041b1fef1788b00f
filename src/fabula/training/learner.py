"""What the training loop needs to know of a kind of model: its network, batches, loss, validation and files."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fabula.training.recipe import AdapterRecipe, Recipe

T = TypeVar("T")


class Learner(ABC):
    """A network in training. The loop has the optimiser, the progress, the log and the resumption."""

    terms: ClassVar[tuple[str, ...]]
    """The names of what `loss` measures for the log."""
    recipe: Recipe | AdapterRecipe
    network: nn.Module
    device: torch.device
    data_hash: str
    """Of everything besides the recipe that decides the outcome."""

    @abstractmethod
    def parameter_groups(self) -> list[dict[str, Any]]:
        """The optimiser's groups, each with its `full_rate`."""

    @abstractmethod
    def rate(self, step: int, steps: int) -> float:
        """What the schedule multiplies the learning rates by at this step of so many."""

    @abstractmethod
    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, the same at every call."""

    @abstractmethod
    def loss(self, batch: Any, step: int, per_epoch: int) -> tuple[Tensor, Float[Tensor, " term"]]:
        """The mean loss of a batch, and the means of its `terms`."""

    @abstractmethod
    def validate(self) -> tuple[float, dict[str, float]]:
        """The figure by which epochs are compared, lower is better, and what it consists of."""

    @abstractmethod
    def save(self, out: Path, figures: dict[str, Any], weights: dict[str, Tensor]) -> None:
        """Write the model as it is used."""

    def finish(self, out: Path) -> None:  # noqa: B027 (those of an adapter are there already)
        """Put the weights that were kept into the network."""


def batches_of_like_lengths(
    examples: Sequence[T], batch: int, pool: int, length: Callable[[T], int], rng: random.Random
) -> list[list[T]]:
    """Every example once, in random batches of like lengths: sorted within pools of so many batches."""
    batches = []
    for first in range(0, len(examples), pool * batch):
        part = sorted(examples[first : first + pool * batch], key=length)
        batches += [part[i : i + batch] for i in range(0, len(part), batch)]
    return rng.sample(batches, len(batches))
