"""What all learners of adapters share: the pretrained base, where the adapter begins, and its optimiser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fabula.errors import UserError
from fabula.models.decoders.adapter import Adapter, AdapterConfig
from fabula.models.decoders.base import SHA256, check_base, find_base, sha256
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Sizes
from fabula.models.io.pretrained import load_adapter, save_adapter
from fabula.training.learner import Learner
from fabula.training.recipe import AdapterRecipe, CriticRecipe, NarratorRecipe, PreferenceRecipe

WORDS = 40
"""Tokens of a sentence at most; longer ones are cut in training."""


def learner_of(recipe: AdapterRecipe, data: Path, device: torch.device) -> Learner:
    """The learner of an adapter's recipe, on the raw stories in a folder."""
    from fabula.training.critic import CriticLearner
    from fabula.training.narrator import NarratorLearner
    from fabula.training.preference import PreferenceLearner

    if isinstance(recipe, CriticRecipe):
        return CriticLearner(recipe, data, device)
    if isinstance(recipe, PreferenceRecipe):
        return PreferenceLearner(recipe, data, device)
    assert isinstance(recipe, NarratorRecipe)
    return NarratorLearner(recipe, data, device)


class AdapterLearner(Learner):
    """The pretrained base with an adapter in training."""

    recipe: AdapterRecipe

    def __init__(self, recipe: AdapterRecipe, device: torch.device) -> None:
        self.recipe, self.device = recipe, device
        path = Path(recipe.base) if recipe.base else find_base()
        if not recipe.base:
            check_base(path, SHA256)
        self.file, self.base_sha256 = read_gguf(path), sha256(path)
        self.sizes = Sizes.of(self.file.metadata)
        self.encode = SubwordTokenizer.from_metadata(self.file.metadata)
        torch.manual_seed(recipe.seed)

    @torch.no_grad()
    def begin_from(self, network: torch.nn.Module, folder: str) -> None:
        """Copy the adapter in a folder; tokens of factors that it does not have begin as new ones do."""
        adapter = load_adapter(Path(folder))
        expected = (isinstance(self.recipe, CriticRecipe), self.recipe.rank, self.recipe.scale)
        if (adapter.config.critic, adapter.config.rank, adapter.config.scale) != expected:
            raise UserError(f"{folder} is of another kind, rank or scale than the recipe", field="start")
        adapter.check(self.sizes, folder)
        for name, parameter in network.named_parameters():
            tensor = adapter.tensors.get(name.removeprefix("transformer."))
            if tensor is not None and tensor.shape == parameter.shape:
                parameter.copy_(tensor)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """a and the special tokens at one rate, b at four times it (LoRA+)."""
        named, rate = dict(self.network.named_parameters()), self.recipe.learning_rate
        return [
            {
                "params": [p for name, p in named.items() if name.endswith(".b") == fast],
                "full_rate": rate * (4 if fast else 1),
                "betas": (0.9, 0.98),
            }
            for fast in (False, True)
        ]

    def save_adapter(self, out: Path, weights: dict[str, Tensor], **config: Any) -> None:
        about = AdapterConfig(base_sha256=self.base_sha256, rank=self.recipe.rank, scale=self.recipe.scale, **config)
        tensors = {n.removeprefix("transformer."): t.detach().cpu().contiguous() for n, t in weights.items()}
        save_adapter(Adapter(about, tensors), out)
