"""Fill in the middle of many stories in one batch by the narrator, as `fabula fill` does, and time it.

    python benchmarks/narrator_fill.py --model default --stories test.csv --number 500 --device cuda --out fills.jsonl

One JSON line a story: {"id", "lines"}, the best candidate, for benchmarks/middles.py --join and the judges.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from fabula.api import find
from fabula.corpus.read import Story, read_stories
from fabula.sampling.batch import infill_batch
from fabula.sampling.cast import Cast
from fabula.sampling.driver import fill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import BridgeFillSettings
from fabula.training.checkpoint import load

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--memory", type=float, default=24.0, help="GiB of scores at once")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    checkpoint = load(find(args.model), args.device)
    model, tokenizer = checkpoint.model, checkpoint.model.tokenizer
    assert tokenizer is not None, "a narrator is meant: other models go by benchmarks/middles.py"
    stories = [story for story in read_stories(args.stories) if isinstance(story, Story)][: args.number]
    texts = [[tokenizer.encode(s) for s in story.sentences] for story in stories]
    rules = WordRules.of(tokenizer, args.device, checkpoint.people.names)
    settings = BridgeFillSettings(**model.fill_defaults["bridge"])
    for number in (8, len(texts)):  # the first warms the machine up
        blanks = infill_batch(
            [[t[0], None, None, None, t[4]] for t in texts[:number]], device=args.device, end=tokenizer.end
        )
        generators = [seeded(seeded(0, n).initial_seed()) for n in range(number)]
        begun = time.perf_counter()
        answers = fill_batch(
            model, rules, blanks, settings, generators, 3, cast=Cast(checkpoint.people, rules), memory_gib=args.memory
        )
        if args.device == "cuda":
            torch.cuda.synchronize()
        print(f"{number} stories, {settings.samples} samples each: {time.perf_counter() - begun:.2f} s", flush=True)
    with args.out.open("w", encoding="utf-8") as file:
        for story, answer in zip(stories, answers, strict=True):
            best = answer.stories[0]
            lines = [tokenizer.decode(best.X[i, : int(best.lengths[i]) - 1].tolist()) for i in (1, 2, 3)]
            file.write(json.dumps({"id": story.id, "lines": lines}, ensure_ascii=False) + "\n")
