"""How well a sampler moved: split R-hat, effective sample sizes; and resampling where weights are uneven."""

from __future__ import annotations

import torch
from torch import Tensor

from fabula.shapes import Float, Int
from fabula.ties import RELATIVE


def split_r_hat(draws: Float[Tensor, "sample sweep ..."]) -> Float[Tensor, "..."]:
    """Gelman and Rubin's potential scale reduction over chains, each cut into halves; NaN below four sweeps."""
    sweeps = draws.shape[1] // 2
    if sweeps < 2:
        return torch.full(draws.shape[2:], float("nan"))
    halves = torch.cat([draws[:, :sweeps], draws[:, -sweeps:]])
    within = halves.var(1).mean(0)
    between = halves.mean(1).var(0)
    # A coordinate that never moves in any chain (a given tag) is not evidence of bad mixing.
    still = within + between <= RELATIVE**2 * halves.square().mean((0, 1))
    return ((sweeps - 1) / sweeps + between / within).sqrt().masked_fill(still, 1.0)


def chain_size(draws: Float[Tensor, "sample sweep ..."]) -> Float[Tensor, "..."]:
    """Effective sample size of all chains together, by Geyer's initial positive sequence of autocorrelations."""
    chains, sweeps = draws.shape[:2]
    centred = draws - draws.mean((0, 1))
    spectrum = torch.fft.rfft(centred, 2 * sweeps, dim=1).abs().square()
    covariance = torch.fft.irfft(spectrum, dim=1)[:, :sweeps].mean(0) / sweeps
    correlation: Tensor = covariance / covariance[:1].clamp(min=torch.finfo(draws.dtype).tiny)
    pairs = correlation[: sweeps // 2 * 2].unflatten(0, (-1, 2)).sum(1)
    positive = (pairs > 0).cumprod(0)
    size: Tensor = chains * sweeps / (2 * (pairs * positive).sum(0) - 1).clamp(min=1 / sweeps)
    return size


def effective_size(log_weights: Float[Tensor, "*batch sample"]) -> Float[Tensor, "*batch"]:
    """(sum w)^2 / sum w^2: how many equally weighted samples the weighted ones are worth."""
    return 1 / log_weights.softmax(-1).square().sum(-1)


def systematic(
    log_weights: Float[Tensor, "story sample"], uniform: Float[Tensor, "story ..."]
) -> Int[Tensor, "story child"]:
    """Systematic resampling: particle p is the parent of floor or ceil of P w_p children, with one uniform number.
    With a number for each child, [story, child], it is stratified resampling."""
    last = log_weights.shape[1] - 1
    cumulative = log_weights.softmax(-1).cumsum(-1)
    numbers = uniform[:, None].expand(log_weights.shape) if uniform.ndim == 1 else uniform
    points = (torch.arange(numbers.shape[1], device=uniform.device) + numbers) / numbers.shape[1] * cumulative[:, -1:]
    return torch.searchsorted(cumulative.contiguous(), points.contiguous(), right=True).clamp(max=last)
