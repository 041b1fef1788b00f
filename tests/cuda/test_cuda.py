"""A GPU computes what the CPU computes: likelihood, one training step, and a fill with each sampler.

`make test-cuda` runs it. Every comparison is written for any device and is made on the CPU too, against itself, so that
the code of the tests is checked where there is no GPU; the comparisons with a GPU are then skipped.

Random numbers come from the CPU for both devices, so that both meet the same noise. Figures may differ by rounding, and
a drawn word where the noise falls between two roundings: so most candidates must agree, not all.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fabula
from fabula.corpus.dataset import Corpus
from fabula.training.corpus_model import CorpusLearner
from fabula.training.loop import Run
from small import small_recipe

WITHOUT = "no CUDA device here: run `make test-cuda` on a machine with a GPU"
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason=WITHOUT)]),
]
TOLD = ["Tom was sad.", "She made it to work on time.", "Tom was glad."]
BLANK = ["Mia's car would not start.", None, None, "Mia made it to work on time."]


@contextmanager
def noise_of_the_cpu(seed: int) -> Iterator[None]:
    """torch.rand and torch.randn draw on the CPU from a seed of their own, then move to the device asked for."""
    own = torch.Generator().manual_seed(seed)

    def moved(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def drawn(*shape: Any, device: Any = None, generator: Any = None, **more: Any) -> Tensor:
            return draw(*shape, generator=own, **more).to(device or "cpu")

        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", moved(torch.rand))
        patch.setattr(torch, "randn", moved(torch.randn))
        yield


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["default", "lds", "lm", "s2s"])
def test_likelihood(kind: str, device: str, random_models: Path) -> None:
    """log p of a story and of each sentence by 20 importance samples: the same to 1e-4 of its size."""
    found = []
    for where in ("cpu", device):
        with noise_of_the_cpu(3):
            score = fabula.load(random_models / kind, where).score(TOLD, samples=20, seed=1)
        found.append([score.log_p, *score.log_p_sentences])
    assert np.all(np.isfinite(found[0]))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


def one_step(kind: str, objective: dict[str, Any], corpus: Corpus, out: Path, device: str) -> dict[str, Tensor]:
    """The gradients and the weights after a step from the same weights, the same batch and the same noise."""
    train = {"precision": "float32", "learning_rate": 1e-2}
    dropout = {"language": {"dropout": 0.2}, "recognition": {"dropout": 0.0}}
    recipe = small_recipe(kind, objective=objective, train=train, **dropout)
    run = Run(CorpusLearner(recipe, corpus, torch.device(device)), out)
    with noise_of_the_cpu(4):
        run.step(np.arange(24), 10)
    named = list(run.network.named_parameters())
    found = {f"{name}.grad": p.grad for name, p in named if p.grad is not None} | dict(named)
    return {name: tensor.detach().cpu() for name, tensor in found.items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("kind", "objective"),
    [
        ("lm", {}),
        ("slds", {"posterior": "smoothing", "evidence_dropout": 0.5}),
        ("slds", {"kind": "paper", "labelled": 0.5}),
    ],
    ids=["lm", "collapsed", "paper"],
)
def test_one_training_step(kind: str, objective: dict[str, Any], device: str, toy_corpus: Path, tmp_path: Path) -> None:
    """Gradients agree to a thousandth of the largest one, weights within two learning rates.

    Adam's first step has the rate's size whatever the gradient's, so where a gradient is nothing but rounding the two
    weights may move apart.
    """
    corpus = Corpus.open(toy_corpus)
    ours, theirs = (one_step(kind, objective, corpus, tmp_path / where, where) for where in ("cpu", device))
    gradients = {name for name in ours if name.endswith(".grad")}
    largest = max(float(ours[name].abs().max()) for name in gradients)
    assert largest > 0
    assert ours.keys() == theirs.keys()
    for name in ours:
        limit = 1e-3 * largest if name in gradients else 2.01e-2
        assert float((ours[name] - theirs[name]).abs().max()) <= limit, name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("model", "sampler", "more"),
    [
        ("default", "smc", {}),
        ("default", "gibbs", {}),
        ("default", "gibbs", {"top_k": 5}),
        ("lm", "rerank", {}),
    ],
    ids=["smc", "gibbs", "gibbs-top-k", "rerank"],
)
def test_fill(model: str, sampler: str, more: dict[str, Any], device: str, random_models: Path) -> None:
    """Three seeds, three candidates each: four in five have the same words, and these the same log-probabilities."""
    ours, theirs = (fabula.load(random_models / model, where) for where in ("cpu", device))
    same = total = 0
    for seed in range(3):
        found = [n.fill(BLANK, sampler=sampler, seed=seed, samples=6, **more).candidates for n in (ours, theirs)]
        assert len(found[0]) == len(found[1])
        for mine, other in zip(*found, strict=True):
            total += 1
            if [s.text for s in mine.sentences] == [s.text for s in other.sentences]:
                same += 1
                pairs = zip(mine.sentences, other.sentences, strict=True)
                figures = np.array([[a.log_p, b.log_p] for a, b in pairs], dtype=float)
                np.testing.assert_allclose(figures[:, 1], figures[:, 0], rtol=1e-3, atol=1e-3)
    assert same >= 0.8 * total
