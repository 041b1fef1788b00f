"""Which tags a sampler starts from, where the user did not give them all."""

from __future__ import annotations

from dataclasses import replace

import torch

from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.sampling.batch import InfillBatch, evidence
from fabula.sampling.noise import Noise
from fabula.sampling.settings import TagSource
from fabula.shapes import Tags
from fabula.statespace.markov import MarkovChain, allowed_states, clamp


def infer_tags(model: SLDS, blanks: InfillBatch, source: TagSource) -> InfillBatch:
    """The batch with the tags that their source decides, among the allowed states; all else is left open."""
    allowed = blanks.allowed_of(model.K)
    blanks = replace(blanks, allowed=allowed)
    if model.K == 1 or source == "free" or not (blanks.lengths > 0).any():
        return blanks
    likeliest = clamp(evidence(model, blanks.X, blanks.lengths).log_q_S, allowed).argmax(-1)
    readable = (blanks.lengths > 0).unsqueeze(-1)
    return replace(blanks, allowed=torch.where(readable, allowed_states(likeliest, model.K), allowed))


def tags_to_write(model: Model, blanks: InfillBatch, noise: Noise) -> Tags:
    """The tags that a model without latents writes under, for every chain of every story.

    A tag that is wholly free stays so (-1): the decoder has S_i summed out. Where the arc fixes one factor and leaves
    another free, a decoder with tokens for each factor is told as much (`StateSpace.number`). For any other
    S ~ p(S | arc) decides; a model that has no p(S) takes the open states for equally likely.
    """
    S, allowed = blanks.S.repeat_interleave(noise.chains, 0), blanks.allowed
    K, count = allowed.shape[2], allowed.sum(2)
    partly = (count > 1) & (count < K)
    states = model.partial_states
    if states is not None and states.K == K:
        numbers = states.number(states.common(allowed.cpu().numpy()))
        return torch.from_numpy(numbers).to(S.device).repeat_interleave(noise.chains, 0)
    stories = partly.any(1).nonzero().flatten().tolist()
    if stories:
        uniform = MarkovChain(torch.full((K,), 1 / K), torch.full((K, K), 1 / K)).to(blanks.device)
        scaffold = model.p_S or uniform
        rows = torch.arange(len(S), device=blanks.device).view(-1, noise.chains)[stories].flatten()
        open_states, here = (t.repeat_interleave(noise.chains, 0)[rows] for t in (allowed, blanks.present.to(S.device)))
        flat = torch.zeros(open_states.shape, device=blanks.device)
        drawn = scaffold.sample(clamp(flat, open_states), here, noise.of(stories, noise.chains).uniform())
        S[rows] = torch.where(partly.repeat_interleave(noise.chains, 0)[rows], drawn, S[rows])
    return S
