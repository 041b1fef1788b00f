"""Does what the default model writes follow the arc it is given? `write` along the arcs of people's stories.

    python benchmarks/narrator_control.py --stories test.csv --number 100 --samples 1
    python benchmarks/narrator_control.py --model RUN --stories test.csv --factors sentiment,emotion,verb

The arcs are the taggers' tags of the stories, of the named factors together (without --factors, the first one). The
taggers judge what was written. AFINN, which no model was trained with, judges sentiment as well: compare its figure
with the row of people's sentences.
"""

import argparse
import random
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import fabula
from fabula.corpus.taggers.protocol import Tagger, Taggers, build_tagger, states_of
from fabula.metrics.bootstrap import bootstrap
from fabula.metrics.counting import distinct
from fabula.metrics.likelihood import macro_f1
from fabula.training.stories import read_text
from fabula_paper.scores.lexicon import LexiconTagger

Tags = NDArray[np.int64]


def f1_of_draws(arc: Tags, written: Tags, draws: Tags) -> NDArray[np.float64]:
    """The macro-F1 of each draw of stories."""
    K = int(max(arc.max(), written.max())) + 1
    pairs = ((torch.from_numpy(arc[rows].ravel()), torch.from_numpy(written[rows].ravel())) for rows in draws)
    return np.array([macro_f1(wanted, read, K) for wanted, read in pairs])


def tags_of(tagger: Tagger, stories: list[list[str]]) -> Tags:
    tags = tagger.tag([sentence for story in stories for sentence in story])
    return np.array([-1 if tag is None else tag for tag in tags]).reshape(len(stories), -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--samples", type=int, default=1, help="stories to choose from")
    parser.add_argument("--factors", default="", help="joined by commas; empty: the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    people = [story for story in read_text(args.stories) if len(story) == 5]
    people = random.Random(args.seed).sample(people, min(args.number, len(people)))
    model = fabula.load(args.model, device=args.device)
    whole = build_tagger(model.checkpoint.tagger)
    taggers = {states_of(t).factors[0].name: t for t in (whole.parts if isinstance(whole, Taggers) else (whole,))}
    factors = args.factors.split(",") if args.factors else list(taggers)[:1]
    arcs = {name: np.maximum(tags_of(taggers[name], people), 0) for name in factors}
    written = []
    for number in range(len(people)):
        arc = {name: [taggers[name].labels[tag] for tag in arcs[name][number]] for name in factors}
        best = model.write(arc=arc, samples=args.samples, seed=number).candidates[0]
        written.append([sentence.text for sentence in best.sentences])
    judges = [(factor, factor, taggers[factor]) for factor in factors]
    if "sentiment" in factors:
        judges.append(("sentiment by AFINN", "sentiment", LexiconTagger()))
    for system, stories in (("people", people), (args.model, written)):
        cells = []
        for label, factor, tagger in judges:
            f1 = bootstrap(partial(f1_of_draws, arcs[factor], tags_of(tagger, stories)), len(stories))
            cells.append(f"{label} {f1.value:.1f} [{f1.low:.1f}, {f1.high:.1f}]")
        print(f"{system}: macro-F1 {', '.join(cells)}; distinct-2 {distinct(stories, 2):.3f}; {len(stories)} stories")


if __name__ == "__main__":
    main()
