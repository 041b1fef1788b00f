"""How probable are these stories under a model, honestly: the authors' estimate, the ELBO, and a tighter bound.

The estimator itself is `bound.weigh`; here its figures are gathered over a dataset, with what Z and q(S) are worth.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from fabula.metrics.bound import Draws, authors_estimate, own_draws, weigh
from fabula.metrics.latent import lookahead_use, prior_log_p_X
from fabula.metrics.proposal import FEWEST, slack
from fabula.metrics.record import Figure, Kind, log_mean_exp, mean_and_error, rounded
from fabula.models.batch import Batch, StoryDataset
from fabula.models.protocol import Model
from fabula.models.recognition import Evidence
from fabula.models.slds import SLDS

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
    q_precision: float | None = None
    """What phi's precision was multiplied by in q(Z | X) (`metrics/proposal.py`); all figures are by that q."""
    slack: float | None = None
    """Nats a story that the bound is estimated to lack still, by its growth with the samples."""
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
    precision: float = 1.0,
    batch_size: int = 64,
    latent_stories: int = 500,
    bar: bool = False,
) -> Likelihood:
    """Every figure the model allows, on all stories of the dataset (the use of Z on at most `latent_stories`).

    `precision` multiplies that of phi in q(Z | X), as `proposal.fit_precision` chose it.
    """
    model.eval()
    tokens = int(dataset.token_counts.sum())
    common: dict[str, Any] = {"n": len(dataset), "seed": seed, "tokens": tokens, "characters": characters}
    if model.latent is not None:
        q = posterior, precision
        return _latent(model.latent, dataset, common, samples, q, batch_size, latent_stories, bar)
    total = 0.0
    for rows in tqdm(list(dataset.in_order(batch_size)), disable=not bar, leave=False, unit="batch"):
        total -= float(weigh(model, dataset.batch(rows), None, posterior).log_p.sum())
    n, own = len(dataset), int(model.token_count(dataset.token_counts, dataset.sentences).sum())
    figures = Likelihood(
        **common, samples=0, nll_story=total / n, ppl=math.exp(total / own),
        bits_per_character=total / math.log(2) / characters,
        kinds={"nll_story": "exact", "ppl": "exact", "bits_per_character": "exact"},
    )  # fmt: skip
    if not model.reads_tags:
        return figures
    # p(X | S) is no probability of X alone: it pays for the tags too, where they are known.
    paid = None if log_p_S is None else total - float(log_p_S.sum())
    return replace(
        figures, ppl_with_tags=None if paid is None else math.exp(paid / own),
        bits_per_character=None if paid is None else paid / math.log(2) / characters,
        kinds={"nll_story": "exact", "ppl": "exact", "ppl_with_tags": "bound", "bits_per_character": "bound"},
    )  # fmt: skip


def _latent(
    model: SLDS, dataset: StoryDataset, common: dict[str, Any], samples: int, q: tuple[str, float], batch_size: int,
    latent_stories: int, bar: bool,
) -> Likelihood:  # fmt: skip
    """The figures of a latent model; q is the posterior's name and what phi's precision is multiplied by."""
    posterior, precision = q
    generator = torch.Generator(dataset.device).manual_seed(common["seed"])
    looked = set(np.random.default_rng(common["seed"]).permutation(len(dataset))[:latent_stories].tolist())
    found: dict[str, list[Tensor]] = defaultdict(list)
    for rows in tqdm(list(dataset.in_order(batch_size)), disable=not bar, leave=False, unit="batch"):
        batch = dataset.batch(rows)
        evidence = model.evidence(batch).tempered(precision)
        draws = own_draws(model, batch, samples, posterior, generator)
        assert draws is not None
        weighed = weigh(model, batch, draws, posterior, precision)
        found["authors"].append(authors_estimate(model, batch, generator))
        chosen = torch.tensor([i for i, row in enumerate(rows) if row in looked], device=dataset.device)
        if len(chosen):
            part = batch.rows(chosen)
            posterior_log_p = weighed.log_p_X[chosen, : min(samples, 5)].mean(1)
            found["z_use"].append(posterior_log_p - prior_log_p_X(model, part, generator))
            found["lookahead_use"].append(lookahead_use(model, part, min(samples, 5), generator))
        known = batch.S >= 0
        still = torch.zeros_like(model.noise_for(batch, generator))
        means = model.draw_filtering(evidence, evidence.log_q_S.exp(), batch.present, still).Z[batch.present]
        for name, values in (
            ("iw", weighed.log_p), ("half", weighed.log_p_by(max(1, samples // 2))),
            ("quarter", weighed.log_p_by(max(1, samples // 4))), ("elbo", weighed.elbo),
            ("kl_z", weighed.kl_Z.mean(1)), ("means", means),
            ("guess", evidence.log_q_S.argmax(-1)[known]), ("truth", batch.S[known]),
            ("information", _information(model, evidence, batch, draws, posterior)),
        ):  # fmt: skip
            found[name].append(values)
    whole = {name: torch.cat(parts) for name, parts in found.items()}
    n, tokens = common["n"], common["tokens"]
    nll_iw, nll_elbo, nll_authors = (-float(whole[name].sum()) for name in ("iw", "elbo", "authors"))
    truth, guess = whole["truth"], whole["guess"]
    ahead = whole.get("lookahead_use")
    scored = model.has_tags and truth.numel() > 0
    return Likelihood(
        **common, samples=samples, nll_story=nll_iw / n, ppl=math.exp(nll_iw / tokens),
        ppl_iw=math.exp(nll_iw / tokens), ppl_elbo=math.exp(nll_elbo / tokens),
        ppl_authors=math.exp(nll_authors / tokens),
        bits_per_character=nll_iw / math.log(2) / common["characters"],
        q_precision=precision,
        slack=slack(*(-whole[name].cpu() for name in ("quarter", "half", "iw"))) if samples >= FEWEST else None,
        kl_z=float(whole["kl_z"].mean()),
        mutual_information=float(whole["information"].double().mean()),
        active_units=int((whole["means"].var(0) > ACTIVE).sum()),
        z_use=mean_and_error(whole["z_use"]) if "z_use" in whole else None,
        lookahead_use=mean_and_error(ahead) if ahead is not None and ahead.numel() else None,
        accuracy_s=float((truth == guess).double().mean()) if scored else None,
        f1_s=macro_f1(truth, guess, model.K) if scored else None,
        kinds={
            "nll_story": "bound", "ppl": "bound", "ppl_iw": "bound", "ppl_elbo": "bound", "ppl_authors": "estimate",
            "bits_per_character": "bound", "q_precision": "exact", "kl_z": "estimate", "mutual_information": "estimate",
            "active_units": "estimate", "z_use": "estimate", "lookahead_use": "estimate",
            "accuracy_s": "exact", "f1_s": "exact", **({"slack": "estimate"} if samples >= FEWEST else {}),
        },
    )  # fmt: skip


def _information(
    model: SLDS, evidence: Evidence, batch: Batch, draws: Draws, posterior: str
) -> Float[Tensor, " batch"]:
    """log q(Z | X) - log of q's mean over the batch, at the first draw: I(X; Z), but at most log of the batch."""
    numbers = draws.normal[:, 0], None if draws.uniform is None else draws.uniform[:, 0]
    Z = model.draw_posterior(evidence, batch.present, *numbers, posterior).Z
    n = len(Z)
    columns = []
    for other in range(n):
        phi = type(evidence.phi)(*(t[other : other + 1].expand(n, -1, -1) for t in evidence.phi))
        s = evidence.log_q_S[other : other + 1].exp().expand(n, -1, -1)
        same = (batch.present == batch.present[other]).all(1)
        log_q = model.log_q_Z(Z, phi, s, batch.present, posterior)
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
