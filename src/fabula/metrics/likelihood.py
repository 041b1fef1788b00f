"""How probable stories are under a model: the authors' estimate, the ELBO, and a tighter bound; the use of Z and q(S).

The estimator itself is `bound.weigh`; here its figures are gathered over a dataset.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from fabula.metrics.bound import FEWEST, authors_estimate, independent_draws, slack, weigh
from fabula.metrics.latent import lookahead_use, prior_log_p_X
from fabula.metrics.record import Figure, Kind, mean_and_error, rounded
from fabula.models.batch import Batch, StoryDataset
from fabula.models.protocol import Model
from fabula.models.slds import SLDS


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
    """S2S including log p(S): a bound on log p(X), since p(X, S) <= p(X)."""
    q_precision: float | None = None
    """Factor of phi's precision in q(Z | X) (`metrics/bound.py`); all figures are by that q."""
    slack: float | None = None
    """Nats a story that the bound still lacks, estimated from its growth with the samples."""
    kl_z: float | None = None
    z_use: Figure | None = None
    lookahead_use: Figure | None = None
    accuracy_s: float | None = None
    f1_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        uses = {"z_use": self.z_use, "lookahead_use": self.lookahead_use}
        values = {**vars(self), **{name: figure and figure.value for name, figure in uses.items()}}
        values |= {f"{name}_se": figure and figure.se for name, figure in uses.items()}
        return {name: rounded(value) if isinstance(value, float) else value for name, value in values.items()}


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

    `precision` multiplies that of phi in q(Z | X), as `bound.fit_precision` chose it.
    """
    model.eval()
    tokens, n = int(dataset.token_counts.sum()), len(dataset)
    common: dict[str, Any] = {"n": n, "seed": seed, "tokens": tokens, "characters": characters}
    batches = tqdm(list(dataset.in_order(batch_size)), disable=not bar, leave=False, unit="batch")
    if model.latent is not None:
        q = Proposal(posterior, precision, samples, torch.Generator(dataset.device).manual_seed(seed))
        chosen = set(np.random.default_rng(seed).permutation(n)[:latent_stories].tolist())
        parts: dict[str, list[Tensor]] = defaultdict(list)
        for rows in batches:
            batch = dataset.batch(rows)
            looked = torch.tensor([i for i, row in enumerate(rows) if row in chosen], device=dataset.device)
            for name, values in _batch_figures(model.latent, batch, q, looked).items():
                parts[name].append(values)
        return _summary(model.latent, {name: torch.cat(values) for name, values in parts.items()}, q, common)
    total = -sum(float(weigh(model, dataset.batch(rows), None, posterior).log_p.sum()) for rows in batches)
    counted = int(model.token_count(dataset.token_counts, dataset.sentences).sum())
    joint: float | None = total
    kinds: dict[str, Kind] = {"nll_story": "exact", "ppl": "exact", "bits_per_character": "exact"}
    if model.reads_tags:  # p(X | S) is no probability of X alone: log p(S) is added where the tags are known
        joint = None if log_p_S is None else total - float(log_p_S.sum())
        kinds |= {"ppl_with_tags": "bound", "bits_per_character": "bound"}
    return Likelihood(
        **common, samples=0, nll_story=total / n, ppl=math.exp(total / counted), kinds=kinds,
        ppl_with_tags=None if joint is None or not model.reads_tags else math.exp(joint / counted),
        bits_per_character=None if joint is None else joint / math.log(2) / characters,
    )  # fmt: skip


class Proposal(NamedTuple):
    """How Z is drawn from q(Z | X)."""

    posterior: str
    precision: float
    samples: int
    generator: torch.Generator


def _batch_figures(model: SLDS, batch: Batch, q: Proposal, looked: Tensor) -> dict[str, Tensor]:
    """Figures of each story or sentence; those of the use of Z for the stories at `looked` only."""
    draws = independent_draws(model, batch, q.samples, q.posterior, q.generator)
    assert draws is not None
    weighed = weigh(model, batch, draws, q.posterior, q.precision)
    figures = {"authors": authors_estimate(model, batch, q.generator)}
    if len(looked):
        some, few = batch.rows(looked), min(q.samples, 5)
        z_use = weighed.log_p_X[looked, :few].mean(1) - prior_log_p_X(model, some, q.generator)
        figures |= {"z_use": z_use, "lookahead_use": lookahead_use(model, some, few, q.generator)}
    evidence, known = model.evidence(batch), batch.S >= 0
    return figures | {
        "iw": weighed.log_p,
        "half": weighed.log_p_by(max(1, q.samples // 2)),
        "quarter": weighed.log_p_by(max(1, q.samples // 4)),
        "elbo": weighed.elbo,
        "kl_z": weighed.kl_Z.mean(1),
        "guess": evidence.log_q_S.argmax(-1)[known],
        "truth": batch.S[known],
    }


def _summary(model: SLDS, figures: dict[str, Tensor], q: Proposal, common: dict[str, Any]) -> Likelihood:
    """The figures of all stories as means, perplexities and shares."""
    n, tokens = common["n"], common["tokens"]
    nll = {name: -float(figures[name].sum()) for name in ("iw", "elbo", "authors")}
    ppl = {name: math.exp(nats / tokens) for name, nats in nll.items()}
    truth, guess = figures["truth"], figures["guess"]
    use: dict[str, Any] = {
        name: mean_and_error(figures[name]) for name in ("z_use", "lookahead_use") if len(figures.get(name, ()))
    }
    tagged = model.has_tags and truth.numel() > 0
    lacks = slack(*(-figures[name].cpu() for name in ("quarter", "half", "iw"))) if q.samples >= FEWEST else math.inf
    has_slack = math.isfinite(lacks)
    bounds: dict[str, Kind] = dict.fromkeys(("nll_story", "ppl", "ppl_iw", "ppl_elbo", "bits_per_character"), "bound")
    estimates: dict[str, Kind] = dict.fromkeys(("ppl_authors", "kl_z", "z_use", "lookahead_use"), "estimate")
    exact: dict[str, Kind] = dict.fromkeys(("q_precision", "accuracy_s", "f1_s"), "exact")
    return Likelihood(
        **common, samples=q.samples, nll_story=nll["iw"] / n, ppl=ppl["iw"], ppl_iw=ppl["iw"], ppl_elbo=ppl["elbo"],
        ppl_authors=ppl["authors"], bits_per_character=nll["iw"] / math.log(2) / common["characters"],
        q_precision=q.precision,
        slack=lacks if has_slack else None,
        kl_z=float(figures["kl_z"].mean()), **use,
        accuracy_s=float((truth == guess).double().mean()) if tagged else None,
        f1_s=macro_f1(truth, guess, model.K) if tagged else None,
        kinds={**bounds, **estimates, **exact, **({"slack": "estimate"} if has_slack else {})},
    )  # fmt: skip


def macro_f1(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], K: int) -> float:
    """The mean over states of each state's F1, in percent; a state nobody has or guesses is left out."""
    scores = []
    for k in range(K):
        hits, count = int(((truth == k) & (guess == k)).sum()), int((truth == k).sum()) + int((guess == k).sum())
        if count:
            scores.append(200 * hits / count)
    return sum(scores) / len(scores)
