"""Guidance: words of a decoder that reads ahead, drawn so that the given lines count more than once.

By Bayes' rule r(x | X_:i, X+) / p(x | X_:i) is proportional to P(X+ | X_:i, x): how much likelier a word makes the
given lines. Words are drawn from

    r(x | X_:i, X+) (r(x | X_:i, X+) / p(x | X_:i))^g        normalised; g = 0 is r itself

where r is within `PLAUSIBLE` nats of its best word, whether or not the rules about words allow that one. Elsewhere the
ratio says little, and such words are not drawn. The rows under r and the same rows under p are one state of the
decoder, the first half and the second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from fabula.models.decoders.protocol import Decoder, Given
from fabula.shapes import Flags, Integers, PerStory, Rows, Scores, Words

PLAUSIBLE = 5.0
FAR = 30.0
"""Nats taken from words that are not plausible: they remain where a rule forbids all others."""


@dataclass(frozen=True)
class GuidedState:
    """Rows under r and under p."""

    both: Any
    weight: PerStory
    """g; 0 where no given line follows."""
    log_p: PerStory
    """Of the sentence that is being written or was read last, under p."""
    scores: Scores | None = None
    """log p of every next word; None before a step."""

    @property
    def under_r(self) -> Any:
        return self.both.select(torch.arange(len(self.log_p), device=self.log_p.device))

    @property
    def under_p(self) -> Any:
        rows = len(self.log_p)
        return self.both.select(torch.arange(rows, 2 * rows, device=self.log_p.device))

    def then(self, tokens: Integers) -> GuidedState:
        both = self.both.then(torch.cat([tokens, tokens]))
        new = 0.0 if self.scores is None else self.scores.gather(1, tokens[:, None]).squeeze(1)
        return replace(self, both=both, log_p=self.log_p + new, scores=None)

    def select(self, rows: Rows) -> GuidedState:
        scores = None if self.scores is None else self.scores[rows]
        return GuidedState(self.both.select(self._twice(rows)), self.weight[rows], self.log_p[rows], scores)

    def put(self, rows: Rows, other: GuidedState) -> GuidedState:
        log_p = self.log_p.index_copy(0, rows, other.log_p)
        return replace(self, both=self.both.put(self._twice(rows), other.both), log_p=log_p, scores=None)

    def _twice(self, rows: Rows) -> Int[Tensor, " rows_of_both"]:
        return torch.cat([rows, rows + len(self.log_p)])


class GuidedDecoder:
    """A decoder that reads ahead, with guidance."""

    D = 0

    def __init__(self, decoder: Decoder[Any]) -> None:
        self.decoder = decoder

    def start(self, rows: int, z: Tensor | None = None, given: Given | None = None) -> GuidedState:
        assert given is not None, "guidance is by given lines"
        nothing = given._replace(
            lengths=torch.zeros_like(given.lengths), present=torch.zeros_like(given.present),
            missing=torch.zeros_like(given.missing),
        )  # fmt: skip
        both = self.decoder.start(2 * rows, z, Given(*map(torch.cat, zip(given, nothing, strict=True))))
        zeros = torch.zeros(rows, device=given.X.device)
        return GuidedState(both, zeros, zeros)

    def reads_until(self, i: int) -> int:
        return self.decoder.reads_until(i)

    def without_history(self, state: GuidedState) -> GuidedState:
        return replace(state, both=self.decoder.without_history(state.both))

    def begin_sentence(self, state: GuidedState, s: Integers | None) -> GuidedState:
        both = self.decoder.begin_sentence(state.both, None if s is None else torch.cat([s, s]))
        return replace(state, both=both, log_p=torch.zeros_like(state.log_p))

    def read(
        self, state: GuidedState, tokens: Words, lengths: Integers, z: Tensor | None
    ) -> tuple[GuidedState, PerStory]:
        """log p is under p."""
        both, log_p = self.decoder.read(state.both, torch.cat([tokens, tokens]), torch.cat([lengths, lengths]), z)
        under_p = log_p[len(tokens) :]
        return replace(state, both=both, log_p=under_p), under_p

    def step(self, state: GuidedState, z: Tensor | None, done: Flags) -> tuple[Scores, GuidedState]:
        scores, both = self.decoder.step(state.both, z, torch.cat([done, done]))
        log_r, log_p = scores.float().log_softmax(-1).chunk(2)
        plausible = (log_r > log_r.amax(-1, keepdim=True) - PLAUSIBLE) | (state.weight == 0)[:, None]
        gain = (log_r - log_p).masked_fill(~plausible | log_r.isinf(), 0.0)
        guided = log_r + state.weight[:, None] * gain - FAR * ~plausible
        # A row that is done chooses nothing.
        return guided, replace(state, both=both, scores=log_p.masked_fill(done[:, None], 0.0))
