"""The narrator with Z as soft prompt, on a tiny random base: Z at 0 is the narrator, the bound is one, law by law."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fabula.evaluation.latent import lookahead_use
from fabula.evaluation.latent_narrator import bound, draw_hearing, write_middle
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.rows import FREE, SPECIALS, row
from fabula.models.decoders.transformer import Transformer
from fabula.models.dynamics import DiagonalDynamics
from fabula.models.latent_narrator import (
    FixedPotentials,
    LatentNarrator,
    LearnedPotentials,
    Told,
    fit_dynamics,
    tell,
    with_openings,
)
from fabula.training.narrator import log_p_of
from gguf_writer import write_tiny_base

X = [[[20, 21], [22], [23, 24, 25], [26], [27, 28]], [[30], [31, 32], [33], [34, 35], [36]]]
S = [[0, 1, 2, 1, 0], [2, 2, 1, 0, 1]]
P_INITIAL, P_NEXT = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])


def features(stories: int = 2, sentences: int = 5) -> Tensor:
    return torch.randn(stories, sentences, 6, generator=torch.Generator().manual_seed(0))


def make(tmp_path: Path, D: int, size: float) -> LatentNarrator:
    """Maps of Z of this size."""
    torch.manual_seed(3)
    network = Transformer(read_gguf(write_tiny_base(tmp_path / "tiny.gguf")), 2, 1.0, SPECIALS)
    model = LatentNarrator(network, with_openings(P_INITIAL, P_NEXT), LearnedPotentials(6, D, 8), D)
    for linear in (model.to_mood, model.to_words):
        torch.nn.init.normal_(linear.weight, std=size or 1.0)
        linear.weight.data *= float(size > 0)
    return model.eval().requires_grad_(False)


def plain(model: LatentNarrator, i: int) -> Tensor:
    """The narrator's own log p(X_i | X_:i), by the rows that it is trained on."""
    log_p, counts = log_p_of(model.network, [row(story, [FREE] * 5, None, {i}) for story in X])
    return torch.stack([part.sum() for part in log_p.split(counts.tolist())])


def test_without_its_maps_the_likelihood_is_the_narrators_and_nothing_of_Z_is_heard(tmp_path: Path) -> None:
    model, told = make(tmp_path, 3, 0.0), tell(X, S, features())
    found = model.log_p_sentences(told, torch.randn(2, 5, 3))
    torch.testing.assert_close(found, torch.stack([plain(model, i) for i in range(5)], 1))
    use = lookahead_use(model, told, 2, torch.Generator().manual_seed(0))
    torch.testing.assert_close(use, torch.zeros_like(use), atol=1e-4, rtol=0)
    # The ending is hidden or not: the same words are written.
    written = []
    for given in ([True, False, False, False, True], [True, False, False, False, False]):
        Z = draw_hearing(model, told, torch.tensor(given), torch.Generator().manual_seed(1))
        written.append(write_middle(model, told, Z, torch.Generator().manual_seed(2), tokens=4))
    assert written[0] == written[1]


def test_Z_of_a_sentence_is_heard_from_it_on_and_not_before(tmp_path: Path) -> None:
    model, told = make(tmp_path, 3, 0.3), tell(X, S, features())
    Z = torch.randn(2, 5, 3)
    other = Z.clone()
    other[:, 2] += 1
    change = (model.log_p_sentences(told, Z) - model.log_p_sentences(told, other)).abs()
    assert change[:, :2].max() < 1e-4
    assert change[:, 2:].min() > 1e-3
    torch.testing.assert_close(model.log_p_sentence(told, Z, 2, 0), model.log_p_sentences(told, Z)[:, 2])


def test_a_cut_hides_what_is_before_it_and_pays_for_every_word(tmp_path: Path) -> None:
    model, Z = make(tmp_path, 3, 0.3), torch.randn(2, 5, 3)
    cut, whole = tell(X, S, features(), cuts=[2, 0]), tell(X, S, features())
    assert int(cut.counted.sum()) == int(whole.counted.sum()) == sum(len(s) + 1 for story in X for s in story)
    found, plainly = model.log_p_sentences(cut, Z), model.log_p_sentences(whole, Z)
    torch.testing.assert_close(found[1], plainly[1])
    torch.testing.assert_close(found[0, :2], plainly[0, :2])
    assert (found[0, 2:] - plainly[0, 2:]).abs().min() > 1e-4
    others = [[*[[40, 41]] * 2, *X[0][2:]], X[1]]
    torch.testing.assert_close(
        model.log_p_sentences(tell(others, S, features(), cuts=[2, 0]), Z)[0, 2:], found[0, 2:], atol=1e-5, rtol=1e-5
    )


def short(copies: int) -> Told:
    """Each story's first two sentences, many times over."""
    at = [n for n in range(2) for _ in range(copies)]
    return tell([X[n][:2] for n in at], [S[n][:2] for n in at], features()[at, :2])


def quadrature(model: LatentNarrator, points: int = 65) -> Tensor:
    """log p(X) of two sentences and a Z of one number each: every path of S, Z on a grid, all by hand."""
    grid = torch.linspace(-6, 6, points)
    Z = torch.cartesian_prod(grid, grid).unsqueeze(-1)
    log_p_Z = torch.full((len(Z),), float("-inf"))
    A, bias, B = model.dynamics.A[:, 0, 0], model.dynamics.bias[:, 0], model.dynamics.Sigma()[:, 0, 0].sqrt()
    for a in range(3):
        for b in range(3):
            first = torch.distributions.Normal(bias[3 + a], B[3 + a]).log_prob(Z[:, 0, 0])
            second = torch.distributions.Normal(A[b] * Z[:, 0, 0] + bias[b], B[b]).log_prob(Z[:, 1, 0])
            log_p_Z = torch.logaddexp(log_p_Z, P_INITIAL[a].log() + P_NEXT[a, b].log() + first + second)
    log_p_X = model.log_p_sentences(short(len(Z)), Z.repeat(2, 1, 1)).sum(-1).view(2, -1)
    return torch.logsumexp(log_p_X + log_p_Z, 1) + 2 * math.log(float(grid[1] - grid[0]))


def test_the_bound_is_below_the_likelihood_by_quadrature_and_reaches_it(tmp_path: Path) -> None:
    model = make(tmp_path, 1, 0.003)
    last = list(model.potentials.modules())[-1]
    assert isinstance(last, torch.nn.Linear)
    last.bias.add_(torch.tensor([4.0, -1.0]))  # so that q is not p(Z), without being much narrower
    exact = quadrature(model).double()
    found = bound(model, short(2000), 5, torch.Generator().manual_seed(0))
    log_w = (found.log_p_X - found.kl_Z).view(2, 10000)
    gap, error = exact - log_w.mean(1), log_w.std(1) / math.sqrt(10000)
    assert bool((gap > 5 * error).all())  # the KL of q from the posterior
    # The weights' mean is p(X), within five of its standard errors (two stories: false alarm below 1e-5).
    weights = (log_w - exact[:, None]).exp()
    assert ((weights.mean(1) - 1) / (weights.std(1) / math.sqrt(10000))).abs().max() < 5


def test_the_law_of_Z_sums_over_every_path_of_states(tmp_path: Path) -> None:
    model, Z = make(tmp_path, 2, 0.0), torch.randn(2, 2, 2)
    total = torch.full((2,), float("-inf"))
    for a in range(3):
        for b in range(3):
            eye = torch.eye(6)
            first = model.dynamics(torch.zeros(2, 2), eye[3 + a].expand(2, -1)).log_prob(Z[:, 0])
            second = model.dynamics(Z[:, 0], eye[b].expand(2, -1)).log_prob(Z[:, 1])
            total = torch.logaddexp(total, P_INITIAL[a].log() + P_NEXT[a, b].log() + first + second)
    torch.testing.assert_close(model.log_p_Z(Z, torch.ones(2, 2, dtype=torch.bool)), total)


def test_maximum_likelihood_finds_the_dynamics_that_drew_Z() -> None:
    torch.manual_seed(0)
    true, found = DiagonalDynamics(2, 2), DiagonalDynamics(2, 2)
    z, Z = torch.zeros(20000, 2), []
    states = torch.tensor([1, 0, 0]).expand(20000, -1)
    with torch.no_grad():
        for i in range(3):
            z = true(z, torch.eye(2)[states[:, i]]).rsample(torch.randn(20000, 2))
            Z.append(z)
    fit_dynamics(found, torch.stack(Z, 1), states)
    # 40,000 steps: standard errors below 0.01.
    torch.testing.assert_close(found.A[0], true.A[0], atol=0.05, rtol=0)
    torch.testing.assert_close(found.bias, true.bias, atol=0.05, rtol=0)
    torch.testing.assert_close(found.log_B, true.log_B, atol=0.05, rtol=0)


def test_fixed_potentials_are_the_features_and_say_nothing_at_precision_0() -> None:
    phi = FixedPotentials(torch.eye(6)[:, :2], 4.0)(features())
    torch.testing.assert_close(phi.mean, features()[..., :2])
    assert float(phi.precision.min()) == pytest.approx(4.0)
    assert not FixedPotentials(torch.eye(6)[:, :2], 0.0)(features()).precision.any()
