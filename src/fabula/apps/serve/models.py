"""The models of a server: found by name, loaded when first used, a few in memory at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fabula.api import StoryModel, describe, find, installed, load
from fabula.apps.web.errors import Answer
from fabula.errors import UserError
from fabula.sampling.context import VOICES
from fabula.servers import PREFIX


class FactorFacts(Answer):
    name: str
    labels: list[str]
    meanings: dict[str, str] | None = Field(None, description="What labels stand for: of verb classes their members.")


class ModelFacts(BaseModel):
    """What `fabula models` says of a model."""

    model_config = ConfigDict(extra="allow")

    name: str
    loaded: bool
    default: bool
    recipe: str | None = None
    kind: str | None = None
    labels: list[str] | None = Field(None, description="Of the mood, the first factor of the state.")
    factors: list[FactorFacts] | None = Field(None, description="Every factor of the state, where there are several.")
    words: int | None = None
    bytes: int | None = None
    figures: dict[str, Any] | None = None
    settings: dict[str, dict[str, Any]] | None = Field(
        None, description="The settings that apply where a request does not say them, by sampler."
    )
    voice: list[str] = Field(description="What it can be asked for of a story's voice: tense, person, length.")
    damaged: str | None = Field(None, description="Why it cannot be used, if so.")


class Models(Answer):
    models: list[ModelFacts]


class ModelCache:
    """Loaded models; the least recently used one is dropped first."""

    def __init__(self, default: str, device: str = "cpu", loaded: int = 2, threads: int | None = None) -> None:
        self.default, self.device, self.loaded, self.threads = default, device, loaded, threads
        self._folder = find(default)
        self._models: OrderedDict[str, StoryModel] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str | None) -> StoryModel:
        """The loaded model of this name. A request may name an installed model, never a path."""
        name = self.default if name is None else name
        if name != self.default and name not in installed():
            names = ", ".join(sorted({self.default, *installed()}))
            raise UserError(f"no model is called {name!r} here; there are {names}", field="model")
        with self._lock:
            if name not in self._models:
                self._models[name] = load(self._folder if name == self.default else name, self.device, self.threads)
                while len(self._models) > self.loaded:
                    self._models.popitem(last=False)
            self._models.move_to_end(name)
            return self._models[name]

    def listed(self) -> list[dict[str, Any]]:
        """What `fabula models` says of every model that a request may name, without its folder."""
        entries = []
        for name, folder in sorted({self.default: self._folder, **installed()}.items()):
            facts = describe(name, folder)
            facts.pop("folder")
            facts["voice"] = [*VOICES] if name.startswith(PREFIX) else []
            entries.append({**facts, "loaded": name in self._models, "default": name == self.default})
        return entries
