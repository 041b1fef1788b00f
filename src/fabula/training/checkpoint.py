"""What is kept of a run: weights as safetensors, and a config.json that names them by content.

    RUN/config.json           format, recipe, states, tagger, corpus hash, figures, the other files and their digests
    RUN/vocabulary.json
    RUN/weights-<digest>.safetensors ...

New weights are written beside the old under a name of their own; replacing config.json is the one atomic step that
makes them the checkpoint. Nothing is ever pickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from fabula import __version__
from fabula.corpus.folder import write
from fabula.corpus.people import NOBODY, People
from fabula.corpus.states import Factor, StateSpace
from fabula.corpus.taggers.protocol import DEFAULT_TAGGER
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError
from fabula.models.build import build
from fabula.models.protocol import Model
from fabula.training import adapters
from fabula.training.recipe import Recipe, recipe_from
from fabula.training.storage import Storage, pack, shards, unpack

FORMAT = 1
"""Rises when a reader of this version could not read what a later one writes."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A trained model and everything needed to use it on raw text."""

    model: Model
    vocabulary: Vocabulary
    labels: tuple[str, ...]
    """The name of every state."""
    recipe: Recipe
    corpus_hash: str
    tagger: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the tagger that made its labels (`corpus/taggers/protocol.py`)."""
    figures: dict[str, Any] = field(default_factory=dict)
    """What was measured of it, as the card shows it."""
    people: People = NOBODY
    """The names of people that its training stories hold."""
    factors: tuple[Factor, ...] = ()
    """What the states are the product of; none said: one factor that is named after the tagger."""

    @cached_property
    def states(self) -> StateSpace:
        """The state space, whose labels are these."""
        tagger = str(self.tagger.get("tagger", DEFAULT_TAGGER))
        return StateSpace(self.factors) if self.factors else StateSpace.single(tagger, self.labels)


def save(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    weights: dict[str, Tensor] | None = None,
    storage: Storage = "float32",
    shard_bytes: int = 1 << 40,
) -> None:
    """Write a checkpoint; whatever was there before stays whole until this one is."""
    state = dict(weights if weights is not None else checkpoint.model.state_dict())
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: state[name] for name, owner in owners(state).items() if name == owner}
    groups = shards(pack(kept, storage), shard_bytes)
    files = dict(write_tensors(folder, "weights", group) for group in groups)
    words = checkpoint.vocabulary.to_json().encode()
    config = {
        "format": FORMAT,
        "fabula": __version__,
        "recipe": checkpoint.recipe.to_dict(),
        "labels": list(checkpoint.labels),
        "states": checkpoint.states.to_record(),
        "tagger": dict(checkpoint.tagger),
        "corpus_hash": checkpoint.corpus_hash,
        "figures": checkpoint.figures,
        "people": {"he": checkpoint.people.he, "she": checkpoint.people.she},
        "vocabulary": {"sha256": hashlib.sha256(words).hexdigest(), "bytes": len(words)},
        "weights": files,
    }
    write_file(folder / "vocabulary.json", words)
    write_file(folder / "config.json", (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode())
    for stale in folder.glob("weights-*.safetensors"):
        if stale.name not in files:
            stale.unlink()


def load(folder: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Read a checkpoint, in evaluation mode; one that is damaged, altered or of another version says so."""
    folder = Path(folder)
    if adapters.is_narrator(folder):
        return Checkpoint(**adapters.load(folder, str(device)))
    config = read_config(folder)
    state: dict[str, Tensor] = {}
    try:
        recipe = recipe_from(config["recipe"], trained=True)
        words = read_bytes(folder / "vocabulary.json", config.get("vocabulary"))
        vocabulary = Vocabulary.from_json(words.decode("utf-8"))
        labels, tagger = tuple(config["labels"]), dict(config.get("tagger", {}))
        factors = StateSpace.from_record(config["states"]).factors if "states" in config else ()
        corpus_hash, figures = str(config["corpus_hash"]), dict(config.get("figures", {}))
        people = People(**{pronoun: tuple(names) for pronoun, names in config.get("people", {}).items()})
        for name, entry in config["weights"].items():
            state |= unpack(read_tensors(folder / name, entry))
        K = len(labels)
        flat = torch.full((K,), 1 / K), torch.full((K, K), 1 / K)
    except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
        raise UserError(f"the checkpoint {folder} is damaged: {type(error).__name__}: {error}") from error
    model = build(recipe.model, len(vocabulary), *flat)
    for old, new in model.renamed.items():
        state = {new + name[len(old) :] if name.startswith(old) else name: t for name, t in state.items()}
    try:
        aliases = owners(dict(model.state_dict()))
        model.load_state_dict({name: state[owner] for name, owner in aliases.items() if owner in state})
    except RuntimeError as error:
        raise UserError(f"the weights of {folder} do not fit its recipe: {str(error).splitlines()[0]}") from error
    return Checkpoint(
        model=model.to(device).eval(),
        vocabulary=vocabulary,
        labels=labels,
        recipe=recipe,
        tagger=tagger,
        corpus_hash=corpus_hash,
        figures=figures,
        people=people,
        factors=factors,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """A checkpoint's config.json, checked for being one."""
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not a checkpoint: it has no config.json") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    found = config.get("format") if isinstance(config, dict) else None
    if found != FORMAT:
        raise UserError(f"{path} is of format {found}; this Fabula reads format {FORMAT}: train again or update")
    return dict(config)


def write_tensors(folder: Path, stem: str, tensors: dict[str, Tensor]) -> tuple[str, dict[str, Any]]:
    """Tensors into a file named by its content; the name and what config.json should say of it."""
    content = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"{stem}-{digest[:12]}.safetensors"
    write_file(folder / name, content)
    return name, {"sha256": digest, "bytes": len(content)}


def read_bytes(path: Path, entry: dict[str, Any] | None) -> bytes:
    """A file's content, checked against what config.json says of it; checkpoints of early runs say nothing."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if entry is None:
        return content
    if len(content) < entry["bytes"]:
        raise UserError(f"{path} is truncated: {len(content)} bytes where its config says {entry['bytes']}")
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise UserError(f"{path} was altered: its content is not what its config says")
    return content


def read_tensors(path: Path, entry: dict[str, Any]) -> dict[str, Tensor]:
    content = read_bytes(path, entry)
    try:
        tensors: dict[str, Tensor] = load_tensors(content)
    except SafetensorError as error:
        raise UserError(f"{path} is not a safetensors file: {error}") from error
    return tensors


def owners(tensors: dict[str, Tensor]) -> dict[str, str]:
    """For every name, the first name with the same storage: tied tensors are kept once."""
    first: dict[int, str] = {}
    return {name: first.setdefault(tensor.data_ptr(), name) for name, tensor in tensors.items()}


def write_file(path: Path, content: bytes) -> None:
    """All of it or nothing: a temporary file, flushed, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary, content)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(f"the disk is full: {path} was not written; what was saved before is untouched") from error
        raise UserError(f"cannot write {path}: {error.strerror}") from error
