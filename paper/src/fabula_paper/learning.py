"""Units that train a system and look at what it learned: its likelihood, story by story, and its dynamics."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fabula.metrics.bound import authors_estimate, own_draws, weigh
from fabula.metrics.latent import lookahead_use
from fabula.metrics.likelihood import macro_f1
from fabula.metrics.measure import calibrated, log_p_of_tags
from fabula.metrics.record import mean_and_error, rounded
from fabula.models.batch import StoryDataset
from fabula.models.io import load
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.sampling import decode
from fabula.sampling.batch import infill_batch
from fabula.sampling.decode import GREEDY
from fabula.training.loop import train
from fabula.training.resume import read_log
from fabula_paper.bench import Bench, OutOfTimeError, weights_of
from fabula_paper.plan import BY_NAME, Unit
from fabula_paper.records import rounded_list

FloatArray = NDArray[np.float64]
STORIES_AT_ONCE = {"cpu": 256, "cuda": 1600}
"""Stories of a batch, by device: sentences are read one after the other, so a GPU needs many stories to be busy."""
LOOKED_AT = 200
"""How many stories the use of Z is measured on."""
CHANGED = 8
"""How many stories have their second sentence written under every state."""


BOUNDS = ("iw", "iw_half", "iw_quarter", "elbo")
"""Importance-weighted by all samples, by half and a quarter of them, by one."""


class EnoughError(Exception):
    """Training has had its share of the time; its best epoch so far is the system."""


def train_system(bench: Bench, unit: Unit) -> None:
    """Train a system by its recipe, resuming where an earlier call stopped; a given checkpoint is only noted."""
    system, job, began = BY_NAME[unit.system], bench.job, time.perf_counter()
    folder = bench.folder(system)
    stopped = "given"
    if system.name not in job.models:
        folder.mkdir(parents=True, exist_ok=True)
        recipe = bench.recipe(system)
        stopped = "epochs"

        def report(entry: dict[str, Any]) -> None:
            now = time.time()
            if job.train_until is not None and now >= job.train_until:
                raise EnoughError
            if job.deadline is not None and now >= job.deadline:
                raise OutOfTimeError

        try:
            resume = (folder / "resume" / "state.json").exists()
            train(recipe, bench.corpus, folder, device=str(bench.device), resume=resume, bar=False, report=report)
        except EnoughError:
            stopped = "time"
    checkpoint = load(folder, bench.device)
    bench._held.clear()
    entries = read_log(folder)
    if stopped == "epochs" and entries and entries[-1]["epoch"] < checkpoint.recipe["train"]["epochs"]:
        stopped = "patience"
    record = {
        **bench.common(unit, n=len(bench.corpus.split("train")), kind="exact", began=began),
        "settings": dict(checkpoint.recipe),
        "changes": bench.changes(system) if stopped != "given" else {},
        "stopped": stopped,
        "epochs": len(entries) or checkpoint.figures.get("epoch"),
        "best_epoch": checkpoint.figures.get("epoch"),
        "valid_nll": rounded(checkpoint.figures.get("valid_nll")),
        "train_seconds": round(sum(entry["seconds"] for entry in entries), 1),
        "parameters": sum(p.numel() for p in checkpoint.model.parameters()),
        "log": entries,
        "weights": weights_of(folder),
    }
    bench.records.write(unit.name, record)


def measure_system(bench: Bench, unit: Unit) -> None:
    """The likelihood of every test story by every estimate, and what Z and q(S) are worth."""
    system, began = BY_NAME[unit.system], time.perf_counter()
    checkpoint = bench.checkpoint(system)
    stories, samples = bench.test, bench.job.scale.bound_samples
    dataset = StoryDataset(stories, bench.device)
    posterior = checkpoint.posterior
    log_p_S = log_p_of_tags(stories, bench.corpus.transitions)
    model = checkpoint.model
    precision = calibrated(checkpoint, bench.corpus, bench.device)
    arrays = story_nlls(model, dataset, samples, bench.job.seed, posterior, precision)
    tokens = model.token_count(dataset.token_counts, dataset.sentences)
    if model.reads_tags and log_p_S is not None:
        arrays["with_tags"] = arrays["nll"] - log_p_S
    figures = {} if model.latent is None else latent_figures(model.latent, bench)
    if "kl_z" in arrays:
        figures["kl_z"] = rounded(float(arrays.pop("kl_z").mean()))
    kinds = dict.fromkeys(("with_tags", *BOUNDS), "bound") | {"nll": "exact", "authors": "estimate"}
    record = {
        **bench.common(unit, n=len(dataset), kind="estimate", began=began),
        "samples": samples if model.has_latent else 0,
        "q_precision": precision if model.has_latent else None,
        "kinds": {name: kinds[name] for name in arrays},
        "ppl": {name: rounded(math.exp(values.sum() / tokens.sum())) for name, values in arrays.items()},
        "nll_story": {name: rounded(float(values.mean())) for name, values in arrays.items()},
        "tags_nll_story": None if log_p_S is None else rounded(float(-log_p_S.mean())),
        "latent": figures,
        "tokens": tokens.tolist(),
        "stories": {name: rounded_list(values) for name, values in arrays.items()},
    }
    bench.records.write(unit.name, record)


@torch.no_grad()
def story_nlls(
    model: Model, dataset: StoryDataset, samples: int, seed: int, posterior: str, precision: float = 1.0
) -> dict[str, FloatArray]:
    """Negative log-likelihood of each story: exact (`nll`), or for a latent model IW bound, ELBO, authors' estimate.

    Beside those of a latent model stand the bound by half and by a quarter of the samples, which tell how much it
    still lacks, and its KL of Z with S summed out.
    """
    found: dict[str, FloatArray] = defaultdict(lambda: np.zeros(len(dataset)))
    generator = torch.Generator(dataset.device).manual_seed(seed)
    model.eval()
    for rows in dataset.in_order(STORIES_AT_ONCE.get(dataset.device.type, 256)):
        batch = dataset.batch(rows)
        weighed = weigh(model, batch, own_draws(model, batch, samples, posterior, generator), posterior, precision)
        figures = {"nll": -weighed.log_p}
        if model.latent is not None:
            authors = authors_estimate(model.latent, batch, generator)
            kl = weighed.kl_Z.mean(1)
            fewer = {"iw_half": max(1, samples // 2), "iw_quarter": max(1, samples // 4)}
            figures = {"iw": -weighed.log_p, "elbo": -weighed.elbo, "authors": -authors, "kl_z": kl}
            figures |= {name: -weighed.log_p_by(few) for name, few in fewer.items()}
        for name, values in figures.items():
            found[name][rows] = values.cpu().numpy()
    return dict(found)


@torch.no_grad()
def latent_figures(model: SLDS, bench: Bench) -> dict[str, Any]:
    """How well q(S | X) reads tags, on all test stories; and whether Z matters, on some."""
    dataset = StoryDataset(bench.test, bench.device)
    generator = torch.Generator(bench.device).manual_seed(bench.job.seed)
    truth, guess = [], []
    for rows in dataset.in_order(STORIES_AT_ONCE.get(dataset.device.type, 256)):
        batch = dataset.batch(rows)
        known = batch.S >= 0
        truth.append(batch.S[known].cpu())
        guess.append(model.evidence(batch).log_q_S.argmax(-1)[known].cpu())
    ahead = lookahead_use(model, dataset.batch(np.asarray(bench.rows[:LOOKED_AT])), 5, generator)
    figure = mean_and_error(ahead)
    return {
        "f1_s": rounded(macro_f1(torch.cat(truth), torch.cat(guess), model.K)) if model.K > 1 else None,
        "lookahead_use": rounded(figure.value),
        "lookahead_use_se": rounded(figure.se),
    }


@torch.no_grad()
def look_at_dynamics(bench: Bench, unit: Unit) -> None:
    """Spectra of A_s, where each state takes Z, and what a change of S does to a sentence."""
    began = time.perf_counter()
    checkpoint = bench.checkpoint(BY_NAME[unit.system])
    model = checkpoint.model.latent
    assert model is not None
    A, bias, Sigma = (t.double().cpu() for t in (model.dynamics.A, model.dynamics.bias, model.dynamics.Sigma()))
    values = torch.linalg.eigvals(A)
    rest = torch.linalg.solve(torch.eye(model.D, dtype=A.dtype) - A, bias.unsqueeze(-1)).squeeze(-1)
    Z, S = posterior_means(model, bench)
    centre = Z.mean(0)
    # Two axes that most of the posterior means lie along: only for drawing.
    _, _, axes = torch.linalg.svd(Z - centre, full_matrices=False)
    plane = axes[:2]

    def flat(points: Tensor) -> list[list[float]]:
        return [rounded_list(point) for point in ((points - centre) @ plane.T).tolist()]

    paths = []
    for k in range(model.K):
        z, path = torch.zeros(model.D, dtype=A.dtype), []
        for _ in range(5):
            z = A[k] @ z + bias[k]
            path.append(z)
        paths.append(flat(torch.stack(path)))
    of_state = [Z[S.eq(k)] for k in range(model.K)]
    names = list(checkpoint.labels) if model.K > 1 else ["the one state"]
    shown = torch.randperm(len(Z), generator=torch.Generator().manual_seed(bench.job.seed))[:300]
    record = {
        **bench.common(unit, n=len(bench.rows), kind="exact", began=began),
        "labels": names,
        "spectrum": [[rounded_list((v.real, v.imag), 4) for v in row] for row in values.tolist()],
        "radius": rounded_list(values.abs().amax(1).tolist(), 4),
        "bias_norm": rounded_list(bias.norm(dim=1).tolist(), 4),
        "noise": rounded_list(Sigma.diagonal(dim1=1, dim2=2).mean(1).sqrt().tolist(), 4),
        "rest": flat(rest),
        "from_nothing": paths,
        "apart": [[rounded(float((bias[j] - bias[k]).norm()), 4) for k in range(model.K)] for j in range(model.K)],
        "cloud": flat(Z[shown]),
        "cloud_tags": S[shown].tolist(),
        "means": [flat(own.mean(0, keepdim=True))[0] if len(own) else None for own in of_state],
        "spread": rounded_list(((Z - centre) @ plane.T).std(0).tolist(), 4),
        "changed": changed_sentences(model, bench, names),
    }
    bench.records.write(unit.name, record)


def posterior_means(model: SLDS, bench: Bench) -> tuple[Tensor, Tensor]:
    """E q(Z_i | X) of the chosen stories' sentences, and their tags."""
    dataset = StoryDataset(bench.test, bench.device)
    batch = dataset.batch(np.asarray(bench.rows[:300]))
    evidence = model.evidence(batch)
    still = torch.zeros(*batch.lengths.shape, model.D, device=bench.device)
    Z = model.draw_filtering(evidence, evidence.log_q_S.exp(), batch.present, still).Z
    tags = batch.S if model.K > 1 else torch.zeros_like(batch.S)
    return Z[batch.present].double().cpu(), tags[batch.present].cpu()


def changed_sentences(model: SLDS, bench: Bench, names: list[str]) -> list[dict[str, Any]]:
    """The model's own first sentence (no state before it), then the second under every state, all greedily.

    Z_1 is drawn once for a story; Z_2 is the mean of the dynamics after it, so that only S_2 differs.
    """
    vocabulary = bench.corpus.vocabulary
    generator = torch.Generator().manual_seed(bench.job.seed)
    found = []
    for n in range(CHANGED):
        first = n % model.K
        noise = torch.randn(1, model.D, generator=generator).to(bench.device)
        z = model.dynamics(torch.zeros_like(noise), model.one_hot(torch.tensor([[first]], device=bench.device))[:, 0])
        z_1 = z.rsample(noise)
        entry: dict[str, Any] = {"first_state": names[first]}
        for k, name in enumerate(names):
            z_2 = model.dynamics.mean_each(z_1)[:, k]
            blank = infill_batch([[None, None]], device=bench.device)
            written = decode.story(model.decoder, bench.rules, GREEDY, blank, None, torch.stack([z_1, z_2], 1))
            lines = [
                " ".join(vocabulary.decode(written.X[0, i, : int(written.lengths[0, i]) - 1].tolist())) for i in (0, 1)
            ]
            entry["first"], entry[name] = lines
        found.append(entry)
    return found
