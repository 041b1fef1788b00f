"""Units that write: missing sentences by every sampler, whole stories from their tags; and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from fabula.metrics.control import sentences_of, write_along
from fabula.models.decoders.words import WordTokenizer
from fabula.models.protocol import Model
from fabula.models.scaffold import allowed_states
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.cast import Cast
from fabula.sampling.driver import Answer, fill_batch
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rerank import write_left_to_right
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import SampledStory
from fabula.sampling.settings import DecodingConfig, FillSettings, GibbsSettings, RerankSettings, SMCSettings
from fabula_paper.bench import Bench
from fabula_paper.plan import BY_NAME, MIDDLE, SENTENCES, SETTINGS, Scale, System, Unit

WRITTEN_AT_ONCE = 2048
TOP_K = 15
"""The paper's value for its baselines; the paper does not say how it wrote for its control table."""


AGREED = 0.7
"""The temperature of samples that are chosen by consensus."""
SHARP, SHARP_FLUENCY = 0.5, 6.0
"""A greedy writer's words are the likeliest, whatever they say: against gibbs, bridge is sharpened to the like."""


def settings_of(sampler: str, scale: Scale) -> FillSettings:
    """A sampler's name as settings.

    The paper's and plain bridge draw words at temperature 1 and rank by the given sentences alone; `bridge-more` and
    `fill` draw and rank as `fabula fill` does, `fill` with its rules too.
    """
    usual, tags = SMCSettings(), "peek" if sampler.endswith("-peek") else "read"
    if sampler.startswith("rerank"):
        samples = scale.reranked if sampler == "rerank" else scale.samples
        return RerankSettings.plain(samples=samples, top_k=TOP_K)
    if sampler == "bridge":
        return SMCSettings.plain(samples=scale.samples, top_k=TOP_K)
    if sampler in ("bridge-more", "bridge-sharp"):
        temperature, fluency = (
            (usual.temperature, usual.fluency) if sampler == "bridge-more" else (SHARP, SHARP_FLUENCY)
        )
        return SMCSettings.plain(
            samples=scale.more, twist_weight=usual.twist_weight, top_k=TOP_K, temperature=temperature, fluency=fluency
        )
    if sampler == "fill":
        return SMCSettings(samples=scale.samples)
    if sampler.startswith("consensus"):
        return SMCSettings.plain(samples=scale.agreeing, temperature=AGREED, tags=tags, top_k=TOP_K)
    # One chain, as the paper has it: its 50 samples are 50 states, burn-in included.
    return GibbsSettings.plain(samples=scale.samples, chains=1, tags=tags)


def blanked(
    bench: Bench, system: System, rows: Sequence[int], missing: Sequence[int]
) -> tuple[InfillBatch, InfillBatch]:
    """The stories with blanks, and whole; S2S is told all tags (the paper: gold), the others none."""
    whole = [bench.words(row) for row in rows]
    blank = [[None if i in missing else words for i, words in enumerate(story)] for story in whole]
    allowed = None
    if system.reads_tags:
        allowed = [allowed_states(torch.tensor(bench.tags(row)), bench.corpus.states.K) for row in rows]
    return infill_batch(blank, allowed, device=bench.device), infill_batch(whole, device=bench.device)


def sample(bench: Bench, unit: Unit) -> None:
    """The best of many for every chosen story with some sentences missing."""
    system, began = BY_NAME[unit.system], time.perf_counter()
    setting, sampler = unit.detail.split(".")
    missing, settings = SETTINGS[setting], settings_of(sampler, bench.job.scale)
    blank, gold = blanked(bench, system, bench.rows, missing)
    seeds = [seeded(bench.job.seed, n).initial_seed() for n in range(len(bench.rows))]
    start = time.perf_counter()
    answers = tell(bench, system, blank, sampler, seeds, gold)
    seconds = time.perf_counter() - start
    texts = [
        {
            "id": bench.test.ids[row],
            "lines": lines_of(bench, answer.stories[0], missing),
            "tags": tags_of(answer.stories[0]),
        }
        for row, answer in zip(bench.rows, answers, strict=True)
    ]
    record = {
        **bench.common(unit, n=len(texts), kind="estimate", began=began),
        "setting": setting,
        "missing": [i + 1 for i in missing],
        "sampler": sampler,
        "settings": asdict(settings),
        "peeks": sampler.endswith("-peek"),
        "gold_tags": system.reads_tags,
        "sampling_seconds": round(seconds, 2),
        "mean_score": round(sum(answer.stories[0].score for answer in answers) / len(answers), 4),
    }
    bench.records.write(unit.name, record, texts)


def tell(
    bench: Bench, system: System, blank: InfillBatch, sampler: str, seeds: Sequence[int], gold: InfillBatch
) -> list[Answer]:
    """The sampler's answers; where its rules speak of people, it is told who they are."""
    checkpoint, settings, rules, cast = (
        bench.checkpoint(system),
        settings_of(sampler, bench.job.scale),
        bench.rules,
        None,
    )
    if sampler == "fill":
        people = checkpoint.people
        rules = WordRules.of(WordTokenizer(bench.corpus.vocabulary), bench.device, people.names)
        cast = Cast(people, rules)
    return fill_batch(
        checkpoint.model, rules, blank, settings, [seeded(seed) for seed in seeds], cast=cast,
        gold=gold if sampler.endswith("-peek") else None, memory_gib=bench.job.memory_gib,
        rank="consensus" if sampler.startswith("consensus") else "score",
    )  # fmt: skip


def lines_of(bench: Bench, found: SampledStory, missing: Sequence[int]) -> list[str]:
    """The written sentences as words with blanks between them, so that ids and English can both be had of them."""
    decode_words = bench.corpus.vocabulary.decode
    return [" ".join(decode_words(found.X[i, : int(found.lengths[i]) - 1].tolist())) for i in missing]


def tags_of(found: SampledStory) -> list[int]:
    return [int(s) for s in found.S[:SENTENCES]]


def write_stories(bench: Bench, unit: Unit) -> None:
    """Every test story's tags in, five sentences out on the model's own context: top-k, several runs, and greedily."""
    system, scale, began = BY_NAME[unit.system], bench.job.scale, time.perf_counter()
    rows = [row for row in range(len(bench.test)) if len(bench.tags(row)) == SENTENCES][: scale.written]
    tags = [bench.tags(row) for row in rows]
    S = torch.tensor(tags)
    runs = [told(bench, system, S, TOP_K, run) for run in range(scale.runs)]
    greedy = told(bench, system, S, 1, 0)
    texts = [
        {"id": bench.test.ids[row], "tags": tags[n], "runs": [run[n] for run in runs], "greedy": greedy[n]}
        for n, row in enumerate(rows)
    ]
    record = {
        **bench.common(unit, n=len(rows), kind="estimate", began=began),
        "runs": scale.runs,
        "top_k": TOP_K,
        "tags_in": system.has_tags or system.reads_tags,
    }
    bench.records.write(unit.name, record, texts)


def told(bench: Bench, system: System, S: Tensor, top_k: int, run: int) -> list[list[str]]:
    """One telling of every story, as English sentences; the LM, which takes no tags, writes as it likes."""
    model, vocabulary, seed = bench.checkpoint(system).model, bench.corpus.vocabulary, bench.job.seed + run
    if not (model.has_latent or model.reads_tags):
        return free_stories(bench, model, len(S), top_k, seed)
    if model.K == 1:
        S = torch.zeros_like(S)
    return write_along(model, vocabulary, S, top_k=top_k, seed=seed, piece=WRITTEN_AT_ONCE)


@torch.inference_mode()
def free_stories(bench: Bench, model: Model, n: int, top_k: int, seed: int) -> list[list[str]]:
    """Stories that nothing asks for."""
    decoding, found = DecodingConfig(top_k=top_k), []
    for start in range(0, n, WRITTEN_AT_ONCE):
        count = min(WRITTEN_AT_ONCE, n - start)
        blank = infill_batch([[None] * SENTENCES] * count, device=bench.device)
        seeds = [seeded(seed, start + row) for row in range(count)]
        uniform = Noise(seeds, blank.sentences, 1, bench.device).uniform(decoding.max_words)
        new = write_left_to_right(model, bench.rules, decoding, blank, None, None, uniform)
        found += sentences_of(new.X, new.lengths, bench.corpus.vocabulary)
    return found


def time_sampler(bench: Bench, unit: Unit) -> None:
    """Seconds a story, three sentences missing, with nothing else running: a few stories together, after a warm-up."""
    system, began = BY_NAME[unit.system], time.perf_counter()
    settings = settings_of(unit.detail, bench.job.scale)
    rows = bench.rows[: bench.job.scale.timed]
    seeds = [seeded(bench.job.seed, n).initial_seed() for n in range(len(rows))]

    def once(count: int) -> float:
        blank, gold = blanked(bench, system, rows[:count], SETTINGS[MIDDLE])
        start = time.perf_counter()
        tell(bench, system, blank, unit.detail, seeds[:count], gold)
        return time.perf_counter() - start

    once(1)
    alone, together = once(1), once(len(rows))
    record = {
        **bench.common(unit, n=len(rows), kind="estimate", began=began),
        "sampler": unit.detail,
        "settings": asdict(settings),
        "seconds_one_story": round(alone, 4),
        "seconds_a_story_together": round(together / len(rows), 4),
    }
    bench.records.write(unit.name, record)
