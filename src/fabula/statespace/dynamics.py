"""Factor 2, the dynamics: p(Z_i | Z_{i-1}, S_i), one linear-Gaussian map per state (Section 2.4).

Emissions and initial distributions are linear-Gaussian maps too: C, d, R are an emission's `A`, `bias`, `Sigma()`; the
initial distribution p(Z_1 | S_1) is a map without inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fabula.shapes import Float, Latent, Latents, PerState
from fabula.statespace.gaussian import LOG_2PI, Diagonal, cholesky


class LinearGaussian(nn.Module):
    """One linear-Gaussian map per switching state.

        Z_i = A[S_i] Z_{i-1} + bias[S_i] + B[S_i] eps,   eps ~ N(0, I),   Z_0 = 0

    so p(Z_i | Z_{i-1}, S_i) = N(A z + bias, B B^T). B is diagonal (the authors' choice, and the fast one) or lower
    triangular (`full`). With K = 1 this is the LDS baseline. A soft `s` (a point of the simplex) mixes A, bias and
    Sigma = B B^T convexly, as the paper's Gumbel-Softmax does.
    """

    A: Tensor
    bias: Tensor
    lower: Tensor | None
    """B below its diagonal; None where B is diagonal."""
    initial: LinearGaussian | None
    """p(Z_1 | S_1), a map of no inputs; None: Z_1 follows from Z_0 = 0."""

    def __init__(self, K: int, D: int, inputs: int | None = None, *, full: bool = False) -> None:
        """D is the size of what comes out, `inputs` that of what goes in where it is another."""
        super().__init__()
        # Near the identity: a story keeps most of what it is about from one sentence to the next.
        width = D if inputs is None else inputs
        self.A = nn.Parameter(0.8 * torch.eye(D, width).repeat(K, 1, 1) + 0.02 * torch.randn(K, D, width))
        self.bias = nn.Parameter(0.1 * torch.randn(K, D))
        self.log_B = nn.Parameter(torch.full((K, D), -0.5))
        self.register_parameter("lower", nn.Parameter(torch.zeros(K, D, D)) if full else None)
        self.initial = None

    @staticmethod
    def of(A: Tensor, bias: Tensor, Sigma: Tensor, initial: LinearGaussian | None = None) -> LinearGaussian:
        """The map with these parameters, [state, out, in], [state, out] and [state, out, out]; without an axis of
        states there is one state. A diagonal Sigma makes a diagonal B."""
        if A.ndim == 2:
            A, bias, Sigma = A[None], bias[None], Sigma[None]
        diagonal = torch.equal(Sigma, torch.diag_embed(Sigma.diagonal(dim1=-2, dim2=-1)))
        made = LinearGaussian(len(A), A.shape[1], A.shape[2], full=not diagonal).to(A).assign(A, bias, Sigma)
        made.initial = initial
        return made

    @staticmethod
    def normal(mean: Tensor, Sigma: Tensor) -> LinearGaussian:
        """N(mean, Sigma) for each state, as an initial distribution."""
        return LinearGaussian.of(mean.new_zeros(*mean.shape, 0), mean, Sigma)

    @torch.no_grad()
    def assign(self, A: Tensor, bias: Tensor, Sigma: Tensor) -> LinearGaussian:
        """These parameters from now on; of a map with a diagonal B only the diagonal of Sigma."""
        self.A.copy_(A)
        self.bias.copy_(bias)
        if self.lower is None:
            self.log_B.copy_(Sigma.diagonal(dim1=-2, dim2=-1).log() / 2)
        else:
            B = cholesky(Sigma, "a covariance")
            self.log_B.copy_(B.diagonal(dim1=-2, dim2=-1).log())
            self.lower.copy_(B.tril(-1))
        return self

    @property
    def K(self) -> int:
        return self.A.shape[0]

    @property
    def D(self) -> int:
        return self.A.shape[1]

    def variance(self) -> Float[Tensor, "state latent"]:
        """The diagonal of B B^T, for a diagonal B."""
        return (2 * self.log_B).exp()

    def B(self) -> Float[Tensor, "state latent latent"]:
        """The noise factor of every state."""
        diagonal = torch.diag_embed(self.variance().sqrt())
        return diagonal if self.lower is None else diagonal + self.lower.tril(-1)

    def Sigma(self) -> Float[Tensor, "state latent latent"]:
        """B B^T of every state, as a matrix."""
        return torch.diag_embed(self.variance()) if self.lower is None else self.B() @ self.B().mT

    def precision(self) -> Float[Tensor, "state latent latent"]:
        """Q = Sigma^-1 of every state."""
        return torch.diag_embed(1 / self.variance()) if self.lower is None else torch.cholesky_inverse(self.B())

    def forward(self, z_prev: Latent, s: Float[Tensor, "batch state"]) -> Diagonal:
        """p(Z_i | Z_{i-1} = z_prev, S_i = s), for a diagonal B."""
        return Diagonal((s.unsqueeze(-1) * self.mean_each(z_prev)).sum(-2), s @ self.variance())

    def mean_each(self, z_prev: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch state latent"]:
        """A[k] z_prev + bias[k] for every state k."""
        return torch.einsum("kij,...j->...ki", self.A, z_prev) + self.bias

    def log_prob_each(
        self, z_prev: Float[Tensor, "*batch inputs"], z: Float[Tensor, "*batch latent"]
    ) -> Float[Tensor, "*batch state"]:
        """log p(Z_i = z | Z_{i-1} = z_prev, S_i = k) for every state k."""
        if self.lower is None:
            return Diagonal(self.mean_each(z_prev), self.variance()).log_prob(z.unsqueeze(-2))
        root = torch.linalg.solve_triangular(self.B(), torch.eye(self.D).to(self.A), upper=False)
        white = torch.einsum("kij,...kj->...ki", root, z.unsqueeze(-2) - self.mean_each(z_prev))
        return -0.5 * (white**2 + LOG_2PI).sum(-1) - self.log_B.sum(-1)

    def log_prob_steps(self, Z: Latents) -> PerState:
        """log p(Z_i | Z_{i-1}, S_i = k) for every step and state: the Markov chain's evidence when S is summed out."""
        each = self.log_prob_each(torch.cat([torch.zeros_like(Z[:, :1]), Z[:, :-1]], dim=1), Z)
        if self.initial is None:
            return each
        return torch.cat([self.initial.log_prob_each(Z[:, :1, :0], Z[:, :1]), each[:, 1:]], 1)

    def sample(self, z_prev: Float[Tensor, "batch inputs"], s: Tensor, noise: Latent) -> Latent:
        """One step into the state s of every row; the noise is the caller's."""
        moved = (self.A[s] @ z_prev.unsqueeze(-1) + self.B()[s] @ noise.unsqueeze(-1)).squeeze(-1)
        return moved + self.bias[s]


class MixedLinearGaussian(LinearGaussian):
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
        self.register_parameter("lower", None)
        self.initial = None
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

    @property
    def A(self) -> Float[Tensor, "state latent latent"]:  # type: ignore[override]
        low_rank = self.U if self.V is None else self.U @ self.V.transpose(-1, -2)
        return torch.einsum("kr,rij->kij", self.mixing(), torch.diag_embed(self.a) + low_rank)

    @property
    def bias(self) -> Float[Tensor, "state latent"]:  # type: ignore[override]
        return self.mixing() @ self.b

    def variance(self) -> Float[Tensor, "state latent"]:
        return self.mixing() @ (2 * self.log_B).exp()
