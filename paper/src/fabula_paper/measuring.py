"""Units that train a system and measure: likelihoods, F1 of the tags, look-ahead, Story Cloze."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fabula.errors import UserError
from fabula.metrics.bound import authors_estimate, independent_draws, weigh
from fabula.metrics.likelihood import macro_f1
from fabula.metrics.lookahead import log_p_ending
from fabula.metrics.measure import calibrated, log_p_of_tags
from fabula.metrics.record import mean_and_error, rounded
from fabula.models.batch import StoryDataset
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.sampling.batch import infill_batch
from fabula.sampling.driver import fill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.settings import RerankSettings
from fabula.training.loop import train
from fabula.training.resume import read_log
from fabula_paper.bench import Bench, weights_of
from fabula_paper.plan import BY_NAME, HUMAN, JUDGE, MIDDLE, PLAIN, SETTINGS, Unit
from fabula_paper.records import rounded_list
from fabula_paper.scores.cloze import cloze
from fabula_paper.writing import TOP_K, blanked

FloatArray = NDArray[np.float64]
STORIES_AT_ONCE = {"cpu": 256, "cuda": 1600}
"""Batch size by device."""
KINDS = dict.fromkeys(("with_tags", "iw", "iw_half", "iw_quarter", "elbo"), "bound") | {
    "nll": "exact", "authors": "estimate",
}  # fmt: skip
"""Importance-weighted bounds by all samples, by half, by a quarter, by one; exact figures; the authors' estimate."""

BLIND_RUNS = 4
"""Runs of the left-to-right anchor; their mean has a smaller error."""


def train_system(bench: Bench, unit: Unit) -> None:
    """Train a system by its recipe, resuming where an earlier call stopped; a given checkpoint is only noted."""
    system, job, began = BY_NAME[unit.system], bench.job, time.perf_counter()
    folder, stopped = bench.folder(system), "given"
    if system.name not in job.models:
        folder.mkdir(parents=True, exist_ok=True)
        recipe, stopped = bench.recipe(system), "epochs"
        resume = (folder / "resume" / "state.json").exists()
        train(recipe, bench.corpus, folder, device=str(bench.device), resume=resume, bar=False)
    checkpoint = bench.checkpoint(system)
    entries = read_log(folder)
    if stopped == "epochs" and entries and entries[-1]["epoch"] < checkpoint.recipe["train"]["epochs"]:
        stopped = "patience"
    record = {
        **bench.common(unit, n=len(bench.corpus.split("train")), kind="exact", began=began),
        "settings": dict(checkpoint.recipe),
        "changes": bench.changes(system) if stopped != "given" else {},
        "stopped": stopped,
        "epochs": len(entries) or checkpoint.figures.get("epoch"),
        "best_epoch": checkpoint.figures.get("epoch"),
        "valid_nll": rounded(checkpoint.figures.get("valid_nll")),
        "train_seconds": round(sum(entry["seconds"] for entry in entries), 1),
        "parameters": sum(p.numel() for p in checkpoint.model.parameters()),
        "log": entries,
        "weights": weights_of(folder),
    }
    bench.records.write(unit.name, record)


def measure_system(bench: Bench, unit: Unit) -> None:
    """The likelihood of every test story by every estimate, and the F1 of q(S | X)."""
    system, began = BY_NAME[unit.system], time.perf_counter()
    checkpoint = bench.checkpoint(system)
    stories, samples = bench.test, bench.job.scale.bound_samples
    dataset = StoryDataset(stories, bench.device)
    posterior = checkpoint.posterior
    log_p_S = log_p_of_tags(stories, bench.corpus.transitions)
    model = checkpoint.model
    precision = calibrated(checkpoint, bench.corpus, bench.device)
    arrays = story_nlls(model, dataset, samples, bench.job.seed, posterior, precision)
    tokens = model.token_count(dataset.token_counts, dataset.sentences)
    if model.reads_tags and log_p_S is not None:
        arrays["with_tags"] = arrays["nll"] - log_p_S
    figures = {} if model.latent is None else {"f1_s": tag_f1(model.latent, dataset)}
    if "kl_z" in arrays:
        figures["kl_z"] = rounded(float(arrays.pop("kl_z").mean()))
    record = {
        **bench.common(unit, n=len(dataset), kind="estimate", began=began),
        "samples": samples if model.has_latent else 0,
        "q_precision": precision if model.has_latent else None,
        "kinds": {name: KINDS[name] for name in arrays},
        "ppl": {name: rounded(math.exp(values.sum() / tokens.sum())) for name, values in arrays.items()},
        "nll_story": {name: rounded(float(values.mean())) for name, values in arrays.items()},
        "tags_nll_story": None if log_p_S is None else rounded(float(-log_p_S.mean())),
        "latent": figures,
        "tokens": tokens.tolist(),
        "stories": {name: rounded_list(values) for name, values in arrays.items()},
    }
    bench.records.write(unit.name, record)


@torch.no_grad()
def story_nlls(
    model: Model, dataset: StoryDataset, samples: int, seed: int, posterior: str, precision: float = 1.0
) -> dict[str, FloatArray]:
    """Negative log-likelihood of each story: exact (`nll`), or for a latent model IW bound, ELBO, authors' estimate.

    A latent model also has the bound by half and by a quarter of the samples, which give its slack, and its KL of Z
    with S summed out.
    """
    nats: dict[str, FloatArray] = defaultdict(lambda: np.zeros(len(dataset)))
    generator = torch.Generator(dataset.device).manual_seed(seed)
    model.eval()
    for rows in dataset.in_order(STORIES_AT_ONCE.get(dataset.device.type, 256)):
        batch = dataset.batch(rows)
        draws = independent_draws(model, batch, samples, posterior, generator)
        weighed = weigh(model, batch, draws, posterior, precision)
        figures = {"nll": -weighed.log_p}
        if model.latent is not None:
            authors = authors_estimate(model.latent, batch, generator)
            kl = weighed.kl_Z.mean(1)
            fewer = {"iw_half": max(1, samples // 2), "iw_quarter": max(1, samples // 4)}
            figures = {"iw": -weighed.log_p, "elbo": -weighed.elbo, "authors": -authors, "kl_z": kl}
            figures |= {name: -weighed.log_p_by(few) for name, few in fewer.items()}
        for name, values in figures.items():
            nats[name][rows] = values.cpu().numpy()
    return dict(nats)


@torch.no_grad()
def tag_f1(model: SLDS, dataset: StoryDataset) -> float | None:
    """Macro-F1 of the most probable tags of q(S | X), in percent; None for a model with one state."""
    if model.K == 1:
        return None
    truth, guess = [], []
    for rows in dataset.in_order(STORIES_AT_ONCE.get(dataset.device.type, 256)):
        batch = dataset.batch(rows)
        tagged = batch.S >= 0
        truth.append(batch.S[tagged].cpu())
        guess.append(model.evidence(batch).log_q_S.argmax(-1)[tagged].cpu())
    return rounded(macro_f1(torch.cat(truth), torch.cat(guess), model.K))


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
