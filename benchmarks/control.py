"""Does a story follow the arc it is given? Tags in, Z from the dynamics, five sentences on the model's own context.

    PYTHONPATH=src python benchmarks/control.py --model default --data prepared/roc --stories 500 --runs 5

The tags of test stories go in; VADER tags what was written, as detokenised text. Macro-F1 over tags, with distinct-2
beside it, because a model that repeats itself controls easily. VADER both labels and judges here, so two word lists
that no model was trained with judge as well; how far they agree with VADER on people's own sentences is the row to read
them against.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fabula.api import find
from fabula.corpus.dataset import Corpus
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.tokenize import detokenise
from fabula.errors import UserError
from fabula.metrics.control import Control, judge, write_along
from fabula.metrics.measure import check_same_corpus
from fabula.metrics.record import commit, rounded
from fabula.training.checkpoint import load
from fabula_paper.scores.lexicon import LEXICONS, LexiconTagger

WAYS = ((15, 1.0), (15, 0.7), (1, 1.0))
"""Top-k and temperature; top-k 1 is greedy."""


def figures(found: Control) -> dict[str, Any]:
    return {
        "f1": rounded(found.mean, 2),
        "f1_spread": rounded(found.spread, 2),
        "f1_runs": [rounded(value, 2) for value in found.f1],
        "distinct_2": rounded(float(found.distinct_2.mean())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--stories", type=int, default=400)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    corpus, checkpoint = Corpus.open(args.data), load(find(args.model), args.device)
    check_same_corpus(checkpoint, corpus)
    if VaderTagger().labels != checkpoint.labels:
        raise UserError("control is measured on a model with VADER's labels")
    judges = {"vader": VaderTagger()} | {name: LexiconTagger(name) for name in LEXICONS}
    test = corpus.split("test")
    chosen = np.random.default_rng(args.seed).permutation(len(test))[: args.stories]
    rows = [int(row) for row in chosen if len(test.story_tags(row)) == 5]
    S = torch.tensor([test.story_tags(row).astype(np.int64).tolist() for row in rows])
    human = [[detokenise(checkpoint.vocabulary.decode(s.tolist())) for s in test.sentences(row)] for row in rows]
    record: dict[str, Any] = {"human": {name: figures(judge([human], S, tagger)) for name, tagger in judges.items()}}
    for top_k, temperature in WAYS:
        runs = [
            write_along(
                checkpoint.model, checkpoint.vocabulary, S, top_k=top_k, temperature=temperature, seed=args.seed + run
            )
            for run in range(args.runs)
        ]
        way = "greedy" if top_k == 1 else f"top-k {top_k}, temperature {temperature}"
        record[way] = {name: figures(judge(runs, S, tagger)) for name, tagger in judges.items()}
    for way, row in record.items():
        told = ", ".join(f"{name} {found['f1']} ({found['f1_spread']})" for name, found in row.items())
        print(f"{way}: macro-F1 {told}; distinct-2 {row['vader']['distinct_2']}")
    if args.out is not None:
        record |= {"model": checkpoint.recipe.name, "n": len(rows), "runs": args.runs, "seed": args.seed}
        record |= {"data_hash": corpus.hash, "commit": commit()}
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
