"""How people's stories and systems' stories read: story perplexity, variety, copying, names, verbs; and who agrees.

    PYTHONPATH=src python benchmarks/quality.py human --stories test.csv --data prepared/roc --out human.json
    PYTHONPATH=src python benchmarks/quality.py stories --stories written.jsonl --data prepared/roc --out system.json
    PYTHONPATH=src python benchmarks/quality.py calibrate --ratings union_roc.txt --data prepared/roc --out ratings.json

`human` measures a file of people's stories, whole and as if their middle three had been written, with MAUVE of one half
against the other; `stories` measures JSON lines {"sentences": [...], "given": [true, ...]}, with MAUVE against
`--human`. `calibrate` correlates every measure with people's ratings of 400 machine-written stories. Records hold
figures only. The eval extra and scorers.txt are needed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.corpus.dataset import Corpus, digest
from fabula.corpus.read import Story, read_stories
from fabula.errors import UserError
from fabula.evaluation.bootstrap import Interval, ratio
from fabula.evaluation.calibrate import calibrate, read_ratings
from fabula.evaluation.counting import Mask, Text, ngrams, words_of
from fabula.evaluation.mauve import mauve
from fabula.evaluation.pretrained import Surprise, embed, story_perplexity
from fabula.evaluation.quality import Reader, quality
from fabula.evaluation.record import commit

FloatArray = NDArray[np.float64]
MIDDLE = (True, False, False, False, True)


def perplexity(nats: FloatArray, tokens: NDArray[np.int64]) -> dict[str, Any]:
    return ratio(nats, tokens, transform=np.exp).to_json(3)


def perplexities(found: Surprise) -> dict[str, Any]:
    figures = {"story_perplexity": perplexity(found.nats, found.tokens)}
    if (found.given_tokens > 0).any():
        figures["written_perplexity"] = perplexity(found.written_nats, found.written_tokens)
        figures["given_perplexity"] = perplexity(found.given_nats, found.given_tokens)
    return figures


def likeness(written: Text, human: Text) -> dict[str, Any]:
    """MAUVE of whole stories; of equally many, since it depends on how many there are."""
    n = min(len(written), len(human))
    features = [embed([" ".join(story) for story in stories[:n]]) for stories in (written, human)]
    return mauve(*features).to_json() | {"features": "MiniLM, whole stories"}


def shuffled_order(stories: Text, seed: int) -> list[list[str]]:
    """The stories with their sentences in another order."""
    rng = np.random.default_rng(seed)
    return [[story[i] for i in rng.permutation(len(story))] for story in stories]


def unrelated(stories: Text, seed: int) -> list[list[str]]:
    """Sentence i of every story from another story."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(stories)) for _ in range(5)]
    return [[stories[order[n]][i] for i, order in enumerate(orders)] for n in range(len(stories))]


def read_file(path: Path) -> list[Story]:
    found = [story for story in read_stories(path) if isinstance(story, Story)]
    if not found:
        raise UserError(f"{path}: no usable story in it")
    return found


def human(args: argparse.Namespace) -> dict[str, Any]:
    texts = [story.sentences for story in read_file(args.stories)][: args.limit]
    corpus = Corpus.open(args.data)
    reader = Reader.of(corpus)
    given = [list(MIDDLE) for _ in texts]
    whole = quality(texts, reader).to_json()
    middle = quality(texts, reader, given).to_json()
    record: dict[str, Any] = {"whole": whole, "middle_three": middle}
    found = story_perplexity(texts, given)
    record["perplexity"] = perplexities(found) | {
        "sentences_shuffled": perplexities(story_perplexity(shuffled_order(texts[:300], 0)))["story_perplexity"],
        "sentences_unrelated": perplexities(story_perplexity(unrelated(texts[:300], 0)))["story_perplexity"],
        "the_same_300": perplexity(found.nats[:300], found.tokens[:300]),
    }
    half = np.random.default_rng(0).permutation(len(texts))
    halves = [[texts[i] for i in part] for part in (half[: len(half) // 2], half[len(half) // 2 :])]
    record["mauve_of_halves"] = likeness(*halves)
    if args.human is not None:
        record["mauve_of_human"] = likeness(texts, [story.sentences for story in read_file(args.human)])
    return record | {"n": len(texts), "data_hash": corpus.hash, "file_hash": digest(args.stories.read_bytes())}


def system(args: argparse.Namespace) -> dict[str, Any]:
    rows = [json.loads(line) for line in args.stories.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts = [row["sentences"] for row in rows][: args.limit]
    given: Mask = [row["given"] for row in rows][: args.limit] if all("given" in row for row in rows) else None
    corpus = Corpus.open(args.data)
    record: dict[str, Any] = {"quality": quality(texts, Reader.of(corpus), given).to_json()}
    record["perplexity"] = perplexities(story_perplexity(texts, given))
    if args.human is not None:
        record["mauve"] = likeness(texts, [story.sentences for story in read_file(args.human)])
    return record | {"n": len(texts), "data_hash": corpus.hash, "file_hash": digest(args.stories.read_bytes())}


def measures_of(texts: Text, reader: Reader) -> dict[str, FloatArray]:
    """Every measure as a figure for each story, larger meaning better where that is what one would expect."""
    found = story_perplexity(texts)
    counted = quality(texts, reader)
    shares = {name: counted.shares[name].per_story() for name in counted.shares}
    features = embed([sentence for story in texts for sentence in story])
    ends = np.cumsum([len(story) for story in texts])
    own = np.split(features, ends[:-1])
    neighbours = np.array([np.mean([a @ b for a, b in pairwise(v)] or [np.nan]) for v in own])
    return {
        "-log story perplexity (SmolLM2)": -found.nats / found.tokens,
        "-nats of the story (SmolLM2)": -found.nats,
        "-repeated sentences": -shares["repeated_sentences"],
        "-repeated 4-grams": -shares["repeated_4grams"],
        "-copied 4-grams": -shares["copied_4grams"],
        "-longest copied": -counted.longest_copied.astype(np.float64),
        "distinct-1 of the story": np.array([variety(story, 1) for story in texts]),
        "distinct-2 of the story": np.array([variety(story, 2) for story in texts]),
        "names given": shares["names_given"],
        "pronouns agree": shares["pronouns_agree"],
        "-verbless sentences": -shares["verbless"],
        "likeness of neighbours (MiniLM)": neighbours,
        "words": np.array([sum(len(words_of(sentence)) for sentence in story) for story in texts], dtype=np.float64),
    }


def variety(story: Sequence[str], n: int) -> float:
    grams = [gram for sentence in story for gram in ngrams(words_of(sentence), n)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def combined(measures: dict[str, FloatArray], ratings: FloatArray) -> FloatArray:
    """A straight line through the measures, its weights from the other nine tenths: ten folds, so nothing is fitted."""
    columns = np.stack([np.nan_to_num(values, nan=float(np.nanmean(values))) for values in measures.values()], 1)
    columns = (columns - columns.mean(0)) / np.maximum(columns.std(0), 1e-9)
    fold = np.random.default_rng(0).permutation(len(ratings)) % 10
    found = np.zeros(len(ratings))
    for f in range(10):
        x, y = columns[fold != f], ratings[fold != f]
        weights = np.linalg.solve(x.T @ x + 10.0 * np.eye(x.shape[1]), x.T @ (y - y.mean()))
        found[fold == f] = columns[fold == f] @ weights
    return found


def ratings(args: argparse.Namespace) -> dict[str, Any]:
    rated = read_ratings(args.ratings)
    texts, rating = [story.sentences for story in rated], np.array([story.rating for story in rated])
    corpus = Corpus.open(args.data)
    measures = measures_of(texts, Reader.of(corpus))
    measures["all of them, ridge, other folds' weights"] = combined(measures, rating)
    table = calibrate(measures, rating)
    ordered = sorted(table.items(), key=lambda item: -abs(item[1].pearson.value))
    for name, found in ordered:
        show(name, found.pearson, found.spearman)
    return {
        "n": len(rated),
        "mean_rating": round(float(rating.mean()), 4),
        "correlations": {name: found.to_json() for name, found in ordered},
        "data_hash": corpus.hash,
        "file_hash": digest(args.ratings.read_bytes()),
    }


def show(name: str, pearson: Interval, spearman: Interval) -> None:
    told = " | ".join(f"{i.value:+.3f} [{i.low:+.3f}, {i.high:+.3f}]" for i in (pearson, spearman))
    print(f"{name:45s} {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("human", "stories", "calibrate"))
    parser.add_argument("--stories", type=Path)
    parser.add_argument("--ratings", type=Path)
    parser.add_argument("--human", type=Path, help="people's stories to compare with")
    parser.add_argument("--data", type=Path, required=True, help="the prepared corpus")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    record = {"human": human, "stories": system, "calibrate": ratings}[args.what](args)
    record |= {"command": args.what, "commit": commit(), "seconds": round(time.perf_counter() - start, 1)}
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
