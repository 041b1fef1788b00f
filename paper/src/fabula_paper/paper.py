"""The figures that the paper prints, as paper.toml has them."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def paper() -> dict[str, Any]:
    return tomllib.loads((resources.files("fabula_paper") / "paper.toml").read_text(encoding="utf-8"))
