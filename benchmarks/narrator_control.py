"""Does what the narrator writes follow the arc it is given? `fabula write` along the arcs of people's stories.

    python benchmarks/narrator_control.py --model default --stories test.csv --number 100 --samples 1
    python benchmarks/narrator_control.py --model RUN --stories test.csv --factors sentiment,emotion,verb

The arcs are the taggers' tags of the stories, of the named factors together (without `--factors`, the first one); the
others are free. The taggers judge what was written; sentiment also AFINN, which no model was taught by: read that
against the row of people's sentences. As benchmarks/control.py, for models with a tokenizer of their own.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np
import torch

import fabula
from fabula.corpus.taggers.protocol import Taggers, build_tagger, states_of
from fabula.evaluation.control import judge
from fabula.evaluation.lexicon import LexiconTagger
from fabula.training.stories import read_text

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--samples", type=int, default=1, help="stories to choose from")
    parser.add_argument("--factors", default="", help="fixed together, joined by commas; empty: the first")
    parser.add_argument("--arc-weight", type=float, default=None, help="0: the tokens alone hold the arc")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="a file for the stories that were written")
    parser.add_argument("--read", type=Path, help="judge the stories of such a file, and write none")
    args = parser.parse_args()
    people = [story for story in read_text(args.stories) if len(story) == 5]
    people = random.Random(args.seed).sample(people, min(args.number, len(people)))
    narrator = fabula.load(args.model, device=args.device)
    whole = build_tagger(narrator.checkpoint.tagger)
    taggers = {states_of(t).factors[0].name: t for t in (whole.parts if isinstance(whole, Taggers) else (whole,))}
    factors = args.factors.split(",") if args.factors else list(taggers)[:1]
    flat = [sentence for story in people for sentence in story]
    S = {name: np.array([int(tag or 0) for tag in taggers[name].tag(flat)]).reshape(-1, 5) for name in factors}
    told = json.loads(args.read.read_text(encoding="utf-8")) if args.read else []
    weight = {} if args.arc_weight is None else {"arc_weight": args.arc_weight}
    for number in range(0 if told else len(people)):
        arc = {name: [taggers[name].labels[tag] for tag in S[name][number]] for name in factors}
        best = narrator.write(arc=arc, samples=args.samples, seed=number, **weight).candidates[0]
        told.append([sentence.text for sentence in best.sentences])
    if args.out:
        args.out.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")
    for name, stories in (("people", people), (args.model, told)):
        rows = {factor: judge([stories], torch.from_numpy(S[factor]), taggers[factor]) for factor in factors}
        if "sentiment" in rows:
            rows["sentiment by AFINN"] = judge([stories], torch.from_numpy(S["sentiment"]), LexiconTagger("afinn"))
        found = ", ".join(f"{by} {row.mean:.1f}" for by, row in rows.items())
        distinct = next(iter(rows.values())).distinct_2.mean()
        print(f"{name}: macro-F1 {found}; distinct-2 {distinct:.3f}; {len(stories)} stories", flush=True)
