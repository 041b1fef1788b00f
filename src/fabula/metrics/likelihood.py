"""How probable stories are under a model: the authors' estimate, the ELBO, and a tighter bound; q(S) and the use of Z.

The estimator itself is `bound.weigh`; here its figures are gathered over a dataset.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from fabula.metrics.bound import FEWEST, authors_estimate, independent_draws, slack, weigh
from fabula.metrics.record import Kind, mean_and_error, rounded
from fabula.models.batch import Batch, IntArray, StoryDataset
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.statespace.chain import chain
from fabula.statespace.gaussian import Potential
from fabula.training.losses.elbo import kl_of_tags

FloatArray = NDArray[np.float64]
STORIES_AT_ONCE = {"cpu": 256, "cuda": 1600}
"""Batch size by device."""
Z_STORIES, Z_DRAWS = 500, 5
"""Stories that the use of Z is measured on, at most, and draws of Z for each."""
KINDS: dict[str, Kind] = {
    "nll_story": "exact", "ppl": "exact", "bits_per_character": "exact", "ppl_iw": "bound", "ppl_elbo": "bound",
    "ppl_authors": "estimate", "ppl_with_tags": "bound", "slack": "estimate", "q_precision": "exact",
    "kl_z": "estimate", "z_use": "estimate", "f1_s": "exact",
}  # fmt: skip
"""Every figure of `likelihood`, and what it is for a model without latents or where it says nothing else."""


@torch.no_grad()
def likelihood(
    model: Model, dataset: StoryDataset, *, characters: int, log_p_S: FloatArray | None = None, samples: int = 20,
    seed: int = 0, posterior: str = "filtering", precision: float = 1.0, bar: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Every figure of `KINDS` as a record, None where it has no meaning for the model.

    `precision` multiplies that of phi in q(Z | X), as `bound.fit_precision` chose it. `nll_story` is the exact figure,
    for S2S given S, for latent models the importance-weighted bound.
    """
    nats = story_nats(model, dataset, samples, seed, posterior, precision, bar)
    best, n, kinds = nats["iw" if model.has_latent else "nll"], len(dataset), dict(KINDS)
    counted = int(model.token_count(dataset.token_counts, dataset.sentences).sum())
    joint: FloatArray | None = best
    if model.reads_tags:  # p(X | S) is no probability of X alone: log p(S) is added where the tags are known
        joint = None if log_p_S is None else best - log_p_S
        nats |= {} if joint is None else {"with_tags": joint}
        kinds["bits_per_character"] = "bound"
    figures: dict[str, Any] = dict.fromkeys(KINDS)
    figures |= {"nll_story": best.mean(), "ppl": math.exp(best.sum() / counted)}
    figures |= {f"ppl_{name}": math.exp(nats[name].sum() / counted) for name in nats if f"ppl_{name}" in KINDS}
    if joint is not None:
        figures["bits_per_character"] = joint.sum() / math.log(2) / characters
    z_use_se: float | None = None
    if model.latent is not None:
        kinds |= dict.fromkeys(("nll_story", "ppl", "bits_per_character"), "bound")
        lacks = slack(nats["iw_quarter"], nats["iw_half"], best) if samples >= FEWEST else math.inf
        z_use, z_use_se = use_of_Z(model.latent, dataset, seed, posterior, precision)
        figures |= {"slack": lacks, "q_precision": precision, "kl_z": nats["kl_z"].mean(), "z_use": z_use}
        figures["f1_s"] = tag_f1(model.latent, dataset)
    values = {name: None if value is None else rounded(float(value)) for name, value in figures.items()}
    return {
        "n": n, "samples": samples if model.has_latent else 0, "seed": seed, "tokens": int(dataset.token_counts.sum()),
        "characters": characters, **values, "z_use_se": rounded(z_use_se),
        "kinds": {name: kinds[name] for name, value in values.items() if value is not None},
    }  # fmt: skip


@torch.no_grad()
def story_nats(
    model: Model, dataset: StoryDataset, samples: int, seed: int, posterior: str, precision: float = 1.0,
    bar: bool = False,
) -> dict[str, FloatArray]:  # fmt: skip
    """Negative log-likelihood of each story: exact (`nll`), or for a latent model IW bound, ELBO, authors' estimate.

    A latent model also has the bound by half and by a quarter of the samples, which give its slack, its KL of Z with S
    summed out, and the KL of S under q, which the paper's L has and the authors' estimate has not.
    """
    nats: dict[str, FloatArray] = defaultdict(lambda: np.zeros(len(dataset)))
    generator = torch.Generator(dataset.device).manual_seed(seed)
    model.eval()
    for rows in tqdm(list(batches(dataset)), disable=not bar, leave=False, unit="batch"):
        batch = dataset.batch(rows)
        draws = independent_draws(model, batch, samples, posterior, generator)
        weighed = weigh(model, batch, draws, posterior, precision)
        figures = {"nll": -weighed.log_p}
        if model.latent is not None:
            authors = authors_estimate(model.latent, batch, generator)
            kl = weighed.kl_Z.mean(1)
            fewer = {"iw_half": max(1, samples // 2), "iw_quarter": max(1, samples // 4)}
            figures = {"iw": -weighed.log_p, "elbo": -weighed.elbo, "authors": -authors, "kl_z": kl}
            figures |= {name: -weighed.log_p_by(few) for name, few in fewer.items()}
            evidence = model.latent.evidence(batch)
            figures["kl_s"] = kl_of_tags(model.latent, evidence, evidence.log_q_S.exp(), batch)
        for name, values in figures.items():
            nats[name][rows] = values.cpu().numpy()
    return dict(nats)


def batches(dataset: StoryDataset) -> Iterator[IntArray]:
    """The rows of every batch."""
    return dataset.in_order(STORIES_AT_ONCE.get(dataset.device.type, 256))


def use_of_Z(model: SLDS, dataset: StoryDataset, seed: int, posterior: str, precision: float) -> tuple[float, float]:
    """E log p(X | Z ~ q(Z | X)) - E log p(X | Z ~ p(Z | S)) of some random stories, in nats a story; and its error."""
    generator, gains = torch.Generator(dataset.device).manual_seed(seed), []
    chosen = np.random.default_rng(seed).permutation(len(dataset))[:Z_STORIES]
    for rows in np.array_split(chosen, -(-len(chosen) // 64)):
        batch = dataset.batch(rows)
        draws = independent_draws(model, batch, Z_DRAWS, posterior, generator)
        known = weigh(model, batch, draws, posterior, precision).log_p_X.mean(1)
        gains.append(known - prior_log_p_X(model, batch, generator, Z_DRAWS))
    return mean_and_error(torch.cat(gains))


def prior_log_p_X(model: SLDS, batch: Batch, generator: torch.Generator, draws: int = 5) -> Float[Tensor, " batch"]:
    """E log p(X | Z) with Z ~ p(Z | S): X under a Z that depends on the arc alone."""
    S = torch.where(batch.S >= 0, batch.S, model.evidence(batch).log_q_S.argmax(-1)) if model.K > 1 else batch.S * 0
    Z = draw_given(model, S, batch.present, draws, generator)
    return torch.stack([model.log_p_X(batch, Z[:, m]).sum(-1) for m in range(draws)], 1).mean(1)


def draw_given(
    model: SLDS, S: Int[Tensor, "batch sent"], present: Tensor, draws: int, generator: torch.Generator
) -> Float[Tensor, "batch sample sent latent"]:
    """Z ~ p(Z | S), `draws` for each row."""
    A = model.dynamics.A
    noise = torch.randn((S.shape[0], draws, S.shape[1], model.D), generator=generator, device=A.device, dtype=A.dtype)
    no_evidence = torch.zeros_like(noise[:, 0])
    return chain(model.dynamics, S, Potential(no_evidence, no_evidence), present).sample(noise)


@torch.no_grad()
def tag_f1(model: SLDS, dataset: StoryDataset) -> float | None:
    """Macro-F1 of the most probable tags of q(S | X), in percent; None without tags to compare them with."""
    truth, guess = [], []
    for rows in batches(dataset):
        batch = dataset.batch(rows)
        tagged = batch.S >= 0
        truth.append(batch.S[tagged].cpu())
        guess.append(model.evidence(batch).log_q_S.argmax(-1)[tagged].cpu())
    known = torch.cat(truth)
    return macro_f1(known, torch.cat(guess), model.K) if model.has_tags and len(known) else None


def macro_f1(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], K: int) -> float:
    """The mean over states of each state's F1, in percent; a state nobody has or guesses is left out."""
    scores = []
    for k in range(K):
        hits, count = int(((truth == k) & (guess == k)).sum()), int((truth == k).sum()) + int((guess == k).sum())
        if count:
            scores.append(200 * hits / count)
    return sum(scores) / len(scores)
