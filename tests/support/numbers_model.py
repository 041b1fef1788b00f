"""Random switching systems over numbers, for the tests of `fabula.statespace`."""

import torch
from torch import Tensor

from fabula.statespace import LinearGaussian, MarkovChain, RecurrentChain, SwitchingLDS


def random_system(
    K: int, D: int, E: int, *, full: bool = False, initial: bool = False, recurrent: bool = False, seed: int = 0
) -> SwitchingLDS:
    """In float64, stable, with states that differ; `full`: full covariances, `initial`: p(Z_1 | S_1) of its own."""
    torch.manual_seed(seed)

    def covariances(count: int, size: int) -> Tensor:
        root = 0.4 * torch.randn(count, size, size).double() * (1 if full else torch.eye(size))
        return root @ root.mT + 0.3 * torch.eye(size).double()

    A = 0.6 * torch.eye(D) + 0.3 * torch.randn(K, D, D)
    A = A * (0.95 / torch.linalg.eigvals(A).abs().amax(-1).clamp(min=0.95))[:, None, None]
    first = LinearGaussian.normal(torch.randn(K, D).double(), covariances(K, D)) if initial else None
    dynamics = LinearGaussian.of(A.double(), torch.randn(K, D).double(), covariances(K, D), first)
    emissions = LinearGaussian.of(torch.randn(E, D).double(), torch.randn(E).double(), covariances(1, E)[0])
    p = torch.rand(K + 1, K).double() + 0.2
    p = p / p.sum(1, keepdim=True)
    if recurrent:
        return SwitchingLDS(dynamics, emissions, RecurrentChain(p[0], p[1:], torch.randn(K, D).double()))
    return SwitchingLDS(dynamics, emissions, MarkovChain(p[0], p[1:]))
