"""How people's stories and systems' stories read: story perplexity, variety, copying, names, verbs; and who agrees.

    PYTHONPATH=src python benchmarks/quality.py human --stories test.csv --data prepared/roc --out human.json
    PYTHONPATH=src python benchmarks/quality.py stories --stories written.jsonl --data prepared/roc --out system.json
    PYTHONPATH=src python benchmarks/quality.py calibrate --ratings union_roc.txt --data prepared/roc --out r.json

`human` measures a file of people's stories, whole and as if their middle three had been written, with MAUVE of one half
against the other; `stories` measures JSON lines {"sentences": [...], "given": [true, ...]}, with MAUVE against
`--human`. `calibrate` correlates every measure with people's ratings of 400 machine-written stories. Records hold
figures only. The eval extra and scorers.txt are needed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.api import load
from fabula.corpus.dataset import Corpus, digest
from fabula.corpus.read import Story, read_stories
from fabula.errors import UserError
from fabula.metrics.bootstrap import Interval, mean, ratio
from fabula.metrics.counting import Mask, Text
from fabula.metrics.quality import Reader, quality
from fabula.metrics.record import commit
from fabula_paper.scores.calibrate import calibrate, measures_of, read_ratings
from fabula_paper.scores.mauve import mauve
from fabula_paper.scores.pretrained import Surprise, context_gain, embed, story_perplexity

FloatArray = NDArray[np.float64]
MIDDLE = (True, False, False, False, True)


def perplexity(nats: FloatArray, tokens: NDArray[np.int64]) -> dict[str, Any]:
    return ratio(nats, tokens, transform=np.exp).to_json(3)


def perplexities(found: Surprise) -> dict[str, Any]:
    figures = {"story_perplexity": perplexity(found.nats, found.tokens)}
    given_nats, given_tokens = found.nats - found.written_nats, found.tokens - found.written_tokens
    if (given_tokens > 0).any():
        figures["written_perplexity"] = perplexity(found.written_nats, found.written_tokens)
        figures["given_perplexity"] = perplexity(given_nats, given_tokens)
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
    record["context_gain"] = {
        "the_same_300": mean(context_gain(texts[:300])).to_json(),
        "sentences_shuffled": mean(context_gain(shuffled_order(texts[:300], 0))).to_json(),
        "sentences_unrelated": mean(context_gain(unrelated(texts[:300], 0))).to_json(),
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


def judged_by(model: str, texts: Text) -> dict[str, FloatArray]:
    """A model of ours as judge: log p of each story, a bound by 20 samples where the model has latents."""
    narrator = load(model)
    scores = [narrator.score(story, samples=20) for story in texts]
    return {
        f"- perplexity, log ({model})": np.array([score.log_p / score.words for score in scores]),
        f"log p of the story ({model})": np.array([score.log_p for score in scores]),
        f"worst sentence, log p ({model})": np.array([min(score.log_p_sentences) for score in scores]),
    }


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


def other_raters(labels: NDArray[np.int64]) -> FloatArray:
    """A rater's verdict against the mean of the other six: what a person would score, the mean over the seven."""
    votes = (labels == 0).astype(np.float64)
    others = (votes.sum(1, keepdims=True) - votes) / (votes.shape[1] - 1)
    return np.array([np.corrcoef(votes[:, r], others[:, r])[0, 1] for r in range(votes.shape[1])])


def ratings(args: argparse.Namespace) -> dict[str, Any]:
    rated = read_ratings(args.ratings)
    texts, rating = [story.sentences for story in rated], np.array([story.rating for story in rated])
    corpus = Corpus.open(args.data)
    measures = measures_of(texts, Reader.of(corpus))
    for model in args.judge:
        measures |= judged_by(model, texts)
    measures["all of them: ridge regression, weights from the other folds"] = combined(measures, rating)
    table = calibrate(measures, rating)
    ordered = sorted(table.items(), key=lambda item: -abs(item[1].pearson.value))
    for name, found in ordered:
        show(name, found.pearson, found.spearman)
    one = other_raters(np.array([story.labels for story in rated]))
    print(f"one rater against the other six: {one.mean():.3f} (from {one.min():.3f} to {one.max():.3f})")
    return {
        "n": len(rated),
        "mean_rating": round(float(rating.mean()), 4),
        "one_rater_against_the_others": {"pearson": round(float(one.mean()), 4), "raters": one.round(4).tolist()},
        "correlations": {name: found.to_json() for name, found in ordered},
        "data_hash": corpus.hash,
        "file_hash": digest(args.ratings.read_bytes()),
    }


def show(name: str, pearson: Interval, spearman: Interval) -> None:
    told = " | ".join(f"{i.value:+.3f} [{i.low:+.3f}, {i.high:+.3f}]" for i in (pearson, spearman))
    print(f"{name:60s} {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("human", "stories", "calibrate"))
    parser.add_argument("--stories", type=Path)
    parser.add_argument("--ratings", type=Path)
    parser.add_argument("--human", type=Path, help="people's stories to compare with")
    parser.add_argument("--judge", nargs="*", default=[], help="models of ours whose log p is calibrated too")
    parser.add_argument("--data", type=Path, required=True, help="the prepared corpus")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    start, code = time.perf_counter(), commit()
    record = {"human": human, "stories": system, "calibrate": ratings}[args.what](args)
    record |= {"command": args.what, "commit": code, "seconds": round(time.perf_counter() - start, 1)}
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
