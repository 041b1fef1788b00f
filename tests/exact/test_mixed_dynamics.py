"""Dynamics composed of primitives, and states whose factors are known in part: against the paper's and enumeration."""

import itertools
from typing import Any

import pytest
import torch
from torch.distributions import Normal

from fabula.corpus.states import Factor, StateSpace
from fabula.errors import UserError
from fabula.models.build import build
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.statespace.dynamics import LinearGaussian, MixedLinearGaussian
from fabula.statespace.markov import MarkovChain, clamp
from small import perturbed

SIZES, D, N = (2, 3), 4, 3
K = 6
SPACE = StateSpace((Factor("a", ("0", "1")), Factor("b", ("0", "1", "2"))))


@pytest.fixture
def mixed() -> MixedLinearGaussian:
    torch.manual_seed(0)
    return perturbed(MixedLinearGaussian(SIZES, D, primitives=4, rank=2).double(), 0.3).requires_grad_(False)


def test_with_one_factor_and_a_primitive_for_each_state_it_is_the_plain_model() -> None:
    """Exactly, in densities and in gradients."""
    torch.manual_seed(0)
    plain, made = LinearGaussian(3, D).double(), MixedLinearGaussian([3], D, primitives=3, rank=0).double()
    with torch.no_grad():
        plain.log_B.add_(0.3 * torch.randn_like(plain.log_B))
        made.points[0].copy_(1000 * torch.eye(3))  # corners of the simplex, to the last bit
        made.a.zero_()
        made.U.copy_(plain.A)
        made.b.copy_(plain.bias)
        made.log_B.copy_(plain.log_B)
    z_prev, z, s = torch.randn(5, D).double(), torch.randn(5, D).double(), torch.rand(5, 3).double().softmax(-1)
    for law in (plain, made):
        (law.log_prob_each(z_prev, z).sum() + law(z_prev, s).log_prob(z).sum()).backward()
    assert torch.equal(plain.A, made.A)
    assert torch.equal(plain.log_prob_each(z_prev, z), made.log_prob_each(z_prev, z))
    torch.testing.assert_close(made.U.grad, plain.A.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(made.log_B.grad, plain.log_B.grad, rtol=0, atol=1e-12)


def law_of(mixed: MixedLinearGaussian, values: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """A, bias and variance of a state by its definition, factor by factor."""
    A, b, v = torch.zeros(D, D).double(), torch.zeros(D).double(), torch.zeros(D).double()
    for f, value in enumerate(values):
        w = mixed.points[f][value].softmax(0) / len(values)
        for r in range(4):
            assert mixed.V is not None
            A += w[r] * (torch.diag(mixed.a[r]) + mixed.U[r] @ mixed.V[r].T)
            b += w[r] * mixed.b[r]
            v += w[r] * (2 * mixed.log_B[r]).exp()
    return A, b, v


@pytest.mark.parametrize("known", [[(-1, -1), (1, -1), (-1, 2)], [(0, 1), (-1, -1), (-1, -1)], [(-1, 0)] * 3])
def test_the_sum_over_the_product_is_the_sum_over_all_paths(
    mixed: MixedLinearGaussian, known: list[tuple[int, int]]
) -> None:
    """log sum_S p(S) p(Z | S) over the states that partly known tags leave, against their enumeration."""
    torch.manual_seed(1)
    p_initial, p_next = torch.rand(K).softmax(0), torch.rand(K, K).softmax(1)
    scaffold, Z = MarkovChain(p_initial, p_next).double(), torch.randn(1, N, D).double()
    earlier = torch.cat([torch.zeros(1, 1, D).double(), Z[:, :-1]], 1)
    evidence = clamp(mixed.log_prob_each(earlier, Z), torch.from_numpy(SPACE.allowed([known])))
    found = scaffold.log_marginal(evidence, torch.ones(1, N, dtype=torch.bool))
    paths = []
    for path in itertools.product(list(itertools.product(range(2), range(3))), repeat=N):
        if any(
            w not in (-1, v) for want, have in zip(known, path, strict=True) for w, v in zip(want, have, strict=True)
        ):
            continue
        states = [a * 3 + b for a, b in path]
        log_p = scaffold.log_initial[states[0]] + sum(
            scaffold.log_transition[before, after] for before, after in itertools.pairwise(states)
        )
        z = torch.zeros(D).double()
        for i, values in enumerate(path):
            A, b, v = law_of(mixed, values)
            log_p = log_p + Normal(A @ z + b, v.sqrt()).log_prob(Z[0, i]).sum()
            z = Z[0, i]
        paths.append(log_p)
    torch.testing.assert_close(found[0], torch.stack(paths).logsumexp(0), rtol=0, atol=1e-6)


def small(factors: str = "2,3", primitives: int = 4) -> ModelSettings:
    return ModelSettings(
        language=LanguageSettings(embedding=8, hidden=8), recognition=RecognitionSettings(hidden=8),
        dynamics=DynamicsSettings(latent=D, primitives=primitives, rank=2, factors=factors),
    )  # fmt: skip


def test_a_recipe_makes_it() -> None:
    flat = torch.full((K,), 1 / K), torch.full((K, K), 1 / K)
    model = build(small(), 20, *flat)
    assert isinstance(model, SLDS)
    assert isinstance(model.dynamics, MixedLinearGaussian)
    own = sum(p.numel() for p in LinearGaussian(K, D).parameters())
    assert sum(p.numel() for p in model.dynamics.parameters()) != own
    with pytest.raises(UserError, match="have 4 states, the corpus 6"):
        build(small("2,2"), 20, *flat)
    with pytest.raises(ValueError, match="whole numbers"):
        small("2,x")
