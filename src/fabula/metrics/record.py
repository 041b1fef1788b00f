"""What every figure carries: commit, recipe, seed, n, data hash, and whether it is exact, a bound or an estimate."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fabula import __version__

Kind = Literal["exact", "bound", "estimate"]


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """The mean and its standard error, over independent items."""
    values = values.double().flatten()
    n = values.numel()
    return float(values.mean()), float(values.std() / math.sqrt(n)) if n > 1 else math.nan


def commit() -> str:
    """The commit of this code, with `+` where it was changed since; the version where there is no repository."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return f"v{__version__}"


def rounded(value: float | None, digits: int = 4) -> float | None:
    """For JSON: rounded, and None for what is missing or not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def log_mean_exp(values: Tensor, dim: int) -> Tensor:
    return torch.logsumexp(values, dim) - math.log(values.shape[dim])
