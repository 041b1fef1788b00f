"""Fabula writes and fills in short stories along an emotional arc.

import fabula

narrator = fabula.load()
filling = narrator.fill(["Mia's car would not start.", None, "Mia made it to work."], seed=7)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.api import Narrator, installed, load
    from fabula.asynchronous import AsyncNarrator
    from fabula.completion import Completion, Passage, complete, complete_iter
    from fabula.results import (
        Candidate,
        Criticism,
        Explanation,
        Filling,
        Movement,
        Parts,
        Posterior,
        Reasons,
        Score,
        Sentence,
        Tagging,
        Word,
        many_rows,
    )

__version__ = "0.2.0"

HOMES = {
    "api": ["Narrator", "installed", "load"],
    "asynchronous": ["AsyncNarrator"],
    "completion": ["Completion", "Passage", "complete", "complete_iter"],
    "errors": ["UserError"],
    "results": [
        "Candidate",
        "Criticism",
        "Explanation",
        "Filling",
        "Movement",
        "Parts",
        "Posterior",
        "Reasons",
        "Score",
        "Sentence",
        "Tagging",
        "Word",
        "many_rows",
    ],
}
"""Where the public names live: they are found when asked for, because importing fabula must not wait for torch."""
__all__ = [  # noqa: RUF022 (by their homes)
    "Narrator", "installed", "load", "AsyncNarrator", "Completion", "Passage", "complete", "complete_iter", "UserError",
    "Candidate", "Criticism", "Explanation", "Filling", "Movement", "Parts", "Posterior", "Reasons", "Score",
    "Sentence", "Tagging", "Word", "many_rows", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in HOMES.items():
        if name in names:
            return getattr(import_module(f"fabula.{module}"), name)
    raise AttributeError(f"module 'fabula' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
