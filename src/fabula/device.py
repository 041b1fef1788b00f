"""Where tensors live, and how many threads compute: one rule for the command line, the servers and Python."""

from __future__ import annotations

import os

import torch

from fabula.errors import UserError


def pick_device(name: str) -> torch.device:
    """`cpu`, `cuda`, `mps` (a Mac's GPU) or `auto`: the GPU that CUDA offers, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    try:
        device = torch.device(name)
        is_there = available[device.type]
    except (RuntimeError, KeyError) as error:
        raise UserError(f"unknown device {name!r}; use cpu, cuda, mps or auto", field="device") from error
    if not is_there:
        raise UserError(f"no {device.type.upper()} device is available here; use --device cpu", field="device")
    return device


def use_threads(count: int | None = None) -> None:
    """Compute with so many CPU threads; None: what OMP_NUM_THREADS says, else one.

    One, because stories are small: beside a busy core torch's own choice, a thread per core, waits for the slowest and
    takes 2 to 10 times as long (a fill 14 s against 5, a tiny training 407 s against 33).
    """
    if count is not None and count < 1:
        raise UserError(f"threads must be at least 1, not {count}", field="threads")
    if count is not None or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(count or 1)
