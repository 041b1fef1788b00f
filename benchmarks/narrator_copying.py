"""How much of what is chosen stands in the training stories, and how varied it is, by ranking.

    python benchmarks/narrator_copying.py --train train.csv fills.jsonl [...]

The files are what `benchmarks/narrator_gpu.py fills` wrote, with a critic. Of the three written sentences of a story:
the share of their 4-grams, and of whole sentences ("stock"), that occur in training, and distinct-2. Beside
that self-BLEU: how much the written lines of each of a story's three best candidates are like those of the others.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from functools import reduce
from operator import or_
from pathlib import Path

import numpy as np

from fabula.models.critic import Critic
from fabula.training.stories import read_text


def words(sentence: str) -> list[str]:
    return re.findall(r"[a-z0-9']+|[^\sa-z0-9']", sentence.lower())


def runs(sentences: list[str], n: int) -> list[tuple[str, ...]]:
    told = [words(sentence) for sentence in sentences]
    return [tuple(w[i : i + n]) for w in told for i in range(len(w) - n + 1)]


def self_bleu(tellings: list[list[str]]) -> float:
    """Geometric mean of the clipped 1- to 4-gram precisions of each telling against the others, on average; no brevity
    penalty, one added to every count above one word, so that short tellings count."""
    told = [[Counter(runs(telling, n)) for n in range(1, 5)] for telling in tellings]
    found = []
    for i, own in enumerate(told):
        logs = []
        for n, counts in enumerate(own):
            most = reduce(or_, (other[n] for j, other in enumerate(told) if j != i))
            shared, total, more = (counts & most).total(), counts.total(), n > 0
            logs.append(np.log(max(shared + more, 1e-9) / (total + more)))
        found.append(np.exp(np.mean(logs)))
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fills", type=Path, nargs="+")
    parser.add_argument("--train", type=Path, required=True)
    args = parser.parse_args()
    known = [sentence for story in read_text(args.train) for sentence in story]
    grams, whole = {hash(run) for run in runs(known, 4)}, {" ".join(words(sentence)) for sentence in known}

    def show(name: str, sentences: list[str]) -> None:
        copied = np.mean([hash(run) in grams for run in runs(sentences, 4)])
        stock = np.mean([" ".join(words(sentence)) in whole for sentence in sentences])
        pairs = runs(sentences, 2)
        print(f"{name:34} 4-grams {copied:.3f}  stock {stock:.3f}  distinct-2 {len(set(pairs)) / len(pairs):.3f}")

    for file in args.fills:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        chosen: dict[str, list[str]] = {"first": [], "density": [], "critic": [], "people": []}
        alike = []
        for line in lines:
            critic = np.array([values[-1] for values in line["critic"]])
            log_p = np.array(line["log_p"])
            written, ending = log_p[:, 1:4].sum(1), log_p[:, 4]
            ranking = critic + Critic.ending * ending + Critic.density * written
            best = {"first": 0, "density": int((written + ending).argmax()), "critic": int(ranking.argmax())}
            alike.append(self_bleu([line["tellings"][j] for j in ranking.argsort()[::-1][:3]]))
            for name, number in best.items():
                chosen[name] += line["tellings"][number]
            chosen["people"] += line["sentences"][1:4]
        for name, sentences in chosen.items():
            show(f"{file.stem}, {name}", sentences)
        print(f"{file.stem}, self-BLEU of the three best by critic {np.mean(alike):.3f}")


if __name__ == "__main__":
    main()
