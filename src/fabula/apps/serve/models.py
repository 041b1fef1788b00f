"""The models of a server: found by name, loaded when first used, a few in memory at a time."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from fabula.api import StoryModel, describe, find, installed, load
from fabula.errors import UserError
from fabula.sampling.context import VOICES
from fabula.servers import PREFIX


class ModelCache:
    """Loaded models; the least recently used one is dropped first."""

    def __init__(self, default: str, device: str = "cpu", loaded: int = 2, threads: int | None = None) -> None:
        self.default, self._folder = default, find(default)
        self._lock = threading.Lock()
        self._load = lru_cache(loaded)(lambda name: load(self._folder if name == default else name, device, threads))

    def get(self, name: str | None) -> StoryModel:
        """The loaded model of this name. A request may name an installed model, never a path."""
        name = self.default if name is None else name
        if name != self.default and name not in installed():
            names = ", ".join(sorted({self.default, *installed()}))
            raise UserError(f"no model is called {name!r} here; there are {names}", field="model")
        with self._lock:
            return self._load(name)

    def listed(self) -> list[dict[str, Any]]:
        """What `fabula models` says of every model that a request may name, without its folder."""
        entries = []
        for name, folder in sorted({self.default: self._folder, **installed()}.items()):
            facts = describe(name, folder)
            facts.pop("folder")
            facts["voice"] = [*VOICES] if name.startswith(PREFIX) else []
            entries.append({**facts, "default": name == self.default})
        return entries
