"""A loaded model with what reads and writes its text: rules for words, names, tags."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.corpus.states import UNKNOWN, StateSpace
from fabula.corpus.taggers.names import NEUTRAL, neutral, without_names
from fabula.corpus.taggers.protocol import Tagger, parts_of, read_values, tagger_of
from fabula.corpus.tokenize import tokenise
from fabula.corpus.vocabulary import SPECIALS
from fabula.errors import UserError
from fabula.models.decoders.tokenizer import COMMON, WordTokenizer
from fabula.models.io import Checkpoint
from fabula.sampling.batch import InfillBatch, flatten
from fabula.sampling.cast import Cast
from fabula.sampling.protocol import DEFAULT, Sampler, able_samplers, resolve, sampler_named, shown_settings
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import WRITE_SAMPLES
from fabula.sampling.task import Task
from fabula.sampling.text import TokenText, WordText

LEAST_COMMON, FEWEST_WORDS = 0.2, 4
"""Share of common words below which lines are in another language, and how many words it takes to say so."""
SPOKEN = re.compile(r"(?<!\w)(?<!\w['’])[^\W\d_]+?(?=n['’]t\b|\b)")
"""Words of letters as `tokenise` makes them: `did` of "didn't". Without spaCy, whose import takes half a second."""


class Reading(NamedTuple):
    """What is read off one sentence."""

    tag: str | None
    """The mood."""
    shares: Mapping[str, float]
    """The probability of each mood; empty where the tagger does not say."""
    factors: Mapping[str, str]
    """The labels of further factors by name."""


def _reading(shares: dict[str, dict[str, float]], mood: str) -> Reading:
    """The likeliest label of each factor."""
    labels = {name: max(row, key=row.__getitem__) for name, row in shares.items()}
    return Reading(labels.pop(mood), shares[mood], labels)


def known_values(task: Task, states: StateSpace, tagger: Tagger) -> NDArray[np.int64]:
    """[sent, factor]: the values of the arc; what it leaves open of a given sentence is read off it."""
    read = read_values(tagger, [sentence or "" for sentence in task.sentences], states.spoken(task.arc))
    seen, arc = np.where(np.asarray(task.missing)[:, None], UNKNOWN, read), np.asarray(task.arc)
    return np.where(arc < 0, seen, arc)


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
        self.text: TokenText = (
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
    def tagger(self) -> Tagger:
        """The tagger that made the tags the model was trained on, with names left out (`corpus/taggers/names.py`)."""
        if self._tagger is None:
            raise UserError("this model cannot tag, and no tagger knows its labels", field="model")
        return self._tagger

    @torch.inference_mode()
    def read_tags(self, stories: Sequence[Sequence[str]], factors: Sequence[Collection[str]]) -> list[list[Reading]]:
        """The tags that sentences of whole stories have: what `tag` answers, and what `fill` shows beside each line.

        Names are left out (`corpus/taggers/names.py`). `factors` are those to read of each story although they need a
        parser.
        """
        if not self.model.has_tags and self._tagger is None:
            return [[Reading(None, {}, {})] * len(story) for story in stories]
        if not self.model.has_tags:
            return [self._read_by_tagger(story, names) for story, names in zip(stories, factors, strict=True)]
        free, people = (UNKNOWN,) * len(self.states.factors), self.checkpoint.people.names
        known = NEUTRAL in self.vocabulary.index
        plain = [tuple(neutral(text, people) if known else text for text in story) for story in stories]
        batch = InfillBatch.join([self.text.encode(Task(story, (free,) * len(story))) for story in plain])
        q = self.model.log_q_S(flatten(batch.X, batch.lengths)).exp().tolist()
        return [
            [_reading(row, self.mood) for row in self.states.marginals(shares[: len(story)])]
            for shares, story in zip(q, stories, strict=True)
        ]

    def _read_by_tagger(self, texts: Sequence[str], factors: Collection[str]) -> list[Reading]:
        """By the corpus's tagger; shares of the mood where the tagger says how sure it is."""
        sure = getattr(parts_of(self.tagger)[0], "shares", lambda _: None)(list(texts))
        shares = [dict(zip(self.labels, row, strict=True)) for row in sure] if sure else [{}] * len(texts)
        named = [self.states.named(values) for values in read_values(self.tagger, texts, factors)]
        return [Reading(tag, row, others) for (tag, others), row in zip(named, shares, strict=True)]

    def knows_language(self, texts: Sequence[str]) -> bool:
        """Whether enough of the words, names left out, are among the commonest of the model's stories.

        Of 1,570 test stories of ROCStories one falls below `LEAST_COMMON` by its first and last sentence.
        """
        tokenizer = self.model.tokenizer
        listed = self.vocabulary.words[len(SPECIALS) :][:COMMON] if tokenizer is None else tokenizer.common
        common, people = {word.lower() for word in listed}, self.checkpoint.people.names
        words = [word.lower() for text in texts for word in SPOKEN.findall(text) if word not in people]
        latin = sum(max(word) < "\u0250" for word in words)
        if len(listed) < COMMON or (len(words) < FEWEST_WORDS and 2 * latin >= len(words)):
            return True  # too little to tell
        return sum(word in common for word in words) >= LEAST_COMMON * len(words)

    def count_tokens(self, text: str) -> int:
        """How many of the model's tokens a text has."""
        tokenizer = self.model.tokenizer
        return len(tokenise(text) if tokenizer is None else tokenizer.encode(text))

    def usual_samples(self, sampler: str = DEFAULT, candidates: int = 1) -> int:
        """How many samples `fill` draws for so many candidates where nobody says otherwise."""
        settings, *_ = resolve(self.sampler(sampler)[0], self.model.sampling_defaults, {"candidates": candidates})
        return settings.samples

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
