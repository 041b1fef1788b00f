"""The settings of samplers that suit a model better than the samplers' own defaults, as its config.json says them:

    "sampling": {"smc": {"samples": 8, "temperature": 0.6, "rank": "critic"}}

A loaded model has them as `sampling_defaults`. Nothing here imports torch, because help pages show them too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.corpus.states import StateSpace

PACKAGED = Path(__file__).parents[1] / "data"
SAMPLING: dict[str, dict[str, Any]] = {
    "smc": {
        "samples": 8, "top_k": 40, "temperature": 0.6, "max_words": 40, "fluency": 12.0, "twist_weight": 0.0,
        "context": 0.0, "arc_weight": 4.0,
    }
}  # fmt: skip
"""What suits a pretrained decoder, where its config.json says nothing else."""


def with_critic(sampling: Mapping[str, Mapping[str, Any]], critic: bool) -> dict[str, dict[str, Any]]:
    """A pretrained decoder's settings: candidates are ranked by the critic only where there is one."""
    settings = {sampler: dict(values) for sampler, values in sampling.items()}
    for values in settings.values():
        if critic:
            values.setdefault("rank", "critic")
        elif values.get("rank") == "critic":
            del values["rank"]
    return settings


def sampling_defaults(name: str) -> dict[str, dict[str, Any]]:
    """Those of an installed model or a checkpoint's folder; none where there is no such model."""
    folder, config = _config(name)
    sampling = config.get("sampling")
    if (folder / "adapter.safetensors").is_file():
        return with_critic(sampling or SAMPLING, (folder / "critic" / "adapter.safetensors").is_file())
    return sampling if isinstance(sampling, dict) else {}


def states_of_model(name: str) -> StateSpace | None:
    """The states of such a model, so that an arc can be checked before it is loaded; None where there is none."""
    from fabula.corpus.states import StateSpace

    _, config = _config(name)
    tagger = config.get("tagger", "vader")
    try:
        if config.get("factors"):
            return StateSpace.from_record(config["factors"])
        return StateSpace.single(tagger if isinstance(tagger, str) else tagger.get("tagger", "vader"), config["labels"])
    except (AttributeError, KeyError, TypeError, UserError):
        return None  # what is damaged is said when the model is loaded


def _config(name: str) -> tuple[Path, dict[str, Any]]:
    """The folder of a model and its config.json; an empty one where there is no such model."""
    models = Path(os.environ.get("FABULA_MODELS") or Path.home() / ".cache" / "fabula" / "models")
    named = (PACKAGED / name, models / name) if Path(name).name == name else ()  # a path is nobody's name
    for folder in (*named, Path(name)):
        with suppress(OSError, ValueError):
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if isinstance(config, dict):
                return folder, config
    return Path(name), {}
