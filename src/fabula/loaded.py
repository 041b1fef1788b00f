"""A loaded model with what reads and writes its text: rules for words, names, tags."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

from fabula.corpus.taggers.names import without_names
from fabula.corpus.taggers.protocol import Tagger, read_values, tagger_of
from fabula.corpus.tokenize import tokenise
from fabula.errors import UserError
from fabula.models.decoders.words import WordTokenizer
from fabula.models.io import Checkpoint
from fabula.models.protocol import Model
from fabula.models.steady import steady
from fabula.sampling.cast import Cast
from fabula.sampling.protocol import DEFAULT, Sampler, able_samplers, sampler_named, settings_for, shown_settings
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import WRITE_SAMPLES, whole_number
from fabula.sampling.text import TokenText, WordText


class LoadedModel:
    """A checkpoint on its device, with everything needed to use it on raw text."""

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.checkpoint, self.device = checkpoint, device
        self.model = checkpoint.model.requires_grad_(False)
        self.vocabulary, self.states = checkpoint.vocabulary, checkpoint.states
        self.labels = self.states.factors[0].labels
        """Of the mood, the first factor of the state; `states` has all of them."""
        tokenizer = self.model.tokenizer
        self.rules = WordRules.of(tokenizer or WordTokenizer(self.vocabulary), device, checkpoint.people.names)
        self.cast = Cast(checkpoint.people, self.rules)
        self.text: TokenText | WordText = (
            WordText(self.model, self.vocabulary, self.states, self.rules, checkpoint.people)
            if tokenizer is None
            else TokenText(tokenizer, self.states, self.rules)
        )
        if self.model.tagger is not None:
            self.model.tagger = without_names(self.model.tagger, checkpoint.people.names)
        self.notes: tuple[str, ...] = ()
        """Said with every answer: that another model stands in for the one that was asked for."""
        self.write_samples = WRITE_SAMPLES

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @property
    def mood(self) -> str:
        """The name of the first factor."""
        return self.states.factors[0].name

    @cached_property
    def _tagger(self) -> Tagger | None:
        tagger = tagger_of(self.checkpoint.tagger, self.checkpoint.labels)
        return None if tagger is None else without_names(tagger, self.checkpoint.people.names)

    @property
    def can_tag(self) -> bool:
        """Whether there is a q(S | X) or a tagger that knows the labels."""
        return self.model.has_tags or self._tagger is not None

    @property
    def tagger(self) -> Tagger:
        """The tagger that made the tags the model was trained on, with names left out (`corpus/taggers/names.py`)."""
        if self._tagger is None:
            raise UserError("this model cannot tag, and no tagger knows its labels", field="model")
        return self._tagger

    def read_values(self, texts: Sequence[str], factors: Collection[str]) -> list[list[int]]:
        """The values of each factor that the tagger reads off sentences; a slow tagger runs for named factors only."""
        return read_values(self.tagger, texts, factors)

    @cached_property
    def steady(self) -> Model:
        """The model for long stories (`models/steady.py`)."""
        return steady(self.model)

    def count_tokens(self, text: str) -> int:
        """How many of the model's tokens a text has."""
        tokenizer = self.model.tokenizer
        return len(tokenise(text) if tokenizer is None else tokenizer.encode(text))

    def usual_samples(self, sampler: str = DEFAULT) -> int:
        """How many samples `fill` draws where nobody says otherwise."""
        return settings_for(self.sampler(sampler)[0], self.model.sampling_defaults, {}).samples

    def settings(self) -> dict[str, dict[str, Any]]:
        """The settings that apply where nobody says otherwise, for every sampler that this model can run.

        >>> fabula.load("small").settings()["smc"]["samples"]
        50
        """
        able = able_samplers(self.model.has_latent, self.model.reads_ahead)
        return {sampler.name: shown_settings(sampler, self.model.sampling_defaults) for sampler in able}

    def sampler(self, name: str) -> tuple[Sampler, tuple[str, ...]]:
        """The sampler of this name; where it needs latents that the model lacks, another one and a note."""
        sampler, latent = sampler_named(name), self.model.has_latent
        if sampler.runs_on == "server":
            raise UserError(f"{name} is for language models on servers, served:NAME", field="sampler")
        able = able_samplers(latent, self.model.reads_ahead)
        if sampler in able:
            return sampler, ()
        others = " or ".join(other.name for other in able)
        if latent:
            raise UserError(f"{name} is for models without latents; use {others}", field="sampler")
        if self.model.reads_ahead:
            raise UserError(f"{name} is for models with latents; use {others}", field="sampler")
        what = f"a model without latents ({self.checkpoint.kind}) cannot run {name}"
        return able[0], (f"{what}: reranked left-to-right samples instead",)


def check_seed(seed: int) -> int:
    number = whole_number("seed", seed)
    if not -(2**63) <= number < 2**63:
        raise UserError(f"seed must be a number of 64 bits, not {number}"[:100], field="seed")
    return number
