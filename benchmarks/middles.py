"""Write the middle three sentences of test stories, for measures that read texts; no sentence of the corpus is kept.

    PYTHONPATH=src python benchmarks/middles.py --model default --data prepared/roc --temperature 0.85 --out ours.jsonl
    PYTHONPATH=src python benchmarks/middles.py --model runs/lm-1024 --data prepared/roc --samples 1000 --plain \
        --temperature 1 --out lm.jsonl

One JSON line a story: {"id", "lines"}. A model with latents writes by `bridge`, one without as the best of its samples.
The rules that `fabula fill` keeps are kept unless `--plain`. `--join FILE.csv` makes of such a file whole stories for
benchmarks/quality.py, which hold the corpus's sentences and are not to be kept: `--stories ours.jsonl --join test.csv`.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import torch

from fabula.api import find
from fabula.corpus.dataset import Corpus
from fabula.corpus.tokenize import detokenise
from fabula.device import pick_device
from fabula.metrics.lookahead import choose_stories
from fabula.models.decoders.words import WordTokenizer
from fabula.models.slds import SLDS
from fabula.sampling.batch import infill_batch
from fabula.sampling.cast import Cast
from fabula.sampling.driver import fill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import BridgeFillSettings, RerankFillSettings
from fabula.training.checkpoint import load


def write(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    corpus, checkpoint = Corpus.open(args.data), load(find(args.model), device)
    checkpoint.model.requires_grad_(False)
    stories = corpus.split(args.split)
    rows = choose_stories(stories, args.number, 5, args.seed)
    texts = [[s.tolist() for s in stories.sentences(row)] for row in rows]
    latent = isinstance(checkpoint.model, SLDS)
    kind = BridgeFillSettings if latent else RerankFillSettings
    chosen: dict[str, Any] = {"samples": args.samples, "temperature": args.temperature, "top_k": 15}
    chosen |= {"tags": "free"} if latent else {}
    settings = (kind.plain if args.plain else kind)(**chosen)
    blanks = infill_batch([[t[0], None, None, None, t[4]] for t in texts], device=device)
    generators = [seeded(seeded(args.seed, n).initial_seed()) for n in range(len(texts))]
    rules = WordRules.of(WordTokenizer(corpus.vocabulary), device, checkpoint.people.names)
    cast = Cast(checkpoint.people, rules)
    with args.out.open("w", encoding="utf-8") as file:
        answers = fill_batch(checkpoint.model, rules, blanks, settings, generators, cast=cast, memory_gib=args.memory)
        for row, answer in zip(rows, answers, strict=True):
            best = answer.stories[0]
            words = [corpus.vocabulary.decode(best.X[i, : int(best.lengths[i]) - 1].tolist()) for i in (1, 2, 3)]
            line = {"id": stories.ids[row], "lines": [detokenise(sentence) for sentence in words]}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def join(args: argparse.Namespace) -> None:
    with args.join.open(encoding="utf-8", newline="") as file:
        whole = {row["storyid"]: [row[f"sentence{i}"] for i in range(1, 6)] for row in csv.DictReader(file)}
    lines = [json.loads(line) for line in args.stories.read_text(encoding="utf-8").splitlines()]
    with args.out.open("w", encoding="utf-8") as file:
        for line in lines:
            first, *middle, last = whole[line["id"]]
            middle = middle if args.human else line["lines"]
            story = {"sentences": [first, *middle, last], "given": [True, False, False, False, True]}
            file.write(json.dumps(story, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--number", type=int, default=500, help="stories")
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--plain", action="store_true", help="no rules: words as the model draws them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--memory", type=float, default=2.0, help="GiB of scores at once")
    parser.add_argument("--stories", type=Path, help="with --join: a file this script wrote")
    parser.add_argument("--join", type=Path, metavar="CSV")
    parser.add_argument("--human", action="store_true", help="with --join: the true middles of the same stories")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.join:
        join(args)
    else:
        with torch.inference_mode():
            write(args)


if __name__ == "__main__":
    main()
