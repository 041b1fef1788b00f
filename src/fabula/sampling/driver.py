"""The one driver of filling in: it runs the sampler that the settings are for and ranks what comes.

A task's answer depends neither on the tasks beside it nor on where a batch is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from fabula.models.protocol import Model
from fabula.sampling.batch import InfillBatch
from fabula.sampling.cast import Cast
from fabula.sampling.protocol import Sampler
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import Diagnostics, SampledStories, SampledStory, best_stories
from fabula.sampling.settings import FillSettings


class Answer(NamedTuple):
    """The best stories for one task, and how its sampler moved."""

    stories: list[SampledStory]
    diagnostics: Diagnostics | None
    drawn: int
    """How many samples it rests on."""


def fill_stories(
    model: Model, rules: WordRules, batch: InfillBatch, settings: FillSettings, generators: Sequence[torch.Generator],
    candidates: Sequence[int], cast: Cast | None = None,
) -> Iterator[list[Answer]]:  # fmt: skip
    """An answer to every task of a batch, again and again, each from more samples than the one before.

    `candidates` are the stories wanted for each task. The whole batch is worked on at once: it has to fit the memory.
    Whoever waits for the last answer only says so in the settings (`at_once`).
    """
    sampler: Sampler = settings.sampler
    drawing = sampler.run(model, batch, settings, generators, rules=rules, cast=cast)
    rounds: list[SampledStories] = []
    while True:
        # The mode is entered anew for each round: between answers the caller's own mode holds.
        with torch.inference_mode():
            stories, diagnostics = next(drawing, (None, None))
        if stories is None:
            return
        # Ranking asks for every row on its own: of the host, not of a device that it would wait for each time.
        rounds.append(stories.cpu())
        drawn = min(settings.samples, sum(len(r.score) for r in rounds) // len(batch.X))
        answers = []
        for story, n in enumerate(candidates):
            moved = None if diagnostics is None else Diagnostics(*(figure[story : story + 1] for figure in diagnostics))
            answers.append(Answer(best_stories(rounds, story, batch.missing, n), moved, drawn))
        yield answers
