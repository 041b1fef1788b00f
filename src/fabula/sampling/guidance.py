"""Guidance: words of a decoder that reads ahead, drawn so that the given lines count more than once.

By Bayes' rule r(x | X_:i, X+) / p(x | X_:i) is proportional to P(X+ | X_:i, x): how much likelier a word makes the
given lines. Words are drawn from

    r(x | X_:i, X+) (r(x | X_:i, X+) / p(x | X_:i))^g        normalised; g = 0 is r itself

where r is within `PLAUSIBLE` nats of its best word. Elsewhere the ratio says little, and such words are not drawn. The
rows under r and the same rows under p are one state of the decoder, the first half and the second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
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
    log_p: PerStory
    """Of the sentence that is being written or was read last, under p."""
    scores: Scores | None = None
    """log p of every next word; None before a step."""

    @property
    def under_p(self) -> Any:
        rows = len(self.log_p)
        return self.both.select(torch.arange(rows, 2 * rows, device=self.log_p.device))

    def then(self, tokens: Integers) -> GuidedState:
        log_p = self.log_p
        if self.scores is not None:
            log_p = log_p + self.scores.gather(1, tokens[:, None]).squeeze(1)
        return GuidedState(self.both.then(torch.cat([tokens, tokens])), log_p)

    def select(self, rows: Rows) -> GuidedState:
        scores = None if self.scores is None else self.scores[rows]
        return GuidedState(self.both.select(self._twice(rows)), self.log_p[rows], scores)

    def put(self, rows: Rows, other: GuidedState) -> GuidedState:
        return GuidedState(self.both.put(self._twice(rows), other.both), self.log_p.index_copy(0, rows, other.log_p))

    def _twice(self, rows: Rows) -> Rows:
        return torch.cat([rows, rows + len(self.log_p)])


class GuidedDecoder:
    """A decoder that reads ahead, with guidance."""

    D, reads_ahead = 0, True

    def __init__(self, decoder: Decoder[Any], weight: float) -> None:
        self.decoder, self.weight = decoder, weight

    def start(self, rows: int, z: Tensor | None = None, given: Given | None = None) -> GuidedState:
        assert given is not None, "guidance is by given lines"
        nothing = given._replace(
            lengths=torch.zeros_like(given.lengths), present=torch.zeros_like(given.present),
            missing=torch.zeros_like(given.missing),
        )  # fmt: skip
        both = self.decoder.start(2 * rows, z, Given(*map(torch.cat, zip(given, nothing, strict=True))))
        return GuidedState(both, torch.zeros(rows, device=given.X.device))

    def without_history(self, state: GuidedState) -> GuidedState:
        return replace(state, both=self.decoder.without_history(state.both))

    def begin_sentence(self, state: GuidedState, s: Integers | None) -> GuidedState:
        s = None if s is None else torch.cat([s, s])
        return GuidedState(self.decoder.begin_sentence(state.both, s), torch.zeros_like(state.log_p))

    def read(
        self, state: GuidedState, tokens: Words, lengths: Integers, z: Tensor | None
    ) -> tuple[GuidedState, PerStory]:
        """log p is under p."""
        both, log_p = self.decoder.read(state.both, torch.cat([tokens, tokens]), torch.cat([lengths, lengths]), z)
        under_p = log_p[len(tokens) :]
        return GuidedState(both, under_p), under_p

    def step(self, state: GuidedState, z: Tensor | None, done: Flags) -> tuple[Scores, GuidedState]:
        scores, both = self.decoder.step(state.both, z, torch.cat([done, done]))
        log_r, log_p = scores.float().log_softmax(-1).chunk(2)
        plausible = log_r > log_r.amax(-1, keepdim=True) - PLAUSIBLE
        guided = torch.where(plausible, log_r + self.weight * (log_r - log_p), log_r - FAR)
        # A row that is done chooses nothing.
        return guided, GuidedState(both, state.log_p, log_p.masked_fill(done[:, None], 0.0))
