"""Fabula writes and fills in short stories along an emotional arc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabula.api import load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """`fabula.load`, found when it is asked for: importing fabula must not wait for torch."""
    if name == "load":
        from fabula.api import load

        return load
    raise AttributeError(f"module 'fabula' has no attribute {name!r}")
