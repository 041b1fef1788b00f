"""The models of a studio: found by name, loaded when first asked for, a few held at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from fabula.api import Narrator, describe, find, installed, load
from fabula.apps.studio.attention import unbroken
from fabula.errors import UserError


class Narrators:
    """Loaded models, the least lately used given up first."""

    def __init__(self, default: str, device: str = "cpu", loaded: int = 2, threads: int | None = None) -> None:
        self.default, self.device, self.most, self.threads = default, device, loaded, threads
        self._folder = find(default)
        self._held: OrderedDict[str, Narrator] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str | None) -> Narrator:
        """The model of this name, loaded. A request may name what is installed, never a path."""
        name = self.default if name is None else name
        if name != self.default and name not in installed():
            known = ", ".join(sorted({self.default, *installed()}))
            raise UserError(f"no model is called {name!r} here; there are {known}", field="model")
        with unbroken(), self._lock:
            if name not in self._held:
                self._held[name] = load(self._folder if name == self.default else name, self.device, self.threads)
                while len(self._held) > self.most:
                    self._held.popitem(last=False)
            self._held.move_to_end(name)
            return self._held[name]

    def listed(self) -> list[dict[str, Any]]:
        """Every model that a request may name, without its folder."""
        found = {self.default: self._folder, **installed()}
        told = []
        for name, folder in sorted(found.items()):
            facts = describe(name, folder)
            facts.pop("folder")
            told.append({**facts, "loaded": name in self._held, "default": name == self.default})
        return told
