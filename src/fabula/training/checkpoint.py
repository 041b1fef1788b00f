"""The name that version 0.2 had for `fabula.models.io`; it goes with version 0.4."""

from fabula.models.io import Checkpoint, load, save

__all__ = ["Checkpoint", "load", "save"]
