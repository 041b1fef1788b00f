"""Learning of adapters on raw stories: the narrator's, in the rows of `models/decoders/rows.py`."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fabula.corpus.dataset import digest
from fabula.corpus.taggers.protocol import build_tagger, named, states_of
from fabula.errors import UserError
from fabula.models.decoders.adapter import Adapter, AdapterConfig
from fabula.models.decoders.bases import SMOLLM2, need_base, read_base
from fabula.models.decoders.rows import FREE, SPECIALS, Row, TagTokens, random_row, row
from fabula.models.decoders.transformer import Transformer, freeze
from fabula.models.io import write_file
from fabula.models.io.pretrained import FACTS, load_adapter, save_adapter
from fabula.training.learner import Learner, batches_of_like_lengths
from fabula.training.losses.lm import log_p_of
from fabula.training.recipe import AdapterRecipe, CriticRecipe, NarratorRecipe
from fabula.training.stories import Stories

WORDS = 40
"""Tokens of a sentence at most; longer ones are cut in training."""
POOL = 8
"""Batches whose rows are sorted by length together."""
WARMUP, LOWEST_RATE = 0.02, 0.05
"""Share of the steps over which the rates rise, and the share of the full rates at the end."""


class AdapterLearner(Learner):
    """The pretrained base with an adapter in training."""

    recipe: AdapterRecipe

    def __init__(self, recipe: AdapterRecipe, device: torch.device) -> None:
        self.recipe, self.device = recipe, device
        start = load_adapter(Path(recipe.start)).config.base_sha256 if recipe.start else SMOLLM2
        self.base = read_base(Path(recipe.base) if recipe.base else need_base(start))
        self.encode = self.base.tokenizer
        self.half = bool(recipe.top) and torch.cpu._is_avx512_bf16_supported()
        torch.manual_seed(recipe.seed)

    def hash_data(self, data: Path) -> None:
        """Digests of what the adapter is trained on."""
        self.corpus_hash = digest((data / "train.csv").read_bytes())
        self.data_hash = f"{self.corpus_hash} {self.base.sha256}"

    @torch.no_grad()
    def begin_from(self, network: nn.Module, folder: str) -> None:
        """Copy the adapter in a folder; tokens of factors that it does not have begin as new ones do."""
        adapter = load_adapter(Path(folder))
        expected = (isinstance(self.recipe, CriticRecipe), self.recipe.rank, self.recipe.scale)
        if (adapter.config.critic, adapter.config.rank, adapter.config.scale) != expected:
            raise UserError(f"{folder} is of another kind, rank or scale than the recipe", field="start")
        adapter.check(self.base.sizes, folder)
        for name, parameter in network.named_parameters():
            tensor = adapter.tensors.get(name.removeprefix("transformer."))
            if tensor is not None and tensor.shape == parameter.shape:
                parameter.copy_(tensor)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """a and the special tokens at one rate, b at four times it (LoRA+)."""
        groups: dict[bool, list[nn.Parameter]] = {False: [], True: []}
        for name, parameter in self.network.named_parameters():
            if parameter.requires_grad:
                groups[name.endswith(".b")].append(parameter)
        rate = self.recipe.learning_rate
        return [{"params": p, "full_rate": 4 * rate if b else rate, "betas": (0.9, 0.98)} for b, p in groups.items()]

    def save_adapter(self, out: Path, weights: dict[str, Tensor], **config: Any) -> None:
        about = AdapterConfig(base_sha256=self.base.sha256, rank=self.recipe.rank, scale=self.recipe.scale, **config)
        tensors = {n.removeprefix("transformer."): t.detach().cpu().contiguous() for n, t in weights.items()}
        save_adapter(Adapter(about, tensors), out)

    def figures(self, step: int, last: dict[str, Any]) -> dict[str, Any]:
        """What the command prints of a finished run, whose last entry of the log is `last`."""
        raise NotImplementedError


class NarratorLearner(AdapterLearner):
    """The narrator on train.csv and valid.csv of a folder."""

    terms: ClassVar[tuple[str, ...]] = ("nll_token",)
    recipe: NarratorRecipe
    network: Transformer

    def __init__(self, recipe: NarratorRecipe, data: Path, device: torch.device) -> None:
        super().__init__(recipe, device)
        self.states = states_of(build_tagger(named(recipe.tagger)))
        self.tokens = TagTokens(self.states, self.base.sizes.vocabulary)
        base, names = self.base, self.tokens.names
        self.network = Transformer(
            base.tensors, base.sizes, recipe.rank, recipe.scale, SPECIALS, further=len(names), top=recipe.top
        )
        if names:  # their vectors begin as the mean of the base's vectors of the words of each name
            with torch.no_grad():
                vectors = [self.network.embedding[torch.tensor(self.encode.encode(name))].mean(0) for name in names]
                self.network.further_in.copy_(torch.stack(vectors))
        freeze(self.network, device, self.half)
        if recipe.start:
            self.begin_from(self.network, recipe.start)
        splits = (data / f"{split}.csv" for split in ("train", "valid"))
        self.train, self.valid = (Stories(file, self.encode, WORDS, recipe.tagger) for file in splits)
        self.hash_data(data)

    def random_row(self, story: int, rng: random.Random) -> Row:
        further = [factor[story] for factor in self.train.further]
        return random_row(self.train.X[story], self.train.S[story], rng, self.recipe.plain, self.tokens, further)

    def batches(self, epoch: int) -> list[list[Any]]:
        """Every story once, as a random row."""
        rng = random.Random(f"{self.recipe.seed} {epoch}")
        order = rng.sample(range(len(self.train.X)), len(self.train.X))
        rows = [self.random_row(story, rng) for story in order]
        return batches_of_like_lengths(rows, self.recipe.batch, POOL, lambda row: len(row.ids), rng)

    def loss(self, batch: list[Any], step: int, per_epoch: int) -> tuple[Tensor, Float[Tensor, " term"]]:
        loss = -log_p_of(self.network, batch).mean()
        return loss, loss.detach().view(1)

    def rate(self, step: int, steps: int) -> float:
        """A linear rise, and a half cosine to a twentieth."""
        done = (step + 1) / steps
        cosine = 0.5 + 0.5 * math.cos(math.pi * done)
        return min(1.0, done / WARMUP) * (LOWEST_RATE + (1 - LOWEST_RATE) * cosine)

    @torch.no_grad()
    def validate(self) -> tuple[float, dict[str, float]]:
        """Nats per story, without a header and with S free."""
        rows = [row(story, [FREE] * len(story), None, range(len(story))) for story in self.valid.X]
        parts = [rows[i : i + self.recipe.batch] for i in range(0, len(rows), self.recipe.batch)]
        return sum(-float(log_p_of(self.network, part).sum()) for part in parts) / len(rows), {}

    def save(self, out: Path, figures: dict[str, Any], weights: dict[str, Tensor]) -> None:
        factors, tagger = self.states.factors, self.recipe.tagger
        several = factors if len(factors) > 1 else ()
        self.save_adapter(out, weights, labels=factors[0].labels, tagger=tagger, factors=several)
        facts = {"name": self.recipe.name, "figures": {}, "corpus_hash": self.corpus_hash, **self.train.facts}
        write_file(out / FACTS, (json.dumps(facts, ensure_ascii=False) + "\n").encode())

    def figures(self, step: int, last: dict[str, Any]) -> dict[str, Any]:
        return {"valid_nll": last["valid_nll"], "steps": step, "stories": len(self.train.X)}
