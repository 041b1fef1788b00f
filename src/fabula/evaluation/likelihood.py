"""How probable are these stories under a model, honestly: the authors' estimate, the ELBO, and a tighter bound.

With S summed out and Z_1, ..., Z_M ~ q(Z | X):

    w_m = p(X | Z_m) [sum_S p(S) p(Z_m | S)] / q(Z_m | X)
    ELBO = E[log w]  <=  E[log 1/M sum_m w_m]  <=  log p(X)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from fabula.evaluation.latent import lookahead_use, prior_log_p_X
from fabula.evaluation.record import Figure, Kind, log_mean_exp, mean_and_error, rounded
from fabula.models.batch import Batch, StoryDataset
from fabula.models.build import Model
from fabula.models.recognition import Evidence
from fabula.models.s2s import S2S
from fabula.models.slds import SLDS, Draw
from fabula.training.objective import gumbel_softmax

ACTIVE = 0.01
"""A unit of Z is active if its posterior mean varies over stories by at least this."""


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """Figures of one model on one set of stories; None where a figure has no meaning for the model."""

    n: int
    samples: int
    seed: int
    tokens: int
    characters: int
    nll_story: float
    """Negative log-likelihood per story: exact for the LM, given S for S2S, the IW bound for latent models."""
    ppl: float
    """Of `nll_story`, per token with `<eos>`."""
    kinds: dict[str, Kind]
    """Of every figure: exact, bound or estimate."""
    bits_per_character: float | None = None
    ppl_iw: float | None = None
    ppl_elbo: float | None = None
    ppl_authors: float | None = None
    ppl_with_tags: float | None = None
    """S2S with log p(S) paid: a bound on log p(X), since p(X, S) <= p(X)."""
    kl_z: float | None = None
    mutual_information: float | None = None
    active_units: int | None = None
    z_use: Figure | None = None
    lookahead_use: Figure | None = None
    accuracy_s: float | None = None
    f1_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        def plain(value: Any) -> Any:
            if isinstance(value, Figure):
                return rounded(value.value)
            return rounded(value) if isinstance(value, float) else value

        result = {name: plain(value) for name, value in vars(self).items()}
        for name in ("z_use", "lookahead_use"):
            figure = getattr(self, name)
            result[f"{name}_se"] = None if figure is None else rounded(figure.se)
        return result


class _Collected(NamedTuple):
    """Of every story: log weights of the samples, the terms behind them, and what q says."""

    log_w: Float[Tensor, "batch sample"]
    log_p_X: Float[Tensor, " batch"]
    kl_Z: Float[Tensor, " batch"]
    authors: Float[Tensor, " batch"]
    z_loss: Float[Tensor, " batch"]
    ahead: Float[Tensor, " sentences"]


@torch.no_grad()
def likelihood(
    model: Model,
    dataset: StoryDataset,
    *,
    characters: int,
    log_p_S: NDArray[np.float64] | None = None,
    samples: int = 20,
    seed: int = 0,
    posterior: str = "filtering",
    batch_size: int = 64,
    latent_stories: int = 500,
    bar: bool = False,
) -> Likelihood:
    """Every figure the model allows, on all stories of the dataset (the use of Z on at most `latent_stories`)."""
    model.eval()
    tokens = int(dataset.token_counts.sum())
    common: dict[str, Any] = {"n": len(dataset), "seed": seed, "tokens": tokens, "characters": characters}
    if isinstance(model, SLDS):
        return _latent(model, dataset, common, samples, posterior, batch_size, latent_stories, bar)
    total, tags = 0.0, 0.0
    for rows in tqdm(list(dataset.in_order(batch_size)), disable=not bar, leave=False, unit="batch"):
        batch = dataset.batch(rows)
        total -= float(model.log_p_X(batch).double().sum())
        if log_p_S is not None:
            tags -= float(log_p_S[rows].sum())
    n = len(dataset)
    if isinstance(model, S2S):
        # The inner <eos> are no tokens of this model.
        own = tokens - int(dataset.sentences.sum()) + n
        return Likelihood(
            **common, samples=0, nll_story=total / n, ppl=math.exp(total / own),
            ppl_with_tags=math.exp((total + tags) / own) if log_p_S is not None else None,
            bits_per_character=(total + tags) / math.log(2) / characters if log_p_S is not None else None,
            kinds={"nll_story": "exact", "ppl": "exact", "ppl_with_tags": "bound", "bits_per_character": "bound"},
        )  # fmt: skip
    return Likelihood(
        **common, samples=0, nll_story=total / n, ppl=math.exp(total / tokens),
        bits_per_character=total / math.log(2) / characters,
        kinds={"nll_story": "exact", "ppl": "exact", "bits_per_character": "exact"},
    )  # fmt: skip


def _latent(
    model: SLDS, dataset: StoryDataset, common: dict[str, Any], samples: int, posterior: str, batch_size: int,
    latent_stories: int, bar: bool,
) -> Likelihood:  # fmt: skip
    """The figures of a latent model."""
    generator = torch.Generator(dataset.device).manual_seed(common["seed"])
    looked = set(np.random.default_rng(common["seed"]).permutation(len(dataset))[:latent_stories].tolist())
    parts: list[_Collected] = []
    guesses: list[Tensor] = []
    truths: list[Tensor] = []
    means: list[Tensor] = []
    information: list[Tensor] = []
    for rows in tqdm(list(dataset.in_order(batch_size)), disable=not bar, leave=False, unit="batch"):
        batch = dataset.batch(rows)
        evidence = model.evidence(batch)
        s = evidence.log_q_S.exp()
        draws = [draw_posterior(model, evidence, batch, posterior, generator) for _ in range(samples)]
        log_p_X = torch.stack([model.log_p_X(batch, draw.Z).sum(-1) for draw in draws], 1)
        log_p_Z = torch.stack([model.log_p_Z(d.Z, batch, torch.full_like(batch.S, -1)) for d in draws], 1)
        log_q = torch.stack([draw.log_q for draw in draws], 1)
        soft = gumbel_softmax(evidence.log_q_S, 1.0, False, generator)
        authors = model.draw_filtering(evidence, soft, batch.present, noise_for(model, batch, generator))
        chosen = torch.tensor([i for i, row in enumerate(rows) if row in looked], device=dataset.device)
        if len(chosen):
            part = batch.rows(chosen)
            z_loss = log_p_X[chosen, : min(samples, 5)].mean(1) - prior_log_p_X(model, part, generator)
            ahead = lookahead_use(model, part, min(samples, 5), generator)
        else:
            z_loss = ahead = log_p_X.new_zeros(0)
        parts.append(
            _Collected(
                log_w=log_p_X + log_p_Z - log_q,
                log_p_X=log_p_X.mean(1),
                kl_Z=(log_q - log_p_Z).mean(1),
                authors=model.log_p_X(batch, authors.Z).sum(-1) - authors.kl,
                z_loss=z_loss,
                ahead=ahead,
            )
        )
        known = batch.S >= 0
        guesses.append(evidence.log_q_S.argmax(-1)[known])
        truths.append(batch.S[known])
        still = torch.zeros_like(noise_for(model, batch, generator))
        means.append(model.draw_filtering(evidence, s, batch.present, still).Z[batch.present])
        information.append(_information(model, evidence, batch, draws[0], posterior))
    log_w = torch.cat([part.log_w for part in parts]).double()
    n, tokens = common["n"], common["tokens"]
    nll_iw = -float(log_mean_exp(log_w, 1).sum())
    nll_elbo = -float(log_w.mean(1).sum())
    nll_authors = -float(torch.cat([part.authors for part in parts]).double().sum())
    truth, guess = torch.cat(truths), torch.cat(guesses)
    ahead = torch.cat([part.ahead for part in parts])
    scored = model.K > 1 and truth.numel() > 0
    return Likelihood(
        **common, samples=samples, nll_story=nll_iw / n, ppl=math.exp(nll_iw / tokens),
        ppl_iw=math.exp(nll_iw / tokens), ppl_elbo=math.exp(nll_elbo / tokens),
        ppl_authors=math.exp(nll_authors / tokens),
        bits_per_character=nll_iw / math.log(2) / common["characters"],
        kl_z=float(torch.cat([part.kl_Z for part in parts]).double().mean()),
        mutual_information=float(torch.cat(information).double().mean()),
        active_units=int((torch.cat(means).var(0) > ACTIVE).sum()),
        z_use=mean_and_error(torch.cat([part.z_loss for part in parts])),
        lookahead_use=mean_and_error(ahead) if ahead.numel() else None,
        accuracy_s=float((truth == guess).double().mean()) if scored else None,
        f1_s=macro_f1(truth, guess, model.K) if scored else None,
        kinds={
            "nll_story": "bound", "ppl": "bound", "ppl_iw": "bound", "ppl_elbo": "bound", "ppl_authors": "estimate",
            "bits_per_character": "bound", "kl_z": "estimate", "mutual_information": "estimate",
            "active_units": "estimate", "z_use": "estimate", "lookahead_use": "estimate",
            "accuracy_s": "exact", "f1_s": "exact",
        },
    )  # fmt: skip


def draw_posterior(model: SLDS, evidence: Evidence, batch: Batch, posterior: str, generator: torch.Generator) -> Draw:
    """Z ~ q(Z | X), a proper law of Z given X, so the weights make a bound; `posterior` is an objective's `law`."""
    uniform = None
    if posterior == "switching":
        uniform = torch.rand(batch.lengths.shape, generator=generator, device=batch.lengths.device)
    return draw_by(model, evidence, batch.present, posterior, noise_for(model, batch, generator), uniform)


def draw_by(
    model: SLDS,
    evidence: Evidence,
    present: Bool[Tensor, "batch sent"],
    posterior: str,
    noise: Float[Tensor, "batch sent latent"],
    uniform: Float[Tensor, "batch sent"] | None,
) -> Draw:
    """The same by given numbers. Dynamics are mixed by q(S | X), or states are drawn from it (`switching`)."""
    if posterior == "switching":
        assert uniform is not None
        below = evidence.log_q_S.exp().cumsum(-1)[..., :-1] <= uniform.unsqueeze(-1)
        return model.draw_switching(evidence, model.one_hot(below.sum(-1)), present, noise)
    drawing = model.draw_smoothing if posterior == "smoothing" else model.draw_filtering
    return drawing(evidence, evidence.log_q_S.exp(), present, noise)


def noise_for(model: SLDS, batch: Batch, generator: torch.Generator) -> Float[Tensor, "batch sent latent"]:
    A = model.dynamics.A
    return torch.randn(*batch.lengths.shape, model.D, generator=generator, device=A.device, dtype=A.dtype)


def _information(model: SLDS, evidence: Evidence, batch: Batch, draw: Draw, posterior: str) -> Float[Tensor, " batch"]:
    """log q(Z | X) - log of q's mean over the batch, at Z ~ q(Z | X): I(X; Z), but at most log of the batch."""
    n = draw.Z.shape[0]
    columns = []
    for other in range(n):
        phi = type(evidence.phi)(*(t[other : other + 1].expand(n, -1, -1) for t in evidence.phi))
        s = evidence.log_q_S[other : other + 1].exp().expand(n, -1, -1)
        same = (batch.present == batch.present[other]).all(1)
        log_q = model.log_q_Z(draw.Z, phi, s, batch.present, posterior)
        columns.append(log_q.masked_fill(~same, float("-inf")))
    pairs = torch.stack(columns, 1)
    return pairs.diagonal() - log_mean_exp(pairs, 1)


def macro_f1(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], K: int) -> float:
    """The mean over states of each state's F1, in percent; a state nobody has or guesses is left out."""
    scores = []
    for k in range(K):
        hit = int(((truth == k) & (guess == k)).sum())
        both = int((truth == k).sum()) + int((guess == k).sum())
        if both:
            scores.append(200 * hit / both)
    return sum(scores) / len(scores)
