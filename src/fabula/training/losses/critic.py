"""The critic's losses. v_i is its value after line i of a story with N lines (`models/critic.py`).

Of a pair, a person's story v and another version v' of it that goes wrong from line k on,

    softplus(v'_N - v_N)  +  BCE of v_N and v'_N  +  half the mean BCE of the v_i and of the v'_i from k on

where people's values are to be above 0 and the others' below. Of a reading, with targets t_i between 0 and 1,

    BCE(v_N, t_N)  +  half the mean over i of BCE(v_i, t_i)

and two readings of the same story, t_N > t'_N, cost softplus(v'_N - v_N) besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from fabula.models.decoders.rows import FREE, Row, row

Network = Callable[[Sequence[Row]], tuple[Float[Tensor, " end"], Int[Tensor, " end"]]]
"""The value at the end of every sentence, row after row, and the rows that they belong to (on the host)."""


MARGIN = 0.1
"""Smaller differences between readings are not compared."""


class Pair(NamedTuple):
    """A person's story and another version of it; sentences are text or tokens."""

    good: list[Any]
    bad: list[Any]
    first: int
    """The number of the first wrong line."""
    kind: str


class Reading(NamedTuple):
    """One version of a story as a reader judged it."""

    story: list[list[int]]
    targets: tuple[float, ...]
    """t_1 .. t_N, from 0 to 1: how well the story holds together as far as each line."""
    of: int
    """The number of the story: versions of one story are compared."""


class Values(NamedTuple):
    """v of all lines of several stories, and which story and line each belongs to (on the host)."""

    v: Float[Tensor, " line"]
    story: Int[Tensor, " line"]
    line: Int[Tensor, " line"]
    last: Bool[Tensor, " line"]


def plain_row(story: list[list[int]]) -> Row:
    """A story without a header and with free moods."""
    return row(story, [FREE] * len(story), None, ())


def values_of(network: Network, stories: Sequence[list[list[int]]]) -> Values:
    v, rows = network([plain_row(story) for story in stories])
    counts = torch.tensor([len(story) for story in stories])
    line = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    return Values(v, rows, line, (line == counts[rows] - 1).to(v.device))


def pair_loss(network: Network, pairs: Sequence[Pair]) -> tuple[Tensor, Float[Tensor, "2 pair"]]:
    """The mean loss of the pairs, and v_N of people's and of the other versions."""
    stories = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    firsts = torch.tensor([0] * len(pairs) + [pair.first for pair in pairs])
    values = values_of(network, stories)
    goal = (values.story < len(pairs)).float().to(values.v.device)
    # Lines before the first wrong one are people's own, which the other story of the pair counts.
    weight = (values.line >= firsts[values.story]).float()
    weight = weight / torch.zeros(len(stories)).index_add(0, values.story, weight)[values.story]
    each = F.binary_cross_entropy_with_logits(values.v, goal, reduction="none")
    whole = values.v[values.last].view(2, len(pairs))
    lines = (each * weight.to(each.device)).sum() / len(stories)
    return each[values.last].mean() + 0.5 * lines + F.softplus(whole[1] - whole[0]).mean(), whole.detach()


def reading_loss(network: Network, readings: Sequence[Reading]) -> tuple[Tensor, Float[Tensor, " reading"]]:
    """The mean loss, and v_N of every reading."""
    values = values_of(network, [reading.story for reading in readings])
    counts = torch.tensor([len(reading.story) for reading in readings])
    goal = torch.tensor([t for reading in readings for t in reading.targets], device=values.v.device)
    each = F.binary_cross_entropy_with_logits(values.v, goal, reduction="none")
    weight = (0.5 / counts)[values.story].to(each.device)
    whole = values.v[values.last]
    better, worse = compared(readings)
    pairs = F.softplus(whole[worse.to(each.device)] - whole[better.to(each.device)]).sum() / max(1, len(better))
    return (each[values.last].sum() + (each * weight).sum()) / len(readings) + pairs, whole.detach()


def compared(readings: Sequence[Reading]) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
    """Pairs of readings of one story whose values differ by `MARGIN`: the better ones, and the worse ones."""
    t, of = torch.tensor([r.targets[-1] for r in readings]), torch.tensor([r.of for r in readings])
    better, worse = ((of[:, None] == of) & (t[:, None] > t + MARGIN)).nonzero(as_tuple=True)
    return better, worse
