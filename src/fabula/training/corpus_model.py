"""Learning of a model of a prepared corpus: SLDS, LDS, LM and S2S, by the bound of `losses/elbo.py`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fabula.corpus.dataset import Corpus
from fabula.corpus.people import People
from fabula.corpus.states import UNKNOWN
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError
from fabula.models.batch import IntArray, StoryDataset
from fabula.models.build import build
from fabula.models.io import Checkpoint, load, save
from fabula.models.protocol import Model, Terms
from fabula.training.learner import Learner
from fabula.training.losses import elbo
from fabula.training.recipe import ObjectiveSettings, Recipe

BY_WORD = ("embedding.weight", "output.weight", "output.bias", "valence.free.weight")
"""Tensors with a row for every word."""
COUNTED = "scaffold."
"""p(S) is counted from the new corpus, not carried over."""


class CorpusLearner(Learner):
    """A model over the words of a corpus, with the labels that its objective may see."""

    terms = Terms._fields
    recipe: Recipe

    def __init__(self, recipe: Recipe, corpus: Corpus, device: torch.device, start: Checkpoint | None = None) -> None:
        self.recipe, self.corpus, self.device, self.data_hash = recipe, corpus, device, corpus.hash
        torch.manual_seed(recipe.train.seed)
        p_initial = torch.from_numpy(np.asarray(corpus.transitions.p_initial))
        p_next = torch.from_numpy(np.asarray(corpus.transitions.p_next))
        self.model: Model = build(recipe.model, len(corpus.vocabulary), p_initial, p_next).to(device)
        self.network = self.model
        if start is not None:
            adopt(self.model, corpus.vocabulary, tuple(corpus.labels), start)
        self.train_stories = StoryDataset(corpus.split("train"), device)
        self.valid_stories = StoryDataset(corpus.split("valid"), device)
        self.labelled = labelled_rows(len(self.train_stories), recipe.objective)
        seen = np.repeat(np.isin(np.arange(len(self.train_stories)), self.labelled), self.train_stories.sentences)
        self.train_stories.tags[:-1].masked_fill_(torch.from_numpy(~seen).to(device), UNKNOWN)
        self.half = recipe.train.precision == "bfloat16" and device.type == "cuda"
        self.people = People.count(corpus.split("train"), corpus.vocabulary)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The networks at one rate, A, bias and B at another."""
        model, settings = self.model, self.recipe.train
        dynamics = [] if model.latent is None else list(model.latent.dynamics.parameters())
        slow = {id(p) for p in dynamics}
        networks = [p for p in model.parameters() if id(p) not in slow]
        groups: list[dict[str, Any]] = [{"params": networks, "full_rate": settings.learning_rate}]
        if dynamics:
            groups.append({"params": dynamics, "full_rate": settings.learning_rate_dynamics, "weight_decay": 0.0})
        return groups

    def batches(self, epoch: int) -> list[IntArray]:
        settings = self.recipe.train
        return list(self.train_stories.bucketed(settings.batch, np.random.default_rng([settings.seed, epoch])))

    def rate(self, step: int, steps: int) -> float:
        """A linear rise over the warm-up, and a half cosine to nothing where the recipe has one."""
        settings = self.recipe.train
        rise = min(1.0, (step + 1) / (settings.warmup_steps + 1))
        if settings.schedule == "plateau":
            return rise
        return rise * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))

    def loss(self, batch: IntArray, step: int, per_epoch: int) -> tuple[Tensor, Float[Tensor, " term"]]:
        settings = self.recipe.objective
        terms = elbo.terms(self.model, self.train_stories.batch(batch), settings, half=self.half)
        return self.total(terms, step, per_epoch), torch.stack([value.detach().double().mean() for value in terms])

    def total(self, terms: Terms, step: int, per_epoch: int) -> Tensor:
        """The loss of the terms, with the labelled stories that are read again."""
        settings, model = self.recipe.objective, self.model.latent
        loss = elbo.loss(terms, settings, min(1.0, (step + 1) / max(1.0, settings.kl_warmup * per_epoch)))
        if model is None or not settings.labelled_per_step:
            return loss
        # log q(S_i) of labelled stories drawn for this term alone, so that every step sees some of 1 % of labels.
        rng, number = np.random.default_rng([self.recipe.train.seed, 1, step]), settings.labelled_per_step
        batch = self.train_stories.batch(rng.choice(self.labelled, min(number, len(self.labelled)), replace=False))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half):
            evidence = model.evidence(batch)
        return loss - settings.alpha * elbo.log_q_of(evidence, batch.S).mean()

    @torch.no_grad()
    def validate(self) -> tuple[float, dict[str, float]]:
        """Negative bound per story on the validation split, S summed out: the same figure for every objective."""
        generator = torch.Generator(self.device).manual_seed(0)
        posterior = self.checkpoint({}).posterior
        summed_out = ObjectiveSettings(kind="collapsed", clamp_tags=False)
        total, sums = 0.0, dict.fromkeys(Terms._fields, 0.0)
        for rows in self.valid_stories.in_order(256):
            batch = self.valid_stories.batch(rows)
            terms = elbo.terms(self.model, batch, summed_out, generator=generator, half=self.half, posterior=posterior)
            total -= float(terms.bound().sum())
            for name, value in terms._asdict().items():
                sums[name] += float(value.sum())
        n = len(self.valid_stories)
        return total / n, {name: value / n for name, value in sums.items()}

    def checkpoint(self, figures: dict[str, Any]) -> Checkpoint:
        sentences = round(float(np.diff(self.corpus.split("train").story_offsets).mean()), 1)
        return Checkpoint(
            model=self.model,
            vocabulary=self.corpus.vocabulary,
            labels=tuple(self.corpus.labels),
            tagger=self.corpus.tagger,
            recipe=self.recipe.to_dict(),
            corpus_hash=self.corpus.hash,
            figures={**figures, "sentences": sentences},
            people=self.people,
            factors=self.corpus.states.factors,
        )

    def save(self, out: Path, figures: dict[str, Any], weights: dict[str, Tensor]) -> None:
        save(out, self.checkpoint(figures), weights=weights)

    def finish(self, out: Path) -> None:
        self.model.load_state_dict(load(out, self.device).model.state_dict())


def labelled_rows(n: int, objective: ObjectiveSettings) -> IntArray:
    """Which stories keep their tags: a share drawn by a seed, at least one unless the share is zero."""
    if objective.labelled >= 1:
        return np.arange(n)
    count = max(1, round(n * objective.labelled)) if objective.labelled else 0
    return np.sort(np.random.default_rng(objective.label_seed).permutation(n)[:count])


@torch.no_grad()
def adopt(model: Model, vocabulary: Vocabulary, labels: tuple[str, ...], start: Checkpoint) -> int:
    """Copy the weights of `start` into `model`; returns how many words they share. Rows of other words stay."""
    if start.labels != labels:
        both = f"has the labels {', '.join(start.labels)}, and the corpus {', '.join(labels)}"
        raise UserError(f"the model to begin from {both}", field="from")
    index = start.vocabulary.index
    shared = [(i, index[word]) for i, word in enumerate(vocabulary.words) if word in index]
    to_rows, from_rows = (torch.tensor(places) for places in zip(*shared, strict=True))
    source = start.model.state_dict()
    for name, tensor in model.state_dict().items():
        if name.startswith(COUNTED):
            continue
        weight, by_word = source.get(name), name.endswith(BY_WORD)
        if weight is None or weight.shape[by_word:] != tensor.shape[by_word:] or weight.ndim != tensor.ndim:
            raise UserError(f"the recipe's model is of other sizes than the one to begin from ({name})", field="from")
        if by_word:
            tensor[to_rows.to(tensor.device)] = weight[from_rows.to(weight.device)].to(tensor)
        else:
            tensor.copy_(weight)
    return len(shared)
