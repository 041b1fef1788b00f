"""Fabula writes and fills in short stories along an emotional arc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.api import Narrator, load

__version__ = "0.2.0"
__all__ = ["Narrator", "UserError", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """`fabula.load` and `fabula.Narrator`, found when asked for: importing fabula must not wait for torch."""
    if name in ("Narrator", "load"):
        from fabula import api

        return getattr(api, name)
    raise AttributeError(f"module 'fabula' has no attribute {name!r}")
