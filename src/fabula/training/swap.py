"""Names traded while training: the same story of other people, so that what is learnt of a name is how it is used.

Every step and story draws a permutation of the names within blocks of like frequency and pronoun (`Tom` for `Tim`, not
for a name seen five times): the law of names hardly moves, but which goes with which plot cannot be learnt by heart.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fabula.corpus.people import People
from fabula.corpus.vocabulary import Vocabulary
from fabula.models.batch import Batch

BLOCK = 16
"""Names that may stand for each other."""


class NameSwap:
    """Trades names in a share of the stories of a batch."""

    def __init__(self, people: People, vocabulary: Vocabulary, share: float, device: torch.device) -> None:
        self.share = share
        blocks = [block for names in (people.he, people.she) for block in _blocks(names)]
        self.block_of = torch.full((len(vocabulary),), -1, device=device)
        self.slot_of = torch.zeros(len(vocabulary), dtype=torch.int64, device=device)
        self.words = torch.zeros(max(len(blocks), 1), BLOCK, dtype=torch.int64, device=device)
        for number, block in enumerate(blocks):
            for slot, name in enumerate(block):
                word = vocabulary.index[name]
                self.block_of[word], self.slot_of[word], self.words[number, slot] = number, slot, word

    def __call__(self, batch: Batch) -> Batch:
        """The batch with other names; a name keeps to its one new name throughout a story."""
        stories, device = len(batch.tokens), batch.tokens.device
        order = torch.rand(stories, len(self.words), BLOCK, device=device).argsort(-1)
        block, slot = self.block_of[batch.tokens], self.slot_of[batch.tokens]
        place = block.clamp(min=0) * BLOCK + slot
        renamed = self.words[block.clamp(min=0), order.flatten(1).gather(1, place)]
        chosen = (block >= 0) & (torch.rand(stories, 1, device=device) < self.share)
        return batch._replace(tokens=torch.where(chosen, renamed, batch.tokens))


def _blocks(names: Sequence[str]) -> list[Sequence[str]]:
    """Whole blocks, by frequency; the few rarest that fill none keep their names."""
    return [names[i : i + BLOCK] for i in range(0, len(names) - BLOCK + 1, BLOCK)]
