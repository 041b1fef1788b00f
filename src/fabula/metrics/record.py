"""What every figure carries: commit, recipe, seed, n, data hash, and whether it is exact, a bound or an estimate."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fabula import __version__

Kind = Literal["exact", "bound", "estimate"]


class Figure(NamedTuple):
    """A mean over stories or sentences with its standard error."""

    value: float
    se: float


def mean_and_error(values: Tensor) -> Figure:
    """The mean and its standard error, over independent items."""
    values = values.double().flatten()
    n = values.numel()
    return Figure(float(values.mean()), float(values.std() / math.sqrt(n)) if n > 1 else float("nan"))


def commit() -> str:
    """The commit this code is of, `+` where it was changed since; the version where there is no repository."""
    here = Path(__file__).parent
    try:
        name = _git(here, "rev-parse", "--short=12", "HEAD")
        changed = _git(here, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return f"v{__version__}"
    return name + ("+" if changed else "")


def _git(here: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()


def rounded(value: float | None, digits: int = 4) -> float | None:
    """For JSON: a number with no noise behind its digits, None for what has no meaning."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def log_mean_exp(values: Tensor, dim: int) -> Tensor:
    return torch.logsumexp(values, dim) - math.log(values.shape[dim])
