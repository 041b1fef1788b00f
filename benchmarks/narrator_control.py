"""Does what the narrator writes follow the arc it is given? `fabula write` along the arcs of people's stories.

    python benchmarks/narrator_control.py --model default --stories test.csv --number 100 --samples 1

The arcs are VADER's tags of the stories. VADER judges what was written, and AFINN, which no model was taught by; read
the latter against the row of people's sentences. As benchmarks/control.py, for models with a tokenizer of their own.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch

import fabula
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.evaluation.control import judge
from fabula.evaluation.lexicon import LexiconTagger
from fabula.training.stories import read_text

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--samples", type=int, default=1, help="stories to choose from")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    people = [story for story in read_text(args.stories) if len(story) == 5]
    people = random.Random(args.seed).sample(people, min(args.number, len(people)))
    tagger, narrator = VaderTagger(), fabula.load(args.model)
    S = torch.tensor([[int(tag or 0) for tag in tagger.tag(story)] for story in people])
    told = []
    for number, tags in enumerate(S.tolist()):
        arc = [tagger.labels[tag] for tag in tags]
        best = narrator.write(arc=arc, samples=args.samples, seed=number).candidates[0]
        told.append([sentence.text for sentence in best.sentences])
    for name, stories in (("people", people), (args.model, told)):
        rows = {"VADER": judge([stories], S, tagger), "AFINN": judge([stories], S, LexiconTagger("afinn"))}
        found = ", ".join(f"{by} {row.mean:.1f}" for by, row in rows.items())
        print(f"{name}: macro-F1 {found}; distinct-2 {rows['VADER'].distinct_2.mean():.3f}; {len(stories)} stories")
