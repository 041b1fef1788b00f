"""Units that write: missing sentences by every sampler, and whole stories from their tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
from torch import Tensor

from fabula.metrics.likelihood import draw_given
from fabula.models.protocol import Model
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.driver import Answer, fill_stories
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rerank import write_left_to_right
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import DecodingConfig, FillSettings, GibbsSettings, RerankSettings
from fabula.sampling.tags import infer_tags
from fabula.statespace.markov import allowed_states
from fabula_paper.bench import Bench, Made, english
from fabula_paper.plan import BY_NAME, SENTENCES, SETTINGS, Scale, System, Unit

WRITTEN_AT_ONCE = 2048
TOP_K = 15
"""The paper's value for its baselines; the paper does not say how it decoded for its control table."""
COPIES_OF_SCORES = 6
"""Arrays of rows x vocabulary alive at once while a word is chosen, at most."""


def settings_of(sampler: str, scale: Scale) -> FillSettings:
    """The settings of a sampler by its name: words at temperature 1, ranked by the given sentences alone."""
    if sampler == "rerank":
        return RerankSettings.plain(samples=scale.reranked, top_k=TOP_K)
    if sampler == "gibbs-peek":  # the paper's 50 samples are 50 states of one chain, burn-in included
        return GibbsSettings.plain(samples=scale.samples, chains=1)
    # Several chains: what is written into the blanks holds their tags where they are.
    return GibbsSettings.plain(samples=scale.samples)


def fill_batch(
    model: Model, rules: WordRules, batch: InfillBatch, settings: FillSettings, generators: Sequence[torch.Generator],
    candidates: int = 1, *, memory_gib: float,
) -> list[Answer]:  # fmt: skip
    """The best stories for every task of a batch, in pieces whose scores fit the memory; a generator for each task."""
    per_task = settings.rows * len(rules.anywhere) * 4 * COPIES_OF_SCORES
    at_once, answers = max(1, int(memory_gib * 2**30 // per_task)), list[Answer]()
    for start in range(0, len(batch.X), at_once):
        part = batch.rows(start, min(start + at_once, len(batch.X)))
        some, wanted = generators[start : start + at_once], [candidates] * len(part.X)
        *_, last = fill_stories(model, rules, part, replace(settings, at_once=True), some, wanted)
        answers += last
    return answers


def sample(bench: Bench, unit: Unit) -> Made:
    """Fill in the missing sentences of every chosen story; the best answer of each is kept.

    S2S gets the gold tags, as in the paper; the others get none.
    """
    system, rows = BY_NAME[unit.system], bench.rows
    setting, sampler = unit.detail.split(".")
    model, whole, missing = bench.checkpoint(system).model, [bench.words(row) for row in rows], SETTINGS[setting]
    settings = settings_of(sampler, bench.job.scale)
    allowed = None
    if system.reads_tags:
        allowed = [allowed_states(torch.tensor(bench.tags(row)), bench.corpus.states.K) for row in rows]
    if sampler == "gibbs-peek" and model.latent is not None:
        # The authors' way: argmax q(S_i | X) with the true missing sentences in X.
        allowed = list(infer_tags(model.latent, infill_batch(whole, device=bench.device), "read").allowed)
    blank = [[None if i in missing else words for i, words in enumerate(story)] for story in whole]
    batch = infill_batch(blank, allowed, device=bench.device)
    seeds = [seeded(seeded(bench.job.seed, n).initial_seed()) for n in range(len(rows))]
    filled = fill_batch(model, bench.rules, batch, settings, seeds, memory_gib=bench.job.memory_gib)
    answers = [answer.stories[0] for answer in filled]
    texts = [
        {
            "id": bench.test.ids[row],
            "lines": bench.text(answer.X, answer.lengths, missing),
            "tags": [int(s) for s in answer.S[:SENTENCES]],
        }
        for row, answer in zip(rows, answers, strict=True)
    ]
    record = {
        "n": len(texts),
        "kind": "estimate",
        "setting": setting,
        "missing": [i + 1 for i in missing],
        "sampler": sampler,
        "settings": asdict(settings),
        "peeks": sampler == "gibbs-peek",
        "gold_tags": system.reads_tags,
        "mean_score": round(sum(answer.score for answer in answers) / len(answers), 4),
    }
    return record, texts


def write_stories(bench: Bench, unit: Unit) -> Made:
    """Write five sentences along the tags of every test story: several runs by top-k, and greedily."""
    system, scale = BY_NAME[unit.system], bench.job.scale
    rows = [row for row in range(len(bench.test)) if len(bench.tags(row)) == SENTENCES][: scale.written]
    tags = [bench.tags(row) for row in rows]
    S = torch.tensor(tags)
    runs = [written_stories(bench, system, S, TOP_K, run) for run in range(scale.runs)]
    greedy = written_stories(bench, system, S, 1, 0)
    texts = [
        {"id": bench.test.ids[row], "tags": tags[n], "runs": [run[n] for run in runs], "greedy": greedy[n]}
        for n, row in enumerate(rows)
    ]
    return {"n": len(rows), "kind": "estimate", "runs": scale.runs, "top_k": TOP_K}, texts


@torch.inference_mode()
def written_stories(bench: Bench, system: System, S: Tensor, top_k: int, run: int) -> list[list[str]]:
    """One run of stories in English, one for each row of tags: Z from the dynamics alone (SLDS), or p(X | S) (S2S)."""
    model, seed, decoding = bench.checkpoint(system).model, bench.job.seed + run, DecodingConfig(top_k=top_k)
    generator, stories = torch.Generator(bench.device).manual_seed(seed), []
    for start in range(0, len(S), WRITTEN_AT_ONCE):
        tags = S[start : start + WRITTEN_AT_ONCE].to(bench.device)
        blanks = infill_batch([[None] * SENTENCES] * len(tags), device=bench.device)
        seeds = [seeded(seed * 1_000_003 + start + row) for row in range(len(tags))]
        uniform = Noise(seeds, blanks.sentences, 1, blanks.device).uniform(decoding.max_words)
        Z = None if model.latent is None else draw_given(model.latent, tags, tags >= 0, 1, generator)[:, 0]
        written = write_left_to_right(model, bench.rules, decoding, blanks, tags, Z, uniform)
        for X, lengths in zip(written.X.cpu(), written.lengths.cpu(), strict=True):
            stories.append([english(line) for line in bench.text(X, lengths, range(SENTENCES))])
    return stories
