"""A linear-Gaussian stand-in for text: the Z sweep leaves its known posterior invariant, smc draws from it.

Sentences are vectors, X_i ~ N(Z_i, R), so phi_i is the likelihood itself and everything is jointly Gaussian given S.
Chains are independent, so their states are i.i.d. and z-tests are honest.
"""

import itertools

import pytest
import torch
from torch import Tensor

from fabula.sampling import latents
from fabula.sampling.gibbs import LatentConditional, draw_free_tags, sweep_Z
from fabula.sampling.noise import Noise, seeded
from fabula.statespace import samplers as tag_paths
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.gaussian import Potential
from fabula.statespace.markov import MarkovChain
from small import perturbed, prior_of, small_model

D, K, N, CHAINS = 2, 2, 4, 20_000
R = torch.tensor([0.5, 0.8])
GIVEN = torch.tensor([True, False, False, True])


def parts() -> tuple[MarkovChain, LinearGaussian, Tensor]:
    torch.manual_seed(5)
    scaffold = MarkovChain(torch.tensor([0.6, 0.4]), torch.tensor([[0.7, 0.3], [0.2, 0.8]]))
    moves = perturbed(LinearGaussian(K, D).requires_grad_(False), 0.4)
    return scaffold, moves, torch.randn(N, D)


def evidence(X: Tensor, known: Tensor) -> Potential:
    return Potential(X, (1 / R).expand_as(X)).where(known)


def exact(moves: LinearGaussian, S: tuple[int, ...], X: Tensor) -> tuple[Tensor, Tensor, float]:
    """Mean and covariance of Z given S and the given sentences, and log p(the given sentences | S)."""
    mean, covariance = prior_of(moves, S)
    seen = GIVEN.repeat_interleave(D).nonzero().squeeze(1)
    noise = torch.diag(R.double().repeat(int(GIVEN.sum())))
    inner = covariance[seen][:, seen] + noise
    gain = torch.linalg.solve(inner, covariance[seen]).T
    residual = X[GIVEN].flatten().double() - mean[seen]
    log_p = -0.5 * (
        residual @ torch.linalg.solve(inner, residual) + torch.linalg.slogdet(2 * torch.pi * inner).logabsdet
    )
    return mean + gain @ residual, covariance - gain @ covariance[seen], float(log_p)


def worst_z_score(draws: Tensor, mean: Tensor, second: Tensor) -> float:
    """Of all means and all second moments, against their exact values, in standard errors."""
    draws = draws.double()
    products = torch.einsum("ni,nj->nij", draws, draws).flatten(1)
    found = torch.cat([draws, products], 1)
    truth = torch.cat([mean, second.flatten()])
    return float(((found.mean(0) - truth) / (found.std(0) / len(draws) ** 0.5)).abs().max())


def test_sweep_with_a_sampled_X_step_leaves_the_exact_posterior_invariant() -> None:
    """20,000 independent chains begin in the posterior of (Z, missing X) and are swept three times.

    72 figures at 5 standard errors: a false alarm in less than 5e-5 of all seeds.
    """
    _, moves, X = parts()
    S = (0, 1, 1, 0)
    mean, covariance, _ = exact(moves, S, X)
    generator = torch.Generator().manual_seed(0)
    root = torch.linalg.cholesky(covariance)
    Z = (mean + torch.randn(CHAINS, N * D, generator=generator).double() @ root.T).float().view(CHAINS, N, D)
    conditional = LatentConditional(moves)
    tags, present = torch.tensor(S).expand(CHAINS, N), torch.ones(CHAINS, N, dtype=torch.bool)

    def written(Z: Tensor) -> Tensor:
        drawn = Z + R.sqrt() * torch.randn(Z.shape, generator=generator)
        return torch.where(GIVEN[:, None], X.expand_as(Z), drawn)

    text = written(Z)
    for _ in range(3):
        phi = evidence(text, torch.ones(CHAINS, N, dtype=torch.bool))
        Z = sweep_Z(conditional, Z, tags, phi, present, torch.randn(Z.shape, generator=generator))
        text = written(Z)
    assert worst_z_score(Z.flatten(1), mean, covariance + torch.outer(mean, mean)) < 5


@pytest.mark.parametrize("way", ["enumerated", "sampled"])
def test_smc_draws_from_the_exact_posterior(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S free, Z free, two sentences given: 20,000 joint draws against the mixture over all 16 tag paths.

    72 moments of Z and 4 of S at 5 standard errors: a false alarm in less than 5e-5 of all seeds. Sampled
    paths are three times as many as the draws, and worth more than 50,000: that makes the error larger by a fifth.
    """
    if way == "sampled":
        monkeypatch.setattr(tag_paths, "MAX_PATHS", 1)
        monkeypatch.setattr(latents, "WAVE", CHAINS)
    most = 5 if way == "enumerated" else 6
    scaffold, moves, X = parts()
    free = torch.ones(1, N, K, dtype=torch.bool)
    phi = evidence(X[None], GIVEN[None])
    noise = Noise([seeded(11)], [N], CHAINS, "cpu")
    drawn = latents.draw_latents(scaffold, moves, free, phi, torch.ones(1, N, dtype=torch.bool), noise)
    weights, means, seconds, tags = [], [], [], []
    for S in itertools.product(range(K), repeat=N):
        mean, covariance, log_p = exact(moves, S, X)
        log_S = scaffold.initial()[S[0]] + sum(scaffold.transition()[a, b] for a, b in itertools.pairwise(S))
        weights.append(float(log_S) + log_p)
        means.append(mean)
        seconds.append(covariance + torch.outer(mean, mean))
        tags.append(torch.tensor(S).double())
    w = torch.tensor(weights).double().softmax(0)
    mean = torch.einsum("p,pi->i", w, torch.stack(means))
    second = torch.einsum("p,pij->ij", w, torch.stack(seconds))
    assert worst_z_score(drawn.Z.flatten(1), mean, second) < most
    p_one = torch.einsum("p,pi->i", w, torch.stack(tags))
    error = (p_one * (1 - p_one) / CHAINS).sqrt()
    assert float(((drawn.S.double().mean(0) - p_one) / error).abs().max()) < most
    assert drawn.tag_ess.isnan().item() == (way == "enumerated")
    assert way == "enumerated" or float(drawn.tag_ess) > 50_000


def test_gibbs_leaves_the_mode_of_free_tags_that_it_begins_in() -> None:
    """Two modes, all tags 0 or all 1, with dynamics so far apart that Z determines S. All chains begin in the first.

    Z by Eq. (1) and S from p(S | Z) in turn never leave it. Drawn jointly, one step has the exact frequencies of all 16
    paths: 16 figures at 5 standard errors, a false alarm in less than 1e-5 of all seeds.
    """
    model = small_model(words=30, p_initial=[0.6, 0.4], p_next=[[0.9, 0.1], [0.1, 0.9]], dynamics={"latent": D})
    far = torch.tensor([[3.0, 3.0], [-3.0, -3.0]])
    model.requires_grad_(False).dynamics.assign(torch.zeros(K, D, D), far, 0.1 * torch.eye(D).expand(K, D, D))
    weak = Potential(torch.full((CHAINS, N, D), 0.1), torch.full((CHAINS, N, D), 0.05))
    present, free = torch.ones(CHAINS, N, dtype=torch.bool), torch.ones(CHAINS, N, K, dtype=torch.bool)
    S = torch.zeros(CHAINS, N, dtype=torch.int64)
    noise = Noise([seeded(3)], [N], CHAINS, "cpu")
    Z = far[0] + 0.3 * noise.normal(D)
    stuck_S, stuck_Z = S, Z
    for _ in range(20):
        stuck_Z = sweep_Z(LatentConditional(model.dynamics), stuck_Z, stuck_S, weak, present, noise.normal(D))
        stuck_S = model.scaffold.sample(model.dynamics.log_prob_steps(stuck_Z), present, noise.uniform())
    assert not stuck_S.any()
    S, Z = draw_free_tags(model, S, Z, free, weak, present, noise)
    weights = []
    for path in itertools.product(range(K), repeat=N):
        mean, covariance = prior_of(model.dynamics, path)
        mixed = torch.eye(N * D).double() + 0.05 * covariance
        distance = 0.1 - mean
        log_E = -0.5 * (torch.linalg.slogdet(mixed).logabsdet + 0.05 * distance @ torch.linalg.solve(mixed, distance))
        weights.append(float(log_E + model.scaffold.log_prob(torch.tensor([path]), present[:1])))
    p = torch.tensor(weights).double().softmax(0)
    assert p[-1] > 0.2  # the mode that chains did not begin in
    frequency = torch.bincount(S @ torch.tensor([8, 4, 2, 1]), minlength=16) / CHAINS
    assert float(((frequency - p) / (p * (1 - p) / CHAINS).sqrt()).abs().max()) < 5
    assert (Z.sign() == far[S].sign()).all()
