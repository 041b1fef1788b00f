"""What training asks of Z beyond the bound: parts of stories left out of q(Z | X), names traded."""

from __future__ import annotations

import math

import torch

from fabula.corpus.people import People
from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.models.batch import Batch
from fabula.sampling.batch import flatten
from fabula.training.objective import observe
from fabula.training.recipe import ObjectiveSettings
from fabula.training.swap import BLOCK, NameSwap


def test_some_stories_are_observed_whole() -> None:
    """40 % whole, else each sentence with 70 %: 20,000 stories, |z| < 5 (false alarm below 1e-6)."""
    n, N = 20_000, 5
    observed = observe(torch.ones(n, N, dtype=torch.bool), ObjectiveSettings(evidence_dropout=0.3, whole_stories=0.4))
    p = 0.4 + 0.6 * 0.7**N
    assert abs(float(observed.all(1).double().mean()) - p) < 5 * math.sqrt(p * (1 - p) / n)


NAMES = [f"He{i}" for i in range(2 * BLOCK + 3)]
VOCABULARY = Vocabulary((*SPECIALS, "ran", *NAMES, "She"))


def stories(*rows: list[int]) -> Batch:
    X = torch.tensor(rows).unsqueeze(1)
    return flatten(X, torch.full((len(rows), 1), X.shape[2]))


def test_names_trade_places_within_their_block() -> None:
    """One new name for each, throughout a story; other words, the rarest names and the other stories keep theirs."""
    first = VOCABULARY.index["He0"]
    row = [first, 4, first + 1, first, first + BLOCK, first + 2 * BLOCK, VOCABULARY.index["She"]]
    batch = stories(*[row] * 4000)
    swap = NameSwap(People(tuple(NAMES), ("She",)), VOCABULARY, 0.5, torch.device("cpu"))
    new = swap(batch).tokens
    assert (new[:, [1, 5, 6]] == batch.tokens[:, [1, 5, 6]]).all()
    assert (new[:, 0] == new[:, 3]).all()
    assert (new[:, 0] != new[:, 2]).all()
    block = new[:, [0, 2]] - first
    assert (block >= 0).all()
    assert (block < BLOCK).all()
    other = new[:, 4] - first
    assert (other >= BLOCK).all()
    assert (other < 2 * BLOCK).all()
    traded = (new != batch.tokens).any(1).double().mean()
    assert 0.45 < float(traded) < 0.55
    assert len(new[:, 0].unique()) == BLOCK
