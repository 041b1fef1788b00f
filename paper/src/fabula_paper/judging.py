"""Units in which a model judges: whether the written middle leads to the ending, and which ending is right."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from fabula.errors import UserError
from fabula.metrics.lookahead import log_p_ending
from fabula.metrics.record import mean_and_error, rounded
from fabula.sampling.batch import infill_batch
from fabula.sampling.driver import fill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.settings import RerankSettings
from fabula_paper.bench import Bench
from fabula_paper.plan import BY_NAME, HUMAN, JUDGE, MIDDLE, PLAIN, SETTINGS, Unit
from fabula_paper.records import rounded_list
from fabula_paper.scores.cloze import cloze
from fabula_paper.writing import TOP_K, blanked

BLIND_RUNS = 4
"""Runs of the left-to-right anchor; their mean has a smaller error."""


def look_ahead(bench: Bench, unit: Unit) -> None:
    """The judge's log P(last sentence | first, what was written) of every chosen story."""
    began = time.perf_counter()
    if unit.system == HUMAN:
        log_p = judged(bench, [bench.words(row)[1:-1] for row in bench.rows])
    elif unit.system == PLAIN:
        runs = [judged(bench, blind_middles(bench, bench.rows, run)) for run in range(BLIND_RUNS)]
        log_p = torch.stack(runs).mean(0)
    else:
        index, name = bench.corpus.vocabulary.index, f"sample/{unit.system}.{MIDDLE}.{unit.detail}"
        texts = bench.records.texts(name)
        if [text["id"] for text in texts] != [bench.test.ids[row] for row in bench.rows]:
            raise UserError(f"{name} is of other stories than this call's")
        log_p = judged(bench, [[[index[word] for word in line.split(" ")] for line in text["lines"]] for text in texts])
    figure = mean_and_error(log_p)
    record = {
        **bench.common(Unit(unit.stage, JUDGE), n=len(log_p), kind="estimate", began=began),
        "system": unit.system,
        "detail": unit.detail,
        "judge": bench.checkpoint(BY_NAME[JUDGE]).name,
        "log_p": rounded(figure.value),
        "log_p_se": rounded(figure.se),
        "stories": rounded_list(log_p.tolist()),
    }
    bench.records.write(unit.name, record)


def judged(bench: Bench, middles: Sequence[list[list[int]]]) -> Tensor:
    """log P(ending) of the chosen stories with these middles, under the judge."""
    stories = []
    for row, middle in zip(bench.rows, middles, strict=True):
        first, *_, last = bench.words(row)
        stories.append([first, *middle, last])
    whole = infill_batch(stories, device=bench.device)
    return log_p_ending(bench.checkpoint(BY_NAME[JUDGE]).model, whole.X, whole.lengths).double().cpu()


def blind_middles(bench: Bench, rows: Sequence[int], run: int) -> list[list[list[int]]]:
    """The middles that the paper's LM writes left to right, blind to the ending, as word ids."""
    lm = BY_NAME["lm"]
    blank, _ = blanked(bench, lm, rows, SETTINGS[MIDDLE])
    seeds = [seeded(bench.job.seed + 1 + run, n).initial_seed() for n in range(len(rows))]
    answers = fill_batch(
        bench.checkpoint(lm).model, bench.rules, blank, RerankSettings.plain(samples=1, top_k=TOP_K),
        [seeded(seed) for seed in seeds], memory_gib=bench.job.memory_gib,
    )  # fmt: skip
    stories = [answer.stories[0] for answer in answers]
    return [[story.X[i, : int(story.lengths[i]) - 1].tolist() for i in SETTINGS[MIDDLE]] for story in stories]


def choose_endings(bench: Bench, unit: Unit) -> None:
    """Story Cloze by likelihood: the story with either ending, and either ending alone."""
    system, job, began = BY_NAME[unit.system], bench.job, time.perf_counter()
    assert job.cloze is not None
    checkpoint, samples = bench.checkpoint(system), job.scale.bound_samples
    answers = cloze(checkpoint.model, job.cloze, samples=samples, seed=job.seed, posterior=checkpoint.posterior)
    record = {
        **bench.common(unit, n=len(answers.right), kind="estimate", began=began),
        "samples": samples if system.latent else 0,
        "accuracy": {name: rounded(value) for name, value in answers.accuracies().items()},
        "correct": {name: values.tolist() for name, values in answers.correct().items()},
    }
    bench.records.write(unit.name, record)
