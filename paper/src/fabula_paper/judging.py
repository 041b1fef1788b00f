"""Units in which a model judges: does what was written lead to the ending, and which ending is the right one?"""

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
from fabula_paper.writing import blanked

TELLINGS = 4
"""Of the left-to-right anchor: the mean over several has the smaller error."""


def look_ahead(bench: Bench, unit: Unit) -> None:
    """The judge's log P(last sentence | first, what was written) of every chosen story."""
    began = time.perf_counter()
    if unit.system == HUMAN:
        log_p = judged(bench, [bench.words(row)[1:-1] for row in bench.rows])
    elif unit.system == PLAIN:
        log_p = left_to_right(bench)
    else:
        index = bench.corpus.vocabulary.index
        texts = bench.records.texts(f"sample/{unit.system}.{MIDDLE}.{unit.detail}")
        if [text["id"] for text in texts] != [bench.test.ids[row] for row in bench.rows]:
            raise UserError(f"sample/{unit.system}.{MIDDLE}.{unit.detail} is of other stories than this call's")
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
    """The judge's opinion of these middles of the chosen stories."""
    judge = bench.checkpoint(BY_NAME[JUDGE]).model
    stories = []
    for row, middle in zip(bench.rows, middles, strict=True):
        first, *_, last = bench.words(row)
        stories.append([first, *middle, last])
    full = infill_batch(stories, device=bench.device)
    return log_p_ending(judge, full.X, full.lengths).double().cpu()


def left_to_right(bench: Bench) -> Tensor:
    """The paper's LM writes each middle once, blind to the ending; the mean of several tellings."""
    told = [told_blind(bench, bench.rows, telling) for telling in range(TELLINGS)]
    return torch.stack([judged(bench, middles) for middles in told]).mean(0)


def told_blind(bench: Bench, rows: Sequence[int], telling: int) -> list[list[list[int]]]:
    """The middles that the paper's LM writes left to right, once, not looking ahead."""
    lm = BY_NAME["lm"]
    settings, memory = RerankSettings.plain(samples=1, top_k=15), bench.job.memory_gib
    blank, _ = blanked(bench, lm, rows, SETTINGS[MIDDLE])
    seeds = [seeded(bench.job.seed + 1 + telling, n).initial_seed() for n in range(len(rows))]
    generators = [seeded(seed) for seed in seeds]
    answers = fill_batch(bench.checkpoint(lm).model, bench.rules, blank, settings, generators, memory_gib=memory)
    firsts = [answer.stories[0] for answer in answers]
    return [[f.X[i, : int(f.lengths[i]) - 1].tolist() for i in SETTINGS[MIDDLE]] for f in firsts]


def choose_endings(bench: Bench, unit: Unit) -> None:
    """Story Cloze by likelihood: the story with either ending, and either ending alone, under the system."""
    system, job, began = BY_NAME[unit.system], bench.job, time.perf_counter()
    assert job.cloze is not None
    checkpoint, samples = bench.checkpoint(system), job.scale.bound_samples
    posterior = checkpoint.posterior
    found = cloze(checkpoint.model, job.cloze, samples=samples, seed=job.seed, posterior=posterior)
    record = {
        **bench.common(unit, n=len(found.right), kind="estimate", began=began),
        "samples": samples if system.latent else 0,
        "accuracy": {name: rounded(value) for name, value in found.accuracies().items()},
        "correct": {name: values.tolist() for name, values in found.correct().items()},
    }
    bench.records.write(unit.name, record)
