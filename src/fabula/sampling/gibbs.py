"""The paper's sampler (Section 4): sweep every Z_i from Eq. (1), then every missing X_i; for many stories and chains.

The state goes in and a new one comes out; randomness is passed in. What is not in the paper is an option with a name:
`x_step="sampled"` draws X_i from its true conditional instead of decoding it greedily, tags that are not given are
drawn from p(S | Z, X), `score="last"` and `tags="peek"` are the authors' code's variants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.models.gaussian import Potential
from fabula.models.recognition import Evidence
from fabula.models.scaffold import clamp, pick
from fabula.models.slds import SLDS
from fabula.sampling import decode
from fabula.sampling.batch import InfillBatch, evidence, flatten
from fabula.sampling.conditionals import LatentConditional, sweep_Z
from fabula.sampling.decode import GREEDY, DecodingConfig
from fabula.sampling.noise import Noise
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import Diagnostics, SampledStories, changes, score_given, score_last, split_r_hat
from fabula.sampling.tags import TagSource, infer_tags


@dataclass(frozen=True, kw_only=True)
class GibbsSettings:
    """50 samples a story, burn-in included (the paper): chains x sweeps, the initial state being a chain's first."""

    chains: int = 10
    """Ours, because ten short chains in one batch cost little more than one. The paper: 1."""
    sweeps: int = 5
    """States of each chain. The paper: 50; the authors' code: 251."""
    x_step: Literal["greedy", "sampled"] = "greedy"
    """`greedy` is the paper's; `sampled` leaves P(X_i | rest) invariant, yet the Z step stays Eq. (1), whose phi_i only
    approximates p(X_i | Z_<=i, X_:i): the chain targets an approximation of the posterior (docs/maths.md)."""
    proposals: int = 8
    """Sentences that the sampled X step proposes beside the current one."""
    decoding: DecodingConfig = GREEDY
    """How words are chosen. The paper: greedily."""
    score: Literal["given", "last"] = "given"
    """What stories are ranked by: log p of the given sentences (the paper), or of the last one (the authors' code)."""
    tags: TagSource = "read"

    def __post_init__(self) -> None:
        if self.chains < 1 or self.sweeps < 1 or self.proposals < 1:
            raise ValueError("chains, sweeps and proposals are at least 1")


class GibbsState(NamedTuple):
    """All variables of every chain, and log p(X_i | X_:i, Z_i) of every sentence."""

    S: Int[Tensor, "batch sent"]
    Z: Float[Tensor, "batch sent latent"]
    X: Int[Tensor, "batch sent word"]
    lengths: Int[Tensor, "batch sent"]
    log_p: Float[Tensor, "batch sent"]


def initialise(model: SLDS, rules: WordRules, blanks: InfillBatch, settings: GibbsSettings, noise: Noise) -> GibbsState:
    """The appendix: Z in order, from the posterior where X_i is given and from the dynamics where not; X greedily.

    Tags that are free come from p(S) with the given ones in their places.
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
    Z = model.draw_filtering(seen, model.one_hot(S), present, noise.normal(model.D)).Z
    written = decode.story(model.decoder, rules, settings.decoding, blanks, S, Z, _words(settings, noise))
    return GibbsState(S, Z, written.X, written.lengths, written.log_p)


def sweep(
    model: SLDS,
    conditional: LatentConditional,
    rules: WordRules,
    blanks: InfillBatch,
    settings: GibbsSettings,
    state: GibbsState,
    noise: Noise,
) -> GibbsState:
    """One sweep: every Z_i from Eq. (1), every free S_i from p(S | Z, X), then every missing X_i."""
    present = blanks.present.to(blanks.device)
    phi = evidence(model, state.X, state.lengths).phi
    Z = sweep_Z(conditional, state.Z, state.S, phi, present, noise.normal(model.D))
    log_evidence = model.log_p_Z_each(Z)
    if model.reads_S:
        log_evidence = log_evidence + model.log_p_X_each(flatten(state.X, state.lengths), Z)
    log_evidence = clamp(log_evidence, blanks.allowed_of(model.K))
    S = model.scaffold.sample(log_evidence, present, noise.uniform()).masked_fill(~present, UNKNOWN)
    if settings.x_step == "greedy":
        written = decode.story(model.decoder, rules, settings.decoding, blanks, S, Z, _words(settings, noise))
    else:
        written = sample_X(model, rules, blanks, settings, S, Z, state.X, state.lengths, noise)
    return GibbsState(S, Z, written.X, written.lengths, written.log_p)


def sample_X(
    model: SLDS,
    rules: WordRules,
    blanks: InfillBatch,
    settings: GibbsSettings,
    S: Int[Tensor, "batch sent"],
    Z: Float[Tensor, "batch sent latent"],
    X: Int[Tensor, "batch sent word"],
    lengths: Int[Tensor, "batch sent"],
    noise: Noise,
) -> decode.Written:
    """Each missing X_i in order from its conditional, by iterated sampling-importance-resampling.

        P(X_i | rest) ∝ p(X_i | X_:i, Z_i) prod_{j>i} p(X_j | X_:j, Z_j)

    `proposals` sentences are drawn from the truncated law q; the current sentence stands among them; one is kept with
    probability in proportion to p(X_i) / q(X_i) times the probability of every sentence that follows. With the current
    one always among them this leaves the conditional invariant for any number of proposals. Under top-k the support is
    what top-k can write, and the target the model's own law on that support.

    This step alone is exact. The decoder's carried state has read Z_<i, so its factor is p(X_i | Z_<=i, X_:i), while
    the Z step (Eq. 1) lets phi_i stand for it: together they sample an approximation (.184 where enumeration has .101).
    """
    if settings.decoding.top_k == 1:
        raise ValueError("a sampled X step needs a decoding to sample from: top_k is 1")
    decoder, M, device = model.decoder, settings.proposals, blanks.device
    X = torch.nn.functional.pad(X, (0, max(0, settings.decoding.max_words - X.shape[2])))
    lengths = lengths.clone()
    rows, N, W = X.shape
    uniform, resample = noise.uniform(M, settings.decoding.max_words), noise.uniform()
    at = decoder.start(rows, Z[:, 0], bf16=settings.decoding.bf16)
    log_p = torch.zeros(rows, N, device=device)
    for i in range(N):
        at = decoder.begin_sentence(at, S[:, i])
        who = blanks.missing[:, i].nonzero().squeeze(1).to(device)
        if len(who):
            copies = who.repeat_interleave(M)
            now, log_p_now, log_q_now = decode.replay(
                decoder, rules, settings.decoding, at.select(who), X[who, i], Z[who, i], blanks.opening[who, i]
            )
            then, new = decode.write(
                decoder, rules, settings.decoding, at.select(copies), Z[copies, i],
                uniform[who, i].flatten(0, 1), blanks.opening[copies, i],
            )  # fmt: skip
            # The current sentence first, then the proposals, row after row.
            everyone = torch.cat([who, copies])
            words = torch.cat([X[who, i], torch.nn.functional.pad(new.words, (0, W - new.words.shape[1]))])
            count = torch.cat([lengths[who, i], new.lengths])
            log_w = torch.cat([log_p_now - log_q_now, new.log_p - new.log_q])
            later = now.join(then)
            for j in range(i + 1, N):
                later = decoder.begin_sentence(later, S[everyone, j])
                later, log_p_j = decoder.read(later, X[everyone, j], lengths[everyone, j], Z[everyone, j])
                log_w = log_w + log_p_j
            table = torch.arange(len(who), device=device)[:, None]
            table = torch.cat([table, len(who) + table * M + torch.arange(M, device=device)], 1)
            # A current sentence that q could not have written weighs nothing: one of the proposals takes its place.
            weights = log_w[table].masked_fill(~log_w[table].isfinite(), float("-inf"))
            taken = table.gather(1, pick(weights, resample[who, i])[:, None]).squeeze(1)
            X[who, i], lengths[who, i] = words[taken], count[taken]
        at, log_p[:, i] = decoder.read(at, X[:, i], lengths[:, i], Z[:, i])
    return decode.Written(X, lengths, log_p, torch.zeros_like(log_p))


def run(
    model: SLDS,
    rules: WordRules,
    blanks: InfillBatch,
    settings: GibbsSettings,
    generators: list[torch.Generator],
    gold: InfillBatch | None = None,
) -> Iterator[tuple[SampledStories, Diagnostics | None]]:
    """All states of all chains, as they come; with the last one, how the chains moved."""
    blanks = infer_tags(model, blanks, settings.tags, gold)
    noise = Noise(generators, blanks.sentences, settings.chains, blanks.device)
    wide = blanks.repeat(settings.chains)
    conditional = LatentConditional(model.dynamics)
    state = initialise(model, rules, wide, settings, noise)
    rounds, latents, moved = [_round(state, wide, settings)], [state.Z], []
    for _ in range(1, settings.sweeps):
        yield rounds[-1], None
        state = sweep(model, conditional, rules, wide, settings, state, noise)
        rounds.append(_round(state, wide, settings))
        moved.append(changes(rounds[-2], rounds[-1], wide.missing))
        latents.append(state.Z)
        # Only the last two are looked at again; the reader keeps what it wants.
        rounds = rounds[-2:]
    yield rounds[-1], _diagnose(blanks, settings, moved, latents)


def _round(state: GibbsState, blanks: InfillBatch, settings: GibbsSettings) -> SampledStories:
    score = score_last(state.log_p, blanks) if settings.score == "last" else score_given(state.log_p, blanks)
    return SampledStories(state.X, state.lengths, state.S, state.log_p, score, torch.zeros_like(score))


def _diagnose(blanks: InfillBatch, settings: GibbsSettings, moved: list[Tensor], latents: list[Tensor]) -> Diagnostics:
    stories, N = blanks.X.shape[:2]
    blank = Diagnostics.none(stories, N)
    if not moved:
        return blank
    changed = torch.stack(moved).view(len(moved), stories, settings.chains, N).mean((0, 2)).cpu()
    share = changed.nanmean(1) if settings.x_step == "sampled" else blank.acceptance
    Z = torch.stack(latents, 1).view(stories, settings.chains, len(latents), N, -1).cpu()
    r_hat = torch.stack([split_r_hat(z[:, :, :n]).max() for z, n in zip(Z, blanks.sentences, strict=True)])
    return blank._replace(changed=changed, acceptance=share, r_hat=r_hat)


def _words(settings: GibbsSettings, noise: Noise) -> Tensor | None:
    """One uniform number for every word that may be written; none where the decoding is greedy."""
    return None if settings.decoding.top_k == 1 else noise.uniform(settings.decoding.max_words)
