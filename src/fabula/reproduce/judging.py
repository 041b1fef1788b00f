"""Units in which a model judges: does what was written lead to the ending, and which ending is the right one?"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fabula.corpus.dataset import Stories
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError
from fabula.evaluation.lookahead import log_p_ending
from fabula.evaluation.measure import log_p_of_tags
from fabula.evaluation.record import mean_and_error, rounded
from fabula.infill.noise import seeded
from fabula.infill.page import page
from fabula.infill.sampler import FillSettings, fill
from fabula.models.lm import LM
from fabula.reproduce.bench import Bench
from fabula.reproduce.learning import nlls_of
from fabula.reproduce.plan import BY_NAME, HUMAN, JUDGE, MIDDLE, PLAIN, SETTINGS, Unit
from fabula.reproduce.records import rounded_list
from fabula.reproduce.writing import blanked

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
        "judge": bench.checkpoint(BY_NAME[JUDGE]).recipe.name,
        "log_p": rounded(figure.value),
        "log_p_se": rounded(figure.se),
        "stories": rounded_list(log_p.tolist()),
    }
    bench.records.write(unit.name, record)


def judged(bench: Bench, middles: Sequence[list[list[int]]]) -> Tensor:
    """The judge's opinion of these middles of the chosen stories."""
    judge = bench.checkpoint(BY_NAME[JUDGE]).model
    assert isinstance(judge, LM)
    stories = []
    for row, middle in zip(bench.rows, middles, strict=True):
        first, *_, last = bench.words(row)
        stories.append([first, *middle, last])
    full = page(stories, device=bench.device)
    return log_p_ending(judge, full.X, full.lengths).double().cpu()


def left_to_right(bench: Bench) -> Tensor:
    """The paper's LM writes each middle once, blind to the ending; the mean of several tellings."""
    lm = BY_NAME["lm"]
    settings = FillSettings(sampler="rerank", samples=1, top_k=15, temperature=1.0, memory_gib=bench.job.memory_gib)
    blank, _ = blanked(bench, lm, bench.rows, SETTINGS[MIDDLE])
    told = []
    for telling in range(TELLINGS):
        seeds = [seeded(bench.job.seed + 1 + telling, n).initial_seed() for n in range(len(bench.rows))]
        answers = fill(bench.checkpoint(lm).model, bench.lexicon, blank, settings, seeds)
        told.append([[f[0].X[i, : int(f[0].lengths[i]) - 1].tolist() for i in SETTINGS[MIDDLE]] for f, _ in answers])
    return torch.stack([judged(bench, middles) for middles in told]).mean(0)


def choose_endings(bench: Bench, unit: Unit) -> None:
    """Story Cloze by likelihood: the story with either ending, and either ending alone, under the system."""
    system, job, began = BY_NAME[unit.system], bench.job, time.perf_counter()
    items = cloze_items(job.cloze, bench)
    checkpoint = bench.checkpoint(system)
    posterior, samples = checkpoint.recipe.objective.posterior, job.scale.bound_samples
    figures: dict[str, Any] = {}
    for name, first in (("story", 0), ("ending", 4)):
        log_p = []
        for side in (0, 1):
            sentences = [[*item["context"], item["endings"][side]][first:] for item in items]
            tags = [[*item["tags"], item["ending_tags"][side]][first:] for item in items]
            stories = Stories.from_sentences(sentences, tags)
            nll = nlls_of(checkpoint.model, stories, samples, job.seed, posterior, bench.device)
            paid = log_p_of_tags(stories, bench.corpus.transitions) if system.kind == "s2s" else None
            log_p.append(-nll + (0.0 if paid is None else paid))
        figures[name] = np.stack(log_p, 1)
    right = np.asarray([item["right"] for item in items])
    record = {
        **bench.common(unit, n=len(items), kind="estimate", began=began),
        "samples": samples if system.latent else 0,
        "right": right.tolist(),
        **{f"log_p_{name}": [rounded_list(pair) for pair in values] for name, values in figures.items()},
    }
    bench.records.write(unit.name, record)


def cloze_items(path: Path | None, bench: Bench) -> list[dict[str, Any]]:
    """The encoded Story Cloze items, checked to be of this vocabulary."""
    if path is None:
        return toy_items(bench)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        items, words = list(content["items"]), content["vocabulary"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"--cloze {path} is not a file of encoded Story Cloze items: {error}", field="cloze") from error
    if words != len(bench.corpus.vocabulary):
        raise UserError(f"--cloze {path} was encoded with another vocabulary ({words} words)", field="cloze")
    return items


def toy_items(bench: Bench) -> list[dict[str, Any]]:
    """Without a file (the toy corpus has none): the wrong ending is another test story's."""
    items = []
    for n, row in enumerate(bench.rows):
        *context, ending = bench.words(row)
        other = bench.rows[(n + 1) % len(bench.rows)]
        tags, wrong = bench.tags(row), bench.words(other)[-1]
        items.append(
            {
                "context": context,
                "endings": [ending, wrong],
                "tags": tags[:-1],
                "ending_tags": [tags[-1], bench.tags(other)[-1]],
                "right": 0,
            }
        )
    return items


def encode_cloze(csv: Path, vocabulary: Vocabulary, out: Path) -> int:
    """Story Cloze rows as word ids and tags, for machines without spaCy and VADER. Never commit them."""
    from csv import DictReader

    from fabula.corpus.sentiment import VaderTagger
    from fabula.corpus.tokenize import tokenise_many
    from fabula.training.checkpoint import write_file

    tagger, items = VaderTagger(), []
    try:
        with csv.open(encoding="utf-8-sig", newline="") as file:
            rows = list(DictReader(file))
        for row in rows:
            context = [row[f"InputSentence{n}"] for n in range(1, 5)]
            endings = [row["RandomFifthSentenceQuiz1"], row["RandomFifthSentenceQuiz2"]]
            ids = [vocabulary.encode(words) for words in tokenise_many([*context, *endings])]
            tags = tagger.tag([*context, *endings])
            items.append(
                {
                    "context": [list(map(int, s)) for s in ids[:4]],
                    "endings": [list(map(int, s)) for s in ids[4:]],
                    "tags": tags[:4],
                    "ending_tags": tags[4:],
                    "right": int(row["AnswerRightEnding"]) - 1,
                }
            )
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{csv} is not a Story Cloze CSV: {type(error).__name__} {error}", field="cloze") from error
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, json.dumps({"vocabulary": len(vocabulary), "items": items}).encode())
    return len(items)
