"""Training of Z under the narrator (`models/latent_narrator.py`): several ways, all from the shipped adapter.

    E_q[log p(X | Z, S)] - KL(q(Z | X) || p(Z | S)),   S the tags,   q exact given the potentials of observed sentences

What Z is for differs from way to way: recipes/slds-narrator.toml.
"""

from __future__ import annotations

import math
import random
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fabula.errors import UserError
from fabula.models.decoders.rows import FIRST_MOOD, FREE
from fabula.models.decoders.transformer import Transformer
from fabula.models.dynamics import DiagonalDynamics
from fabula.models.latent_narrator import (
    FixedPotentials,
    LatentNarrator,
    LearnedPotentials,
    Told,
    fit_dynamics,
    tell,
    with_openings,
)
from fabula.models.settings import not_negative, positive, shares
from fabula.training.narrator import POOL
from fabula.training.recipe import parse

SENTENCES = 5
"""Of every story that is trained on."""


@dataclass(frozen=True, kw_only=True)
class LatentRecipe:
    """One way to learn Z under the narrator; all values are ours."""

    name: str
    kind: Literal["slds-narrator"] = "slds-narrator"
    latent: int = 16
    """The size of Z_i."""
    potentials: Literal["none", "learned", "fixed"] = "learned"
    """phi_i: none (the control: Z says nothing and is not used), by a network, or the whitened features themselves."""
    precision: float = 1.0
    """Of fixed potentials."""
    slow: bool = False
    """Z is all but constant over a story: A = I and B = 0.05 after the first sentence, not learned."""
    hidden: float = 0.0
    """Share of the stories that are cut in two in training: the sentences before the cut are hidden from the rest."""
    observed: Literal["parts", "ends"] = "parts"
    """What q hears in training besides whole stories: a random half of the sentences, or the first, last or both."""
    free_nats: float = 5.0
    """Nats of KL(Z) a story below which it costs nothing in training."""
    ending_words: float = 0.0
    """Weight of a head that tells the last sentence's words, rare ones above all, from Z."""
    steps: int = 250
    batch: int = 128
    """Stories of a step."""
    learning_rate: float = 1e-4
    """Of the adapter, which goes on from the narrator's; four times it for b."""
    latent_rate: float = 2e-3
    """Of everything that Z adds."""
    warmup: float = 0.05
    """Share of the steps over which the rates rise; then half a cosine to a twentieth."""
    kl_warmup: float = 0.3
    """Share of the steps over which the KL's weight rises to 1."""
    clip: float = 1.0
    words: int = 40
    """Tokens of a sentence at most, in training."""
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self, "latent", "precision", "steps", "batch", "learning_rate", "latent_rate", "clip", "words")
        not_negative(self, "free_nats", "ending_words", "seed")
        shares(self, "hidden", "warmup", "kl_warmup")


def read_latent_recipe(path: Path, way: str = "") -> LatentRecipe:
    """A way of the recipe: the common settings and those of its table; without a way the common settings alone."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    ways = content.pop("ways", {})
    if way and way not in ways:
        raise UserError(f"{path} has no way {way}; it has {', '.join(ways)}", field="way")
    return parse(LatentRecipe, {"name": way or path.stem} | content | ways.get(way, {}), "")


def batches_of(X: list[Any], recipe: LatentRecipe) -> list[list[int]]:
    """Every story once, those of a batch of like lengths; the same for every way."""
    rng = random.Random(recipe.seed)
    order, pool = rng.sample(range(len(X)), len(X)), POOL * recipe.batch
    batches = []
    for first in range(0, len(order), pool):
        part = sorted(order[first : first + pool], key=lambda n: sum(map(len, X[n])))
        batches += [part[i : i + recipe.batch] for i in range(0, len(part), recipe.batch)]
    return rng.sample(batches, len(batches))


def random_moods(S: list[int], rng: random.Random) -> list[int]:
    """Given in half of the stories, each with a probability of its story's own between a half and 1."""
    share = 0.5 + 0.5 * rng.random() if rng.random() < 0.5 else 0.0
    return [FIRST_MOOD + tag if tag >= 0 and rng.random() < share else FREE for tag in S]


def observed_sentences(rows: int, N: int, recipe: LatentRecipe, rng: random.Random) -> Tensor:
    """Which sentences' potentials q(Z | X) has in this step."""
    masks = []
    for _ in range(rows):
        u = rng.random()
        if recipe.observed == "ends":
            ends = {0: range(N), 1: (0, N - 1), 2: (N - 1,), 3: (0,)}[int(4 * u)]
            masks.append([i in ends for i in range(N)])
        else:
            masks.append([u < 0.5 or rng.random() < 0.5 for _ in range(N)])
    return torch.tensor(masks)


def on(told: Told, device: str) -> Told:
    return Told(*(tensor.to(device, non_blocking=True) for tensor in told))


def build(recipe: LatentRecipe, network: Transformer, stories: dict[str, Any]) -> LatentNarrator:
    """The model as training begins; what a way holds fixed asks for no gradient."""
    torch.manual_seed(recipe.seed)
    features = stories["train_features"]
    width, D = features.shape[-1], recipe.latent
    scaffold = with_openings(torch.tensor(stories["p_initial"]), torch.tensor(stories["p_next"]))
    potentials: LearnedPotentials | FixedPotentials = LearnedPotentials(width, D)
    if recipe.potentials != "learned":
        W = whitening(features.flatten(0, 1), D) if recipe.potentials == "fixed" else torch.zeros(width, D)
        potentials = FixedPotentials(W, recipe.precision if recipe.potentials == "fixed" else 0.0)
    model = LatentNarrator(network, scaffold, potentials, D)
    dynamics, K = model.dynamics, model.K
    assert isinstance(dynamics, DiagonalDynamics)
    with torch.no_grad():
        dynamics.log_B[K:] = 0.0  # the first sentence's Z: of size 1
        if recipe.slow:
            dynamics.A[:], dynamics.bias[:], dynamics.log_B[:K] = torch.eye(D), 0.0, math.log(0.05)
    if recipe.slow:
        dynamics.A.requires_grad_(False)
        dynamics.log_B.requires_grad_(False)
    if recipe.potentials == "fixed":
        fit_dynamics(dynamics, potentials(features).mean, model.states(torch.tensor(stories["train_S"])))
    if recipe.potentials != "learned":
        dynamics.requires_grad_(False)
    if recipe.potentials == "none":
        with torch.no_grad():  # the same for every state, so that q = p to the last nat
            dynamics.A[:], dynamics.bias[:], dynamics.log_B[:] = 0.0, 0.0, 0.0
        model.to_mood.requires_grad_(False)
        model.to_words.requires_grad_(False)
    return model


def whitening(features: Tensor, D: int) -> Tensor:
    """The D first principal components, each scaled to variance 1."""
    values, vectors = torch.linalg.eigh(features.double().T @ features.double() / len(features))
    D_there = min(D, len(values))
    W = vectors[:, -D_there:].flip(1) / values[-D_there:].flip(0).clamp(min=1e-3 * float(values.max())).sqrt()
    return F.pad(W, (0, D - D_there)).float()


class EndingHead(torch.nn.Module):
    """log p of the last sentence's words as a bag, given the mean of Z over the story."""

    idf: Tensor

    def __init__(self, D: int, network: Transformer, X: list[Any]) -> None:
        super().__init__()
        self.map = torch.nn.Linear(D, network.sizes.width)
        found = Counter(word for story in X for sentence in story for word in set(sentence))
        in_sentences = torch.ones(network.sizes.vocabulary)
        in_sentences[list(found)] += torch.tensor(list(found.values()))
        self.register_buffer("idf", 1 - in_sentences.log() / in_sentences.log().max())

    def forward(self, Z: Tensor, told: Told, embedding: Tensor) -> Tensor:
        """The mean over stories of sum_w idf_w (- log p(w | Z)) over the last sentence's words."""
        log_p = F.linear(self.map(Z.mean(1)), embedding).log_softmax(-1)
        r, place = (told.counted & (told.sentence == Z.shape[1] - 1)).nonzero(as_tuple=True)
        words = told.ids[r, place]
        return -(self.idf[words] * log_p[told.story[r], words]).sum() / len(Z)


def train(recipe: LatentRecipe, model: LatentNarrator, stories: dict[str, Any], device: str) -> dict[str, float]:
    """All steps; the last ones' means of nats, KL and the ending's words.

    log q(Z | X) - log p(Z | S) = sum_i log phi_i(Z_i) - log evidence, as in `SLDS.draw_smoothing`.
    """
    X, S, features, N = stories["train_X"], stories["train_S"], stories["train_features"], SENTENCES
    head = EndingHead(recipe.latent, model.network, X).to(device) if recipe.ending_words else None
    groups: dict[float, list[Tensor]] = {}
    for name, p in [*model.named_parameters(), *(head.named_parameters() if head else ())]:
        rate = recipe.latent_rate
        if name.startswith("network."):
            rate = recipe.learning_rate * (4 if name.endswith(".b") else 1)
        if p.requires_grad:
            groups.setdefault(rate, []).append(p)
    everything = [p for group in groups.values() for p in group]
    optimiser = torch.optim.AdamW(
        [{"params": group, "peak": rate} for rate, group in groups.items()], lr=0.0, betas=(0.9, 0.98),
        weight_decay=0.01, fused=device == "cuda",
    )  # fmt: skip
    rng, generator = random.Random(recipe.seed), torch.Generator(device).manual_seed(recipe.seed)
    begun, seen = time.perf_counter(), []
    model.train()
    batches = batches_of(X, recipe)
    for step in range(recipe.steps):
        part = batches[step % len(batches)]
        cuts = [rng.randrange(1, N) if rng.random() < recipe.hidden else 0 for _ in part]
        moods, observed = [random_moods(S[n], rng) for n in part], observed_sentences(len(part), N, recipe, rng)
        told = on(tell([X[n] for n in part], [S[n] for n in part], features[part], moods, cuts), device)
        law, phi = model.posterior(told, observed.to(device))
        noise = torch.randn(len(part), 1, N, recipe.latent, generator=generator, device=device)
        Z = law.sample(noise)[:, 0]
        kl = (phi.log(Z).sum(-1) - law.log_evidence).mean()
        nats = -model.log_p_sentences(told, Z).sum(-1).mean()
        weight = min(1.0, (step + 1) / max(1.0, recipe.kl_warmup * recipe.steps))
        loss = nats + weight * kl.clamp(min=recipe.free_nats)
        extra = head(Z, told, model.network.embedding) if head is not None else torch.zeros_like(kl)
        # In nats per token or so, for the clipping.
        ((loss + recipe.ending_words * extra) / 64).backward()
        done = (step + 1) / recipe.steps
        factor = min(1.0, done / recipe.warmup) * (0.05 + 0.95 * (0.5 + 0.5 * math.cos(math.pi * done)))
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * factor
        torch.nn.utils.clip_grad_norm_(everything, recipe.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seen.append(torch.stack([nats.detach(), kl.detach(), extra.detach()]))
        if step % 25 == 0:
            values = " ".join(f"{v:.2f}" for v in seen[-1].tolist())
            print(f"step {step}: nats, KL, ending {values} [{time.perf_counter() - begun:.0f} s]", flush=True)
    last = torch.stack(seen[-25:]).mean(0).tolist()
    return dict(zip(("train_nats", "train_kl", "train_ending"), [round(v, 4) for v in last], strict=True))
