"""What readers said of stories, for the critic to learn from: how well each holds together, and which line breaks it.

A reading says coherence c, from 0 to 3, and the first line k that goes wrong. With t = c / 3 and v_i the critic's value
after line i, a reading's loss is

    BCE(v_N, t)  +  half the mean over i of BCE(v_i, 1 before line k, t from it on)

and two readings of the same story told twice, t > t', cost softplus(v'_N - v_N) besides: a ranking compares tellings
of one story.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fabula.errors import UserError
from fabula.models.decoders.rows import FREE, row
from fabula.models.decoders.tokenizer import SubwordTokenizer

if TYPE_CHECKING:
    from fabula.training.critic import CriticNetwork

BEST = 3
"""The highest coherence a reader can give."""
HELD = 10
"""One story in so many is held out, with all of its tellings."""


class Reading(NamedTuple):
    """One telling as a reader judged it."""

    story: list[list[int]]
    coherence: float
    """t, from 0 to 1."""
    line: int
    """The number of the first line that goes wrong, from 0; the last one where nothing does."""
    of: int
    """The story that it is a telling of: tellings of one story are compared."""


def read_readings(data: Path, encode: SubwordTokenizer, words: int) -> list[Reading]:
    """Of lines {"of": number, "sentences": [...], "coherence": 0 to 3, "line": from 1, or 0} in readings*.jsonl."""
    told = []
    for file in sorted(data.glob("readings*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            entry = json.loads(line)
            if not 0 <= entry["coherence"] <= BEST or not 0 <= entry["line"] <= len(entry["sentences"]):
                raise UserError(f"{file}, line {number}: coherence or line is out of range", field="data")
            told.append(entry)
    ids = iter([tokens[:words] for tokens in encode.encode_all([s for entry in told for s in entry["sentences"]])])
    return [
        Reading(
            [next(ids) for _ in entry["sentences"]], entry["coherence"] / BEST,
            (entry["line"] or len(entry["sentences"])) - 1, entry["of"],
        )
        for entry in told
    ]  # fmt: skip


def hold_out(readings: Sequence[Reading]) -> tuple[list[Reading], list[Reading]]:
    """Those to measure with and those to learn from; no story is in both."""
    held = [r for r in readings if r.of % HELD == 0]
    return held, [r for r in readings if r.of % HELD]


def endless(readings: Sequence[Reading], number: int, seed: int) -> Iterator[list[Reading]]:
    """Batches of about so many, the tellings of one story together, all stories in a new order each time round."""
    rng = random.Random(seed)
    stories: dict[int, list[Reading]] = {}
    for reading in readings:
        stories.setdefault(reading.of, []).append(reading)
    batch: list[Reading] = []
    while True:
        for of in rng.sample(sorted(stories), len(stories)):
            batch += stories[of]
            if len(batch) >= number:
                yield batch
                batch = []


def loss_of_readings(network: CriticNetwork, readings: Sequence[Reading], bf16: bool) -> tuple[Tensor, Tensor]:
    """The mean loss, and v_N of every reading."""
    values, rows = network([row(r.story, [FREE] * len(r.story), None, ()) for r in readings], bf16)
    counts = torch.tensor([len(r.story) for r in readings])
    line = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    t, first = torch.tensor([r.coherence for r in readings]), torch.tensor([r.line for r in readings])
    goal = torch.where(line < first[rows], 1.0, t[rows]).to(values.device)
    each = F.binary_cross_entropy_with_logits(values, goal, reduction="none")
    last, weight = (line == counts[rows] - 1).to(values.device), (0.5 / counts)[rows].to(values.device)
    whole = values[last]
    of = torch.tensor([r.of for r in readings])
    better, worse = ((of[:, None] == of) & (t[:, None] > t)).nonzero(as_tuple=True)
    pairs = F.softplus(whole[worse.to(values.device)] - whole[better.to(values.device)]).sum() / max(1, len(better))
    return (each[last].sum() + (each * weight).sum()) / len(readings) + pairs, whole.detach()


@torch.no_grad()
def held_out_readings(network: CriticNetwork, readings: Sequence[Reading], bf16: bool) -> dict[str, float]:
    """Correlation of v_N with coherence, and of two tellings of a story how often the better one wins."""
    values = torch.cat(
        [loss_of_readings(network, readings[i : i + 256], bf16)[1] for i in range(0, len(readings), 256)]
    )
    v, t = values.cpu(), torch.tensor([r.coherence for r in readings])
    of = torch.tensor([r.of for r in readings])
    better, worse = ((of[:, None] == of) & (t[:, None] > t)).nonzero(as_tuple=True)
    right = (v[better] > v[worse]).float().mean()
    r = torch.corrcoef(torch.stack([v, t]))[0, 1]
    return {"readings": float(len(readings)), "pearson": round(float(r), 3), "better_wins": round(float(right), 3)}
