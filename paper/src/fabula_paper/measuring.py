"""Units that train a system and measure: likelihoods, their slack, the KL of S, F1 of the tags."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from fabula.corpus.transitions import Transitions
from fabula.metrics.bound import independent_draws, weigh
from fabula.metrics.likelihood import story_nats, tag_f1
from fabula.metrics.measure import calibrated, log_p_of_tags
from fabula.metrics.record import rounded
from fabula.models.batch import Batch, StoryDataset
from fabula.models.protocol import Model
from fabula.training.loop import train
from fabula.training.resume import read_log
from fabula_paper.bench import Bench, Made
from fabula_paper.plan import BY_NAME, Unit
from fabula_paper.records import rounded_list

KINDS = dict.fromkeys(("with_tags", "iw", "iw_half", "iw_quarter", "elbo"), "bound") | {
    "nll": "exact", "authors": "estimate",
}  # fmt: skip
"""Importance-weighted bounds by all samples, by half, by a quarter, by one; exact figures; the authors' estimate."""


def train_system(bench: Bench, unit: Unit) -> Made | None:
    """Train a system by its recipe, resuming where an earlier call stopped; a given checkpoint is only noted."""
    system, job = BY_NAME[unit.system], bench.job
    folder, stopped = bench.folder(system), "given"
    if system.name not in job.models:
        folder.mkdir(parents=True, exist_ok=True)
        resume = (folder / "resume" / "state.json").exists()
        if not job.as_it_stands:
            recipe = bench.recipe(system)
            train(recipe, bench.corpus, folder, device=str(bench.device), resume=resume, bar=False)
        elif not resume:
            return None  # no epoch has ended: there is nothing to note
        stopped = "epochs"
    checkpoint = bench.checkpoint(system)
    entries, settings = read_log(folder), checkpoint.recipe["train"]
    without_gain = len(entries) - (checkpoint.figures.get("epoch") or 0)
    if stopped == "epochs" and entries and len(entries) < settings["epochs"]:
        stopped = "patience" if without_gain >= settings["patience"] else "time"
    record = {
        "n": len(bench.corpus.split("train")), "kind": "exact",
        "settings": dict(checkpoint.recipe), "changes": bench.changes(system) if stopped != "given" else {},
        "stopped": stopped, "epochs_without_gain": without_gain, "log": entries,
        "epochs": len(entries) or checkpoint.figures.get("epoch"), "best_epoch": checkpoint.figures.get("epoch"),
        "valid_nll": rounded(checkpoint.figures.get("valid_nll")),
        "train_seconds": round(sum(entry["seconds"] for entry in entries), 1),
        "parameters": sum(p.numel() for p in checkpoint.model.parameters()),
    }  # fmt: skip
    return record, None


def measure_system(bench: Bench, unit: Unit) -> Made:
    """The likelihood of every test story by every estimate, and the F1 of q(S | X)."""
    checkpoint = bench.checkpoint(BY_NAME[unit.system])
    stories, samples = bench.test, bench.job.scale.bound_samples
    dataset, model = StoryDataset(stories, bench.device), checkpoint.model
    log_p_S = log_p_of_tags(stories, bench.corpus.transitions)
    precision = calibrated(checkpoint, bench.corpus, bench.device)
    arrays = story_nats(model, dataset, samples, bench.job.seed, checkpoint.posterior, precision)
    tokens = model.token_count(dataset.token_counts, dataset.sentences)
    if model.reads_tags and log_p_S is not None:
        arrays["with_tags"] = arrays["nll"] - log_p_S
    figures = {} if model.latent is None else {"f1_s": rounded(tag_f1(model.latent, dataset))}
    for name in {"kl_z", "kl_s"} & set(arrays):
        figures[name] = rounded(float(arrays.pop(name).mean()))
    record = {
        "n": len(dataset),
        "kind": "estimate",
        "samples": samples if model.has_latent else 0,
        "q_precision": precision if model.has_latent else None,
        "kinds": {name: KINDS[name] for name in arrays},
        "ppl": {name: rounded(math.exp(values.sum() / tokens.sum())) for name, values in arrays.items()},
        "nll_story": {name: rounded(float(values.mean())) for name, values in arrays.items()},
        "tags_nll_story": None if log_p_S is None else rounded(float(-log_p_S.mean())),
        "latent": figures,
        "tokens": tokens.tolist(),
        "stories": {name: rounded_list(values) for name, values in arrays.items()},
    }
    return record, None


def tighten(bench: Bench, unit: Unit) -> Made:
    """log p(X) of some random test stories, closer: by many more samples, or for S2S by the sum over all tag paths."""
    scale, checkpoint = bench.job.scale, bench.checkpoint(BY_NAME[unit.system])
    rows = np.random.default_rng(bench.job.seed).permutation(len(bench.test))[: scale.tight_stories]
    dataset, precision = StoryDataset(bench.test, bench.device), calibrated(checkpoint, bench.corpus, bench.device)
    generator = torch.Generator(bench.device).manual_seed(bench.job.seed + 1)
    parts: dict[str, list[float]] = defaultdict(list)
    model = checkpoint.model
    # A path of tags is cheap: of S2S many stories at once.
    for some in np.array_split(rows, max(1, len(rows) // (100 if model.reads_tags else 8))):
        batch = dataset.batch(some)
        if model.reads_tags:
            parts["iw"] += summed_over_tags(model, batch, bench.corpus.transitions).tolist()
            continue
        with torch.no_grad():
            draws = independent_draws(model, batch, scale.tight_samples, checkpoint.posterior, generator)
            weighed = weigh(model, batch, draws, checkpoint.posterior, precision)
        for name, share in (("iw", 1), ("iw_half", 2), ("iw_quarter", 4)):
            parts[name] += (-weighed.log_p_by(scale.tight_samples // share)).tolist()
    record = {
        "n": len(rows), "kind": "exact" if len(parts) == 1 else "bound",
        "samples": 0 if len(parts) == 1 else scale.tight_samples, "rows": rows.tolist(),
        "nll_story": rounded(float(np.mean(parts["iw"]))),
        "stories": {name: rounded_list(values) for name, values in parts.items()},
    }  # fmt: skip
    return record, None


@torch.no_grad()
def summed_over_tags(model: Model, batch: Batch, transitions: Transitions) -> Tensor:
    """-log sum_S p(S) p(X | S), over all K^N tag paths of every story."""
    log_first, log_next = np.log(transitions.p_initial), np.log(transitions.p_next)
    total = torch.full((len(batch.tokens),), -torch.inf, dtype=torch.float64, device=batch.tokens.device)
    for path in itertools.product(range(len(log_first)), repeat=batch.lengths.shape[1]):
        log_p_S = log_first[path[0]] + sum(log_next[pair] for pair in itertools.pairwise(path))
        S = torch.tensor(path, device=total.device).expand_as(batch.S)
        log_p = model.log_p_words(batch._replace(S=S)).double().sum(1) + log_p_S
        total = torch.logaddexp(total, log_p)
    return -total
