"""The paper's sampler (Section 4): sweep every Z_i from Eq. (1), then every missing X_i; for many stories and chains.

The state goes in and a new one comes out; randomness is passed in. Not in the paper: tags that are not given are
drawn jointly with Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.models.protocol import Model
from fabula.models.recognition import Evidence
from fabula.models.slds import SLDS
from fabula.sampling.batch import InfillBatch, evidence
from fabula.sampling.cast import Cast
from fabula.sampling.decode import Writer
from fabula.sampling.latents import draw_latents
from fabula.sampling.noise import Noise
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import Diagnostics, Rounds, SampledStories
from fabula.sampling.settings import GibbsSettings
from fabula.sampling.tags import infer_tags
from fabula.shapes import Flags, Integers, Latent, Latents, Mask, PerSentence, Tags
from fabula.statespace.chain import Blocks
from fabula.statespace.diagnostics import split_r_hat
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.gaussian import Information, Potential
from fabula.statespace.markov import clamp


class LatentConditional:
    """Eq. (1): Z_i given its neighbours and its sentence,

        N(z_next; A z + bias, Sigma) q(z)  ∝  N(z; mu, Lambda^-1)
        Lambda = A^T Sigma^-1 A + Lambda_q
        mu     = Lambda^-1 (A^T Sigma^-1 (z_next - bias) + Lambda_q mu_q)

    with A, bias, Sigma those of S_{i+1}, and q(z) ∝ p(z | z_prev, S_i) phi_i(z). The paper prints it without the bias,
    which its model has; here the bias is subtracted from z_next.
    """

    def __init__(self, dynamics: LinearGaussian) -> None:
        self.steps = Blocks.of(dynamics)

    def __call__(
        self, z_prev: Latent, s: Integers, phi: Potential, z_next: Latent, s_next: Integers, followed: Flags
    ) -> Information:
        """p(Z_i | everything else); where nothing follows it is q alone."""
        q = self.steps.at(s).given(z_prev).times(phi.information())
        return q.times(self.steps.at(s_next).reversed().given(z_next).where(followed))


def sweep_Z(
    conditional: LatentConditional, Z: Latents, S: Tags, phi: Potential, present: Mask, noise: Latents
) -> Latents:
    """Every Z_i in order from Eq. (1), each seeing the new Z_{i-1} and the old Z_{i+1}; the last from q alone."""
    N = Z.shape[1]
    S = S.clamp(min=0)
    z_prev = torch.zeros_like(Z[:, 0])
    swept = []
    for i in range(N):
        ahead = min(i + 1, N - 1)
        followed = present[:, ahead] if i + 1 < N else torch.zeros_like(present[:, i])
        p = conditional(z_prev, S[:, i], phi.at(i), Z[:, ahead], S[:, ahead], followed)
        z_prev = p.rsample(noise[:, i])
        swept.append(z_prev)
    return torch.stack(swept, 1)


def draw_free_tags(
    model: SLDS, S: Tags, Z: Latents, allowed: Bool[Tensor, "batch sent state"], phi: Potential, present: Mask,
    noise: Noise,
) -> tuple[Tags, Latents]:  # fmt: skip
    """(S, Z) ~ p(S) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i) for the stories with free tags; the others stay.

    S is drawn with Z integrated out. Drawn from p(S | Z) it would stay where it began, for Z all but determines it.
    """
    P = noise.chains
    free = (present & (allowed.sum(2) > 1)).any(1).view(-1, P)[:, 0].nonzero().flatten().tolist()
    if not free:
        return S, Z
    rows = torch.arange(len(S), device=S.device).view(-1, P)[free].flatten()
    # A chain has text and evidence of its own, so it is a story of its own here.
    some = noise.of([n for n in free for _ in range(P)], 1)
    drawn = draw_latents(model.scaffold, model.dynamics, allowed[rows], phi.rows(rows), present[rows], some)
    return S.index_copy(0, rows, drawn.S), Z.index_copy(0, rows, drawn.Z)


class GibbsState(NamedTuple):
    """All variables of every chain, and log p(X_i | X_:i, Z_i) of every sentence."""

    S: Tags
    Z: Latents
    X: Int[Tensor, "batch sent word"]
    lengths: Tags
    log_p: PerSentence


def initialise(model: SLDS, rules: WordRules, blanks: InfillBatch, settings: GibbsSettings, noise: Noise) -> GibbsState:
    """The appendix: Z in order, from the posterior where X_i is given and from the dynamics where not; X greedily.

    Tags that are free are drawn given the given sentences and tags, with Z integrated out.
    """
    present = blanks.present.to(blanks.device)
    allowed = blanks.allowed_of(model.K)
    flat = torch.zeros(allowed.shape, device=blanks.device)
    S = model.scaffold.sample(clamp(flat, allowed), present, noise.uniform())
    S = S.masked_fill(~present, UNKNOWN)
    # A story's chains begin with the same sentences: they are read once.
    P = noise.chains
    seen = evidence(model, blanks.X[::P], blanks.lengths[::P])
    seen = Evidence(Potential(*(t.repeat_interleave(P, 0) for t in seen.phi)), seen.log_q_S.repeat_interleave(P, 0))
    blank = torch.zeros_like(seen.phi.mean)
    S, _ = draw_free_tags(model, S, blank, allowed, seen.phi, present, noise)
    Z = model.draw_filtering(seen, model.one_hot(S), present, noise.normal(model.D)).Z
    written = Writer(model.decoder, rules, settings.decoding).story(blanks, S, Z, _words(settings, noise))
    return GibbsState(S, Z, written.X, written.lengths, written.log_p)


def sweep(
    model: SLDS, conditional: LatentConditional, rules: WordRules, blanks: InfillBatch, settings: GibbsSettings,
    state: GibbsState, noise: Noise,
) -> GibbsState:  # fmt: skip
    """One sweep: free tags jointly with Z, every Z_i from Eq. (1), then every missing X_i."""
    present = blanks.present.to(blanks.device)
    phi = evidence(model, state.X, state.lengths).phi
    S, Z = draw_free_tags(model, state.S, state.Z, blanks.allowed_of(model.K), phi, present, noise)
    Z = sweep_Z(conditional, Z, S, phi, present, noise.normal(model.D))
    written = Writer(model.decoder, rules, settings.decoding).story(blanks, S, Z, _words(settings, noise))
    return GibbsState(S, Z, written.X, written.lengths, written.log_p)


def run(
    model: Model, blanks: InfillBatch, settings: GibbsSettings, generators: Sequence[torch.Generator], *,
    rules: WordRules, cast: Cast | None = None,
) -> Rounds:  # fmt: skip
    """All states of all chains, as they come, the initial state being a chain's first; with the last state, how the
    chains moved. The last sweep may have more chains than samples are left to draw."""
    slds, chains = model.latent, settings.rows
    assert slds is not None
    blanks = infer_tags(slds, blanks, settings.tags)
    noise = Noise(generators, blanks.sentences, chains, blanks.device)
    wide, conditional = blanks.repeat(chains), LatentConditional(slds.dynamics)
    state = initialise(slds, rules, wide, settings, noise)
    stories, latents, moved = _round(state, wide), [state.Z], []
    for _ in range(chains, settings.samples, chains):
        yield stories, None
        state = sweep(slds, conditional, rules, wide, settings, state, noise)
        before, stories = stories, _round(state, wide)
        moved.append((before.X != stories.X).any(-1).float().masked_fill(~wide.missing.to(wide.device), float("nan")))
        latents.append(state.Z)
    left = settings.samples - chains * (len(latents) - 1)
    yield stories.first_chains(chains, left), _diagnose(blanks, settings, moved, latents)


def _round(state: GibbsState, blanks: InfillBatch) -> SampledStories:
    score = (state.log_p * blanks.given.to(state.log_p.device)).sum(-1)  # log p of all given sentences (the paper)
    return SampledStories(state.X, state.lengths, state.S, state.log_p, score, torch.zeros_like(score))


def _diagnose(blanks: InfillBatch, settings: GibbsSettings, moved: list[Tensor], latents: list[Tensor]) -> Diagnostics:
    stories, N = blanks.X.shape[:2]
    blank = Diagnostics.none(stories, N)
    if not moved:
        return blank
    changed = torch.stack(moved).view(len(moved), stories, settings.rows, N).mean((0, 2)).cpu()
    Z = torch.stack(latents, 1).view(stories, settings.rows, len(latents), N, -1).cpu()
    r_hat = torch.stack([split_r_hat(z[:, :, :n]).max() for z, n in zip(Z, blanks.sentences, strict=True)])
    return blank._replace(changed=changed, r_hat=r_hat)


def _words(settings: GibbsSettings, noise: Noise) -> Tensor | None:
    """One uniform number for every word that may be written; none where the decoding is greedy."""
    return None if settings.decoding.top_k == 1 else noise.uniform(settings.decoding.max_words)
