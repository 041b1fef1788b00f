"""The bar for q(S | X) with few labels: TF-IDF and logistic regression on the very same labelled stories.

    PYTHONPATH=src python benchmarks/tags_baseline.py --data prepared/roc --share 0.01 [--seed 0]

Macro-F1 against the corpus's tags on the test split, for several strengths of regularisation. Needs fabula[eval].
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

from fabula.corpus.dataset import Corpus, Stories
from fabula.metrics.likelihood import macro_f1
from fabula.training.loop import labelled_rows
from fabula.training.recipe import ObjectiveSettings


def bags(stories: Stories, vocabulary: int) -> csr_matrix:
    """Word counts of every sentence."""
    offsets = np.asarray(stories.sentence_offsets)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    columns = np.asarray(stories.tokens).astype(np.int64)
    return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(offsets) - 1, vocabulary))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    corpus = Corpus.open(args.data)
    train, test = corpus.split("train"), corpus.split("test")
    labelled = labelled_rows(len(train), ObjectiveSettings(labelled=args.share, label_seed=args.seed))
    story = np.asarray(train.story_offsets)
    chosen = np.concatenate([np.arange(story[row], story[row + 1]) for row in labelled])
    X, Y = bags(train, len(corpus.vocabulary)), bags(test, len(corpus.vocabulary))
    weigh = TfidfTransformer().fit(X)
    tags = np.asarray(train.tags).astype(np.int64)[chosen]
    truth = torch.from_numpy(np.asarray(test.tags).astype(np.int64))
    warnings.filterwarnings("ignore", category=FutureWarning)
    print(f"{len(labelled)} labelled stories, {len(chosen)} sentences")
    for C in (1.0, 3.0, 10.0, 30.0, 100.0):
        for balance in (None, "balanced"):
            classifier = LogisticRegression(C=C, max_iter=500, class_weight=balance)
            guess = classifier.fit(weigh.transform(X[chosen]), tags).predict(weigh.transform(Y))
            score = macro_f1(truth, torch.from_numpy(guess), len(corpus.labels))
            print(f"TF-IDF, C = {C:g}, {balance or 'plain'}: macro-F1 {score:.2f}")


if __name__ == "__main__":
    main()
