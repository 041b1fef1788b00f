"""Units that write: missing sentences by every sampler, and whole stories from their tags."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from fabula.metrics.control import sentences_of, write_along
from fabula.models.decoders.words import WordTokenizer
from fabula.models.protocol import Model
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.cast import Cast
from fabula.sampling.driver import Answer, fill_batch
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rerank import write_left_to_right
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import DecodingConfig, FillSettings, GibbsSettings, RerankSettings, SMCSettings
from fabula.statespace.markov import allowed_states
from fabula_paper.bench import Bench
from fabula_paper.plan import BY_NAME, SENTENCES, SETTINGS, Scale, System, Unit

WRITTEN_AT_ONCE = 2048
TOP_K = 15
"""The paper's value for its baselines; the paper does not say how it decoded for its control table."""


def settings_of(sampler: str, scale: Scale) -> FillSettings:
    """The settings of a sampler by its name.

    The paper's samplers and bridge draw words at temperature 1 and rank by the given sentences alone.
    `fill` draws, ranks and follows rules as `fabula fill` does.
    """
    if sampler == "rerank":
        return RerankSettings.plain(samples=scale.reranked, top_k=TOP_K)
    if sampler == "bridge":
        return SMCSettings.plain(samples=scale.samples, top_k=TOP_K)
    if sampler == "fill":
        return SMCSettings(samples=scale.samples)
    tags = "peek" if sampler.endswith("-peek") else "read"
    # The paper's 50 samples are 50 states of one chain, burn-in included.
    return GibbsSettings.plain(samples=scale.samples, chains=1, tags=tags)


def blanked(
    bench: Bench, system: System, rows: Sequence[int], missing: Sequence[int]
) -> tuple[InfillBatch, InfillBatch]:
    """The stories with blanks, and whole. S2S gets the gold tags, as in the paper; the others get none."""
    whole = [bench.words(row) for row in rows]
    blank = [[None if i in missing else words for i, words in enumerate(story)] for story in whole]
    allowed = None
    if system.reads_tags:
        allowed = [allowed_states(torch.tensor(bench.tags(row)), bench.corpus.states.K) for row in rows]
    return infill_batch(blank, allowed, device=bench.device), infill_batch(whole, device=bench.device)


def fill(bench: Bench, system: System, rows: Sequence[int], setting: str, sampler: str) -> list[Answer]:
    """The sampler's answers for some test stories."""
    checkpoint, rules, cast = bench.checkpoint(system), bench.rules, None
    blank, gold = blanked(bench, system, rows, SETTINGS[setting])
    if sampler == "fill":
        rules = WordRules.of(WordTokenizer(bench.corpus.vocabulary), bench.device, checkpoint.people.names)
        cast = Cast(checkpoint.people, rules)
    seeds = [seeded(bench.job.seed, n).initial_seed() for n in range(len(rows))]
    return fill_batch(
        checkpoint.model, rules, blank, settings_of(sampler, bench.job.scale), [seeded(seed) for seed in seeds],
        cast=cast, gold=gold if sampler.endswith("-peek") else None, memory_gib=bench.job.memory_gib,
    )  # fmt: skip


def sample(bench: Bench, unit: Unit) -> None:
    """Fill in the missing sentences of every chosen story; the best answer of each is kept."""
    system, began = BY_NAME[unit.system], time.perf_counter()
    setting, sampler = unit.detail.split(".")
    missing = SETTINGS[setting]
    answers = [answer.stories[0] for answer in fill(bench, system, bench.rows, setting, sampler)]
    texts = [
        {
            "id": bench.test.ids[row],
            "lines": bench.text(answer.X, answer.lengths, missing),
            "tags": [int(s) for s in answer.S[:SENTENCES]],
        }
        for row, answer in zip(bench.rows, answers, strict=True)
    ]
    record = {
        **bench.common(unit, n=len(texts), kind="estimate", began=began),
        "setting": setting,
        "missing": [i + 1 for i in missing],
        "sampler": sampler,
        "settings": asdict(settings_of(sampler, bench.job.scale)),
        "peeks": sampler.endswith("-peek"),
        "gold_tags": system.reads_tags,
        "mean_score": round(sum(answer.score for answer in answers) / len(answers), 4),
    }
    bench.records.write(unit.name, record, texts)


def write_stories(bench: Bench, unit: Unit) -> None:
    """Write five sentences along the tags of every test story: several runs by top-k, and greedily."""
    system, scale, began = BY_NAME[unit.system], bench.job.scale, time.perf_counter()
    rows = [row for row in range(len(bench.test)) if len(bench.tags(row)) == SENTENCES][: scale.written]
    tags = [bench.tags(row) for row in rows]
    S = torch.tensor(tags)
    runs = [written_stories(bench, system, S, TOP_K, run) for run in range(scale.runs)]
    greedy = written_stories(bench, system, S, 1, 0)
    texts = [
        {"id": bench.test.ids[row], "tags": tags[n], "runs": [run[n] for run in runs], "greedy": greedy[n]}
        for n, row in enumerate(rows)
    ]
    record = {
        **bench.common(unit, n=len(rows), kind="estimate", began=began),
        "runs": scale.runs, "top_k": TOP_K, "tags_in": system.has_tags or system.reads_tags,
    }  # fmt: skip
    bench.records.write(unit.name, record, texts)


def written_stories(bench: Bench, system: System, S: Tensor, top_k: int, run: int) -> list[list[str]]:
    """One run of stories in English; LM has no tags and writes freely."""
    model, vocabulary, seed = bench.checkpoint(system).model, bench.corpus.vocabulary, bench.job.seed + run
    if not (model.has_latent or model.reads_tags):
        return free_stories(bench, model, len(S), top_k, seed)
    if model.K == 1:
        S = torch.zeros_like(S)
    return write_along(model, vocabulary, S, top_k=top_k, seed=seed, piece=WRITTEN_AT_ONCE)


@torch.inference_mode()
def free_stories(bench: Bench, model: Model, n: int, top_k: int, seed: int) -> list[list[str]]:
    """Stories written from nothing, left to right."""
    decoding, stories = DecodingConfig(top_k=top_k), []
    for start in range(0, n, WRITTEN_AT_ONCE):
        count = min(WRITTEN_AT_ONCE, n - start)
        blank = infill_batch([[None] * SENTENCES] * count, device=bench.device)
        seeds = [seeded(seed, start + row) for row in range(count)]
        uniform = Noise(seeds, blank.sentences, 1, bench.device).uniform(decoding.max_words)
        written = write_left_to_right(model, bench.rules, decoding, blank, None, None, uniform)
        stories += sentences_of(written.X, written.lengths, bench.corpus.vocabulary)
    return stories
