"""Settings of a studio, and the limits of a story document."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fabula.apps.serve.settings import ServerSettings
from fabula.apps.web.database import default_path

SNAPSHOTS = 100  # steps that a branch keeps to undo, to redo, and of what was taken from the model
TRAY = 60  # candidates that a branch keeps
BRANCHES = 500  # branches of one story, at most


@dataclass(frozen=True, kw_only=True)
class StudioSettings(ServerSettings):
    """One studio."""

    db: Path = field(default_factory=lambda: default_path("studio.db"))
