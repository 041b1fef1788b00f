"""Loading and saving of models, all of it: the same record for every kind of model.

load(folder, device) -> Checkpoint      save(folder, checkpoint)      describe(folder) -> Description
"""

from __future__ import annotations

from pathlib import Path

import torch

from fabula.models.decoders.bases import files_of as files_of_base
from fabula.models.decoders.bases import find_base
from fabula.models.io.checkpoint import Checkpoint, Description, describe_whole, load_whole, read_config, save
from fabula.models.io.pretrained import adapts_base, describe_pretrained, load_pretrained
from fabula.models.io.tensors import write_file

__all__ = [
    "Checkpoint", "Description", "adapts_base", "describe", "files_of", "load", "read_config", "save", "write_file",
]  # fmt: skip


def load(folder: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """The model of a folder, in evaluation mode; what is wrong with the folder is a `UserError` of one line."""
    folder = Path(folder)
    return load_pretrained(folder, str(device)) if adapts_base(folder) else load_whole(folder, device)


def describe(folder: Path) -> Description:
    """What a folder says of its model, without reading its weights."""
    folder = Path(folder)
    return describe_pretrained(folder) if adapts_base(folder) else describe_whole(folder)


def files_of(folder: Path) -> list[Path]:
    """Every file that a model is made of, the pretrained base included."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    base = find_base(describe(folder).base) if adapts_base(folder) else None
    return files if base is None else [*files, *files_of_base(base)]
