"""The one driver of filling in: it runs the sampler that the settings are for and ranks what comes.

`fill_batch` answers many tasks, in pieces that fit the memory; `fill_stories` answers the tasks of a batch again and
again while their samples come. A task's answer depends neither on the tasks beside it nor on where the batch is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from fabula.models.protocol import Model
from fabula.sampling.batch import InfillBatch
from fabula.sampling.cast import Cast
from fabula.sampling.protocol import Sampler
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import Diagnostics, SampledStories, SampledStory, best_stories
from fabula.sampling.settings import FillSettings

COPIES_OF_SCORES = 6
"""Arrays of rows x vocabulary alive at once while a word is chosen, at most."""
MEMORY_GIB = 2.0
"""Scores held at once, at most."""


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
        yield [
            Answer(best_stories(rounds, story, batch.missing, n), _of_story(diagnostics, story), drawn)
            for story, n in enumerate(candidates)
        ]


def _of_story(diagnostics: Diagnostics | None, story: int) -> Diagnostics | None:
    return None if diagnostics is None else Diagnostics(*(figure[story : story + 1] for figure in diagnostics))


@torch.inference_mode()
def fill_batch(
    model: Model, rules: WordRules, batch: InfillBatch, settings: FillSettings, generators: Sequence[torch.Generator],
    candidates: int = 1, *, gold: InfillBatch | None = None, cast: Cast | None = None,
    memory_gib: float = MEMORY_GIB,
) -> list[Answer]:  # fmt: skip
    """The best stories for every task of a batch; `generators`: one for each task."""
    answers: list[Answer] = []
    settings = replace(settings, at_once=True)
    for piece in pieces(len(batch.X), settings.rows, rules, memory_gib):
        part, stories = batch.rows(piece.start, piece.stop), piece.stop - piece.start
        truth = None if gold is None else gold.rows(piece.start, piece.stop)
        rounds, movement = [], Diagnostics.none(stories, part.X.shape[1])
        run = settings.sampler.run(model, part, settings, generators[piece], rules=rules, cast=cast, gold=truth)
        for drawn, diagnostics in run:
            rounds.append(drawn.cpu())
            movement = diagnostics or movement
        for story in range(stories):
            best = best_stories(rounds, story, part.missing, candidates)
            answers.append(Answer(best, _of_story(movement, story), settings.samples))
    return answers


def pieces(tasks: int, rows: int, rules: WordRules, memory_gib: float = MEMORY_GIB) -> Iterator[slice]:
    """The tasks in pieces whose scores fit the memory, where each task has so many rows at once."""
    if memory_gib <= 0:
        raise ValueError(f"memory_gib must be above 0, not {memory_gib}")
    per_task = rows * len(rules.anywhere) * 4 * COPIES_OF_SCORES
    at_once = max(1, int(memory_gib * 2**30 // per_task))
    for start in range(0, tasks, at_once):
        yield slice(start, min(start + at_once, tasks))
