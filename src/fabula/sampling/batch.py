"""Stories with blanks, as tensors: what is given, what is missing, which tags and opening words are fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.corpus.vocabulary import EOS, PAD
from fabula.models.batch import Batch
from fabula.models.recognition import Evidence, SentenceEncoder
from fabula.models.slds import SLDS
from fabula.shapes import Mask, Tags
from fabula.statespace.gaussian import Potential


@dataclass(frozen=True)
class InfillBatch:
    """Stories side by side, of mixed lengths and with mixed blanks.

    The masks stay on the host: they are known before anything runs, so no step has to ask the device about them.
    """

    X: Int[Tensor, "batch sent word"]
    """The given sentences, each with its `<eos>`, padded; all `<pad>` where missing."""
    lengths: Tags
    """Words of each given sentence with its `<eos>`; 0 where missing or absent."""
    allowed: Bool[Tensor, "batch sent state"]
    """The states that the arc leaves each sentence; a single column where there is no arc, and all are."""
    opening: Int[Tensor, "batch sent opening"]
    """Words a missing sentence has to begin with, padded."""
    present: Mask
    missing: Mask
    barred_names: Bool[Tensor, "batch name"] | None = None
    """Which of the rules' names may not be written; None: all may."""

    @property
    def given(self) -> Mask:
        return self.present & ~self.missing

    @property
    def S(self) -> Tags:
        """The tags that are given: the one state that is allowed, -1 where there are more."""
        one = (self.allowed.sum(2) == 1) & (self.allowed.shape[2] > 1)
        return torch.where(one, self.allowed.int().argmax(2), UNKNOWN)

    def allowed_of(self, K: int) -> Bool[Tensor, "batch sent state"]:
        """The same for a model of K states; one that has a single state follows no arc."""
        if K == 1 or self.allowed.shape[2] == 1:
            return torch.ones(*self.lengths.shape, K, dtype=torch.bool, device=self.device)
        return self.allowed

    @property
    def sentences(self) -> list[int]:
        """N of every story."""
        return [int(n) for n in self.present.sum(1)]

    @property
    def device(self) -> torch.device:
        return self.X.device

    def repeat(self, chains: int) -> InfillBatch:
        """Every story `chains` times over, copies side by side."""
        return self._each(lambda t: t.repeat_interleave(chains, 0))

    def rows(self, start: int, stop: int) -> InfillBatch:
        """Some of the stories, cut to the longest of them."""
        N = max(self.sentences[start:stop])
        cut = self._each(lambda t: t[start:stop, :N])
        return replace(cut, barred_names=None if self.barred_names is None else self.barred_names[start:stop])

    @staticmethod
    def join(batches: Sequence[InfillBatch]) -> InfillBatch:
        """The stories of several batches side by side, padded to the longest; none of them bars names yet."""

        def field(of: Callable[[InfillBatch], Tensor], fill: int | bool) -> Tensor:
            tensors = [of(batch) for batch in batches]
            size = [max(t.shape[axis] for t in tensors) for axis in range(1, tensors[0].dim())]
            joined = tensors[0].new_full((sum(len(t) for t in tensors), *size), fill)
            row = 0
            for t in tensors:
                joined[(slice(row, row + len(t)), *(slice(n) for n in t.shape[1:]))] = t
                row += len(t)
            return joined

        return InfillBatch(
            field(lambda b: b.X, PAD), field(lambda b: b.lengths, 0), field(lambda b: b.allowed, True),
            field(lambda b: b.opening, PAD), field(lambda b: b.present, False), field(lambda b: b.missing, False),
        )  # fmt: skip

    def _each(self, change: Callable[[Tensor], Tensor]) -> InfillBatch:
        return replace(self, **{name: change(t) for name, t in vars(self).items() if t is not None})


def infill_batch(
    stories: Sequence[Sequence[Sequence[int] | None]], allowed: Sequence[Tensor] | None = None,
    openings: Sequence[Mapping[int, Sequence[int]]] | None = None, device: torch.device | str = "cpu", end: int = EOS,
) -> InfillBatch:  # fmt: skip
    """Stories as lists of sentences, each a list of tokens without `end`, or None where missing.

    `allowed` has the states that every sentence may have, [sent, state] for each story.
    """
    n, N = len(stories), max(len(story) for story in stories)
    W = 1 + max((len(s) for story in stories for s in story if s is not None), default=0)
    first = max((len(words) for starts in openings or () for words in starts.values()), default=0)
    X = torch.full((n, N, W), PAD)
    lengths, opening = torch.zeros(n, N, dtype=torch.int64), torch.full((n, N, first), PAD)
    states = torch.ones(n, N, 1 if allowed is None else allowed[0].shape[1], dtype=torch.bool)
    present, missing = torch.zeros(n, N, dtype=torch.bool), torch.zeros(n, N, dtype=torch.bool)
    for row, story in enumerate(stories):
        present[row, : len(story)] = True
        for i, words in enumerate(story):
            missing[row, i] = words is None
            if words is not None:
                X[row, i, : len(words) + 1] = torch.tensor([*words, end])
                lengths[row, i] = len(words) + 1
        if allowed is not None:
            states[row, : len(story)] = allowed[row]
        for i, words in (openings[row] if openings else {}).items():
            opening[row, i, : len(words)] = torch.tensor(list(words))
    return InfillBatch(X.to(device), lengths.to(device), states.to(device), opening.to(device), present, missing)


def flatten(X: Int[Tensor, "batch sent word"], lengths: Tags) -> Batch:
    """Sentences apart to stories in one row: the recognition network's input. Empty sentences take no place."""
    n, N, W = X.shape
    starts = lengths.cumsum(1) - lengths
    total = int(lengths.sum(1).max())
    word = torch.arange(W, device=X.device)
    inside = word < lengths.unsqueeze(-1)
    # Words beyond a sentence's end go to a last column that is cut off.
    place = torch.where(inside, starts.unsqueeze(-1) + word, total).flatten(1)
    number = torch.arange(N, device=X.device).view(1, N, 1).expand_as(inside).flatten(1)
    tokens = X.new_full((n, total + 1), PAD).scatter(1, place, X.flatten(1))[:, :total]
    sentence = X.new_zeros(n, total + 1).scatter(1, place, number)[:, :total]
    return Batch(tokens, sentence, starts, lengths, torch.full_like(lengths, UNKNOWN), int(lengths.max()))


def evidence(model: SLDS, X: Int[Tensor, "batch sent word"], lengths: Tags) -> Evidence:
    """phi_i and q(S_i | X) of the sentences that are there; none from those of length 0."""
    if not bool((lengths > 0).any()):
        blank = torch.zeros(*lengths.shape, model.D, device=X.device)
        even = torch.full((*lengths.shape, model.K), 1.0 / model.K, device=X.device).log()
        return Evidence(Potential(blank, blank), even)
    if not isinstance(model.recognition.encoder, SentenceEncoder):
        return model.evidence(flatten(X, lengths)).where(lengths > 0)
    # Each sentence is read on its own: only those that are there have to be.
    there = (lengths > 0).nonzero(as_tuple=True)
    words = int(lengths.max())
    alone = model.evidence(flatten(X[there][:, None, :words], lengths[there][:, None]))

    def put(values: Float[Tensor, "there 1 width"], default: float) -> Tensor:
        return values.new_full((*lengths.shape, values.shape[-1]), default).index_put(there, values[:, 0])

    K = alone.log_q_S.shape[-1]
    flat = float(torch.full((), 1.0 / K).log())
    phi = alone.phi._replace(mean=put(alone.phi.mean, 0.0), precision=put(alone.phi.precision, 0.0))
    return Evidence(phi, put(alone.log_q_S, flat))
