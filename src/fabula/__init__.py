"""Fabula writes and fills in short stories along an emotional arc.

import fabula

model = fabula.load()
filling = model.fill(["Mia's car would not start.", None, "Mia made it to work."], seed=7)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.api import StoryModel, installed, load
    from fabula.completion import Completion, Passage, complete, complete_iter
    from fabula.results import *  # noqa: F403
    from fabula.workflow import evaluate, prepare, train

__version__ = "0.2.0"
__all__ = [  # noqa: F405, RUF022 (by module)
    "StoryModel", "installed", "load", "Completion", "Passage",
    "complete", "complete_iter", "prepare", "train", "evaluate", "UserError", "Candidate", "Criticism",
    "Explanation", "FilledRow", "Filling", "Movement", "OtherWords", "Parts",
    "Posterior", "Reasons", "Score", "Sentence", "Tagging", "Word", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A public name is looked up when it is used, because importing fabula must not wait for torch."""
    if name in __all__:
        for module in ("results", "api", "completion", "workflow"):
            home = import_module(f"fabula.{module}")
            if hasattr(home, name):
                return getattr(home, name)
    raise AttributeError(f"module 'fabula' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
