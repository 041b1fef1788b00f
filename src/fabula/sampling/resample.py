"""Resampling: particles that weigh much have many children, those that weigh little none."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.sampling.particles import Particles
from fabula.sampling.samples import effective_size


def of_islands(log_w: Float[Tensor, "story sample"], sizes: Sequence[int]) -> Float[Tensor, "story island"]:
    """The effective number of particles of every island."""
    return torch.stack([effective_size(part) for part in log_w.split(list(sizes), 1)], 1)


def resample(
    particles: Particles,
    poor: Bool[Tensor, "story island"],
    uniform: Float[Tensor, "story island"],
    sizes: Sequence[int],
) -> Particles:
    """Systematic resampling in the poor islands, of so many particles each; every child carries its island's mean
    weight, so that islands still compare."""
    log_w = particles.log_w.view(len(poor), -1)
    stay = torch.arange(log_w.numel(), device=log_w.device).view_as(log_w)
    parents, means = [], []
    for k, (weights, own) in enumerate(zip(log_w.split(list(sizes), 1), stay.split(list(sizes), 1), strict=True)):
        P, here = weights.shape[1], poor[:, k, None]
        parents.append(torch.where(here, own[:, :1] + systematic(weights, uniform[:, k]), own))
        means.append(torch.where(here, weights.logsumexp(1, keepdim=True) - math.log(P), weights))
    return particles.select(torch.cat(parents, 1).flatten())._replace(log_w=torch.cat(means, 1).flatten())


def systematic(
    log_weights: Float[Tensor, "story sample"], uniform: Float[Tensor, " story"]
) -> Int[Tensor, "story sample"]:
    """Systematic resampling: particle p is the parent of floor or ceil of P w_p children, with one uniform number."""
    P = log_weights.shape[1]
    cumulative = log_weights.softmax(-1).cumsum(-1)
    points = (torch.arange(P, device=uniform.device) + uniform[:, None]) / P * cumulative[:, -1:]
    return torch.searchsorted(cumulative.contiguous(), points.contiguous(), right=True).clamp(max=P - 1)
