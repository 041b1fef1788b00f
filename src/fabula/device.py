"""Where tensors live, by the name that a command or a call gives."""

from __future__ import annotations

import torch

from fabula.errors import UserError


def pick_device(name: str) -> torch.device:
    """`cpu`, `cuda` or `auto`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("no CUDA device is available here; use --device cpu", field="device")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"unknown device {name!r}; use cpu, cuda or auto", field="device") from error
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"unknown device {name!r}; use cpu, cuda or auto", field="device")
    return device
