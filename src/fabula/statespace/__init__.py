"""Switching linear dynamical systems in PyTorch: batched, masked, differentiable; torch and numpy are all it needs.

    p(S, Z, X) = prod_i p(S_i | S_{i-1}) p(Z_i | Z_{i-1}, S_i) p(X_i | Z_i)

docs/statespace.md has the mathematics. Fabula's story models are made of these parts, with a decoder for p(X_i | Z_i).
"""

from fabula.statespace.chain import Chain, Marginals, chain
from fabula.statespace.diagnostics import chain_size, effective_size, split_r_hat
from fabula.statespace.dynamics import LinearGaussian, MixedLinearGaussian
from fabula.statespace.gaussian import Information, Potential
from fabula.statespace.learning import Fit, em_step, fit
from fabula.statespace.markov import MarkovChain, RecurrentChain
from fabula.statespace.model import SwitchingLDS, Target
from fabula.statespace.particles import particle_filter, particle_smoother
from fabula.statespace.samplers import Sampler, State, diagnose, enumeration, gibbs, laplace, run, variational

__all__ = [  # noqa: RUF022 (by module)
    "Chain", "Marginals", "chain", "chain_size", "effective_size", "split_r_hat", "LinearGaussian",
    "MixedLinearGaussian", "Information", "Potential", "Fit", "em_step", "fit", "MarkovChain", "RecurrentChain",
    "SwitchingLDS", "Target", "particle_filter", "particle_smoother", "diagnose", "Sampler", "State", "enumeration",
    "gibbs", "laplace", "run", "variational",
]  # fmt: skip
