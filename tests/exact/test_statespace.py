"""The state space as a library against dense joint Gaussians and brute force, in float64."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from fabula import statespace
from fabula.errors import UserError
from fabula.statespace import Information, LinearGaussian, RecurrentChain, SwitchingLDS, chain
from fabula.statespace.samplers import State, draw_Z
from numbers_model import random_system

D, E, N = 2, 3, 5
LENGTHS = torch.tensor([5, 5, 3])


def data(model: SwitchingLDS) -> tuple[Tensor, Tensor]:
    """Three sequences, one with missing steps, one shorter; and their states."""
    S, _, X = model.sample(N, 3, torch.Generator().manual_seed(3))
    X[1, [0, 3]] = float("nan")
    X[2, 3:] = 99.0  # behind the end: never read
    return X, S


def dense(model: SwitchingLDS, S: list[int], X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and covariance of Z given X, and log p(X), from the joint covariance of Z and X; NaN is missing."""
    n, first = len(S), model.dynamics.initial
    mean, covariance = torch.zeros(n * D).double(), torch.zeros(n * D, n * D).double()
    for i, s in enumerate(S):
        here, before, past = slice(i * D, (i + 1) * D), slice((i - 1) * D, i * D), slice(0, i * D)
        step = first if i == 0 and first is not None else model.dynamics
        mean[here], covariance[here, here] = step.bias[s], step.Sigma()[s]
        if i:
            A = step.A[s]
            mean[here] += A @ mean[before]
            covariance[here, here] += A @ covariance[before, before] @ A.T
            covariance[here, past] = A @ covariance[before, past]
            covariance[past, here] = covariance[here, past].T
    C, d, R = model.emissions.A[0], model.emissions.bias[0], model.emissions.Sigma()[0]
    seen = [i for i in range(n) if not bool(X[i].isnan().any())]
    if not seen:
        return mean, covariance, torch.zeros(()).double()
    wide = torch.zeros(len(seen) * E, n * D).double()
    for row, i in enumerate(seen):
        wide[row * E : (row + 1) * E, i * D : (i + 1) * D] = C
    noise = torch.block_diag(*[R] * len(seen))
    p_X = MultivariateNormal(wide @ mean + d.repeat(len(seen)), wide @ covariance @ wide.T + noise)
    x = X[seen].flatten()
    gain = torch.linalg.solve(p_X.covariance_matrix, wide @ covariance).T
    return mean + gain @ (x - p_X.mean), covariance - gain @ wide @ covariance, p_X.log_prob(x)


@pytest.mark.parametrize("initial", [False, True], ids=["Z_0 = 0", "p(Z_1) given"])
@pytest.mark.parametrize("full", [False, True], ids=["diagonal B", "full B"])
def test_posterior_of_Z_is_the_dense_one(full: bool, initial: bool) -> None:
    """Smoothed and filtered moments, cross-covariances, evidence and density; missing steps and unequal lengths."""
    model = random_system(3, D, E, full=full, initial=initial).requires_grad_(False)
    X, S = data(model)
    posterior = model.posterior(X, lengths=LENGTHS, S=S)
    smoothed, filtered = posterior.marginals(), posterior.filter()
    assert smoothed.cross is not None
    for row, n in enumerate(LENGTHS.tolist()):
        mean, covariance, log_p = dense(model, S[row, :n].tolist(), X[row, :n])
        blocks = covariance.view(n, D, n, D)
        torch.testing.assert_close(posterior.log_evidence[row], log_p, rtol=0, atol=1e-10)
        torch.testing.assert_close(smoothed.mean[row, :n].flatten(), mean, rtol=0, atol=1e-10)
        torch.testing.assert_close(posterior.mean()[row, :n].flatten(), mean, rtol=0, atol=1e-10)
        for i in range(n):
            torch.testing.assert_close(smoothed.covariance[row, i], blocks[i, :, i], rtol=0, atol=1e-10)
            if i + 1 < n:
                torch.testing.assert_close(smoothed.cross[row, i], blocks[i, :, i + 1], rtol=0, atol=1e-10)
            past = dense(model, S[row, : i + 1].tolist(), X[row, : i + 1])
            torch.testing.assert_close(filtered.mean[row, i], past[0][-D:], rtol=0, atol=1e-9)
            torch.testing.assert_close(filtered.covariance[row, i], past[1][-D:, -D:], rtol=0, atol=1e-9)
        noise = torch.randn(3, 2, N, D).double()
        Z = posterior.sample(noise)[row, :, :n].flatten(1)
        expected = MultivariateNormal(mean, covariance).log_prob(Z)
        torch.testing.assert_close(posterior.log_density(noise)[row], expected, rtol=0, atol=1e-9)


def test_soft_states_mix_full_covariances() -> None:
    """A corner of the simplex is the hard state; halves mix A, bias and Sigma, not B."""
    model = random_system(2, D, E, full=True).requires_grad_(False)
    X, S = data(model)
    target, moves = model.target(X, lengths=LENGTHS), model.dynamics
    mixed = LinearGaussian.of(moves.A.mean(0), moves.bias.mean(0), moves.Sigma().mean(0))
    corner = torch.nn.functional.one_hot(S, 2).double()
    for soft, dynamics, hard in ((corner, moves, S), (torch.full_like(corner, 0.5), mixed, S * 0)):
        ours, expected = chain(moves, soft, *target[2:4]), chain(dynamics, hard, *target[2:4])
        torch.testing.assert_close(ours.log_evidence, expected.log_evidence)


def test_gradients_of_the_evidence() -> None:
    """gradcheck with respect to X and every parameter of dynamics, initial distribution and emissions."""
    model = random_system(2, D, E, full=True, initial=True)
    X, S = data(model)
    seen = torch.where(X.isnan(), 0.0, X).requires_grad_()

    def log_p(x: Tensor, *_: Tensor) -> Tensor:
        return model.posterior(x, observed=~X.isnan().any(-1), lengths=LENGTHS, S=S).log_evidence

    # gradcheck changes its inputs in place, so the parameters that `posterior` reads change with them.
    assert torch.autograd.gradcheck(log_p, (seen, *(p for p in model.parameters() if p.numel())))


def test_a_matrix_that_is_not_positive_definite_is_an_error() -> None:
    """Its place is named; before, `cholesky_ex`'s factor was used whatever its verdict."""
    model = random_system(1, D, E).requires_grad_(False)
    X, S = data(model)
    target = model.target(X)
    J = target.phi.J.clone()
    J[1, 2] = -100 * torch.eye(D)
    with pytest.raises(UserError, match=r"the precision of Z_i \(row, step\) is not positive definite.*at \(1, 2\)"):
        chain(model.dynamics, S, target.phi._replace(J=J), target.present)
    with pytest.raises(UserError, match="a covariance is not positive definite"):
        LinearGaussian.of(torch.eye(2), torch.zeros(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(UserError, match="needs S"):
        random_system(2, D, E).posterior(X)


@pytest.mark.parametrize("recurrent", [False, True])
def test_viterbi_and_recurrent_recursions_are_those_over_all_paths(recurrent: bool) -> None:
    """The likeliest path, and log sum_S p(S | Z) p(Z | S), with every step's transitions depending on Z."""
    model = random_system(3, D, E, recurrent=recurrent).requires_grad_(False)
    _, Z, _ = model.sample(4, 2, torch.Generator().manual_seed(1))
    present = torch.tensor([[True] * 4, [True, True, False, False]])
    evidence, transitions = model.dynamics.log_prob_steps(Z), model.switches.transitions(Z)
    best = model.switches.viterbi(evidence, present, transitions)
    marginal = model.switches.log_marginal(evidence, present, transitions)
    for row, n in enumerate((4, 2)):
        every = list(itertools.product(range(3), repeat=n))
        log_p = []
        for path in every:
            value = model.switches.initial()[path[0]] + evidence[row, 0, path[0]]
            for i in range(1, n):
                logits = model.switches.log_transition[path[i - 1]]
                if isinstance(model.switches, RecurrentChain):
                    logits = logits + model.switches.weight @ Z[row, i - 1]
                value = value + logits.log_softmax(-1)[path[i]] + evidence[row, i, path[i]]
            log_p.append(value)
        table = torch.stack(log_p)
        assert best[row, :n].tolist() == list(every[int(table.argmax())])
        torch.testing.assert_close(marginal[row], table.logsumexp(0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("initial", [False, True])
def test_em_does_not_lower_the_evidence(initial: bool) -> None:
    """With missing steps and unequal lengths; M steps with a wrong product soon do."""
    model = random_system(1, D, E, full=True, initial=True)
    X = model.sample(40, 6, torch.Generator().manual_seed(0))[2]
    X[:, ::7] = float("nan")
    lengths = torch.tensor([40, 40, 30, 40, 20, 40])
    other = random_system(1, D, E, full=True, initial=initial, seed=5)
    values = torch.stack([statespace.em_step(other, X, lengths=lengths) for _ in range(20)])
    assert (values.diff() > -1e-9).all()
    assert values[-1] - values[0] > 10


def test_the_laplace_approximation_of_a_gaussian_is_the_gaussian() -> None:
    generator = torch.Generator().manual_seed(0)
    J = torch.randn(2, 4, D, D, generator=generator).double()
    phi = Information(J @ J.mT, torch.randn(2, 4, D, generator=generator).double(), torch.ones(2, 4).double())
    for ours, exact in zip(statespace.laplace(phi.log, torch.randn(2, 4, D).double()), phi, strict=True):
        torch.testing.assert_close(ours, exact, rtol=0, atol=1e-10)


def test_a_likelihood_beside_phi_is_sampled_exactly_where_it_is_gaussian() -> None:
    """The emissions as a plain log-likelihood: the Laplace Gaussian is then exact, and the slice takes any angle."""
    model = random_system(2, D, E).requires_grad_(False)
    X, S = data(model)
    target = model.target(X, lengths=LENGTHS)
    silent = target.phi.where(torch.zeros_like(target.present))
    by_function = target._replace(phi=silent, log_likelihood=lambda Z, rows: target.phi.rows(rows).log(Z))
    q, tilt = statespace.samplers.condition(by_function, S)
    assert tilt is not None
    exact = chain(model.dynamics, S, target.phi, target.present)
    torch.testing.assert_close(q.log_evidence, exact.log_evidence, rtol=0, atol=1e-9)
    Z, generator = q.mean(), torch.Generator().manual_seed(0)
    assert not torch.equal(draw_Z(by_function, S, Z, generator), Z)
    torch.testing.assert_close(by_function.log_joint(S, Z), target.log_joint(S, Z), rtol=0, atol=1e-9)


def test_diagnostics_know_good_chains_from_bad() -> None:
    generator = torch.Generator().manual_seed(0)
    free = torch.randn(400, 8, 3, 1, generator=generator)
    slow = free.cumsum(0) / 10
    zero = torch.zeros(400, 8)
    good = statespace.diagnose(State(zero, free, zero), chains=4)
    bad = statespace.diagnose(State(zero, slow, zero), chains=4)
    assert good["r_hat"].shape == (2, 3, 1)
    assert good["r_hat"].max() < 1.05 < 1.3 < bad["r_hat"].max()
    assert good["size"].min() > 800 > 100 > bad["size"].max()
    assert good["weighted_size"].tolist() == pytest.approx([1600, 1600])


def test_float32_agrees_with_float64_and_one_row_with_many() -> None:
    model = random_system(3, D, E, full=True, initial=True).requires_grad_(False)
    X, S = data(model)
    double = model.posterior(X, lengths=LENGTHS, S=S)
    single = model.float().posterior(X.float(), lengths=LENGTHS, S=S)
    assert single.log_evidence.dtype == torch.float32
    torch.testing.assert_close(single.log_evidence.double(), double.log_evidence, rtol=1e-4, atol=1e-4)
    alone = model.posterior(X[2:, :3].float(), S=S[2:, :3])
    torch.testing.assert_close(alone.mean()[0], single.mean()[2, :3])


def test_the_page_s_example_runs_with_torch_and_numpy_alone() -> None:
    refuse = """
import sys
import torch
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "torch", "numpy", "fabula"}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
sys.modules.pop("jaxtyping", None)
"""
    page = (Path(__file__).parents[2] / "docs" / "statespace.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    ended = subprocess.run([sys.executable, "-c", refuse + example], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "torch.Size([8, 100, 2, 2]) torch.Size([8, 100, 2])" in ended.stdout
