"""The narrator's rows: how a story, what is missing of it and its moods become one sequence of tokens.

    <bos> [HEADER] (BLANK, or a given line and END; from the first gap on) [BODY]   without a gap: <bos> alone
    then for every sentence: a mood token, a token for every further factor of its state that is given, the tokens of
    the sentence (which begin with a blank), END

Special tokens of the base, which no text contains, serve as marks. So one set of weights is p(X), p(X | S) and, with a
header, r(X_missing | X_given, S). The mood token says the first factor. Tokens of the others come after the base's
vocabulary: they are read and never written, and a factor that is free has none, so that rows grow only by what is said.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN, Factor, StateSpace
from fabula.shapes import Tokens

BOS, HEADER, BODY, BLANK, END, FREE, FIRST_MOOD = 0, 3, 4, 5, 6, 7, 8
"""FIRST_MOOD + k is the mood token of the switching state k; FREE stands where the state is not given."""
SPECIALS = 17
"""Tokens of the base that no text contains, marks and moods among them."""
MOODS = SPECIALS - FIRST_MOOD
"""Switching states that there are tokens for."""

NO_TOKEN = -1
GIVEN, MIDDLE = 0.7, 0.4
"""Shares of training rows: sentences whose further factor is given, and rows whose whole middle is missing."""

Ids = Sequence[int]
Places = Collection[int]


@dataclass(frozen=True)
class TagTokens:
    """Which tokens stand before a sentence of a state: the mood token, and one for each further factor that is given.

    A first factor of more labels than there are mood tokens is treated as the others are.
    """

    states: StateSpace
    vocabulary: int
    """Tokens of the base: the first further token has this number."""

    @property
    def further(self) -> tuple[Factor, ...]:
        """The factors that have tokens of their own."""
        return self.states.factors[int(self.states.sizes[0] <= MOODS) :]

    @property
    def names(self) -> list[str]:
        """What each further token stands for, in their order."""
        return [label for factor in self.further for label in factor.labels]

    def of(self, values: Ids) -> list[int]:
        """The tokens of a sentence whose factors have these values, -1 where they are free."""
        moods = len(values) - len(self.further)
        ids, first = [FIRST_MOOD + values[0] if moods and values[0] >= 0 else FREE], self.vocabulary
        for factor, value in zip(self.further, values[moods:], strict=True):
            ids += [first + value] if value >= 0 else []
            first += len(factor.labels)
        return ids

    def table(self) -> tuple[Int[Tensor, "number factor"], int]:
        """The tokens of every number of `StateSpace.number`, padded with NO_TOKEN; and the row of the number 0."""
        several = len(self.states.sizes) > 1
        lowest = -1 - int(np.prod([n + 1 for n in self.states.sizes])) if several else UNKNOWN
        rows = [self.of(values) for values in self.states.values(np.arange(lowest, self.states.K)).tolist()]
        width = max(map(len, rows))
        return torch.tensor([row + [NO_TOKEN] * (width - len(row)) for row in rows]), -lowest


MOOD_TOKENS = TagTokens(StateSpace.single("mood", [str(k) for k in range(MOODS)]), 0)
"""Of a state with one factor, whatever its labels are called."""


class Row(NamedTuple):
    """Token ids, and which of them the loss counts."""

    ids: list[int]
    counted: list[int]


def header(story: Sequence[Ids | None]) -> list[int]:
    """What is read before a story's first sentence: a missing sentence is None. Without a gap, `<bos>` alone."""
    gap = next((i for i, sentence in enumerate(story) if sentence is None), None)
    if gap is None:
        return [BOS]
    ids = [BOS, HEADER]
    for sentence in story[gap:]:
        ids += [BLANK] if sentence is None else [*sentence, END]
    return [*ids, BODY]


def row(story: Sequence[Ids], moods: Ids, missing: Places | None, paid: Places, further: Sequence[Ids] = ()) -> Row:
    """A story whose `missing` sentences stand as blanks in its header; the loss counts the sentences `paid`.

    `further` has the tokens of other factors that stand between each sentence's mood token and its words.
    """
    ids = header([None if j in missing else sentence for j, sentence in enumerate(story)]) if missing else [BOS]
    counted = [0] * len(ids)
    for j, sentence in enumerate(story):
        tags = [moods[j], *(further[j] if further else ())]
        ids += [*tags, *sentence, END]
        counted += [0] * len(tags) + [int(j in paid)] * (len(sentence) + 1)
    return Row(ids, counted)


def random_row(
    story: Sequence[Ids], tags: Ids, rng: random.Random, plain: float, tokens: TagTokens, further: Sequence[Ids]
) -> Row:
    """A row to train on; a tag below 0 is not known.

    A share `plain` of the rows have no header, and the loss counts all sentences. The others have random blanks (in a
    share `MIDDLE` all but the first and the last sentence), and the loss counts these alone. Half of the rows have
    moods, each given with a probability between a half and 1 that the row draws. Each of the `further` factors is free
    in half of the rows, and given in a share `GIVEN` of the sentences of the others.
    """
    moods = [UNKNOWN] * len(story)
    if rng.random() < 0.5:
        share = 0.5 + 0.5 * rng.random()
        moods = [tag if rng.random() < share else UNKNOWN for tag in tags]
    values = [moods]
    for factor in further:
        given = rng.random() < 0.5
        values.append([tag if given and rng.random() < GIVEN else UNKNOWN for tag in factor])
    before = [tokens.of(each) for each in zip(*values, strict=True)]
    moods, others = [ids[0] for ids in before], [ids[1:] for ids in before]
    everything = set(range(len(story)))
    if rng.random() < plain:
        return row(story, moods, None, everything, others)
    inner = set(range(1, len(story) - 1))
    missing = inner if rng.random() < MIDDLE else {j for j in everything if rng.random() < 0.5}
    missing = missing or {rng.randrange(len(story))}
    return row(story, moods, missing, missing, others)


def padded(rows: Sequence[Ids], device: torch.device) -> tuple[Tokens, Bool[Tensor, "batch token"]]:
    """Tokens side by side, padded with `<bos>`, and which of them are there."""
    width = max(map(len, rows))
    ids = torch.tensor([[*tokens, *[BOS] * (width - len(tokens))] for tokens in rows], device=device)
    return ids, torch.arange(width, device=device) < torch.tensor([[len(tokens)] for tokens in rows], device=device)


def collate(rows: Sequence[Row], multiple: int = 1) -> tuple[Tokens, Bool[Tensor, "batch token"]]:
    """Rows side by side, padded with `<bos>`, which is never counted, to a multiple of so many tokens."""
    width = -(-max(len(ids) for ids, _ in rows) // multiple) * multiple
    ids, counted = torch.zeros(len(rows), width, dtype=torch.int64), torch.zeros(len(rows), width, dtype=torch.bool)
    for r, (tokens, mask) in enumerate(rows):
        ids[r, : len(tokens)], counted[r, : len(mask)] = torch.tensor(tokens), torch.tensor(mask, dtype=torch.bool)
    return ids, counted
