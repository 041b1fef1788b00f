"""Tag paths and their weights against dense Gaussian integrals, and the resampling."""

import itertools

import pytest
import torch
from torch import Tensor

from fabula.sampling import latents
from fabula.sampling.noise import seeded
from fabula.statespace import samplers as tag_paths
from fabula.statespace.diagnostics import effective_size, systematic
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.gaussian import Potential
from fabula.statespace.markov import MarkovChain, allowed_states
from small import perturbed, prior_of

D, K, N = 2, 3, 4


def parts() -> tuple[MarkovChain, LinearGaussian, Potential]:
    torch.manual_seed(2)
    p_next = torch.rand(K, K) + 0.1
    scaffold = MarkovChain(torch.tensor([0.5, 0.3, 0.2]), p_next / p_next.sum(1, keepdim=True)).double()
    moves = perturbed(LinearGaussian(K, D).double().requires_grad_(False), 0.4)
    phi = Potential(torch.randn(N, D).double(), 2 * torch.rand(N, D).double())
    phi.precision[1] = 0
    return scaffold, moves, phi


def dense_log_evidence(moves: LinearGaussian, S: list[int], phi: Potential) -> Tensor:
    """log of the integral of p(Z | S) phi(Z), from the joint covariance of all of Z."""
    mean, covariance = prior_of(moves, S)
    W = torch.diag(phi.precision.flatten())
    residual = phi.mean.flatten() - mean
    # E exp(-(z - m)^T W (z - m) / 2) under N(mean, C) = |I + C W|^-1/2 exp(-r^T W (I + C W)^-1 r / 2)
    mixed = torch.eye(N * D).double() + covariance @ W
    quadratic: Tensor = residual @ W @ torch.linalg.solve(mixed, residual)
    log_det: Tensor = torch.linalg.slogdet(mixed).logabsdet
    return -0.5 * (log_det + quadratic)


GIVEN = [(-1, -1, -1, -1), (2, -1, 0, -1), (1, 1, 0, 2), (-1, 0, -1, 1)]


def test_path_weights_are_the_exact_posterior_of_S() -> None:
    """Four stories at once, with 81, 9, 1 and 9 paths; stories of equally many share a table."""
    scaffold, moves, phi = parts()
    each = [phi, Potential(phi.mean + 1, phi.precision), phi, Potential(phi.mean.flip(0), phi.precision)]
    all_phi = Potential(torch.stack([p.mean for p in each]), torch.stack([p.precision for p in each]))
    S = torch.tensor(GIVEN)
    allowed = allowed_states(S, K)
    tables = latents.find_paths(scaffold, moves, allowed, all_phi, torch.ones_like(S, dtype=torch.bool), [])
    assert sorted(tuple(table.stories) for table in tables) == [(0,), (1, 3), (2,)]
    for table in tables:
        for row, story in enumerate(table.stories):
            paths = [tuple(path) for path in table.S[row].tolist()]
            assert len(set(paths)) == len(paths)
            assert set(paths) == {
                path
                for path in itertools.product(range(K), repeat=N)
                if all(g in (-1, s) for g, s in zip(GIVEN[story], path, strict=True))
            }
            expected = [log_p_path(scaffold, moves, path, each[story]) for path in paths]
            found = table.log_weights[row].log_softmax(0)
            assert torch.allclose(found, torch.tensor(expected).double().log_softmax(0), atol=1e-6)


def test_paths_run_over_the_states_that_are_allowed() -> None:
    """In the order of `itertools.product`, stories whose sentences differ in how much they leave open side by side."""
    scaffold, moves, phi = parts()
    states = [[[0, 2], [1], [0, 1, 2], [1]], [[1], [0, 1], [2], [0, 1, 2]], [[0, 1, 2], [0, 1], [1], [0, 1, 2]]]
    allowed = torch.tensor([[[k in each for k in range(K)] for each in story] for story in states])
    wide = Potential(phi.mean.expand(3, -1, -1), phi.precision.expand(3, -1, -1))
    present = torch.tensor([[True] * 4, [True] * 4, [True, True, True, False]])
    expected = [list(itertools.product(*story)) for story in states]
    expected[2] = [(*path, -1) for path in itertools.product(*states[2][:3])]
    (table,) = latents.find_paths(scaffold, moves, allowed, wide, present, [])
    assert table.stories == [0, 1, 2]
    for found, paths in zip(table.S.tolist(), expected, strict=True):
        assert [tuple(path) for path in found] == paths
    assert tag_paths.count_paths(allowed, present).tolist() == [6, 6, 6]


def log_p_path(scaffold: MarkovChain, moves: LinearGaussian, S: tuple[int, ...], phi: Potential) -> float:
    log_p = scaffold.initial()[S[0]] + sum(scaffold.transition()[a, b] for a, b in itertools.pairwise(S))
    return float(log_p + dense_log_evidence(moves, list(S), phi))


def test_path_weights_do_not_depend_on_where_the_job_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    scaffold, moves, phi = parts()
    allowed = allowed_states(torch.tensor(GIVEN), K)
    present = torch.tensor([[True] * 4, [True] * 4, [True] * 4, [True, True, True, False]])
    wide = Potential(phi.mean.expand(4, -1, -1), phi.precision.expand(4, -1, -1))
    whole = latents.find_paths(scaffold, moves, allowed, wide, present, [])
    monkeypatch.setattr(tag_paths, "MATRICES_AT_ONCE", 6 * N * D * D * 5)
    for a, b in zip(whole, latents.find_paths(scaffold, moves, allowed, wide, present, []), strict=True):
        assert torch.allclose(a.log_weights, b.log_weights, atol=1e-12)
    for story in range(4):
        one = slice(story, story + 1)
        (alone,) = latents.find_paths(
            scaffold, moves, allowed[one], Potential(wide.mean[one], wide.precision[one]), present[one], []
        )
        (table,) = (table for table in whole if story in table.stories)
        assert torch.allclose(alone.log_weights[0], table.log_weights[table.stories.index(story)], atol=1e-12)


def many_states(noise_scale: float) -> tuple[MarkovChain, LinearGaussian, Potential]:
    """24 states over three sentences, 13,824 paths; with little noise Z all but determines S."""
    torch.manual_seed(5)
    p_next = torch.rand(24, 24) ** 3
    scaffold = MarkovChain(torch.rand(24).softmax(0), p_next / p_next.sum(1, keepdim=True)).double()
    moves = LinearGaussian(24, D).double().requires_grad_(False)
    for name, parameter in moves.named_parameters():
        parameter.add_(noise_scale if name == "log_B" else 0.5 * torch.randn_like(parameter))
    phi = Potential(
        torch.randn(1, 3, D).double(), torch.tensor([1.0, 0.0, 4.0]).double()[None, :, None].expand(1, 3, D)
    )
    return scaffold, moves, phi


@pytest.mark.parametrize("noise_scale", [0.0, -1.5], ids=["much noise", "little noise"])
def test_sampled_paths_have_the_enumerated_posterior(noise_scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marginals of 64 independent runs of 729 paths against all 13,824: the mean of each at 6 standard errors, plus
    .004 for the bias of weights that are normalised (it falls with the number of paths; false alarm below 2e-7)."""
    scaffold, moves, phi = many_states(noise_scale)
    present, free = torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 3, 24, dtype=torch.bool)
    free[0, 0, 12:] = False
    with monkeypatch.context() as patch:
        patch.setattr(tag_paths, "MAX_PATHS", 24**3)
        (every,) = latents.find_paths(scaffold, moves, free, phi, present, [])
    assert not every.sampled
    assert every.S.shape[1] == 12 * 24 * 24
    runs = 64
    (some,) = latents.find_paths(
        scaffold, moves, free.expand(runs, -1, -1), Potential(*(t.expand(runs, -1, -1) for t in phi)),
        present.expand(runs, -1), [seeded(n) for n in range(runs)],
    )  # fmt: skip
    assert some.sampled
    assert some.S.shape[1] == latents.WAVES * latents.WAVE

    def marginals(paths: latents.Paths) -> Tensor:
        states = torch.nn.functional.one_hot(paths.S, 24).double()
        return torch.einsum("np,npik->nik", paths.log_weights.softmax(1), states)

    exact, found = marginals(every)[0], marginals(some)
    error = (found.std(0) / runs**0.5).clamp(min=1e-6)
    assert (found.mean(0) - exact).abs().le(6 * error + 0.004).all()
    assert not found[:, 0, 12:].any()
    # What is learnt is worth it: as many paths from the prior alone are worth less.
    monkeypatch.setattr(latents, "WAVES", 1)
    monkeypatch.setattr(latents, "WAVE", some.S.shape[1])
    (of_prior,) = latents.find_paths(scaffold, moves, free, phi, present, [seeded(99)])
    gain = effective_size(some.log_weights).mean() / effective_size(of_prior.log_weights)[0]
    assert gain > (1.3 if noise_scale else 1.0)


def test_sampled_paths_do_not_depend_on_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    scaffold, moves, phi = parts()
    monkeypatch.setattr(tag_paths, "MAX_PATHS", 1)
    present = torch.tensor([[True] * 4, [True, True, True, False]])
    allowed = torch.ones(2, 4, K, dtype=torch.bool)
    both = Potential(phi.mean.expand(2, -1, -1), phi.precision.expand(2, -1, -1))
    (pair,) = latents.find_paths(scaffold, moves, allowed, both, present, [seeded(3), seeded(4)])
    short = Potential(both.mean[1:, :3], both.precision[1:, :3])
    (alone,) = latents.find_paths(scaffold, moves, allowed[1:, :3], short, present[1:, :3], [seeded(4)])
    assert torch.equal(pair.S[1, :, :3], alone.S[0])
    assert (pair.S[1, :, 3] == -1).all()
    assert torch.allclose(pair.log_weights[1], alone.log_weights[0], atol=1e-9)


def test_systematic_resampling_copies_in_proportion() -> None:
    """Particle p has floor or ceil of P w_p children."""
    log_weights = torch.randn(20, 50, generator=torch.Generator().manual_seed(0)) * 2
    parents = systematic(log_weights, torch.rand(20, generator=torch.Generator().manual_seed(1)))
    children = torch.nn.functional.one_hot(parents, 50).sum(1)
    expected = 50 * log_weights.softmax(-1)
    assert (children >= (expected - 1e-4).floor()).all()
    assert (children <= (expected + 1e-4).ceil()).all()
