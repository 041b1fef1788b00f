"""A sampler for the tests, as a newcomer would write one: a missing sentence says what the sentence before it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fabula.sampling.settings import FillSettings, setting


@dataclass(frozen=True, kw_only=True)
class RepeatingSettings(FillSettings):
    """What every sampler has, and one setting of its own."""

    words: int = setting(100, "words to repeat, at most", at_least=1, http=(1, 9), doors=("cli", "http", "python"))


class RepeatingSampler:
    name, about, settings = "repeat", "says everything again", RepeatingSettings
    runs_on: Literal["any"] = "any"

    def run(
        self, model: Any, batch: Any, settings: RepeatingSettings, generators: Sequence[Any], **_: Any
    ) -> Iterator[Any]:
        import torch

        from fabula.corpus.vocabulary import EOS
        from fabula.sampling.samples import SampledStories

        wide = batch.repeat(settings.samples)
        X, lengths = wide.X.clone(), wide.lengths.clone()
        for row, i in wide.missing.nonzero().tolist():
            kept = min(int(lengths[row, i - 1]) - 1, settings.words)
            X[row, i, :kept] = X[row, i - 1, :kept]
            X[row, i, kept], lengths[row, i] = EOS, kept + 1
        zeros = torch.zeros(lengths.shape)
        yield SampledStories(X, lengths, wide.S, zeros, zeros[:, 0], zeros[:, 0]), None
