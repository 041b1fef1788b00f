"""Implementations by name: those that register themselves in code, and those that installed packages declare.

A package declares one as an entry point, so that it is found without being imported first:

    [project.entry-points."fabula.models"]
    mine = "my_package.my_module:build"
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from fabula.errors import UserError

T = TypeVar("T")


class Registry(Generic[T]):
    """The implementations of one protocol."""

    def __init__(self, group: str, noun: str) -> None:
        self.group, self.noun = group, noun
        self.implementations: dict[str, T] = {}
        self.loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that registers what it decorates; a name is given once."""

        def keep(implementation: T) -> T:
            if self.implementations.setdefault(name, implementation) is not implementation:
                raise ValueError(f"the {self.noun} {name!r} is registered already")
            return implementation

        return keep

    def load_all(self, add: Callable[[Any], object]) -> dict[str, T]:
        """All implementations; `add` is given, once, what each package declares, and a broken one is a warning."""
        entries = () if self.loaded else entry_points(group=self.group)
        self.loaded = True
        for entry in entries:
            try:
                add(entry.load())
            except Exception as error:  # another package's mistake must not take the whole command line down
                warnings.warn(f"the {self.noun} {entry.name} of {entry.value} cannot be loaded: {error}", stacklevel=2)
        return self.implementations

    def names(self) -> tuple[str, ...]:
        """All names, those registered in code first."""
        return tuple(dict.fromkeys([*self.implementations, *(e.name for e in entry_points(group=self.group))]))

    def find(self, name: str, field: str | None = None) -> T:
        """The implementation of this name; an unknown one is the user's error, which names those that exist."""
        if name not in self.implementations:
            for entry in entry_points(group=self.group, name=name):
                self.implementations[name] = entry.load()
        if name not in self.implementations:
            known = ", ".join(self.names())
            raise UserError(f"unknown {self.noun} {name!r}; there are {known}", field=field or self.noun)
        return self.implementations[name]
