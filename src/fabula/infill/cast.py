"""Who is in a story: names that may be written, and pronouns that somebody in it may be meant by.

Counted names (`corpus.people`) and a closed list of kin and role words decide, nothing else; both rules are off in the
evaluations, and a model whose names were not counted has none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.people import EITHER_NOUNS, HE, HE_NOUNS, ME, SHE, SHE_NOUNS, People
from fabula.corpus.vocabulary import Vocabulary
from fabula.infill.batch import InfillBatch

VOICES = 3
"""he, she, and the one who tells."""


class Cast:
    """What the words of a vocabulary say about who is there."""

    def __init__(self, people: People, vocabulary: Vocabulary, device: torch.device | str) -> None:
        words = [word.lower() for word in vocabulary.words]

        def among(*lists: Collection[str]) -> Tensor:
            listed = {word for one in lists for word in one}
            return torch.tensor([word in listed for word in words])

        he, she = ({vocabulary.index[name] for name in names} for names in (people.he, people.she))
        named = torch.zeros(2, len(words), dtype=torch.bool)
        named[0, list(he)] = True
        named[1, list(she)] = True
        self.names: Int[Tensor, " name"] = named.any(0).nonzero().squeeze(1).to(device)
        pronouns = torch.stack([among(HE), among(SHE), among(ME)])
        either = among(EITHER_NOUNS)
        brings = [among(HE_NOUNS) | named[0] | either, among(SHE_NOUNS) | named[1] | either, torch.zeros_like(either)]
        self.pronouns: Bool[Tensor, "voice vocab"] = pronouns.to(device)
        """Words that stand for somebody."""
        self.brings: Bool[Tensor, "voice vocab"] = torch.stack(brings).to(device)
        """Words that bring somebody in, for a pronoun to stand for."""

    def without_new_names(self, blanks: InfillBatch) -> InfillBatch:
        """The blanks on which nobody may be named whom no given sentence names, where any names somebody."""
        if not len(self.names):
            return blanks
        words = torch.cat([blanks.X.flatten(1), blanks.opening.flatten(1)], 1)
        given = (words.unsqueeze(1) == self.names.view(1, -1, 1)).any(-1)
        return replace(blanks, barred_names=~given & given.any(1, keepdim=True))

    def clashes(self, X: Int[Tensor, "batch sent word"], blanks: InfillBatch) -> Float[Tensor, " batch"]:
        """How many written sentences have a pronoun that nobody in the story can be meant by.

        A given sentence vouches for its pronouns and everybody in it, throughout the story; a written one for those it
        brings in, from there on.
        """
        given = blanks.given.to(X.device)
        total = torch.zeros(len(X), device=X.device)
        for voice in range(VOICES):
            spoken = self.pronouns[voice][X].any(-1)
            brought = self.brings[voice][X].any(-1)
            vouched = ((spoken | brought) & given).any(1, keepdim=True)
            known = vouched | (brought.long().cumsum(1) > 0)
            total = total + (spoken & ~known & ~given & blanks.present.to(X.device)).sum(1)
        return total
