"""How much of the chosen answers stands in the training stories, and how varied they are.

    python benchmarks/narrator_copying.py --train train.csv fills.jsonl [...]

The files are those of `benchmarks/narrator_gpu.py fills`. Of the written sentences: the share of 4-grams and of whole
sentences that occur in training, and distinct-2. Rows: the first sample, the critic's choice, and people.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from fabula.metrics.counting import ngrams, words_of
from fabula.models.critic import Critic
from fabula.training.stories import read_text


def hashed_ngrams(sentences: list[str], n: int) -> list[int]:
    """The n-grams within each sentence, as hashes: those of 82,000 stories fit into memory."""
    return [hash(gram) for sentence in sentences for gram in ngrams(words_of(sentence), n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fills", type=Path, nargs="+")
    parser.add_argument("--train", type=Path, required=True)
    args = parser.parse_args()
    training = [sentence for story in read_text(args.train) for sentence in story]
    grams, whole = set(hashed_ngrams(training, 4)), {" ".join(words_of(sentence)) for sentence in training}
    for file in args.fills:
        chosen: dict[str, list[str]] = {"first": [], "critic": [], "people": []}
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            missing, log_p = line["missing"], np.array(line["log_p"])
            ranking = np.array(line["critic"])[:, -1] + Critic.ending * log_p[:, max(missing) + 1 :].sum(1)
            chosen["first"] += line["samples"][0]
            chosen["critic"] += line["samples"][int(ranking.argmax())]
            chosen["people"] += [line["sentences"][j] for j in missing]
        for name, sentences in chosen.items():
            copied = np.mean([gram in grams for gram in hashed_ngrams(sentences, 4)])
            stock = np.mean([" ".join(words_of(sentence)) in whole for sentence in sentences])
            pairs = hashed_ngrams(sentences, 2)
            variety = len(set(pairs)) / len(pairs)
            label = f"{file.stem}, {name}"
            print(f"{label:34} 4-grams {copied:.3f}  whole sentences {stock:.3f}  distinct-2 {variety:.3f}")


if __name__ == "__main__":
    main()
