"""What bridge's settings do to overlap with people's sentences and to look-ahead: every candidate of every setting.

    PYTHONPATH=src python benchmarks/bridge_trials.py write --model default --judge runs/lm-512 --data prepared/roc \\
        --split valid --stories 500 --device cuda --out trials
    python benchmarks/bridge_trials.py score --data prepared/roc --split valid --out trials
    python benchmarks/bridge_trials.py read --data prepared/roc --split valid --device cuda --out trials

`write` needs only torch: it keeps the candidates in their ranking (trials/<setting>.<trial>.npz) and, where the middle
three are missing, the judge's log p of the ending. `score` takes ROUGE (F1, stemmed) and METEOR of each trial's best,
`read` the story perplexity under SmolLM2 of those with the middle three missing.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fabula import api
from fabula.corpus.dataset import Corpus
from fabula.metrics.lookahead import choose_stories, log_p_ending
from fabula.metrics.record import mean_and_error
from fabula.models.decoders.words import WordTokenizer
from fabula.models.lm import LM
from fabula.sampling.batch import infill_batch
from fabula.sampling.cast import Cast
from fabula.sampling.consensus import by_consensus
from fabula.sampling.driver import draw, fill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.protocol import sampler_named
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import best_stories
from fabula.sampling.settings import BridgeFillSettings, FillSettings
from fabula.training.checkpoint import load
from fabula_paper.plan import MIDDLE, SETTINGS, TABLE_SETTINGS

RAW: dict[str, Any] = {}
SHIPPED: dict[str, Any] = asdict(BridgeFillSettings())
OVERLAP: dict[str, dict[str, Any]] = {
    "gibbs-peek": {"sampler": "gibbs", "chains": 1, "tags": "peek", **RAW},
    "gibbs-peek-50-chains": {"sampler": "gibbs", "chains": 50, "tags": "peek", **RAW},
    "bridge": RAW,
    "bridge-peek": {**RAW, "tags": "peek"},
    "bridge-0.7-peek": {**RAW, "temperature": 0.7, "tags": "peek"},
    "bridge-0.5": {**RAW, "temperature": 0.5},
    "bridge-0.5-peek": {**RAW, "temperature": 0.5, "tags": "peek"},
    "bridge-0.3-peek": {**RAW, "temperature": 0.3, "tags": "peek"},
    "bridge-greedy-peek": {**RAW, "top_k": 1, "tags": "peek"},
    "bridge-0.5-peek-200": {**RAW, "temperature": 0.5, "tags": "peek", "samples": 200},
    "bridge-0.7-200": {**RAW, "temperature": 0.7, "samples": 200},
    "bridge-0.5-200": {**RAW, "temperature": 0.5, "samples": 200},
    "fill": SHIPPED,
}
AHEAD: dict[str, dict[str, Any]] = {
    "gibbs": {"sampler": "gibbs", "chains": 1, **RAW},
    "bridge": RAW,
    "bridge-200": {**RAW, "samples": 200},
    "bridge-500": {**RAW, "samples": 500},
    "ahead": {**RAW, "twist_weight": 0.5},
    "ahead-200": {**RAW, "twist_weight": 0.5, "samples": 200},
    "ahead-0.9-200": {**RAW, "twist_weight": 0.5, "temperature": 0.9, "samples": 200},
    "ahead-0.8-200": {**RAW, "twist_weight": 0.5, "temperature": 0.8, "samples": 200},
    "ahead-0.9-fluent-200": {"twist_weight": 0.5, "temperature": 0.9, "fluency": 3.0, "samples": 200},
    "ahead-0.9-fluent": {"twist_weight": 0.5, "temperature": 0.9, "fluency": 3.0},
    "ahead-0.8-fluent-200": {"twist_weight": 0.5, "temperature": 0.8, "fluency": 3.0, "samples": 200},
    "ahead-0.9-fluent-400": {"twist_weight": 0.5, "temperature": 0.9, "fluency": 3.0, "samples": 400},
    "ahead-0.9-1000": {**RAW, "twist_weight": 0.5, "temperature": 0.9, "samples": 1000},
    "greedy": {**RAW, "top_k": 1},
    "greedy-500": {**RAW, "top_k": 1, "twist_weight": 0.5, "samples": 500},
    **{
        f"ahead-{t:g}-fluent-{f:g}-500": {"twist_weight": 0.5, "temperature": t, "fluency": f, "samples": 500}
        for t, f in ((0.3, 3.0), (0.3, 6.0), (0.4, 3.0), (0.4, 6.0), (0.5, 6.0), (0.5, 10.0), (0.9, 3.0))
    },
    "fill": SHIPPED,
    "fill-200": {**SHIPPED, "samples": 200},
    "fill-400": {**SHIPPED, "samples": 400},
    "fill-0.8-200": {**SHIPPED, "samples": 200, "temperature": 0.8},
}
CONSENSUS: dict[str, dict[str, Any]] = {
    f"consensus-{temperature:g}{'-peek' if peek else ''}": {
        **RAW, "temperature": temperature, "samples": 400, "tags": "peek" if peek else "read",
    }
    for temperature in (0.5, 0.7, 0.85, 1.0)
    for peek in (False, True)
}  # fmt: skip
TRUSTS = (0.0, 0.3, 1.0)
KEPT = 50
"""Candidates that are kept of a trial with many samples, to be ranked in other ways later; 1 of the others."""


def settings_of(changes: dict[str, Any]) -> FillSettings:
    """The model's own law and the paper's ranking with these changes."""
    rest = {name: value for name, value in changes.items() if name != "sampler"}
    return sampler_named(changes.get("sampler", "bridge")).settings.plain(**rest)


def stories_of(args: argparse.Namespace) -> tuple[Corpus, list[int], list[list[list[int]]]]:
    corpus = Corpus.open(args.data)
    split = corpus.split(args.split)
    rows = choose_stories(split, args.stories, 5, 0)
    return corpus, rows, [[s.tolist() for s in split.sentences(row)] for row in rows]


def write(args: argparse.Namespace) -> None:
    device = torch.device(args.device)
    corpus, _, stories = stories_of(args)
    checkpoint = load(api.find(args.model), device)
    model = checkpoint.model.eval()
    people = checkpoint.people
    rules = WordRules.of(WordTokenizer(corpus.vocabulary), device, people.names)
    cast = Cast(people, rules)
    judge = load(args.judge, device).model.eval() if args.judge else None
    seeds = [seeded(0, n).initial_seed() for n in range(len(stories))]
    torch.set_float32_matmul_precision("high")
    jobs = [(setting, name, OVERLAP[name]) for setting in TABLE_SETTINGS for name in OVERLAP]
    jobs += [(MIDDLE, name, AHEAD[name]) for name in AHEAD]
    jobs += [(setting, name, CONSENSUS[name]) for setting in TABLE_SETTINGS for name in CONSENSUS]
    if args.only:
        jobs = [job for job in jobs if f"{job[0]}.{job[1]}" in args.only or job[0] in args.only]
    whole = infill_batch(stories, device=device)
    args.out.mkdir(parents=True, exist_ok=True)
    for setting, name, changes in jobs:
        missing, settings = SETTINGS[setting], settings_of(changes)
        blank = infill_batch([[None if i in missing else w for i, w in enumerate(s)] for s in stories], device=device)
        gold = whole if changes.get("tags") == "peek" else None
        if name in CONSENSUS:
            agree(args.out, setting, name, settings, (model, rules, blank, seeds, gold))
            continue
        began = time.perf_counter()
        kept = KEPT if settings.samples > 50 and setting != MIDDLE else 1
        generators, memory = [seeded(seed) for seed in seeds], 12.0 if device.type == "cuda" else 1.0
        answers = fill_batch(model, rules, blank, settings, generators, kept, gold=gold, cast=cast, memory_gib=memory)
        seconds = (time.perf_counter() - began) / len(stories)
        record: dict[str, Any] = {"setting": setting, "trial": name, "changes": changes, "seconds_a_story": seconds}
        if setting == MIDDLE and isinstance(judge, LM):
            firsts = [answer.stories[0] for answer in answers]
            X = torch.nn.utils.rnn.pad_sequence([f.X.transpose(0, 1) for f in firsts]).permute(1, 2, 0)
            log_p = log_p_ending(judge, X.to(device), torch.stack([f.lengths for f in firsts]).to(device))
            figure = mean_and_error(log_p.double().cpu())
            record |= {"log_p": figure.value, "log_p_se": figure.se}
        print(json.dumps(record), flush=True)
        keep(args.out / f"{setting}.{name}.npz", answers, missing, record)


def agree(out: Path, setting: str, name: str, settings: FillSettings, job: tuple[Any, ...]) -> None:
    """The sample that the others agree with, by how far their weights are trusted."""
    model, rules, blank, seeds, gold = job
    answers: dict[float, list[Any]] = {trust: [] for trust in TRUSTS}
    for start in range(0, len(seeds), 50):
        stop = min(start + 50, len(seeds))
        generators = [seeded(seed) for seed in seeds[start:stop]]
        piece, truth = blank.rows(start, stop), None if gold is None else gold.rows(start, stop)
        with torch.inference_mode():
            rounds = [r for r, _ in draw(model, rules, piece, settings, generators, truth)]
            for trust in TRUSTS:
                scored = [r.cpu() for r in by_consensus(rounds, stop - start, piece.missing, trust)]
                for story in range(stop - start):
                    answers[trust].append((best_stories(scored, story, piece.missing, 1),))
    for trust, found in answers.items():
        keep(out / f"{setting}.{name}-trust-{trust:g}.npz", found, SETTINGS[setting], {"settings": asdict(settings)})


def keep(path: Path, answers: list[Any], missing: tuple[int, ...], record: dict[str, Any]) -> None:
    """The candidates' words (joined, <eos> included), lengths, log p of every sentence and score, story by story."""
    words, lengths, log_p, scores, counts = [], [], [], [], []
    for found, *_ in answers:
        counts.append(len(found))
        for f in found:
            scores.append(f.score)
            log_p.append(f.log_p.tolist())
            lengths.append([int(f.lengths[i]) for i in missing])
            for i in missing:
                words += f.X[i, : int(f.lengths[i])].tolist()
    np.savez_compressed(
        path, words=np.asarray(words, dtype=np.uint16), lengths=np.asarray(lengths, dtype=np.uint8),
        log_p=np.asarray(log_p, dtype=np.float16), scores=np.asarray(scores, dtype=np.float32),
        counts=np.asarray(counts, dtype=np.uint8), record=json.dumps(record),
    )  # fmt: skip


def candidates(path: Path) -> tuple[list[list[list[list[int]]]], dict[str, Any]]:
    """Every story's candidates, best first, each a list of sentences without <eos>."""
    held = np.load(path)
    words, lengths, at, row, stories = held["words"], held["lengths"], 0, 0, []
    for count in held["counts"]:
        own = []
        for lens in lengths[row : row + int(count)]:
            sentences = []
            for n in lens:
                sentences.append(words[at : at + int(n) - 1].tolist())
                at += int(n)
            own.append(sentences)
        row += int(count)
        stories.append(own)
    return stories, held


def score(args: argparse.Namespace) -> None:
    from fabula_paper.scores.overlap import meteor
    from fabula_paper.scoring import rouges
    from fabula_paper.stories import english

    corpus, _, stories = stories_of(args)

    def told(sentences: list[list[int]]) -> str:
        return "\n".join(english(" ".join(corpus.vocabulary.decode(s))) for s in sentences)

    for path in sorted(args.out.glob("*.npz")):
        setting = path.name.split(".")[0]
        if setting == MIDDLE:
            continue
        found, _ = candidates(path)
        true = [told([story[i] for i in SETTINGS[setting]]) for story in stories]
        mine = [told(own[0]) for own in found]
        figures = rouges(mine, true, perl=False)
        of_all = meteor((mine, true))[0].aggregate * 100
        row = [figures["rouge1"], figures["rouge2"], figures["rougeLsum"], of_all]
        words = sum(len(line.split()) for line in mine) / len(mine)
        print(path.stem.ljust(28), *(f"{value:6.2f}" for value in row), f"{words:5.1f} words", flush=True)


def read(args: argparse.Namespace) -> None:
    """SmolLM2's perplexity of whole stories and of what was written, the middle three missing; people's beside it."""
    from fabula_paper.scores.pretrained import story_perplexity
    from fabula_paper.stories import english, given_in

    corpus, _, stories = stories_of(args)

    def told(sentences: list[list[int]]) -> list[str]:
        return [english(" ".join(corpus.vocabulary.decode(s))) for s in sentences]

    systems = {"people": [told(story) for story in stories]}
    for path in sorted(args.out.glob(f"{MIDDLE}.*.npz")):
        found, _ = candidates(path)
        systems[path.stem] = [told([s[0], *own[0], s[-1]]) for s, own in zip(stories, found, strict=True)]
    for name, texts in systems.items():
        seen = story_perplexity(texts, [given_in(MIDDLE)] * len(texts), device=args.device)
        print(name.ljust(28), f"story {seen.perplexity:6.2f}  written {seen.written_perplexity:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "score", "read"])
    parser.add_argument("--model", default="default")
    parser.add_argument("--judge", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="valid")
    parser.add_argument("--stories", type=int, default=500)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", help="settings, or setting.trial")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    {"write": write, "score": score, "read": read}[args.what](args)


if __name__ == "__main__":
    main()
