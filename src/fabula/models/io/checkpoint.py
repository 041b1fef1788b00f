"""A checkpoint with all of its weights: safetensors, and a config.json that names them by content.

    RUN/config.json           format, recipe, states, tagger, corpus hash, figures, sampling, files and their digests
    RUN/vocabulary.json
    RUN/weights-<digest>.safetensors ...

New weights are written beside the old under a name of their own; replacing config.json is the one atomic step that
makes them the checkpoint. Nothing is ever pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fabula import __version__
from fabula.corpus.people import NOBODY, People
from fabula.corpus.states import Factor, StateSpace
from fabula.corpus.taggers.protocol import DEFAULT_TAGGER
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError
from fabula.models.build import build
from fabula.models.io.tensors import owners, read_bytes, read_tensors, unpack, write_file, write_tensors
from fabula.models.protocol import Model
from fabula.models.settings import ModelSettings, parse

CONFIG = "config.json"
FORMAT = 1
"""Rises when a reader of this version could not read what a later one writes."""
DAMAGED = (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError)
"""What a damaged config.json raises while it is read."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A trained model and everything needed to use it on raw text."""

    model: Model
    vocabulary: Vocabulary
    labels: tuple[str, ...]
    """The name of every state."""
    recipe: Mapping[str, Any]
    """What it was trained by, as plain data: at least `name`, and `kind` under `model`."""
    corpus_hash: str
    tagger: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the tagger that made its labels (`corpus/taggers/protocol.py`)."""
    figures: dict[str, Any] = field(default_factory=dict)
    """What was measured of it, as the card shows it."""
    people: People = NOBODY
    """The names of people that its training stories hold."""
    factors: tuple[Factor, ...] = ()
    """The factors whose product the states are; empty: one factor, named after the tagger."""

    @property
    def name(self) -> str:
        return str(self.recipe["name"])

    @property
    def kind(self) -> str:
        return str(self.recipe["model"]["kind"])

    @cached_property
    def states(self) -> StateSpace:
        """The state space, whose labels are these."""
        tagger = str(self.tagger.get("tagger", DEFAULT_TAGGER))
        return StateSpace(self.factors) if self.factors else StateSpace.single(tagger, self.labels)

    @property
    def posterior(self) -> Literal["filtering", "smoothing", "switching"]:
        """The q(Z | X) that its bound is measured with.

        Training with a sampled S (`paper`) draws S for every sentence (`switching`); otherwise q is as in training.
        """
        objective = self.recipe.get("objective", {})
        posterior: Literal["filtering", "smoothing"] = objective.get("posterior", "filtering")
        return "switching" if objective.get("kind") == "paper" and posterior == "filtering" else posterior


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a model's folder says of it without its weights."""

    name: str
    kind: str
    factors: tuple[Factor, ...]
    figures: Mapping[str, Any]
    words: int | None
    """Size of the vocabulary; None for a model with a tokenizer of its own."""
    sampling: Mapping[str, Mapping[str, Any]]
    """By sampler: the settings that suit this model better than the sampler's defaults."""
    base: str = ""
    """The sha256 of the pretrained base that the model adapts; empty: it has all of its weights."""


def save(folder: Path, checkpoint: Checkpoint, *, weights: dict[str, Tensor] | None = None) -> None:
    """Write a checkpoint; whatever was there before stays whole until this one is."""
    state = dict(weights if weights is not None else checkpoint.model.state_dict())
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: state[name] for name, owner in owners(state).items() if name == owner}
    file, entry = write_tensors(folder, "weights", stored)
    words = checkpoint.vocabulary.to_json().encode()
    config = {
        "format": FORMAT,
        "fabula": __version__,
        "recipe": checkpoint.recipe,
        "labels": list(checkpoint.labels),
        "states": checkpoint.states.to_record(),
        "tagger": dict(checkpoint.tagger),
        "corpus_hash": checkpoint.corpus_hash,
        "figures": checkpoint.figures,
        "people": {"he": checkpoint.people.he, "she": checkpoint.people.she},
        "vocabulary": {"sha256": hashlib.sha256(words).hexdigest(), "bytes": len(words)},
        "weights": {file: entry},
        **({"sampling": checkpoint.model.sampling_defaults} if checkpoint.model.sampling_defaults else {}),
    }
    write_file(folder / "vocabulary.json", words)
    write_config(folder, config)
    for stale in folder.glob("weights-*.safetensors"):
        if stale.name != file:
            stale.unlink()


REMOVED = (("language", "state_bias", False), ("recognition", "tags", "sentence"))
"""Settings that changed a model's weights, with the value under which a checkpoint still opens."""


def load_whole(folder: Path, device: torch.device | str) -> Checkpoint:
    """A checkpoint with all of its weights; one that is damaged, altered or of another version is a `UserError`."""
    config = read_config(folder)
    state: dict[str, Tensor] = {}
    try:
        settings = parse(ModelSettings, config["recipe"]["model"], "model", ignore_unknown=True)
        for part, key, off in REMOVED:
            if config["recipe"]["model"].get(part, {}).get(key, off) != off:
                raise UserError(f"the checkpoint {folder} needs model.{part}.{key}, which Fabula no longer has")
        vocabulary = Vocabulary.from_json(read_bytes(folder / "vocabulary.json", config["vocabulary"]).decode())
        labels = tuple(config["labels"])
        for name, entry in config["weights"].items():
            state |= unpack(read_tensors(folder / name, entry))
        K = len(labels)
        model = build(settings, len(vocabulary), torch.full((K,), 1 / K), torch.full((K, K), 1 / K))
        model.sampling_defaults = dict(config.get("sampling", {}))
        checkpoint = Checkpoint(
            model=model,
            vocabulary=vocabulary,
            labels=labels,
            recipe={**config["recipe"], "name": str(config["recipe"]["name"])},
            tagger=dict(config.get("tagger", {})),
            corpus_hash=str(config["corpus_hash"]),
            figures=dict(config.get("figures", {})),
            people=People(**{pronoun: tuple(names) for pronoun, names in config.get("people", {}).items()}),
            factors=StateSpace.from_record(config["states"]).factors if "states" in config else (),
        )
    except DAMAGED as error:
        raise UserError(f"the checkpoint {folder} is damaged: {type(error).__name__}: {error}") from error
    try:
        aliases = owners(dict(model.state_dict()))
        model.load_state_dict({name: state[owner] for name, owner in aliases.items() if owner in state})
    except RuntimeError as error:
        raise UserError(f"the weights of {folder} do not fit its recipe: {str(error).splitlines()[0]}") from error
    model.to(device).eval()
    return checkpoint


def describe_whole(folder: Path) -> Description:
    config = read_config(folder)
    try:
        words = len(json.loads((folder / "vocabulary.json").read_text(encoding="utf-8")))
        states = config.get("states", [{"name": "", "labels": config["labels"]}])
        return Description(
            name=config["recipe"]["name"],
            kind=config["recipe"]["model"]["kind"],
            factors=StateSpace.from_record(states).factors,
            figures=config.get("figures", {}),
            words=words,
            sampling=dict(config.get("sampling", {})),
        )
    except (OSError, *DAMAGED) as error:
        raise UserError(str(error)) from error


def read_config(folder: Path) -> dict[str, Any]:
    """A checkpoint's config.json, of a format that this version reads."""
    path = Path(folder) / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not a checkpoint: it has no {CONFIG}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    version = config.get("format") if isinstance(config, dict) else None
    if version != FORMAT:
        raise UserError(f"{path} is of format {version}; this Fabula reads format {FORMAT}: train again or update")
    return dict(config)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    write_file(folder / CONFIG, (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode())
