"""The scaffold's recursions against brute force over every path of S."""

import itertools

import pytest
import torch

from fabula.models.scaffold import UNKNOWN, Scaffold

K, N = 3, 4


@pytest.fixture
def scaffold() -> Scaffold:
    torch.manual_seed(0)
    return Scaffold(torch.rand(K).softmax(-1), torch.rand(K, K).softmax(-1)).double()


def paths(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(K), repeat=n))


def log_joint(scaffold: Scaffold, evidence: torch.Tensor, path: tuple[int, ...]) -> torch.Tensor:
    initial, transition = scaffold.initial(), scaffold.transition()
    value = initial[path[0]] + evidence[0, path[0]]
    for i in range(1, len(path)):
        value = value + transition[path[i - 1], path[i]] + evidence[i, path[i]]
    return value


def present(lengths: list[int]) -> torch.Tensor:
    return torch.arange(N) < torch.tensor(lengths).unsqueeze(-1)


@pytest.mark.parametrize("known", [[-1, -1, -1, -1], [2, -1, 0, -1], [0, 1, 2, 1]])
def test_forward_recursion_is_the_sum_over_all_paths(scaffold: Scaffold, known: list[int]) -> None:
    """log sum_S prod_i p(S_i|S_{i-1}) e_i(S_i), S free, clamped in part and in whole, stories of 4 and of 2."""
    evidence = torch.randn(2, N, K, dtype=torch.float64)
    S = torch.tensor([known, known])
    lengths = [N, 2]
    ours = scaffold.log_marginal(scaffold.clamp(evidence, S), present(lengths))
    for row, n in enumerate(lengths):
        allowed = [p for p in paths(n) if all(k in (UNKNOWN, s) for k, s in zip(known[:n], p, strict=True))]
        brute = torch.logsumexp(torch.stack([log_joint(scaffold, evidence[row], p) for p in allowed]), 0)
        torch.testing.assert_close(ours[row], brute, rtol=0, atol=1e-12)


def test_posterior_is_the_enumerated_one(scaffold: Scaffold) -> None:
    evidence = torch.randn(2, N, K, dtype=torch.float64)
    lengths = [N, 3]
    ours = scaffold.posterior(evidence, present(lengths))
    for row, n in enumerate(lengths):
        weights = torch.stack([log_joint(scaffold, evidence[row], p) for p in paths(n)]).softmax(0)
        for i, k in itertools.product(range(n), range(K)):
            brute = sum(w for w, p in zip(weights, paths(n), strict=True) if p[i] == k)
            torch.testing.assert_close(ours[row, i, k], brute, rtol=0, atol=1e-12)


def test_log_prob_of_a_path(scaffold: Scaffold) -> None:
    S = torch.tensor([[0, 2, 1, 1], [1, 1, -1, -1]])
    zero = torch.zeros(N, K, dtype=torch.float64)
    ours = scaffold.log_prob(S, present([4, 2]))
    torch.testing.assert_close(ours[0], log_joint(scaffold, zero, (0, 2, 1, 1)), rtol=0, atol=1e-12)
    torch.testing.assert_close(ours[1], log_joint(scaffold, zero, (1, 1)), rtol=0, atol=1e-12)


def test_sampled_paths_follow_the_posterior(scaffold: Scaffold) -> None:
    """20,000 exact draws of whole paths: 81 frequencies, |z| < 5.5 has a false-alarm rate below 4e-6."""
    evidence = torch.randn(1, N, K, dtype=torch.float64).expand(20_000, -1, -1)
    S = scaffold.sample(evidence, present([N]).expand(20_000, -1), torch.Generator().manual_seed(3))
    weights = torch.stack([log_joint(scaffold, evidence[0], p) for p in paths(N)]).softmax(0)
    code = (S * K ** torch.arange(N - 1, -1, -1)).sum(-1)
    frequency = torch.bincount(code, minlength=K**N) / len(code)
    z = (frequency - weights) / (weights * (1 - weights) / len(code)).sqrt()
    assert z.abs().max() < 5.5


def test_gradient_of_the_recursion(scaffold: Scaffold) -> None:
    evidence = torch.randn(2, N, K, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e: scaffold.log_marginal(e, present([4, 2])), (evidence,))
