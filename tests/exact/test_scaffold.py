"""The scaffold's recursions against brute force over every path of S."""

import itertools

import pytest
import torch

from fabula.corpus.states import UNKNOWN
from fabula.statespace.markov import MarkovChain, allowed_states, clamp

K, N = 3, 4


@pytest.fixture
def scaffold() -> MarkovChain:
    torch.manual_seed(0)
    return MarkovChain(torch.rand(K).softmax(-1), torch.rand(K, K).softmax(-1)).double()


def paths(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(K), repeat=n))


def log_joint(scaffold: MarkovChain, evidence: torch.Tensor, path: tuple[int, ...]) -> torch.Tensor:
    initial, transition = scaffold.initial(), scaffold.transition()
    value = initial[path[0]] + evidence[0, path[0]]
    for i in range(1, len(path)):
        value = value + transition[path[i - 1], path[i]] + evidence[i, path[i]]
    return value


def present(lengths: list[int]) -> torch.Tensor:
    return torch.arange(N) < torch.tensor(lengths).unsqueeze(-1)


ALLOWED = {
    "all": [[0, 1, 2]] * N,
    "given in part": [[2], [0, 1, 2], [0], [0, 1, 2]],
    "given": [[0], [1], [2], [1]],
    "some states of each": [[0, 2], [0, 1, 2], [1, 2], [0, 1]],
}


def mask(states: list[list[int]]) -> torch.Tensor:
    return torch.tensor([[k in open_states for k in range(K)] for open_states in states])


@pytest.mark.parametrize("states", ALLOWED.values(), ids=ALLOWED)
def test_recursions_are_sums_over_all_allowed_paths(scaffold: MarkovChain, states: list[list[int]]) -> None:
    """log sum_S prod_i p(S_i|S_{i-1}) e_i(S_i), and p(S_i | e), for stories of 4 and of 2."""
    lengths = [N, 2]
    evidence = clamp(torch.randn(2, N, K, dtype=torch.float64), mask(states).expand(2, -1, -1))
    total = scaffold.log_marginal(evidence, present(lengths))
    shares = scaffold.posterior(evidence, present(lengths))
    for row, n in enumerate(lengths):
        left = list(itertools.product(*states[:n]))
        log_p = torch.stack([log_joint(scaffold, evidence[row], path) for path in left])
        torch.testing.assert_close(total[row], log_p.logsumexp(0), rtol=0, atol=1e-12)
        for i, k in itertools.product(range(n), range(K)):
            brute = sum(w for w, p in zip(log_p.softmax(0), left, strict=True) if p[i] == k)
            torch.testing.assert_close(shares[row, i, k], torch.as_tensor(brute).double(), rtol=0, atol=1e-12)


def test_a_tag_allows_itself_and_an_unknown_one_all() -> None:
    assert allowed_states(torch.tensor([1, UNKNOWN]), K).tolist() == [[False, True, False], [True] * 3]


def test_log_prob_of_a_path(scaffold: MarkovChain) -> None:
    S = torch.tensor([[0, 2, 1, 1], [1, 1, -1, -1]])
    zero = torch.zeros(N, K, dtype=torch.float64)
    ours = scaffold.log_prob(S, present([4, 2]))
    torch.testing.assert_close(ours[0], log_joint(scaffold, zero, (0, 2, 1, 1)), rtol=0, atol=1e-12)
    torch.testing.assert_close(ours[1], log_joint(scaffold, zero, (1, 1)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("states", [ALLOWED["all"], ALLOWED["some states of each"]], ids=["all", "some"])
def test_sampled_paths_follow_the_posterior(scaffold: MarkovChain, states: list[list[int]]) -> None:
    """20,000 exact draws of whole paths: 81 frequencies, |z| < 5.5 has a false-alarm rate below 4e-6."""
    generator = torch.Generator().manual_seed(3)
    evidence = clamp(torch.randn(1, N, K, dtype=torch.float64, generator=generator), mask(states)[None])
    evidence, uniform = evidence.expand(20_000, -1, -1), torch.rand(20_000, N, generator=generator)
    S = scaffold.sample(evidence, present([N]).expand(20_000, -1), uniform)
    weights = torch.stack([log_joint(scaffold, evidence[0], p) for p in paths(N)]).softmax(0)
    code = (S * K ** torch.arange(N - 1, -1, -1)).sum(-1)
    frequency = torch.bincount(code, minlength=K**N) / len(code)
    possible = weights > 0
    assert not frequency[~possible].any()
    z = (frequency - weights)[possible] / (weights * (1 - weights) / len(code)).sqrt()[possible]
    assert z.abs().max() < 5.5


def test_a_story_beside_longer_ones_is_sampled_as_it_is_alone(scaffold: MarkovChain) -> None:
    """Its own last sentence has its own random number: none are drawn behind its end."""
    generator = torch.Generator().manual_seed(4)
    evidence = torch.randn(500, N, K, dtype=torch.float64, generator=generator)
    uniform = torch.rand(500, N, generator=generator)
    alone = scaffold.sample(evidence[:, :2], present([N] * 500)[:, :2], uniform[:, :2])
    uniform[:, 2:] = 0
    beside = scaffold.sample(evidence, present([2] * 500), uniform)
    assert torch.equal(beside[:, :2], alone)


def test_gradient_of_the_recursion(scaffold: MarkovChain) -> None:
    evidence = torch.randn(2, N, K, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e: scaffold.log_marginal(e, present([4, 2])), (evidence,))
