"""Does a story follow the arc it is given? The macro-F1 between the given tags and a tagger's of the written text.

distinct-2 stands beside it, because a model that repeats itself is controlled easily.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.tokenize import detokenise
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError
from fabula.metrics.counting import distinct
from fabula.metrics.latent import draw_given
from fabula.metrics.likelihood import macro_f1
from fabula.models.decoders.words import WordTokenizer
from fabula.models.protocol import Model
from fabula.sampling.batch import infill_batch
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rerank import write_left_to_right
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import DecodingConfig

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Control:
    """Of each run: macro-F1 in percent and distinct-2."""

    f1: FloatArray
    distinct_2: FloatArray

    @property
    def mean(self) -> float:
        return float(self.f1.mean())

    @property
    def spread(self) -> float:
        """The standard deviation over runs; not a number for a single one."""
        return float(self.f1.std(ddof=1)) if len(self.f1) > 1 else float("nan")


@torch.inference_mode()
def write_along(
    model: Model,
    vocabulary: Vocabulary,
    S: Int[Tensor, "batch sent"],
    *,
    top_k: int = 15,
    seed: int = 0,
    piece: int = 512,
) -> list[list[str]]:
    """A story for each row of tags, as English sentences: Z from the dynamics alone (SLDS), or p(X | S) (S2S)."""
    if not (model.has_latent or model.reads_tags):
        raise UserError("control is measured on a model that tags steer: SLDS or S2S", field="model")
    device = str(next(model.parameters()).device)
    rules = WordRules.of(WordTokenizer(vocabulary), device)
    decoding = DecodingConfig(top_k=top_k, temperature=1.0, max_words=30)
    stories: list[list[str]] = []
    generator = torch.Generator(device).manual_seed(seed)
    for start in range(0, len(S), piece):
        tags = S[start : start + piece].to(device)
        blanks = infill_batch([[None] * tags.shape[1]] * len(tags), device=device)
        seeds = [seeded(seed * 1_000_003 + start + row) for row in range(len(tags))]
        uniform = Noise(seeds, blanks.sentences, 1, blanks.device).uniform(decoding.max_words)
        Z = None
        if model.latent is not None:
            Z = draw_given(model.latent, tags, tags >= 0, 1, generator)[:, 0]
        written = write_left_to_right(model, rules, decoding, blanks, tags, Z, uniform)
        stories += sentences_of(written.X, written.lengths, vocabulary)
    return stories


def sentences_of(
    X: Int[Tensor, "batch sent word"], lengths: Int[Tensor, "batch sent"], vocabulary: Vocabulary
) -> list[list[str]]:
    """Written word ids as English sentences."""
    return [
        [
            detokenise(vocabulary.decode(sentence[: max(0, length - 1)]))
            for sentence, length in zip(story, counts, strict=True)
            if length
        ]
        for story, counts in zip(X.tolist(), lengths.tolist(), strict=True)
    ]


def measure_control(runs: Sequence[Sequence[Sequence[str]]], S: Int[Tensor, "batch sent"], tagger: Tagger) -> Control:
    """`runs[run][story][sentence]` against the tags [story, sentence] they were written along; all of one length."""
    f1, variety = [], []
    for stories in runs:
        texts = [sentence for story in stories for sentence in story]
        if len(texts) != S.numel():
            raise ValueError(f"{len(texts)} sentences for {S.numel()} tags")
        read = torch.tensor([-1 if tag is None else tag for tag in tagger.tag(texts)])
        f1.append(macro_f1(S.flatten().cpu(), read, len(tagger.labels)))
        variety.append(distinct([texts], 2))
    return Control(np.array(f1), np.array(variety))
