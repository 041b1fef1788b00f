"""The narrator's rows: how a story, what is missing of it and its moods become one sequence of tokens.

    <bos> [HEADER] (BLANK, or a given line and END; from the first gap on) [BODY]   without a gap: <bos> alone
    then for every sentence: a mood token, the tokens of the sentence (which begin with a blank), END

Special tokens of the base, which no text contains, serve as marks. So one set of weights is p(X), p(X | S) and, with a
header, r(X_missing | X_given, S).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

BOS, HEADER, BODY, BLANK, END, FREE, FIRST_MOOD = 0, 3, 4, 5, 6, 7, 8
"""FIRST_MOOD + k is the mood token of the switching state k; FREE stands where the state is not given."""
SPECIALS = 17
"""Tokens of the base that no text contains, marks and moods among them."""
MOODS = SPECIALS - FIRST_MOOD
"""Switching states that there are tokens for."""

Ids = Sequence[int]


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


def row(story: Sequence[Ids], moods: Ids, missing: Collection[int] | None, paid: Collection[int]) -> Row:
    """A story whose `missing` sentences stand as blanks in its header; the loss counts the sentences `paid`."""
    ids = header([None if j in missing else sentence for j, sentence in enumerate(story)]) if missing else [BOS]
    counted = [0] * len(ids)
    for j, sentence in enumerate(story):
        ids += [moods[j], *sentence, END]
        counted += [0] + [int(j in paid)] * (len(sentence) + 1)
    return Row(ids, counted)


def random_row(story: Sequence[Ids], tags: Ids, rng: random.Random, plain: float = 0.4, middle: float = 0.4) -> Row:
    """A row to train on. A share `plain` of them have no header, and all sentences are paid for. The others have random
    blanks (a share `middle` of them: all but the first and the last sentence), and only those are paid for. Half of the
    rows have moods, each given with a probability of its row's own between a half and 1. A tag below 0 is not known."""
    moods = [FREE] * len(story)
    if rng.random() < 0.5:
        share = 0.5 + 0.5 * rng.random()
        moods = [FIRST_MOOD + tag if rng.random() < share and tag >= 0 else FREE for tag in tags]
    everything = set(range(len(story)))
    if rng.random() < plain:
        return row(story, moods, None, everything)
    inner = set(range(1, len(story) - 1))
    missing = inner if rng.random() < middle else {j for j in everything if rng.random() < 0.5}
    missing = missing or {rng.randrange(len(story))}
    return row(story, moods, missing, missing)


def collate(rows: Sequence[Row], multiple: int = 1) -> tuple[Int[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """Rows side by side, padded with `<bos>`, which is never counted, to a multiple of so many tokens."""
    width = -(-max(len(ids) for ids, _ in rows) // multiple) * multiple
    ids, counted = torch.zeros(len(rows), width, dtype=torch.int64), torch.zeros(len(rows), width, dtype=torch.bool)
    for r, (tokens, mask) in enumerate(rows):
        ids[r, : len(tokens)], counted[r, : len(mask)] = torch.tensor(tokens), torch.tensor(mask, dtype=torch.bool)
    return ids, counted
