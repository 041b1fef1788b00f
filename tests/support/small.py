"""Small random models, built in one way for every test."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from fabula.corpus.dataset import Stories, offsets, tag_dtype, token_dtype
from fabula.corpus.vocabulary import EOS, SPECIALS, Vocabulary
from fabula.models.build import build
from fabula.models.decoders.adapter import Adapter, AdapterConfig, shapes
from fabula.models.decoders.bases import read_base
from fabula.models.io import Checkpoint
from fabula.models.slds import SLDS
from fabula.statespace.dynamics import LinearGaussian
from fabula.training.recipe import Recipe, recipe_from

LABELS = ("negative", "neutral", "positive")
SIZES: dict[str, dict[str, Any]] = {
    "language": {"embedding": 8, "hidden": 12},
    "dynamics": {"latent": 3},
    "recognition": {"hidden": 6},
}
TINY = """
[model.language]
embedding = 8
hidden = 12
[model.dynamics]
latent = 2
[model.recognition]
hidden = 4
[train]
epochs = 1
batch = 16
"""
"""The end of a recipe that is trained in a second; `model.kind = ...` may stand before it."""
M = TypeVar("M", bound=nn.Module)


def stories_of(
    tokens: Sequence[Sequence[Sequence[int]]], tags: Sequence[Sequence[int | None]] | None = None
) -> Stories:
    """Stories in memory: `tokens[story][sentence]` are word ids without `<eos>`, which is added here."""
    lengths = [len(story) for story in tokens]
    sentences = [sentence for story in tokens for sentence in story]
    flat = [number for sentence in sentences for number in (*sentence, EOS)]
    flat_tags = [-1 if tag is None else tag for story in tags or () for tag in story] or [-1] * len(sentences)
    return Stories(
        tokens=np.asarray(flat, dtype=token_dtype(max(flat, default=0) + 1)),
        sentence_offsets=offsets([len(sentence) + 1 for sentence in sentences]),
        story_offsets=offsets(lengths),
        tags=np.asarray(flat_tags, dtype=tag_dtype(max(flat_tags, default=0) + 1)),
        characters=np.zeros(len(sentences), dtype=np.int32),
        ids_source=tuple(map(str, range(len(lengths)))),
    )


def to_toml(content: dict[str, Any], path: str = "") -> str:
    """Nested tables of numbers, strings and booleans as TOML."""
    lines = [f"[{path}]"] if path else []
    lines += [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, dict)]
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    return "\n".join([*lines, *(to_toml(table, f"{path}.{key}".lstrip(".")) for key, table in tables.items())]) + "\n"


def small_recipe(kind: str = "slds", objective: Any = None, train: Any = None, **settings: Any) -> Recipe:
    """A recipe of these sizes; `language={"hidden": 5}` changes one of them."""
    parts = {part: sizes | settings.get(part, {}) for part, sizes in SIZES.items()}
    further = {"objective": objective or {}, "train": train or {}}
    return recipe_from({"name": f"random-{kind}", "model": {"kind": kind, **parts}, **further})


def small_model(
    kind: str = "slds", *, words: int, p_initial: Sequence[float] = (1 / 3,) * 3, p_next: Any = None, seed: int = 0,
    **settings: Any,
) -> Any:  # fmt: skip
    """An untrained model for evaluation; p(S_i | S_{i-1}) is uniform where it is not given."""
    torch.manual_seed(seed)
    K = len(p_initial)
    chain = torch.full((K, K), 1 / K) if p_next is None else torch.as_tensor(p_next)
    return build(small_recipe(kind, **settings).model, words, torch.tensor(p_initial), chain).eval()


def small_checkpoint(
    kind: str = "slds", *, words: Sequence[str], labels: Sequence[str] = LABELS, factors: Any = (), **model: Any
) -> Checkpoint:
    """An untrained model with its words and labels, as `save` and `StoryModel` take it."""
    vocabulary, K = Vocabulary((*SPECIALS, *words)), len(labels)
    settings = {part: model[part] for part in SIZES if part in model}
    return Checkpoint(
        model=small_model(kind, words=len(vocabulary), p_initial=[1 / K] * K, **model), vocabulary=vocabulary,
        labels=tuple(labels), recipe=small_recipe(kind, **settings).to_dict(), corpus_hash="0" * 64,
        figures={"ppl": 12.5}, factors=factors,
    )  # fmt: skip


def random_adapter(
    base: Path, rank: int = 4, *, seed: int = 0, size: float = 0.1, further: int = 0, **config: Any
) -> Adapter:
    """An adapter of normal weights for the base of a file; `config` replaces moods that no tagger reads."""
    read = read_base(base)
    about = {"labels": ("bad", "good"), "tagger": "none", **config}
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: size * torch.randn(*shape, generator=generator)
        for name, shape in shapes(read.sizes, rank, further=further).items()
    }
    return Adapter(AdapterConfig(base_sha256=read.sha256, rank=rank, scale=2.0, **about), tensors)


def perturbed(module: M, scale: float) -> M:
    """The module with normal noise of this scale added to every parameter."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return module


def scaled(module: M, factor: float) -> M:
    """The module with every parameter multiplied: its probabilities are then far from uniform."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(factor)
    return module


def random_dynamics(K: int, D: int, seed: int, scale: float = 0.4) -> LinearGaussian:
    """Dynamics in float64 whose states differ."""
    torch.manual_seed(seed)
    return perturbed(LinearGaussian(K, D).double(), scale)


def prior_of(dynamics: LinearGaussian, S: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of p(Z | S), all sentences in one vector, in float64."""
    D, n = dynamics.D, len(S) * dynamics.D
    A, bias, Sigma = dynamics.A.double(), dynamics.bias.double(), dynamics.Sigma().double()
    mean, covariance = torch.zeros(n).double(), torch.zeros(n, n).double()
    for i, s in enumerate(S):
        here, before = slice(i * D, (i + 1) * D), slice((i - 1) * D, i * D)
        if i:
            mean[here] = A[s] @ mean[before]
            covariance[here, : i * D] = A[s] @ covariance[before, : i * D]
            covariance[: i * D, here] = covariance[here, : i * D].T
            covariance[here, here] = A[s] @ covariance[before, before] @ A[s].T
        mean[here] += bias[s]
        covariance[here, here] += Sigma[s]
    return mean, covariance


def tiny_model(kind: str = "slds", *, log_precision: float = -0.5, bias: Sequence[float] = (0.5, -0.4)) -> Any:
    """One latent, two states, nine words, in float64: small enough to enumerate S and integrate Z on a grid.

    Its Z matters: weights away from zero, states that differ. Evidence is neither weak nor sure (`log_precision`).
    """
    none = {"dropout": 0.0}
    model = small_model(
        kind, words=9, p_initial=[0.7, 0.3], p_next=[[0.8, 0.2], [0.35, 0.65]], seed=3, dynamics={"latent": 1},
        language={"embedding": 3, "hidden": 4, **none}, recognition={"hidden": 3, **none},
    ).double()  # fmt: skip
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("dynamics"):
                parameter.add_(0.25 * torch.randn_like(parameter))
        if isinstance(model, SLDS):
            model.language.output.bias[9:] = -1e4
            model.recognition.phi_log_precision.weight.mul_(0.3)
            model.recognition.phi_log_precision.bias.fill_(log_precision)
            model.dynamics.A.copy_(torch.tensor([0.8, 0.4]).view(2, 1, 1))
            model.dynamics.bias.copy_(torch.tensor(bias).view(2, 1))
            model.dynamics.log_B.copy_(torch.tensor([-0.3, -0.4]).view(2, 1))
    return model


def log_p_S(model: SLDS, path: Sequence[int]) -> Tensor:
    """log p(S = path), written out."""
    first, step = model.scaffold.log_initial.exp(), model.scaffold.log_transition.exp()
    p = first[path[0]] / first.sum()
    for a, b in itertools.pairwise(path):
        p = p * step[a, b] / step[a].sum()
    return p.log()


def log_p_Z(model: SLDS, Z: Tensor, path: Sequence[int]) -> Tensor:
    """log p(Z_1..n | S = path) of Z [..., N], one latent, n the path's length, written out."""
    Sigma, z_prev, total = model.dynamics.Sigma(), torch.zeros_like(Z[..., 0]), torch.zeros_like(Z[..., 0])
    for i, s in enumerate(path):
        mean = model.dynamics.A[s, 0, 0] * z_prev + model.dynamics.bias[s, 0]
        total = total + Normal(mean, Sigma[s, 0, 0].sqrt()).log_prob(Z[..., i])
        z_prev = Z[..., i]
    return total
