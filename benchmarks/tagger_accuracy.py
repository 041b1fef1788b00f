"""How often the taggers `emotion` and `verb` are right: on sentences labelled by hand, and beside the NRC lexicon.

    python benchmarks/tagger_accuracy.py --stories valid.csv

The 200-odd sentences (benchmarks/seeds/labelled.txt) are invented, and were labelled before a tagger had read them. NRC
(research only, read from the installed package `nrclex`, never shipped) has no surprise of its own sense apart from
anticipation and trust; its five emotions of the same names are compared, on words and on sentences.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from fabula.corpus.taggers.emotion import EMOTIONS, EmotionTagger, weights, words
from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.taggers.verb import VerbTagger
from fabula.metrics.likelihood import macro_f1
from fabula.training.stories import read_text

LABELLED = Path(__file__).parent / "seeds" / "labelled.txt"
DRAWS = 2000


def interval(truth: list[int], guess: list[int], K: int) -> str:
    """Accuracy and macro-F1 with 95 % bootstrap intervals over sentences."""
    t, g, rng = torch.tensor(truth), torch.tensor(guess), np.random.default_rng(0)

    def accuracy(a: torch.Tensor, b: torch.Tensor) -> float:
        return 100 * float((a == b).float().mean())

    def f1(a: torch.Tensor, b: torch.Tensor) -> float:
        return macro_f1(a, b, K)

    drawn = [torch.from_numpy(rng.integers(0, len(t), len(t))) for _ in range(DRAWS)]
    told = []
    for name, measure in (("accuracy", accuracy), ("macro-F1", f1)):
        low, high = np.percentile([measure(t[d], g[d]) for d in drawn], [2.5, 97.5])
        told.append(f"{name} {measure(t, g):.1f} [{low:.1f}, {high:.1f}]")
    return ", ".join(told)


def nrc() -> dict[str, set[str]]:
    spec = importlib.util.find_spec("nrclex")
    assert spec is not None
    assert spec.origin is not None
    found = json.loads((Path(spec.origin).parent / "data" / "nrc_en.json").read_text(encoding="utf-8"))
    return {word: set(kinds) & set(EMOTIONS) for word, kinds in found.items()}


def by_nrc(lexicon: dict[str, set[str]], sentence: str) -> str:
    """The emotion of most of a sentence's words; `none` where there is none, or a tie."""
    counts = Counter(kind for word in words(sentence) for kind in lexicon.get(word, ()))
    best = counts.most_common(2)
    return best[0][0] if best and (len(best) == 1 or best[0][1] > best[1][1]) else "none"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stories", type=Path)
    parser.add_argument("--wrong", action="store_true", help="print what is wrong")
    args = parser.parse_args()
    lines = [line for line in LABELLED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    sentences = [line.split("\t")[1] for line in lines]
    lexicon, emotion = nrc(), EmotionTagger()
    taggers: tuple[Tagger, ...] = (emotion, VerbTagger())
    for place, tagger in enumerate(taggers):
        labels = tagger.labels
        truth = [labels.index(line.split("\t")[0].split()[place]) for line in lines]
        guess = [int(tag or 0) for tag in tagger.tag(sentences)]
        print(f"{tagger.settings['tagger']}: {interval(truth, guess, len(labels))}; {len(lines)} sentences", flush=True)
        if tagger is emotion:
            other = [labels.index(by_nrc(lexicon, sentence)) for sentence in sentences]
            print(f"NRC's majority on the same: {interval(truth, other, len(labels))}")
        if args.wrong:
            for t, g, sentence in zip(truth, guess, sentences, strict=True):
                if t != g:
                    print(f"  {labels[t]} read as {labels[g]}: {sentence}")
    single = {key[0]: EMOTIONS[number] for key, (number, _) in weights().items() if len(key) == 1}
    both = [word for word in single if lexicon.get(word)]
    agree = sum(single[word] in lexicon[word] for word in both)
    print(f"words: {len(single)} of ours, {len(both)} of them with one of the five in NRC, {agree} agree")
    if args.stories:
        flat = [sentence for story in read_text(args.stories) for sentence in story]
        ours = [emotion.labels[int(tag or 0)] for tag in emotion.tag(flat)]
        theirs = [by_nrc(lexicon, sentence) for sentence in flat]
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if "none" not in (a, b)]
        same = sum(a == b for a, b in pairs)
        print(f"{len(flat)} sentences: both name an emotion in {len(pairs)}, the same one in {same}")
        shared = Counter(pairs)
        for name in EMOTIONS:
            of = sum(n for (a, _), n in shared.items() if a == name)
            print(f"  {name}: {of}, NRC agrees in {100 * shared[name, name] / max(1, of):.1f} %")
        p = sum((ours.count(k) / len(flat)) * (theirs.count(k) / len(flat)) for k in emotion.labels)
        observed = sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(flat)
        print(f"  over all sentences, none included: {100 * observed:.1f} %, kappa {(observed - p) / (1 - p):.2f}")
