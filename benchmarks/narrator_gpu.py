"""The narrator's tellings of many stories at once, for training a critic and for learning from its choices (one GPU).

    python benchmarks/narrator_gpu.py negatives --narrator RUN --data DATA --number 40000 \
        --out DATA/negatives-narrator.jsonl
    python benchmarks/narrator_gpu.py fills --narrator RUN --critic CRITIC --second OTHER --stories DATA/valid.csv \
        --number 200 --out fills.jsonl
    python benchmarks/narrator_gpu.py prefer --fills fills.jsonl [...] --data DATA --copying 4 --readings \
        --out DATA/preferences.jsonl
    python benchmarks/narrator_gpu.py ratings --critic CRITIC --stories union_roc.txt --out ratings.json
    python benchmarks/narrator_gpu.py perplexity --narrator RUN --stories DATA/test.csv

DATA is a folder with train.csv and valid.csv. What is written holds sentences of the corpus and is not to be published.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import math
import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fabula.models.critic import Critic
from fabula.models.decoders.load import load_narrator
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.sampling.tellings import log_p_lines, write_missing
from fabula.training.critic import cloze_pairs
from fabula.training.stories import read_text
from narrator_copying import runs
from readings import RECORD, corpus

MIDDLE = (1, 2, 3)
MARGIN = 0.5
"""Of what tellings are ranked by: a pair that differs less teaches nothing."""
PAPER_TOKENS = 53.95
"""Tokens of a test story as the paper counts them."""


def encoded(decoder: NarratorDecoder, texts: list[list[str]], words: int = 40) -> list[list[list[int]]]:
    ids = iter([t[:words] for t in decoder.tokenizer.encode_all([s for story in texts for s in story])])
    return [[next(ids) for _ in story] for story in texts]


def blank(story: list[list[int]], missing: Any) -> list[list[int] | None]:
    return [None if j in missing else sentence for j, sentence in enumerate(story)]


def decoded(decoder: NarratorDecoder, story: list[list[int]]) -> list[str]:
    return [decoder.tokenizer.decode(sentence) for sentence in story]


def negatives(args: argparse.Namespace) -> None:
    """A quarter each: the middle told both ends, any lines told the others, left to right, the densest of four."""
    decoder = load_narrator(args.narrator, args.device)
    texts, rng = read_text(args.data / "train.csv"), random.Random(args.seed)
    order = rng.sample(range(len(texts)), len(texts))[: args.number]
    X = dict(zip(order, encoded(decoder, [texts[n] for n in order]), strict=True))
    quarter, told = len(order) // 4, []

    def tell(numbers: list[int], missing: list[set[int]], **how: Any) -> list[list[list[int]]]:
        stories = [blank(X[n], m) for n, m in zip(numbers, missing, strict=True)]
        return write_missing(decoder, stories, rows=args.rows, **how)

    for k, temperature in enumerate((0.7, 1.0)):
        part = order[: quarter // 2] if k == 0 else order[quarter // 2 : quarter]
        found = tell(part, [set(MIDDLE)] * len(part), temperature=temperature, top_k=40, seed=k)
        told += [(n, 1, "middle", s) for n, s in zip(part, found, strict=True)]
    part = order[quarter : 2 * quarter]
    missing = [set(rng.sample(range(1, 5), rng.choice((1, 2, 3)))) for _ in part]
    found = tell(part, missing, temperature=0.9, top_k=40, seed=2)
    told += [(n, min(m), "blanks", s) for n, m, s in zip(part, missing, found, strict=True)]
    part = order[2 * quarter : 3 * quarter]
    found = tell(part, [{1, 2, 3, 4}] * len(part), temperature=0.9, top_k=40, reads_ahead=False, seed=3)
    told += [(n, 1, "onwards", s) for n, s in zip(part, found, strict=True)]
    part = [n for n in order[3 * quarter :] for _ in range(4)]
    found = tell(part, [set(MIDDLE)] * len(part), temperature=0.9, top_k=40, seed=4)
    density = log_p_lines(decoder, found, rows=args.rows)[:, 1:].sum(1).view(-1, 4).argmax(1).tolist()
    told += [(part[4 * i], 1, "ranked", found[4 * i + best]) for i, best in enumerate(density)]
    with args.out.open("w", encoding="utf-8") as file:
        for n, first, kind, story in told:
            line = {"of": n, "first": first, "kind": kind, "sentences": decoded(decoder, story)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def scored(args: argparse.Namespace, decoder: NarratorDecoder, told: list[list[list[int]]]) -> dict[str, torch.Tensor]:
    """Of every telling of a story's middle: log p of its lines, and what the critics say."""
    found = {"log_p": log_p_lines(decoder, told, rows=args.rows)}
    for name, folder in (("critic", args.critic), ("second", args.second)):
        if folder is not None:
            found[name] = Critic.load(folder, args.device).values(told)
    return found


def prefer(args: argparse.Namespace) -> None:
    """Better and worse tellings of a story, by what `fill` ranks by, by how little they copy, by what readers said."""
    known = {hash(run) for run in runs([s for story in read_text(args.data / "train.csv") for s in story], 4)}
    lines: list[dict[str, Any]] = []

    def pair(story: list[str], missing: list[int], better: list[str], worse: list[str]) -> None:
        told = [[written.get(j, s) for j, s in enumerate(story)]
                for written in (dict(zip(missing, lines, strict=True)) for lines in (better, worse))]  # fmt: skip
        lines.append({"missing": missing, "better": told[0], "worse": told[1]})

    for line in (json.loads(line) for file in args.fills for line in file.read_text(encoding="utf-8").splitlines()):
        missing, tellings, log_p = line["missing"], line["tellings"], np.array(line["log_p"])
        ranking = np.array(line["critic"])[:, -1] + Critic.density * log_p[:, missing].sum(1)
        ranking += Critic.ending * log_p[:, max(missing) + 1 :].sum(1)
        copied = [[hash(run) in known for run in runs(telling, 4)] for telling in tellings]
        ranking -= args.copying * np.array([np.mean(found) if found else 1.0 for found in copied])
        order, P = ranking.argsort()[::-1], len(tellings)
        for b, w in ((0, P - 1), (1, P - 3), (2, P // 2)):
            if ranking[order[b]] - ranking[order[w]] > MARGIN:
                pair(line["sentences"], missing, tellings[order[b]], tellings[order[w]])
    chosen = len(lines)
    if args.readings:
        people = corpus(args.data)
        for story, readings in json.loads(lzma.decompress(RECORD.read_bytes())).items():
            told = sorted((r for r in readings if r[2] and story in people), key=lambda reading: -reading[0])
            for better, worse in zip(told, told[::-1], strict=True):
                if better[0] > worse[0] and better[2] == worse[2]:
                    pair(people[story], better[2], better[3], worse[3])
    random.Random(args.seed).shuffle(lines)
    with args.out.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    print(f"{chosen} pairs by the critic, {len(lines) - chosen} by readers")


def fills(args: argparse.Namespace) -> None:
    """Sixteen tellings of each story's missing lines with all that they may be ranked by."""
    decoder = load_narrator(args.narrator, args.device)
    texts = read_text(args.stories)[args.skip :][: args.number]
    X, P = encoded(decoder, texts), args.samples
    missing = tuple(int(j) for j in args.missing.split(","))
    begun = time.perf_counter()
    told = write_missing(
        decoder, [blank(s, missing) for s in X for _ in range(P)], temperature=args.temperature, top_k=40,
        rows=args.rows, seed=args.seed,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    parts, people = scored(args, decoder, told), scored(args, decoder, X)
    parts["log_r"] = log_p_lines(decoder, told, [j in missing for j in range(5)], rows=args.rows)
    with args.out.open("w", encoding="utf-8") as file:
        for i, text in enumerate(texts):
            rows = range(i * P, (i + 1) * P)
            line: dict[str, Any] = {"story": i + args.skip, "sentences": text, "missing": missing}
            line["tellings"] = [[decoded(decoder, told[r])[j] for j in missing] for r in rows]
            line["tokens"] = [sum(len(told[r][j]) + 1 for j in missing) for r in rows]
            for name, values in parts.items():
                line[name] = [[round(v, 3) for v in values[r].tolist()] for r in rows]
            for name, values in people.items():
                line[f"people_{name}"] = [round(v, 3) for v in values[i].tolist()]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{len(told)} tellings in {seconds:.1f} s")
    for name in ("critic", "second"):
        if name in parts:
            values, human = parts[name][:, -1], people[name][:, -1]
            auc = (human[:, None] > values[None]).float().mean()
            best = values.view(-1, P).max(1).values.mean()
            print(f"{name}: people {human.mean():.2f}, one sample {values.mean():.2f}, best {best:.2f}, AUC {auc:.3f}")
    ahead, own = parts["log_p"][:, 4].view(-1, P), people["log_p"][:, 4].mean()
    print(f"log p(ending): people {own:.2f}, one sample {ahead.mean():.2f}, best {ahead.max(1).values.mean():.2f}")


def rated_stories(file: Path) -> list[tuple[list[str], list[int]]]:
    """UNION's rated stories with case and names restored, and the raters' labels."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        parts = [part.strip() for part in line.split("|||")]
        if len(parts) != 3:
            continue
        text = parts[1]
        for mark, names in (("MALE", "Tom Bill Sam Jake"), ("FEMALE", "Anna Mary Kate Lucy"), ("NEUTRAL", "Alex Max")):
            text = text.replace(f"[{mark}]", names.split()[0])
        text = re.sub(r" (n't|'s|'m|'re|'ve|'ll|'d)\b", r"\1", text)
        text = re.sub(r"\s+([.,!?;:])", r"\1", text)
        text = re.sub(r"\bi\b", "I", text)
        sentences = [s.strip() for s in re.split(r"(?<=[.!?])\s*(?=[^\s.!?])", text) if s.strip()]
        found.append(([s[0].upper() + s[1:] for s in sentences], [int(v) for v in parts[2].split()]))
    return found


def ranks(x: Any) -> Any:
    return np.argsort(np.argsort(x)).astype(float)


def ratings(args: argparse.Namespace) -> None:
    """Correlation with the share of raters who found nothing wrong; and the accuracy on the Story Cloze Test."""
    critic = Critic.load(args.critic, args.device)
    rated = rated_stories(args.stories)
    stories = [[critic.tokenizer.encode(s) for s in sentences] for sentences, _ in rated]
    values = critic.values(stories)
    last = np.array([v[len(s) - 1] for v, s in zip(values.tolist(), stories, strict=True)])
    goal = np.array([np.mean([label == 0 for label in labels]) for _, labels in rated])
    figures = {
        "pearson": np.corrcoef(last, goal)[0, 1],
        "pearson_probability": np.corrcoef(1 / (1 + np.exp(-last)), goal)[0, 1],
        "spearman": np.corrcoef(ranks(last), ranks(goal))[0, 1],
    }  # fmt: skip
    if args.data is not None and (args.data / "cloze_test.csv").is_file():
        pairs = cloze_pairs(args.data / "cloze_test.csv")
        both = [[critic.tokenizer.encode(s) for s in story] for pair in pairs for story in (pair.good, pair.bad)]
        ends = critic.values(both)[:, 4].view(-1, 2)
        figures["cloze_test"] = float((ends[:, 0] > ends[:, 1]).float().mean())
    print({key: round(float(value), 3) for key, value in figures.items()})
    if args.out:
        lines = [[round(v, 3) for v in row[: len(s)]] for row, s in zip(values.tolist(), stories, strict=True)]
        args.out.write_text(json.dumps({"figures": {k: float(v) for k, v in figures.items()}, "values": lines}) + "\n")


def perplexity(args: argparse.Namespace) -> None:
    """Raw text, every nat paid, by the paper's tokens and by characters."""
    decoder = load_narrator(args.narrator, args.device)
    texts = read_text(args.stories)[: args.number]
    nats = -log_p_lines(decoder, encoded(decoder, texts, 1000), rows=256).double().sum(1)
    characters = sum(len(s) + 1 for story in texts for s in story)
    print(
        f"{len(texts)} stories: {nats.mean():.2f} nats a story (se {nats.std() / math.sqrt(len(nats)):.2f}), "
        f"perplexity {math.exp(nats.mean() / PAPER_TOKENS):.3f}, "
        f"{nats.sum() / math.log(2) / characters:.4f} bits a character"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["negatives", "prefer", "fills", "ratings", "perplexity"])
    for name in ("narrator", "critic", "second", "data", "stories", "out"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--number", type=int, default=None)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--missing", default="1,2,3", help="numbers of the lines that fills writes")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--fills", type=Path, nargs="*", default=[], help="what prefer chooses from")
    parser.add_argument("--copying", type=float, default=0.0, help="what prefer takes off for 4-grams out of training")
    parser.add_argument("--readings", action="store_true", help="prefer also what readers found better")
    parser.add_argument("--rows", type=int, default=4096, help="stories at once")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    csv.field_size_limit(10**7)
    begun = time.perf_counter()
    {"negatives": negatives, "prefer": prefer, "fills": fills, "ratings": ratings, "perplexity": perplexity}[args.what](
        args
    )
    print(f"{args.what}: {time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
