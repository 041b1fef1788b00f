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
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fabula
from fabula.corpus.taggers.protocol import Taggers, build_tagger, states_of
from fabula.metrics.bootstrap import bootstrap
from fabula.metrics.quality import distinct
from fabula.sampling.context import read_context
from fabula.sampling.protocol import DEFAULT
from fabula.sampling.task import write_task
from fabula.training.stories import read_text
from fabula_paper.scores.lexicon import LexiconTagger


def scores(S: NDArray[np.int64], tags: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The macro-F1 of each draw of stories, as `evaluation.likelihood.macro_f1` counts it."""
    found = []
    for row in rows:
        asked, given = S[row].ravel(), tags[row].ravel()
        hits, wanted, had = (np.bincount(x[x >= 0], minlength=64) for x in (asked[asked == given], asked, given))
        found.append(200 * np.mean(hits[wanted + had > 0] / (wanted + had)[wanted + had > 0]))
    return np.array(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--samples", type=int, default=1, help="stories to choose from")
    parser.add_argument("--factors", default="", help="fixed together, joined by commas; empty: the first")
    parser.add_argument("--arc-weight", type=float, default=None, help="0: the tokens alone hold the arc")
    parser.add_argument("--together", type=int, default=20, help="stories that are written at once")
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
    for first in range(0, 0 if told else len(people), args.together):
        tasks = []
        for number in range(first, min(first + args.together, len(people))):
            arc = {name: [taggers[name].labels[tag] for tag in S[name][number]] for name in factors}
            task, chosen = write_task(None, narrator.states, arc), {"samples": args.samples, **weight}
            # What `write` does for one story: nothing public writes several at once.
            tasks.append(narrator._ready(task, read_context(None, None), 1, DEFAULT, number, chosen))
        *_, last = narrator._rounds([task._replace(settings=task.settings.for_last_answer()) for task in tasks])
        told += [[sentence.text for sentence in filling.candidates[0].sentences] for filling in last]
        if args.out:
            args.out.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")
    people, S = people[: len(told)], {name: tags[: len(told)] for name, tags in S.items()}
    for name, stories in (("people", people), (args.model, told)):
        texts = [sentence for story in stories for sentence in story]
        judges = {factor: (factor, taggers[factor]) for factor in factors}
        if "sentiment" in factors:
            judges["sentiment by AFINN"] = ("sentiment", LexiconTagger("afinn"))
        rows = []
        for by, (factor, tagger) in judges.items():
            tags = np.array([-1 if tag is None else tag for tag in tagger.tag(texts)]).reshape(S[factor].shape)
            found = bootstrap(partial(scores, S[factor], tags), len(stories))
            rows.append(f"{by} {found.value:.1f} [{found.low:.1f}, {found.high:.1f}]")
        told_by = f"{', '.join(rows)}; distinct-2 {distinct([texts], 2):.3f}; {len(stories)} stories"
        print(f"{name}: macro-F1 {told_by}", flush=True)
