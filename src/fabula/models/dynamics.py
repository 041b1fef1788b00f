"""Factor 2, the narrative dynamics: p(Z_i | Z_{i-1}, S_i), one linear-Gaussian step per state (Section 2.4)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from fabula.models.gaussian import Diagonal
from fabula.shapes import Latent


class Dynamics(nn.Module):
    """One linear-Gaussian step per switching state.

        Z_i = A[S_i] Z_{i-1} + bias[S_i] + B[S_i] eps,   eps ~ N(0, I),   Z_0 = 0

    so p(Z_i | Z_{i-1}, S_i) = N(A z + bias, B B^T), with a diagonal B (the authors' choice, and the fast one).
    With K = 1 this is the LDS baseline. A soft `s` (a point of the simplex) mixes A, bias and Sigma = B B^T convexly,
    as the paper's Gumbel-Softmax does.
    """

    A: Tensor
    bias: Tensor

    def __init__(self, K: int, D: int) -> None:
        super().__init__()
        # Near the identity: a story keeps most of what it is about from one sentence to the next.
        self.A = nn.Parameter(0.8 * torch.eye(D).repeat(K, 1, 1) + 0.02 * torch.randn(K, D, D))
        self.bias = nn.Parameter(0.1 * torch.randn(K, D))
        self.log_B = nn.Parameter(torch.full((K, D), -0.5))

    @property
    def K(self) -> int:
        return self.A.shape[0]

    @property
    def D(self) -> int:
        return self.A.shape[1]

    def variance(self) -> Float[Tensor, "state latent"]:
        """The diagonal of B B^T."""
        return (2 * self.log_B).exp()

    def Sigma(self) -> Float[Tensor, "state latent latent"]:
        """B B^T of every state, as a matrix."""
        return torch.diag_embed(self.variance())

    def forward(self, z_prev: Latent, s: Float[Tensor, "batch state"]) -> Diagonal:
        """p(Z_i | Z_{i-1} = z_prev, S_i = s)."""
        return Diagonal((s.unsqueeze(-1) * self.mean_each(z_prev)).sum(-2), s @ self.variance())

    def mean_each(self, z_prev: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch state latent"]:
        """A[k] z_prev + bias[k] for every state k."""
        return torch.einsum("kij,...j->...ki", self.A, z_prev) + self.bias

    def log_prob_each(
        self, z_prev: Float[Tensor, "*batch latent"], z: Float[Tensor, "*batch latent"]
    ) -> Float[Tensor, "*batch state"]:
        """log p(Z_i = z | Z_{i-1} = z_prev, S_i = k) for every state k."""
        return Diagonal(self.mean_each(z_prev), self.variance()).log_prob(z.unsqueeze(-2))

    def with_A(self, A: Float[Tensor, "state latent latent"]) -> Dynamics:
        """The same with other matrices, which are not trained; everything else is shared."""
        changed = copy.copy(self)
        changed._parameters = {**changed._parameters, "A": nn.Parameter(A, requires_grad=False)}
        return changed


class MixedDynamics(Dynamics):
    """Dynamics of a state of several factors, composed of primitives that all states share.

        A[s] = 1/F sum_f sum_r w_f[v_f(s), r] A_r,   w_f[v] a point of the simplex,   A_r = diag(a_r) + U_r V_r^T

    and bias and Sigma likewise, where v_f(s) is factor f's value in the state s. Every value has a point, and no state
    has its own matrix: parameters grow with the factors, not with their product. With one factor, one primitive for
    each state and the points in the corners these are the dynamics of the paper.
    """

    V: Tensor | None
    of_state: Tensor
    """[state, factor]: the value of each factor."""

    def __init__(self, sizes: Sequence[int], D: int, primitives: int, rank: int) -> None:
        """`rank` of U_r V_r^T; 0: every A_r is a matrix of its own."""
        nn.Module.__init__(self)
        self.a = nn.Parameter(torch.full((primitives, D), 0.8))
        self.U = nn.Parameter(0.02 * torch.randn(primitives, D, rank or D))
        self.register_parameter("V", nn.Parameter(torch.randn(primitives, D, rank) / rank**0.5) if rank else None)
        self.b = nn.Parameter(0.1 * torch.randn(primitives, D))
        self.log_B = nn.Parameter(torch.full((primitives, D), -0.5))
        self.points = nn.ParameterList(torch.randn(n, primitives) for n in sizes)
        """Logits of w_f."""
        values = np.stack(np.unravel_index(np.arange(int(np.prod(sizes))), tuple(sizes)), 1)
        self.register_buffer("of_state", torch.from_numpy(values), persistent=False)

    def mixing(self) -> Float[Tensor, "state primitive"]:
        """The weight of every primitive in every state."""
        return torch.stack([p.softmax(-1)[self.of_state[:, f]] for f, p in enumerate(self.points)]).mean(0)

    def primitives(self) -> Float[Tensor, "primitive latent latent"]:
        low_rank = self.U if self.V is None else self.U @ self.V.transpose(-1, -2)
        return torch.diag_embed(self.a) + low_rank

    @property
    def A(self) -> Float[Tensor, "state latent latent"]:  # type: ignore[override]
        return torch.einsum("kr,rij->kij", self.mixing(), self.primitives())

    @property
    def bias(self) -> Float[Tensor, "state latent"]:  # type: ignore[override]
        return self.mixing() @ self.b

    def variance(self) -> Float[Tensor, "state latent"]:
        return self.mixing() @ (2 * self.log_B).exp()

    def with_A(self, A: Float[Tensor, "state latent latent"]) -> Dynamics:
        changed = Dynamics(len(A), A.shape[1]).to(A)
        with torch.no_grad():
            changed.A.copy_(A)
            changed.bias.copy_(self.bias)
            changed.log_B.copy_(self.variance().log() / 2)
        return changed.requires_grad_(False)
