"""Units that write: missing sentences by every sampler, whole stories from their tags; and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from fabula.evaluation.latent import draw_given
from fabula.infill import decode
from fabula.infill.decode import GREEDY, TOP_15, Choice
from fabula.infill.noise import Noise, seeded
from fabula.infill.page import Page, page
from fabula.infill.rerank import write_joined
from fabula.infill.sampler import FillSettings, Found, fill
from fabula.models.gaussian import Potential
from fabula.models.s2s import S2S
from fabula.models.slds import SLDS
from fabula.reproduce.bench import Bench
from fabula.reproduce.plan import BY_NAME, MIDDLE, SENTENCES, SETTINGS, Scale, System, Unit

WRITTEN_AT_ONCE = 512


def settings_of(sampler: str, scale: Scale, bench: Bench) -> FillSettings:
    """A sampler's name as settings. Words are drawn at temperature 1 and ranked by the given sentences alone."""
    common: dict[str, Any] = {
        "temperature": 1.0, "fluency": 0.0, "memory_gib": bench.job.memory_gib, "bf16": bench.device.type == "cuda",
    }  # fmt: skip
    if sampler == "rerank":
        return FillSettings(sampler="rerank", samples=scale.reranked, top_k=15, **common)
    if sampler == "bridge":
        return FillSettings(sampler="bridge", samples=scale.samples, tags="read", top_k=15, **common)
    # One chain, as the paper has it: its 50 samples are 50 states, burn-in included.
    tags = "peek" if sampler == "gibbs-peek" else "read"
    return FillSettings(sampler="gibbs", samples=scale.samples, chains=1, tags=tags, **common)  # type: ignore[arg-type]


def blanked(bench: Bench, system: System, rows: Sequence[int], missing: Sequence[int]) -> tuple[Page, Page]:
    """The stories with blanks, and whole; S2S is told all tags (the paper: gold), the others none."""
    whole = [bench.words(row) for row in rows]
    blank = [[None if i in missing else words for i, words in enumerate(story)] for story in whole]
    tags = [bench.tags(row) for row in rows] if system.kind == "s2s" else None
    return page(blank, tags=tags, device=bench.device), page(whole, device=bench.device)


def sample(bench: Bench, unit: Unit) -> None:
    """The best of many for every chosen story with some sentences missing."""
    system, began = BY_NAME[unit.system], time.perf_counter()
    setting, sampler = unit.detail.split(".")
    missing, settings = SETTINGS[setting], settings_of(sampler, bench.job.scale, bench)
    model = bench.checkpoint(system).model
    blank, gold = blanked(bench, system, bench.rows, missing)
    seeds = [seeded(bench.job.seed, n).initial_seed() for n in range(len(bench.rows))]
    start = time.perf_counter()
    answers = fill(model, bench.lexicon, blank, settings, seeds, gold=gold if settings.tags == "peek" else None)
    seconds = time.perf_counter() - start
    texts = [
        {"id": bench.test.ids[row], "lines": lines_of(bench, found[0], missing), "tags": tags_of(found[0])}
        for row, (found, _) in zip(bench.rows, answers, strict=True)
    ]
    record = {
        **bench.common(unit, n=len(texts), kind="estimate", began=began),
        "setting": setting,
        "missing": [i + 1 for i in missing],
        "sampler": sampler,
        "settings": asdict(settings),
        "peeks": settings.tags == "peek",
        "gold_tags": system.kind == "s2s",
        "sampling_seconds": round(seconds, 2),
        "mean_score": round(sum(found[0].score for found, _ in answers) / len(answers), 4),
    }
    bench.records.write(unit.name, record, texts)


def lines_of(bench: Bench, found: Found, missing: Sequence[int]) -> list[str]:
    """The written sentences as words with blanks between them, so that ids and English can both be had of them."""
    decode_words = bench.corpus.vocabulary.decode
    return [" ".join(decode_words(found.X[i, : int(found.lengths[i]) - 1].tolist())) for i in missing]


def tags_of(found: Found) -> list[int]:
    return [int(s) for s in found.S[:SENTENCES]]


def write_stories(bench: Bench, unit: Unit) -> None:
    """Every test story's tags in, five sentences out on the model's own context: top-k, several runs, and greedily."""
    system, scale, began = BY_NAME[unit.system], bench.job.scale, time.perf_counter()
    rows = [row for row in range(len(bench.test)) if len(bench.tags(row)) == SENTENCES][: scale.written]
    tags = [bench.tags(row) for row in rows]
    runs = [written(bench, system, tags, TOP_15, run) for run in range(scale.runs)]
    greedy = written(bench, system, tags, GREEDY, 0)
    texts = [
        {"id": bench.test.ids[row], "tags": tags[n], "runs": [run[n] for run in runs], "greedy": greedy[n]}
        for n, row in enumerate(rows)
    ]
    record = {
        **bench.common(unit, n=len(rows), kind="estimate", began=began),
        "runs": scale.runs,
        "top_k": TOP_15.top_k,
        "tags_in": system.kind in ("slds", "s2s"),
    }
    bench.records.write(unit.name, record, texts)


@torch.inference_mode()
def written(bench: Bench, system: System, tags: list[list[int]], choice: Choice, run: int) -> list[list[str]]:
    """One telling of every story: its five sentences as words with blanks between them."""
    model, vocabulary = bench.checkpoint(system).model, bench.corpus.vocabulary
    found: list[list[str]] = []
    for part in pieces(tags, WRITTEN_AT_ONCE):
        blank = page([[None] * SENTENCES] * len(part), tags=part, device=bench.device)
        seeds = [seeded(bench.job.seed + 1 + run, len(found) + n) for n in range(len(part))]
        noise = Noise(seeds, blank.sentences, 1, bench.device)
        uniform = noise.uniform(choice.max_words)
        if isinstance(model, S2S):
            told = write_joined(model, bench.lexicon, choice, blank, uniform)
        else:
            Z = latents(model, part, noise) if isinstance(model, SLDS) else None
            drawn = None if choice.top_k == 1 else uniform
            told = decode.story(model.language, bench.lexicon, choice, blank, Z, drawn)
        X, lengths = told.X.cpu(), told.lengths.cpu()
        found += [
            [" ".join(vocabulary.decode(X[n, i, : int(lengths[n, i]) - 1].tolist())) for i in range(SENTENCES)]
            for n in range(len(part))
        ]
    return found


def latents(model: SLDS, tags: list[list[int]], noise: Noise) -> Tensor:
    """Z from the dynamics under these tags, nothing else heard."""
    device = noise.device
    S = torch.tensor(tags, device=device) if model.K > 1 else torch.zeros(len(tags), SENTENCES, dtype=torch.int64)
    S = S.to(device)
    silent = torch.zeros(*S.shape, model.D, device=device)
    generator = torch.Generator(device).manual_seed(int(noise.generators[0].initial_seed()) % 2**62)
    return draw_given(model, S, Potential(silent, silent), S >= 0, 1, generator)[:, 0]


def pieces(items: list[list[int]], size: int) -> Iterator[list[list[int]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def time_sampler(bench: Bench, unit: Unit) -> None:
    """Seconds a story, three sentences missing, with nothing else running: a few stories together, after a warm-up."""
    system, began = BY_NAME[unit.system], time.perf_counter()
    settings = settings_of(unit.detail, bench.job.scale, bench)
    model, rows = bench.checkpoint(system).model, bench.rows[: bench.job.scale.timed]
    seeds = [seeded(bench.job.seed, n).initial_seed() for n in range(len(rows))]

    def once(count: int) -> float:
        blank, gold = blanked(bench, system, rows[:count], SETTINGS[MIDDLE])
        start = time.perf_counter()
        fill(model, bench.lexicon, blank, settings, seeds[:count], gold=gold)
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
