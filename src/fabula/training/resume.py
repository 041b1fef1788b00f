"""What a stopped run needs to go on: where it stood and every tensor, in RUN/resume, whole or not at all."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fabula.errors import UserError
from fabula.models.io import write_file
from fabula.models.io.tensors import read_tensors, write_tensors
from fabula.models.settings import parse
from fabula.training.recipe import AdapterRecipe, Recipe


@dataclass
class Progress:
    """Where a run stands."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best: float = math.inf
    best_epoch: int = -1
    scale: float = 1.0
    """What plateaus have multiplied the learning rates by."""
    bad_epochs: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    stories: int = 0


def write_state(
    out: Path, progress: Progress, recipe: Recipe | AdapterRecipe, data_hash: str, tensors: dict[str, Tensor]
) -> None:
    """Replacing state.json is the one atomic step; tensors that it no longer names are removed."""
    folder = out / "resume"
    folder.mkdir(parents=True, exist_ok=True)
    name, entry = write_tensors(folder, "state", tensors)
    content = {"progress": vars(progress), "recipe": recipe.to_dict(), "corpus": data_hash}
    write_file(folder / "state.json", json.dumps({**content, "file": name, "entry": entry}).encode())
    for stale in folder.glob("state-*.safetensors"):
        if stale.name != name:
            stale.unlink()


def read_state(
    out: Path, recipe: Recipe | AdapterRecipe, data_hash: str
) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
    """What `write_state` wrote for the same recipe and data; tensors by the first part of their names."""
    path = out / "resume" / "state.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if parse(type(recipe), content["recipe"], "", ignore_unknown=True) != recipe:
            raise UserError(f"{out} was trained by another recipe; resume with the same one")
        if content["corpus"] != data_hash:
            raise UserError(f"{out} was trained on another corpus; resume with the same one")
        tensors: dict[str, dict[str, Tensor]] = {}
        for name, tensor in read_tensors(path.parent / content["file"], content["entry"]).items():
            group, _, key = name.partition(".")
            tensors.setdefault(group, {})[key] = tensor
        return Progress(**content["progress"]), tensors
    except FileNotFoundError as error:
        raise UserError(f"{out} has nothing to resume: no {path}; train without --resume") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: {error}; train without --resume") from error


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The epochs that a run has logged, one JSON object each; none where it has not begun."""
    path = folder / "log.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from error


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C sets a flag that the loop reads between two steps; a second Ctrl-C stops at once."""
    caught: list[int] = []

    def note(signum: int, frame: Any) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(signum)

    try:
        previous = signal.signal(signal.SIGINT, note)
    except ValueError:  # not the main thread, which alone receives signals
        yield lambda: False
        return
    try:
        yield lambda: bool(caught)
    finally:
        signal.signal(signal.SIGINT, previous)
