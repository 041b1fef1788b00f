"""Randomness for many stories at once: a generator for each story, so that neighbours never change a story's draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class Noise:
    """Draws for rows = stories x chains, the chains of a story side by side.

    Drawn on the host, story by story and as long as that story is: the same numbers on CPU and CUDA, alone and in a
    batch with longer stories.
    """

    def __init__(
        self, generators: Sequence[torch.Generator], sentences: Sequence[int], chains: int,
        device: torch.device | str, longest: int | None = None,
    ) -> None:  # fmt: skip
        """Numbers are for `longest` sentences, of which a story's own are drawn; not given: for the longest story."""
        self.generators, self.sentences, self.chains = tuple(generators), tuple(sentences), chains
        self.device, self.longest = torch.device(device), longest or max(sentences)

    def of(self, stories: Sequence[int], chains: int) -> Noise:
        """The noise of some of the stories, as wide as all of them need; the others' generators stay where they are."""
        generators, sentences = zip(*((self.generators[n], self.sentences[n]) for n in stories), strict=True)
        return Noise(generators, sentences, chains, self.device, self.longest)

    def normal(self, *width: int) -> Float[Tensor, "batch sent ..."]:
        """Standard normal, of shape rows x sentences x width."""
        return self._per_sentence(torch.randn, width)

    def uniform(self, *width: int) -> Float[Tensor, "batch sent ..."]:
        """Uniform on [0, 1), of shape rows x sentences x width."""
        return self._per_sentence(torch.rand, width)

    def _per_sentence(self, draw: Callable[..., Tensor], width: Sequence[int]) -> Tensor:
        out = torch.zeros(len(self.generators), self.chains, self.longest, *width)
        for row, (generator, N) in enumerate(zip(self.generators, self.sentences, strict=True)):
            out[row, :, :N] = draw(self.chains, N, *width, generator=generator)
        return out.flatten(0, 1).to(self.device)


def seeded(seed: int, story: int = 0) -> torch.Generator:
    """The generator of one story of a job: `seed` names the job, `story` its place in it."""
    # Far apart in the seed space, so that story 1 of seed 7 is not story 0 of seed 8.
    return torch.Generator().manual_seed((seed * 0x9E3779B97F4A7C15 + story * 0xD1B54A32D192ED03) % 2**63)
