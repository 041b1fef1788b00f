"""What training asks of Z beyond the bound: parts left out, tags hidden, gradients scaled, names traded, contrast."""

from __future__ import annotations

import math

import pytest
import torch

from fabula.corpus.people import People
from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.infill.batch import flatten
from fabula.models.batch import Batch
from fabula.models.build import build
from fabula.models.gaussian import Potential
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.training.heads import contrast
from fabula.training.objective import gains, hide_tags, observe, scale_gradient
from fabula.training.recipe import ObjectiveSettings
from fabula.training.swap import BLOCK, NameSwap

K, D = 3, 2


@pytest.fixture
def model() -> SLDS:
    torch.manual_seed(0)
    settings = ModelSettings(
        language=LanguageSettings(embedding=4, hidden=4),
        dynamics=DynamicsSettings(latent=D),
        recognition=RecognitionSettings(hidden=4),
    )
    made = build(settings, 10, torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[0.8, 0.1, 0.1]] * 3))
    assert isinstance(made, SLDS)
    return made


def test_some_stories_are_observed_whole() -> None:
    """40 % whole, else each sentence with 70 %: 20,000 stories, |z| < 5 (false alarm below 1e-6)."""
    n, N = 20_000, 5
    observed = observe(torch.ones(n, N, dtype=torch.bool), ObjectiveSettings(evidence_dropout=0.3, whole_stories=0.4))
    p = 0.4 + 0.6 * 0.7**N
    assert abs(float(observed.all(1).double().mean()) - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_hidden_tags_are_drawn_from_the_scaffold_given_the_others(model: SLDS) -> None:
    """S_2 of three is hidden: its draws follow p(S_2 | S_1, S_3), not its own words; |z| < 5 for each of 3 states."""
    n = 30_000
    seen = torch.tensor([[0, 2, 1]]).repeat(n, 1)
    peeking = torch.tensor([0.0, 0.0, 1.0]).expand(n, 3, 3)
    observed = torch.tensor([[True, False, True]]).expand(n, 3)
    hidden, weights = hide_tags(model, seen, peeking, observed, torch.ones(n, 3, dtype=torch.bool), 1.0)
    assert hidden.unique(dim=0).tolist() == [[0, -1, 1]]
    transition = model.scaffold.transition().exp()
    p = transition[0] * transition[:, 1]
    p = p / p.sum()
    found = weights[:, 1].double().mean(0)
    assert float(((found - p) / (p * (1 - p) / n).sqrt()).abs().max()) < 5
    assert (weights.sum(-1) == 1).all()


def test_only_sentences_that_are_not_observed_lose_their_tags(model: SLDS) -> None:
    seen = torch.tensor([[0, 2, 1]]).repeat(1000, 1)
    weights = torch.full((1000, 3, 3), 1 / 3)
    observed = torch.rand(1000, 3) < 0.5
    hidden, _ = hide_tags(model, seen, weights, observed, torch.ones_like(observed), 0.5)
    assert torch.equal(hidden[observed], seen[observed])
    assert 0.4 < float((hidden[~observed] < 0).double().mean()) < 0.6


def test_gradients_are_scaled_and_values_are_not() -> None:
    """1 in stories observed whole; else own_gain where observed, link_gain where not."""
    settings = ObjectiveSettings(evidence_dropout=0.5, own_gain=0.25, link_gain=3.0)
    observed = torch.tensor([[True, False, False], [True, True, False]])
    present = torch.tensor([[True, True, True], [True, True, False]])
    gain = gains(observed, present, settings)
    assert gain.tolist() == [[0.25, 3.0, 3.0], [1.0, 1.0, 1.0]]
    Z = torch.randn(2, 3, D, requires_grad=True)
    scaled = scale_gradient(Z, gain)
    assert torch.allclose(scaled, Z)
    scaled.square().sum().backward()
    assert Z.grad is not None
    assert torch.allclose(Z.grad, 2 * Z.detach() * gain.unsqueeze(-1))


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


def test_contrast_is_the_softmax_over_the_batch(model: SLDS) -> None:
    """Against the integral of p(Z_2 | z_1, s) phi_b(Z_2) by a fine grid, for every pair; z_1 pinned by its evidence."""
    torch.manual_seed(1)
    n = 4
    batch = flatten(torch.full((n, 2, 2), 4), torch.full((n, 2), 2))
    s = torch.nn.functional.one_hot(torch.tensor([[0, 1], [1, 2], [2, 0], [0, 0]]), K).float()
    sure = 1e8
    mean = torch.randn(n, 2, D)
    precision = torch.cat([torch.full((n, 1, D), sure), torch.rand(n, 1, D) + 0.5], 1)
    found = contrast(model, Potential(mean, precision), s, batch)
    grid = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    scores = torch.zeros(n, n, dtype=torch.float64)
    for a in range(n):
        k = int(s[a, 1].argmax())
        at = (model.dynamics.A[k] @ mean[a, 0] + model.dynamics.bias[k]).double()
        variance = model.dynamics.Sigma()[k].diagonal().double()
        for b in range(n):
            for d in range(D):
                prior = (-0.5 * (grid - at[d]) ** 2 / variance[d]).exp() / (2 * math.pi * variance[d]).sqrt()
                tau = precision[b, 1, d].double()
                observed = (-0.5 * tau * (grid - mean[b, 1, d]) ** 2).exp() * (tau / (2 * math.pi)).sqrt()
                scores[a, b] += (prior * observed).sum().mul(grid[1] - grid[0]).log()
    expected = scores.log_softmax(1).diagonal()
    assert torch.allclose(found.double(), expected, atol=2e-3)
