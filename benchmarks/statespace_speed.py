"""Seconds of a smoother and of a Gibbs sweep: ours, dynamax (vmapped, compiled; where it is installed), a NumPy loop.

    python benchmarks/statespace_speed.py [cuda] [float64] [growth]

256 sequences of 200 steps, D = 8, K = 4, S given. Figures come in turns from one run, the best of several: read their
ratios. Needs torch and numpy; `growth` prints the table of docs/statespace.md.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from fabula.statespace import LinearGaussian, MarkovChain, State, SwitchingLDS, gibbs

DEVICE = "cuda" if "cuda" in sys.argv else "cpu"
DTYPE = torch.float64 if "float64" in sys.argv else torch.float32


def system(D: int, K: int) -> SwitchingLDS:
    torch.manual_seed(0)
    turn, root = 0.3 * torch.randn(K, D, D), 0.1 * torch.randn(K, D, D) + 0.5 * torch.eye(D)
    eye, p = torch.eye(D), torch.full((K, K), 0.1 / K) + 0.9 * torch.eye(K)
    first, A = LinearGaussian.normal(torch.zeros(K, D), eye.expand(K, D, D)), 0.9 * torch.matrix_exp(turn - turn.mT)
    dynamics = LinearGaussian.of(A, 0.1 * torch.randn(K, D), root @ root.mT, first)
    model = SwitchingLDS(dynamics, LinearGaussian.of(eye, torch.zeros(D), eye + 0.01), MarkovChain(p[0], p))
    return model.to(DTYPE).requires_grad_(False)


def ours(model: SwitchingLDS, X: torch.Tensor, S: torch.Tensor) -> list[Callable[[], Any]]:
    target, generator = model.target(X), torch.Generator(X.device).manual_seed(0)
    state = State(S, X[..., : model.dynamics.D], X[:, 0, 0])
    return [lambda: model.posterior(X, S=S).marginals(), lambda: gibbs(target).step(state, generator)]


def theirs(*arrays: Any) -> list[Callable[[], Any]]:
    """dynamax's smoother and posterior sample with the parameters of every step, and its sample of an HMM's states."""
    jax, linear = import_module("jax"), import_module("dynamax.linear_gaussian_ssm.inference")
    jax.config.update("jax_enable_x64", torch.float64 == DTYPE)
    sample_S = import_module("dynamax.hidden_markov_model.inference").hmm_posterior_sample
    log_normal, np_ = import_module("jax.scipy.stats").multivariate_normal.logpdf, jax.numpy
    A, b, Q, C, R, p, x, s = (np_.array(array) for array in arrays)
    zero, eye = np_.zeros(A.shape[1], A.dtype), np_.eye(A.shape[1], dtype=A.dtype)

    def parameters(s: Any) -> Any:
        return linear.make_lgssm_params(zero, eye, A[s], Q[s], C, R, dynamics_bias=b[s], emissions_bias=zero)

    def sweep(key: Any, x: Any, s: Any) -> Any:
        z = linear.lgssm_posterior_sample(key, parameters(s), x)
        before = np_.concatenate([zero[None], z[:-1]])
        each = jax.vmap(lambda A, b, Q: log_normal(z, before @ A.T + b, Q), out_axes=1)(A, b, Q)
        return z, sample_S(key, p[0], p, each)

    smooth, swept = jax.jit(jax.vmap(lambda x, s: linear.lgssm_smoother(parameters(s), x))), jax.jit(jax.vmap(sweep))
    keys = jax.random.split(jax.random.PRNGKey(0), len(x))
    return [lambda: jax.block_until_ready(smooth(x, s)), lambda: jax.block_until_ready(swept(keys, x, s))]


def loop(A: Any, b: Any, Q: Any, C: Any, R: Any, X: Any, S: Any) -> list[Callable[[], Any]]:
    """The same, one sequence and one step at a time; of the sweep Z alone, which is most of it."""

    def run(sweep: bool) -> None:
        rng, filtered = np.random.default_rng(0), {}
        for x, s in zip(X, S, strict=True):
            m, P, log_p = b[0] * 0, np.eye(len(b[0]), dtype=b.dtype), 0.0
            for i in range(len(x)):
                if i:
                    m, P = A[s[i]] @ m + b[s[i]], A[s[i]] @ P @ A[s[i]].T + Q[s[i]]
                V, error = C @ P @ C.T + R, x[i] - C @ m
                gain = np.linalg.solve(V, C @ P).T
                log_p -= 0.5 * (error @ np.linalg.solve(V, error) + np.linalg.slogdet(V)[1])
                m, P = filtered[i] = m + gain @ error, P - gain @ C @ P
            for i in range(len(x) - 2, -1, -1):
                (before, V), k = filtered[i], s[i + 1]
                if sweep:
                    m, P = m + np.linalg.cholesky(P) @ rng.standard_normal(len(m)), 0 * P
                ahead = A[k] @ V @ A[k].T + Q[k]
                G = np.linalg.solve(ahead, A[k] @ V).T
                m, P = before + G @ (m - A[k] @ before - b[k]), V + G @ (P - ahead) @ G.T

    return [lambda: run(False), lambda: run(True)]


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    if DEVICE != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def growth() -> None:
    sizes = {"N": (100, 1000, 10_000), "batch": (1, 64, 4096), "K": (2, 16, 64), "D": (2, 16, 64)}
    for name, value in ((name, value) for name, values in sizes.items() for value in values):
        case = {"N": 100, "batch": 4 if name == "N" else 64, "K": 4, "D": 8, name: value}
        model = system(case["D"], case["K"]).to(DEVICE)
        S, _, X = model.sample(case["N"], case["batch"])
        best = [min(seconds(run) for _ in range(3)) for run in ours(model, X, S)]
        print(f"| {name} = {value} | {best[0] * 1e3:.0f} | {best[1] * 1e3:.0f} |", flush=True)


def main() -> None:
    model = system(8, 4)
    S, _, X = model.sample(200, 256)
    moves, shows, P = model.dynamics, model.emissions, model.switches.transition().exp()
    tensors = moves.A, moves.bias, moves.Sigma(), shows.A[0], shows.Sigma()[0], P, X, S
    A, b, Q, C, R, p, x, s = (tensor.numpy() for tensor in tensors)
    ways = {"ours": ours(model.to(DEVICE), X.to(DEVICE), S.to(DEVICE))}
    if find_spec("dynamax"):
        ways["dynamax"] = theirs(A, b, Q, C, R, p, x, s)
    best = {way: [float("inf")] * 2 for way in ways}
    for turn in range(9):
        for way, work in ways.items():
            taken = [seconds(run) for run in work]
            best[way] = [min(pair) for pair in zip(best[way], taken, strict=True)] if turn else best[way]
    best["numpy loop"] = [8 * seconds(run) for run in loop(A, b, Q, C, R, x[:32], s[:32])]
    for way, figures in best.items():
        for name, value, mine in zip(("smoother", "gibbs"), figures, best["ours"], strict=True):
            print(f"{way:10} {name:9} {value * 1e3:8.1f} ms   {value / mine:6.2f} x ours")


if __name__ == "__main__":
    growth() if "growth" in sys.argv else main()
