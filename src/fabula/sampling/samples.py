"""What samplers yield: complete stories with their scores, the choice among them, and how well the sampler moved."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.sampling.batch import InfillBatch
from fabula.shapes import PerSentence, PerStory, Tags
from fabula.ties import ranking


class SampledStory(NamedTuple):
    """One complete story, on the host."""

    X: Int[Tensor, "sent word"]
    lengths: Int[Tensor, " sent"]
    S: Int[Tensor, " sent"]
    log_p: Float[Tensor, " sent"]
    score: float
    verdict: Float[Tensor, " sent"] | None = None


class SampledStories(NamedTuple):
    """One complete story for every row, rows = stories x chains."""

    X: Int[Tensor, "batch sent word"]
    lengths: Tags
    S: Tags
    """The tags it was written under; -1 for a model that has none."""
    log_p: PerSentence
    """log p(X_i | X_:i, Z_i) of every sentence, given or written."""
    score: PerStory
    """What stories are ranked by, larger is better."""
    log_weight: PerStory
    """The log of the importance weight that makes the story a draw from the sampler's target; 0 for a Markov chain."""
    verdict: PerSentence | None = None
    """The critic's, if it was asked: first of the whole story, then what each later line did to it."""

    def row(self, row: int) -> SampledStory:
        """One of the stories."""
        X, lengths, S, log_p = (tensor[row].cpu() for tensor in self[:4])
        verdict = None if self.verdict is None else self.verdict[row].cpu()
        return SampledStory(X, lengths, S, log_p, float(self.score[row]), verdict)

    def cpu(self) -> SampledStories:
        return self._each(lambda tensor: tensor.cpu())

    def first_chains(self, chains: int, kept: int) -> SampledStories:
        """The first `kept` of every story's `chains`."""
        if kept == chains:
            return self
        return self._each(lambda tensor: tensor.unflatten(0, (-1, chains))[:, :kept].flatten(0, 1))

    def _each(self, change: Callable[[Tensor], Tensor]) -> SampledStories:
        return self._replace(**{name: change(t) for name, t in self._asdict().items() if t is not None})


class Diagnostics(NamedTuple):
    """How a sampler moved, per story; NaN where a figure has no meaning for the sampler."""

    changed: Float[Tensor, "story sent"]
    """How often each missing sentence changed from one sweep to the next (or, without sweeps, differs from another
    sample's); NaN for given ones."""
    ess: Float[Tensor, " story"]
    """The smallest effective sample size of the importance weights."""
    r_hat: Float[Tensor, " story"]
    """Split-R-hat of Z over chains, the largest of all coordinates of all sentences."""
    tag_ess: Float[Tensor, " story"]
    """How many draws of S the tag paths are worth, where they were too many to enumerate and were sampled."""

    @staticmethod
    def none(stories: int, sentences: int) -> Diagnostics:
        blank = torch.full((stories,), float("nan"))
        return Diagnostics(torch.full((stories, sentences), float("nan")), blank, blank, blank)


Rounds = Iterator[tuple[SampledStories, Diagnostics | None]]
"""What a sampler yields: complete stories, and with the last of them how it moved."""


def score_following(log_p: PerSentence, lengths: Tags, blanks: InfillBatch, fluency: float = 0.0) -> PerStory:
    """log p of the given sentences that follow a missing one: the others' words do not depend on what was written.

    `fluency` adds so many times the writing's own mean log p per word. Where no given sentence follows there is nothing
    else to choose by.
    """
    following = (blanks.given & (blanks.missing.cumsum(1) > 0)).any(1).to(log_p.device)
    ending, density = score_parts(log_p, lengths, blanks)
    return torch.where(following, ending + fluency * density, density)


def score_parts(log_p: PerSentence, lengths: Tags, blanks: InfillBatch) -> tuple[PerStory, PerStory]:
    """log p of the given sentences that follow a missing one, 0 where there is none; mean log p of a written word."""
    following = (blanks.given & (blanks.missing.cumsum(1) > 0)).to(log_p.device)
    missing = blanks.missing.to(log_p.device)
    density = (log_p * missing).sum(-1) / (lengths * missing).sum(-1).clamp(min=1)
    return (log_p * following).sum(-1), density


def best_stories(
    rounds: Sequence[SampledStories], story: int, missing: Bool[Tensor, "story sent"], n: int
) -> list[SampledStory]:
    """n of one story's samples, best first, no text twice; scores tied up to rounding in the order they were drawn.

    A sample that begins as a better one does, or has more than half its written sentences in common with one, is kept
    only where there are not enough others.
    """
    places: list[tuple[SampledStories, int]] = []
    scores: list[float] = []
    for r in rounds:
        chains = len(r.score) // len(missing)
        rows = range(story * chains, (story + 1) * chains)
        places += [(r, row) for row in rows]
        scores += r.score[rows.start : rows.stop].tolist()
    order = ranking(scores)
    lines = missing[story].nonzero().flatten().tolist()
    ranked = (places[place] for place in order)
    texts = (tuple(words.tobytes() for words in r.X[row, lines].cpu().numpy()) for r, row in ranked)
    return [r.row(row) for r, row in (places[order[rank]] for rank in different_texts(texts, n))]


def different_texts(texts: Iterable[tuple[Hashable, ...]], n: int) -> list[int]:
    """The places of n of these texts, which come best first: none twice, and like ones only where others lack."""
    seen: set[tuple[Hashable, ...]] = set()
    different: dict[int, tuple[Hashable, ...]] = {}
    alike: list[int] = []
    for rank, text in enumerate(texts):
        if text not in seen:
            seen.add(text)
            if any(_alike(text, other) for other in different.values()):
                alike.append(rank)
            else:
                different[rank] = text
        if len(different) == n:
            break
    return sorted([*different, *alike[: n - len(different)]])


def _alike(one: Sequence[Hashable], other: Sequence[Hashable]) -> bool:
    """Whether two samples begin with the same sentence, or share more than half of all."""
    same = [a == b for a, b in zip(one, other, strict=True)]
    return same[0] or 2 * sum(same) > len(same)
