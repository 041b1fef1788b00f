"""The critic: how well a story holds together, read line by line.

A narrator's network with a further adapter reads the story. It says after every sentence how probable it is that a
person wrote it so far:

    v_i = logit P(people's | X_1 .. X_i)             v_N: the whole story
    (v_i - b_i) - (v_{i-1} - b_{i-1})                what line i did to it

where b_i is the mean of v_i over people's stories: after one line nothing can have gone wrong, so values begin high.

It was trained to distinguish people's stories from a narrator's samples and from corrupted stories. Each is paired with
the same story by a person, so that neither length nor subject decides (`training/losses/critic.py`). Training stories
have five sentences: a longer story is read five at a time, and its value is the mean of these readings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.models.decoders.cache import Cache
from fabula.models.decoders.network import Network, Packed
from fabula.models.decoders.rows import END, FREE, padded, row
from fabula.models.decoders.tokenizer import SubwordTokenizer

Ids = Sequence[int]
AT_ONCE = {"cpu": 4096, "cuda": 65536}
"""Tokens that are read together: what the network keeps of them fits into memory."""
WINDOW, STEP = 5, 2
"""Sentences that are read together, and how far the next reading begins after the last."""


class Verdict(NamedTuple):
    """What the critic says of one story."""

    whole: float
    """v_N, above 0 where a person is the likelier author."""
    lines: tuple[float, ...]
    """What each line did to it, against what people's lines do there; 0 for the first."""


@dataclass(frozen=True)
class Critic:
    """A network with one output, and what counts beside it when candidates are ranked."""

    network: Network
    tokenizer: SubwordTokenizer
    ending: float = 0.1
    """Weight in the ranking of log p of the given sentences that follow the writing."""
    people: tuple[float, ...] = (0.0,) * WINDOW
    """b_i, the mean of v_i over people's stories."""

    def judge(self, stories: Sequence[Sequence[Ids]]) -> list[Verdict]:
        """Every story's verdict; sentences are tokens without their end."""
        windows = [(n, first) for n, story in enumerate(stories) for first in starts(len(story))]
        values = self.values([stories[n][first : first + WINDOW] for n, first in windows]).tolist()
        ends: list[list[float]] = [[] for _ in stories]
        lines = [[0.0] * len(story) for story in stories]
        # From the last reading to the first: for each line the reading with the most lines before it is kept.
        for (n, first), v in reversed(list(zip(windows, values, strict=True))):
            read = min(WINDOW, len(stories[n]) - first)
            ends[n].insert(0, v[read - 1])
            for i in range(1, read):
                lines[n][first + i] = (v[i] - self.people[i]) - (v[i - 1] - self.people[i - 1])
        return [Verdict(sum(end) / len(end), tuple(line)) for end, line in zip(ends, lines, strict=True)]

    def read(self, sentences: Sequence[str]) -> Verdict:
        """A story in words."""
        return self.judge([self.tokenizer.encode_all(list(sentences))])[0]

    @torch.inference_mode()
    def values(self, stories: Sequence[Sequence[Ids]]) -> Float[Tensor, "story sent"]:
        """v_1 .. v_N of every story; NaN beyond a story's end. What samples of a story begin with is read once."""
        rows = [row(story, [FREE] * len(story), None, ()).ids for story in stories]
        values = torch.full((len(rows), max(len(story) for story in stories)), float("nan"))
        for part in parts(rows, AT_ONCE.get(self.network.device.type, 4096)):
            read = self._read_groups([[rows[n] for n in group] for group in part])
            for n, of_story in zip((n for group in part for n in group), read, strict=True):
                values[n, : len(of_story)] = torch.tensor(of_story)
        return values

    def _read_groups(self, groups: Sequence[Sequence[Ids]]) -> list[list[float]]:
        """The values of rows, group by group; all groups have as many rows, and the rows of each begin alike."""
        size, device = len(groups[0]), self.network.device
        rows = [ids for group in groups for ids in group]
        if size == 1:
            nothing = torch.zeros(len(rows), dtype=torch.int64, device=device)
            return self._read(self.network.cache(len(rows)), rows, nothing)[1]
        shared = [common_start(group) for group in groups]
        begins = torch.tensor(shared, device=device)
        heads = [group[0][:begin] for group, begin in zip(groups, shared, strict=True)]
        cache, before = self._read(self.network.cache(len(groups)), heads, torch.zeros_like(begins))
        of_row = torch.arange(len(groups), device=device).repeat_interleave(size)
        cache = cache.of_rows(of_row, begins[of_row], max(map(len, rows)))
        _, after = self._read(cache, [ids[shared[n // size] :] for n, ids in enumerate(rows)], begins[of_row])
        return [[*before[n // size], *values] for n, values in enumerate(after)]

    def _read(self, cache: Cache, rows: Sequence[Ids], places: Int[Tensor, " row"]) -> tuple[Cache, list[list[float]]]:
        """Rows on from their places in the cache; the value at each sentence's end."""
        new = Packed.of(*padded(rows, self.network.device), places)
        cache.make_room(int(new.place.max()) + 1)
        features = self.network.read(cache, new)
        ends = (new.ids == END).nonzero().squeeze(1)
        values: list[list[float]] = [[] for _ in rows]
        logits = self.network.logits(features[ends]).squeeze(1)
        for n, value in zip(new.row[ends].tolist(), logits.tolist(), strict=True):
            values[n].append(value)
        return cache, values


def parts(rows: Sequence[Ids], at_once: int) -> Iterator[list[list[int]]]:
    """Rows to read together: groups of one size that begin with the same sentence, about `at_once` tokens in all.

    Of like lengths, so that little is padded.
    """
    beginnings: dict[tuple[int, ...], list[int]] = {}
    for n, ids in enumerate(rows):
        beginnings.setdefault(tuple(ids[: ids.index(END) + 1]), []).append(n)
    most = max(1, at_once // max(map(len, rows)))
    groups = [group[i : i + most] for group in beginnings.values() for i in range(0, len(group), most)]
    longest = [max(len(rows[n]) for n in group) for group in groups]
    part: list[list[int]] = []
    for g in sorted(range(len(groups)), key=lambda g: (len(groups[g]), longest[g])):
        size = len(groups[g])
        if part and (size != len(part[0]) or (len(part) + 1) * size * longest[g] > at_once):
            yield part
            part = []
        part.append(groups[g])
    yield part


def common_start(rows: Sequence[Ids]) -> int:
    """How many tokens all rows begin with, of no row all."""
    shortest = min(len(ids) for ids in rows) - 1
    return next((i for i in range(shortest) if len({ids[i] for ids in rows}) > 1), shortest)


def starts(sentences: int) -> list[int]:
    """Where the readings of a story begin: all of its lines are read, the last ones at the end of a reading."""
    if sentences <= WINDOW:
        return [0]
    return [*range(0, sentences - WINDOW, STEP), sentences - WINDOW]
