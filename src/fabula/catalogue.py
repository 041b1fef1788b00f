"""The models that have a name: those that came with Fabula, and those in the user's folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fabula.corpus.states import Factor, StateSpace
from fabula.corpus.taggers.protocol import meanings_of
from fabula.errors import UserError
from fabula.models import io
from fabula.models.decoders.bases import find_base, how_to_install
from fabula.sampling.protocol import able_samplers, sampler_named, shown_settings
from fabula.servers import PREFIX, find_server, server_names

MODELS_VARIABLE = "FABULA_MODELS"
PACKAGED = Path(__file__).parent / "data"


def models_folder() -> Path:
    """Where the user's models lie: FABULA_MODELS, else ~/.cache/fabula/models."""
    return Path(os.environ.get(MODELS_VARIABLE) or Path.home() / ".cache" / "fabula" / "models")


def models_fault() -> str | None:
    """What is wrong with FABULA_MODELS in one phrase; None where it is not set, or names a folder with models."""
    folder = models_folder()
    if not os.environ.get(MODELS_VARIABLE) or any(folder.glob("*/config.json")):
        return None
    what = "holds no model in a folder of its own" if folder.is_dir() else "is no folder"
    return f"{MODELS_VARIABLE} is set to {folder}, which {what}"


def installed() -> dict[str, Path]:
    """Every model that has a name, with its folder (of one on a server, its name); packaged ones come first."""
    folders: dict[str, Path] = {}
    for root in (PACKAGED, models_folder()):
        for config in sorted(root.glob("*/config.json")):
            folders.setdefault(config.parent.name, config.parent)
    return folders | {f"{PREFIX}{name}": Path(f"{PREFIX}{name}") for name in server_names()}


def find(name_or_path: str | Path) -> Path:
    """The folder of a model."""
    folders, name = installed(), str(name_or_path)
    if name in folders:
        return folders[name]
    if name.startswith(PREFIX):
        find_server(name.removeprefix(PREFIX))  # says what is wrong
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    why = f"; {fault}" if (fault := models_fault()) else ""
    if name == "default":
        raise UserError(f"no model is installed: name a checkpoint's folder{why}")
    have = f"; installed: {', '.join(folders)}" if folders else ""
    raise UserError(f"no model and no folder is called {name!r}{have}{why}", field="model")


def stand_in(folder: Path) -> Path | None:
    """The small model, where `folder` is the default model's and its base is not installed; else None."""
    lacks_base = folder == installed().get("default") and io.adapts_base(folder) and find_base() is None
    return installed().get("small") if lacks_base else None


def describe(name: str, folder: Path) -> dict[str, Any]:
    """What `fabula models` says of one model, without loading its weights."""
    try:
        if name.startswith(PREFIX):
            return _describe_server(name)
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        model = io.describe(folder)
        base = "installed" if find_base(model.base) else f"not installed: {how_to_install(model.base)}"
        able = able_samplers(
            has_latent=model.kind not in ("lm", "s2s", "narrator"), reads_ahead=model.kind == "narrator"
        )
        return {
            "name": name,
            "folder": str(folder),
            "recipe": model.name,
            "kind": model.kind,
            **_states(model.factors),
            **({"base": base} if model.base else {"words": model.words}),
            "bytes": size,
            "figures": model.figures,
            "settings": {sampler.name: shown_settings(sampler, model.sampling) for sampler in able},
        }
    except (UserError, OSError, KeyError, TypeError, ValueError) as error:
        return {"name": name, "folder": str(folder), "damaged": str(error)}


def _describe_server(name: str) -> dict[str, Any]:
    """A language model on a server: its states are the default model's. Neither its address nor its key is said."""
    server, host = find_server(name.removeprefix(PREFIX)), io.describe(find("default"))
    facts = {"name": name, "folder": name, "recipe": server.model, "kind": "served", "figures": {}}
    return {**facts, **_states(host.factors), "settings": {"served": shown_settings(sampler_named("served"), {})}}


def _states(factors: Sequence[Factor]) -> dict[str, Any]:
    """The labels of the first factor, the mood; where there are several, all of them by name."""
    labels = {"labels": list(factors[0].labels)}
    if len(factors) == 1:
        return labels
    records = StateSpace(tuple(factors)).to_record()
    meanings = [{"meanings": m} if (m := meanings_of(factor)) else {} for factor in factors]
    return {**labels, "factors": [{**r, **m} for r, m in zip(records, meanings, strict=True)]}
