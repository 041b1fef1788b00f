"""What readers said of stories, for the critic to learn from (`losses/critic.py`)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from fabula.errors import UserError
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.training.losses.critic import Network, Reading, compared, reading_loss

BEST = 3
"""The highest coherence a reader can give."""
HELD = 10
"""One story in so many is held out, with all of its versions."""


def read_readings(data: Path, encode: SubwordTokenizer, words: int) -> list[Reading]:
    """Of lines {"of": number, "sentences": [...], "coherence": 0 to 3, "line": from 1, or 0} in readings*.jsonl."""
    readings = []
    for file in sorted(data.glob("readings*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            entry = json.loads(line)
            sentences, coherence, first_wrong = entry["sentences"], entry["coherence"], entry["line"]
            if not 0 <= coherence <= BEST or not 0 <= first_wrong <= len(sentences):
                raise UserError(f"{file}, line {number}: coherence or line is out of range", field="data")
            story = [tokens[:words] for tokens in encode.encode_all(sentences)]
            readings.append(Reading(story, coherence / BEST, (first_wrong or len(sentences)) - 1, entry["of"]))
    return readings


def hold_out(readings: Sequence[Reading]) -> tuple[list[Reading], list[Reading]]:
    """Those to measure with and those to learn from; no story is in both."""
    return [r for r in readings if r.of % HELD == 0], [r for r in readings if r.of % HELD]


def endless(readings: Sequence[Reading], number: int, seed: int) -> Iterator[list[Reading]]:
    """Batches of about so many, the versions of one story together, all stories in a new order each time round."""
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


@torch.no_grad()
def held_out_readings(network: Network, readings: Sequence[Reading], chunk: int) -> dict[str, float]:
    """Correlation of v_N with coherence, and of two versions of a story how often the better one has the higher v_N."""
    parts = [readings[i : i + chunk] for i in range(0, len(readings), chunk)]
    v, t = torch.cat([reading_loss(network, part)[1] for part in parts]).cpu(), [r.coherence for r in readings]
    better, worse = compared(readings)
    pearson = float(torch.corrcoef(torch.stack([v, torch.tensor(t)]))[0, 1])
    wins = float((v[better] > v[worse]).float().mean())
    return {"readings": float(len(readings)), "pearson": round(pearson, 3), "better_wins": round(wins, 3)}
