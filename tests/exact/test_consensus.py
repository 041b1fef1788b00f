"""Ranking by consensus against the sum written out with Python sets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.corpus.vocabulary import EOS
from fabula.sampling.samples import SampledStories
from fabula_paper.consensus import by_consensus, expected_overlap


def slowly(words: list[list[list[int]]], weights: list[list[float]]) -> list[list[float]]:
    def sets(sample: list[int]) -> tuple[set[int], set[tuple[int, int]]]:
        pairs = {(a, b) for a, b in pairwise(sample) if a > EOS and b > EOS}
        return {w for w in sample if w > EOS}, pairs

    def f1(a: set[Any], b: set[Any]) -> float:
        return 2 * len(a & b) / (len(a) + len(b)) if a or b else 0.0

    found = []
    for samples, share in zip(words, weights, strict=True):
        held = [sets(sample) for sample in samples]
        found.append(
            [sum(w * (f1(a[0], b[0]) + f1(a[1], b[1])) for w, b in zip(share, held, strict=True)) for a in held]
        )
    return found


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 7), st.integers(0, 2**31))
def test_expected_overlap_is_the_sum_over_sets(stories: int, samples: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 12, (stories, samples, width), generator=generator)
    weights = torch.rand(stories, samples, generator=generator).softmax(-1)
    found = expected_overlap(words, weights)
    torch.testing.assert_close(found, torch.tensor(slowly(words.tolist(), weights.tolist())), atol=1e-5, rtol=1e-5)


def test_only_what_was_written_counts_and_rounds_keep_their_rows() -> None:
    """Two rounds of different width: the answer does not depend on how samples were handed over, nor on given words."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randint(4, 9, (2, 6, 3, 4), generator=generator)
    X[..., -1] = EOS  # as every sentence ends
    missing = torch.tensor([[False, True, True], [True, False, False]])
    log_w = torch.randn(2, 6, generator=generator)

    def rounds(cuts: list[int], X: torch.Tensor, extra: int) -> list[SampledStories]:
        made = []
        for n, (part, w) in enumerate(zip(torch.split(X, cuts, 1), torch.split(log_w, cuts, 1), strict=True)):
            padded = torch.nn.functional.pad(part, (0, extra * n)).flatten(0, 1)
            rest = torch.zeros(len(padded), 3)
            made.append(SampledStories(padded, rest.long(), rest.long(), rest, torch.zeros(len(padded)), w.flatten()))
        return made

    def scores(made: list[SampledStories]) -> torch.Tensor:
        return torch.cat([r.score.view(2, -1) for r in by_consensus(made, 2, missing)], 1)

    whole = scores(rounds([6], X, 0))
    torch.testing.assert_close(scores(rounds([1, 5], X, 2)), whole)
    other = X.clone()
    other[0, :, 0] = 3
    other[1, :, 1:] = 5
    torch.testing.assert_close(scores(rounds([6], other, 0)), whole)
    assert whole.std() > 0
