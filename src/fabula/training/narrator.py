"""Learning of the narrator's adapter on raw stories, in the rows of `models/decoders/rows.py`."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.corpus.dataset import digest
from fabula.corpus.taggers.protocol import build_tagger, named, states_of
from fabula.models.decoders.rows import FREE, SPECIALS, Row, TagTokens, random_row, row
from fabula.models.decoders.transformer import Transformer, compile_blocks
from fabula.models.io import write_file
from fabula.models.io.pretrained import FACTS
from fabula.training.adapter import WORDS, AdapterLearner
from fabula.training.learner import batches_of_like_lengths
from fabula.training.losses.lm import log_p_of
from fabula.training.recipe import NarratorRecipe
from fabula.training.stories import Stories

POOL = 8
"""Batches whose rows are sorted by length together."""
WARMUP, LOWEST_RATE = 0.02, 0.05
"""Share of the steps over which the rates rise, and the share of the full rates at the end."""


class NarratorLearner(AdapterLearner):
    """The narrator on train.csv and valid.csv of a folder."""

    terms: ClassVar[tuple[str, ...]] = ("nll_token",)
    recipe: NarratorRecipe
    network: Transformer

    def __init__(self, recipe: NarratorRecipe, data: Path, device: torch.device) -> None:
        super().__init__(recipe, device)
        self.states = states_of(build_tagger(named(recipe.tagger)))
        self.tokens = TagTokens(self.states, self.sizes.vocabulary)
        self.network = self.new_network(recipe.start)
        if device.type == "cuda":
            compile_blocks(self.network)
        splits = (data / f"{split}.csv" for split in ("train", "valid"))
        self.train, self.valid = (Stories(file, self.encode, WORDS, recipe.tagger) for file in splits)
        corpus_hash = digest((data / "train.csv").read_bytes())
        self.facts = {"name": recipe.name, "figures": {}, "corpus_hash": corpus_hash, **self.train.facts}
        self.data_hash = f"{corpus_hash} {self.base_sha256}"

    def new_network(self, start: str) -> Transformer:
        """The base with a new adapter, or with the one in the folder `start`."""
        names = self.tokens.names
        network = Transformer(self.file, self.recipe.rank, self.recipe.scale, SPECIALS, further=len(names))
        if names:
            with torch.no_grad():
                network.further_in.copy_(self.mean_vectors(names, network.embedding))
        network.to(self.device)
        if start:
            self.begin_from(network, start)
        return network

    def mean_vectors(self, names: list[str], embedding: Tensor) -> Float[Tensor, "name width"]:
        """Where the vectors of further tokens begin: the mean of the base's vectors of the words of each name."""
        return torch.stack([embedding[torch.tensor(self.encode.encode(name))].mean(0) for name in names])

    def random_row(self, story: int, rng: random.Random) -> Row:
        tags, further = self.train.tags(story)
        return random_row(self.train.X[story], tags, rng, self.recipe.plain, tokens=self.tokens, further=further)

    def batches(self, epoch: int) -> list[list[Any]]:
        """Every story once, as a random row."""
        rng = random.Random(f"{self.recipe.seed} {epoch}")
        order = rng.sample(range(len(self.train.X)), len(self.train.X))
        rows = [self.random_row(story, rng) for story in order]
        return batches_of_like_lengths(rows, self.recipe.batch, POOL, lambda row: len(row.ids), rng)

    def weigh(self, batch: list[Any]) -> float:
        """The number of counted tokens."""
        return float(sum(sum(row.counted) for row in batch))

    def loss(self, batch: list[Any], step: int, per_epoch: int) -> tuple[Tensor, Float[Tensor, " term"]]:
        loss = -log_p_of(self.network, batch)[0].mean()
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
        return sum(-float(log_p_of(self.network, part)[0].sum()) for part in parts) / len(rows), {}

    def save(self, out: Path, figures: dict[str, Any], weights: dict[str, Tensor]) -> None:
        factors, tagger = self.states.factors, self.recipe.tagger
        several = factors if len(factors) > 1 else ()
        self.save_adapter(out, weights, labels=factors[0].labels, tagger=tagger, factors=several)
        write_file(out / FACTS, (json.dumps(self.facts, ensure_ascii=False) + "\n").encode())

    def figures(self, step: int, last: dict[str, Any]) -> dict[str, Any]:
        return {"valid_nll": last["valid_nll"], "steps": step, "stories": len(self.train.X)}
