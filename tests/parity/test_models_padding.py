"""Padded = unpadded and batched = one by one, in float64, for stories of 2 to 7 sentences side by side."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fabula.corpus.dataset import Stories
from fabula.models.batch import Batch, StoryDataset
from small import perturbed, small_model, stories_of

WORDS, K, D = 40, 3, 3
LENGTHS = [2, 7, 3, 5, 4, 6, 2]


def stories() -> Stories:
    """Sentences of 1 to 9 words, tags here and there."""
    rng = np.random.default_rng(0)
    tokens = [[rng.integers(4, WORDS, rng.integers(1, 10)).tolist() for _ in range(n)] for n in LENGTHS]
    tags: list[list[int | None]] = [[int(t) if t < K else None for t in rng.integers(0, K + 1, n)] for n in LENGTHS]
    return stories_of(tokens, tags)


SHELF = StoryDataset(stories(), "cpu")
TOGETHER = SHELF.batch(np.arange(len(LENGTHS)))


def made(kind: str, encoder: str = "sentence") -> Any:
    p_next = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]
    parts: dict[str, Any] = {"language": {"layers": 2}, "recognition": {"encoder": encoder}}
    model = small_model(kind, words=WORDS, p_initial=[0.5, 0.3, 0.2], p_next=p_next, **parts).double()
    return perturbed(model, 0.2).requires_grad_(False)


def one_by_one(figure: Callable[[Batch, slice], tuple[Tensor, ...]]) -> None:
    """`figure` of each story alone, and of pairs, equals its rows of the whole batch, where the story has sentences.

    Each figure is [story] or [story, sentence, ...].
    """
    whole = figure(TOGETHER, slice(None))
    groups = [[row] for row in range(len(LENGTHS))] + [[0, 2], [2, 4]]
    for rows in groups:
        alone = figure(SHELF.batch(np.array(rows)), rows)  # type: ignore[arg-type]
        for inside, outside in zip(alone, whole, strict=True):
            for here, row in enumerate(rows):
                n = LENGTHS[row]
                one, other = inside[here], outside[row]
                if one.dim():
                    one, other = one[:n], other[:n]
                torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


SLDS_KINDS = pytest.mark.parametrize(("kind", "encoder"), [("slds", "sentence"), ("slds", "story"), ("lds", "story")])


def noise_of(batch: Batch, rows: slice) -> Tensor:
    """Given noise: each story's own, whatever batch it is in."""
    everyone = torch.randn(
        len(LENGTHS), max(LENGTHS), D, generator=torch.Generator().manual_seed(4), dtype=torch.float64
    )
    return everyone[rows][:, : batch.S.shape[1]]


@SLDS_KINDS
@pytest.mark.parametrize("posterior", ["filtering", "smoothing", "switching"])
def test_draws_densities_and_words(kind: str, encoder: str, posterior: str) -> None:
    """Evidence, Z with given noise, log q, KL, log p(Z) with S summed out (known tags clamped), log p(X | Z)."""
    model = made(kind, encoder)

    def figure(batch: Batch, rows: slice) -> tuple[Tensor, ...]:
        evidence = model.evidence(batch)
        half = torch.full(batch.lengths.shape, 0.5, dtype=torch.float64)
        draw = model.draw_posterior(evidence, batch.present, noise_of(batch, rows), half, posterior)
        return (
            *(evidence.phi.mean, evidence.phi.precision, evidence.log_q_S, draw.Z, draw.log_q, draw.kl),
            model.log_p_Z(draw.Z, batch, model.tags(batch)),
            model.scaffold.posterior(model.dynamics.log_prob_steps(draw.Z), batch.present),
            model.log_p_X(batch, draw.Z),
        )

    one_by_one(figure)


@pytest.mark.parametrize("kind", ["lm", "s2s"])
def test_models_without_latents(kind: str) -> None:
    model = made(kind)
    one_by_one(lambda batch, rows: (model.log_p_X(batch),))


def test_absent_sentences_count_for_nothing() -> None:
    """Nothing of a story is said behind its end: precision 0, log p 0."""
    model = made("slds")
    absent = ~TOGETHER.present
    assert absent.any()
    evidence = model.evidence(TOGETHER)
    assert not evidence.phi.precision[absent].any()
    Z = noise_of(TOGETHER, slice(None))
    assert not model.log_p_X(TOGETHER, Z)[absent].any()
    assert (model.log_p_X(TOGETHER, Z)[~absent] < 0).all()


def test_sentence_encoder_reads_one_sentence_alone() -> None:
    """Our phi_i does not change when another sentence does; the paper's carried encoder's does, from there on."""
    for encoder in ("sentence", "story"):
        model = made("slds", encoder)
        tokens = TOGETHER.tokens.clone()
        tokens[1, int(TOGETHER.starts[1, 2])] = 4 + (tokens[1, int(TOGETHER.starts[1, 2])] - 3) % (WORDS - 4)
        before, after = (model.evidence(batch).phi.mean for batch in (TOGETHER, TOGETHER._replace(tokens=tokens)))
        changed = ((before - after).abs().amax(-1) > 1e-9)[1]
        assert changed.tolist() == [False, False, True, *[encoder == "story"] * 4]


def test_a_batch_keeps_the_stories() -> None:
    """Tokens, sentences and tags of a cut batch are those of the arrays, also twice over and after bucketing."""
    source = stories()
    X = TOGETHER.X()
    for row, n in enumerate(LENGTHS):
        words = [X[row, i, : TOGETHER.lengths[row, i] - 1].tolist() for i in range(n)]
        assert words == [sentence.tolist() for sentence in source.sentences(row)]
        assert TOGETHER.S[row, :n].tolist() == source.story_tags(row).tolist()
        assert not X[row, n:].any()
    counted = TOGETHER.per_sentence(torch.ones(TOGETHER.tokens.shape))
    assert torch.equal(counted, TOGETHER.lengths.float())
    twice = TOGETHER.repeat(2)
    assert torch.equal(twice.tokens[0::2], TOGETHER.tokens)
    assert torch.equal(twice.tokens[1::2], TOGETHER.tokens)
    seen = np.concatenate(list(SHELF.bucketed(2, np.random.default_rng(1))))
    assert sorted(seen.tolist()) == list(range(len(LENGTHS)))
    assert sorted(np.concatenate(list(SHELF.in_order(3))).tolist()) == list(range(len(LENGTHS)))
