"""The switching linear dynamical system over sentences, and the LDS, which is the same with one state.

p(S, Z, X) = prod_i p(S_i | S_{i-1}) p(Z_i | Z_{i-1}, S_i) p(X_i | Z_i, X_:i)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fabula.errors import UserError
from fabula.models.batch import Batch, gather_latent
from fabula.models.decoders.gru import GRUDecoder
from fabula.models.protocol import Model, register_model
from fabula.models.recognition import Evidence, Recognition
from fabula.models.settings import ModelSettings
from fabula.shapes import Latents, Mask, PerSentence, PerState, PerStory, PerToken, Tags
from fabula.statespace.chain import Draw, draw_smoothing
from fabula.statespace.dynamics import LinearGaussian, MixedLinearGaussian
from fabula.statespace.gaussian import Potential
from fabula.statespace.markov import MarkovChain, allowed_states, clamp


class SLDS(Model):
    """The four factors together; K comes from the scaffold, so from the corpus."""

    def __init__(self, settings: ModelSettings, vocabulary: int, scaffold: MarkovChain) -> None:
        super().__init__()
        steps, D, K = settings.dynamics, settings.dynamics.latent, scaffold.K
        sizes = steps.sizes or (K,)
        if math.prod(sizes) != K:
            reason = f"the factors {steps.factors} have {math.prod(sizes)} states, the corpus {K}"
            raise UserError(reason, field="factors")
        self.scaffold = scaffold
        mixed = steps.primitives > 0
        self.dynamics = MixedLinearGaussian(sizes, D, steps.primitives, steps.rank) if mixed else LinearGaussian(K, D)
        self.language = GRUDecoder(settings.language, vocabulary, D)
        # Both networks read the same word vectors.
        self.recognition = Recognition(settings.recognition, self.language.embedding, D, K)

    @property
    def decoder(self) -> GRUDecoder:
        return self.language

    @property
    def D(self) -> int:
        return self.dynamics.D

    @property
    def has_tags(self) -> bool:
        return self.K > 1

    @property
    def p_S(self) -> MarkovChain:
        return self.scaffold

    @property
    def latent(self) -> SLDS:
        return self

    def tags(self, batch: Batch) -> Tags:
        """The batch's tags; with one state there is nothing to know."""
        return batch.S if self.K > 1 else torch.where(batch.present, 0, -1)

    def evidence(self, batch: Batch) -> Evidence:
        """phi and q(S | X) of every sentence."""
        evidence: Evidence = self.recognition(batch)
        return evidence

    def log_q_S(self, batch: Batch) -> PerState:
        return self.evidence(batch).log_q_S

    def one_hot(self, S: Tags) -> PerState:
        return F.one_hot(S.clamp(min=0), self.K).to(self.dynamics.A.dtype)

    def noise_for(self, batch: Batch, generator: torch.Generator | None) -> Latents:
        """Standard normal numbers for one draw of Z for every story."""
        A = self.dynamics.A
        return torch.randn(*batch.lengths.shape, self.D, generator=generator, device=A.device, dtype=A.dtype)

    def draw(self, evidence: Evidence, s: PerState, present: Mask, noise: Latents, posterior: str) -> Draw:
        """Z ~ q(Z | s, X) by the posterior of this name: `filtering`, `smoothing` or `switching`.

        Under `switching`, s_i is a corner of the simplex, drawn from q(S_i | X), and log q(Z | X) has the states summed
        out. That is exact: q(S_i | X) does not depend on the other states, so each step is a mixture of K Gaussians.
        """
        if posterior == "smoothing":
            return draw_smoothing(self.dynamics, s, evidence.phi, present, noise)
        drawn = self.draw_filtering(evidence, s, present, noise)
        if posterior == "filtering":
            return drawn
        return drawn._replace(log_q=self.log_q_switching(drawn.Z, evidence.phi, evidence.log_q_S.exp(), present))

    def draw_posterior(
        self, evidence: Evidence, present: Mask, noise: Latents, uniform: PerSentence | None, posterior: str
    ) -> Draw:
        """Z ~ q(Z | X), a density of Z given X alone, so that its importance weights make a bound.

        The dynamics are mixed by q(S | X); under `switching` states are drawn from it by the uniform numbers instead.
        """
        s = evidence.log_q_S.exp()
        if posterior == "switching":
            assert uniform is not None
            s = self.one_hot((s.cumsum(-1)[..., :-1] <= uniform.unsqueeze(-1)).sum(-1))
        return self.draw(evidence, s, present, noise, posterior)

    def draw_filtering(self, evidence: Evidence, s: PerState, present: Mask, noise: Latents) -> Draw:
        """Z_1, Z_2, ... in order, each from q(Z_i | Z_{i-1}, s_i, X) ∝ p(Z_i | Z_{i-1}, s_i) phi_i(Z_i) (the paper).

        The KL of each step is in closed form, given the draw before it.
        """
        z = noise.new_zeros(noise.shape[0], self.D)
        log_q = kl = noise.new_zeros(noise.shape[0])
        Z = []
        for i in range(noise.shape[1]):
            p = self.dynamics(z, s[:, i])
            q = p.times(evidence.phi.at(i))
            z = q.rsample(noise[:, i])
            Z.append(z)
            log_q = log_q + torch.where(present[:, i], q.log_prob(z), 0.0)
            kl = kl + torch.where(present[:, i], q.kl(p), 0.0)
        return Draw(torch.stack(Z, 1), log_q, kl)

    def log_q_switching(self, Z: Latents, phi: Potential, q_S: PerState, present: Mask) -> PerStory:
        """log q(Z | X) with the states summed out: each step is a mixture of K Gaussians, weighed by q(S_i | X)."""
        log_q = Z.new_zeros(Z.shape[0])
        z_prev = torch.zeros_like(Z[:, 0])
        corners = torch.eye(self.K, dtype=Z.dtype, device=Z.device).unsqueeze(1).expand(-1, len(Z), -1)
        for i in range(Z.shape[1]):
            each = [self.dynamics(z_prev, corner).times(phi.at(i)).log_prob(Z[:, i]) for corner in corners]
            step = (q_S[:, i].clamp(min=1e-30).log() + torch.stack(each, -1)).logsumexp(-1)
            log_q = log_q + torch.where(present[:, i], step, 0.0)
            z_prev = Z[:, i]
        return log_q

    def log_p_Z(self, Z: Latents, batch: Batch, S: Tags) -> PerStory:
        """log sum_S p(S) p(Z | S) over all S that agree with the known tags."""
        evidence = clamp(self.dynamics.log_prob_steps(Z), allowed_states(S, self.K))
        return self.scaffold.log_marginal(evidence, batch.present)

    def log_p_words(self, batch: Batch, Z: Latents | None = None) -> PerToken:
        """log p(x_t | Z, the words before): words do not depend on S once Z is known."""
        assert Z is not None, "the words of this model depend on Z"
        return self.language.log_prob(self.language(batch.previous, gather_latent(Z, batch.sentence)), batch.tokens)


@register_model("slds")
def build_slds(settings: ModelSettings, vocabulary: int, p_initial: Tensor, p_next: Tensor) -> SLDS:
    return SLDS(settings, vocabulary, MarkovChain(p_initial, p_next).float())


@register_model("lds")
def build_lds(settings: ModelSettings, vocabulary: int, p_initial: Tensor, p_next: Tensor) -> SLDS:
    """An SLDS over a scaffold of one state."""
    return SLDS(settings, vocabulary, MarkovChain(torch.ones(1), torch.ones(1, 1)))
