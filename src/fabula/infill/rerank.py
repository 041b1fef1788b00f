"""The baselines' stand-in for interpolation: many samples left to right, the one that suits the clamped sentences wins.

The paper draws 1,000 with top-k 15, each conditioned on the sentences before it, and keeps the one that maximises the
probability of the given sentences. Any mask will do: a given sentence is read where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fabula.infill import decode
from fabula.infill.decode import TOP_15, Choice, Language, Lexicon
from fabula.infill.noise import Noise
from fabula.infill.page import Page
from fabula.infill.samples import Diagnostics, Round, score_following
from fabula.models.lm import LM
from fabula.models.s2s import S2S

WAVE = 125
"""Samples at a time: enough for the matrices to be worth it, few enough for a first answer to come soon."""


@dataclass(frozen=True, kw_only=True)
class RerankSettings:
    """How many samples, and how words are chosen."""

    samples: int = 1000
    """The paper's value."""
    choice: Choice = TOP_15
    """The paper's value."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError("samples is at least 1")


def run(
    model: LM | S2S,
    lexicon: Lexicon,
    page: Page,
    settings: RerankSettings,
    generators: list[torch.Generator],
) -> Iterator[tuple[Round, Diagnostics | None]]:
    """All samples, a wave at a time, ranked by log p of the given sentences that what was written can change."""
    stories, N = page.X.shape[:2]
    left = settings.samples
    while left:
        chains = min(WAVE, left)
        left -= chains
        noise = Noise(generators, page.sentences, chains, page.device)
        wide = page.repeat(chains)
        language: Language = model.language if isinstance(model, LM) else _tagged(model, wide, lexicon)
        uniform = noise.uniform(settings.choice.max_words)
        written = decode.story(language, lexicon, settings.choice, wide, None, uniform)
        score = score_following(written.log_p, written.lengths, wide)
        S = wide.S if isinstance(model, S2S) else torch.full_like(wide.S, -1)
        yield Round(written.X, written.lengths, S, written.log_p, score), None if left else Diagnostics.none(stories, N)


def _tagged(model: S2S, page: Page, lexicon: Lexicon) -> Language:
    raise NotImplementedError
